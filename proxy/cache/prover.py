"""Proves an informer current, for all at once who want to know.

A *probe* learns the API server's version; what the informer has reached since was current then. An
idle resource doesn't reach it, since the version is that of all resources: a *barrier*, a short
watch from the version held, shows by its bookmark that nothing has happened in between.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from math import inf
from typing import Protocol

from proxy.cache.proofs import Proofs
from proxy.cache.signal import Signal
from proxy.cache.view import View
from proxy.forms.form import Bookmark, Change, UnknownLayoutError
from proxy.kube.errors import (
    ApiError,
    Forbidden,
    ServiceUnavailable,
    Timeout,
    Unauthorized,
    pause_wanted,
)

log = logging.getLogger(__name__)

PROBE_TIMEOUT = 3.0
"""Seconds. kube-apiserver answers a consistent list within milliseconds, or gives up after these
(``blockTimeout`` of its watch cache)."""

EVENT_WAIT = 0.15
"""Seconds within which an event that the API server has committed arrives, as a rule."""

BARRIER_PACE = 1.0
"""Seconds between the starts of two barriers unless a bookmark ends the first, and between probes
that are sent ahead of time."""

BARRIER_PROBE = 0.8
"""Seconds into a barrier at which the probe is sent that its bookmark is held against. It makes the
API server ask etcd how far it is, which is what the bookmark then says."""

BARRIER_SOON, BARRIER_DUE = 0.95, 1.3
"""Seconds between which the bookmark of a barrier comes that began with the one before. The API
server sends them in rounds, 1 to 1.25 s apart (``cacher/cacher.go``); the first may take two."""

BARRIER_TIMEOUT = 5.0
"""Seconds after which a barrier is given up; the API server ends it after three."""

RETRY = 2.0
"""Seconds between probes of an API server that doesn't answer, or refuses them."""

REFUSED_RETRY = 30.0
"""Seconds until a probe that the proxy may not send is sent again, though nobody asks for one."""

STUCK = 5.0
"""Seconds in which the informer's own watch has to bring what a barrier has shown."""


class Prober(Protocol):
    """How a prover asks the API server; raises ApiError."""

    async def current_version(self) -> int:
        """Learn the API server's resourceVersion now, from a consistent read."""

    def barrier(self, version: int) -> AsyncGenerator[Sequence[bytes], None]:
        """Watch from *version* for three seconds, with a bookmark after one of them."""


class Provable(Protocol):
    """The informer whose state is to be proven."""

    view: View | None
    proofs: Proofs
    signal: Signal

    @property
    def version(self) -> int:
        """resourceVersion of the state held."""

    @property
    def is_listing(self) -> bool:
        """Tell whether another state is being gathered, to take the place of this one."""

    def learn(self, version: int, moment: float) -> None:
        """Note that the API server had *version* when it was asked at *moment*."""

    def bookmark(self, version: int) -> None:
        """Note that nothing else happened up to *version*."""

    def suspect(self, error: str) -> None:
        """Note that the API server doesn't answer."""

    def doubt(self, refusal: str) -> None:
        """Note that the API server answers, but not to the proxy."""

    def reconnect(self, why: str) -> None:
        """Open another watch in place of the one at hand."""


class Prover:
    """Probes and barriers of one informer, one of each at a time. ``close`` ends them.

    ``is_away``: the API server has left the last probe unanswered; it's asked again until it does.
    ``counts`` has a line for each kind and result.
    """

    def __init__(
        self,
        prober: Prober,
        informer: Provable,
        spawn: Callable[..., asyncio.Task[None]],
        clock: Callable[[], float],
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._prober = prober
        self._informer = informer
        self._spawn = spawn
        self._clock = clock
        self._probe: asyncio.Task[None] | None = None
        self._sent = -inf  # the last probe
        self._answered = -inf  # when an answer to it came
        self._wanted = -inf
        self.is_away = False
        self._quiet_until = -inf  # a probe was refused
        self._barrier: asyncio.Task[None] | None = None
        self._began = -inf  # the last barrier
        self._renewed = -inf  # when a proof was wanted ahead of time
        self._retry: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._check: asyncio.TimerHandle | None = None
        self._idle = 0  # the version of the last change, when a barrier had to prove it current

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing has changed since a barrier was needed: a probe won't do."""
        view = self._informer.view
        return view is not None and view.store.changed == self._idle

    @property
    def is_mute(self) -> bool:
        """Tell whether the API server gives no answers now, so that no proof need be waited for."""
        return self.is_away or self._clock() < self._quiet_until

    def ask(self, moment: float) -> None:
        """See to it that a probe is sent at *moment* or later, which has passed already."""
        if self._sent >= moment or self.is_mute:
            return
        if self._probe is None:
            self._start_probe()
        else:
            self._wanted = max(self._wanted, moment)

    def refresh(self) -> None:
        """Prove again ahead of time; at most one probe and one barrier a second come of it."""
        self._renewed = self._clock()
        if self.is_mute or self._probe is not None or self._barrier is not None:
            return
        if self.is_idle:
            self._start_barrier()
        elif self._clock() - self._sent >= BARRIER_PACE:
            self._start_probe()

    def patience(self, moment: float) -> float:
        """How many seconds a proof that is good for *moment* is worth waiting for."""
        if self.is_mute:
            return 0.0
        if self._probe is not None and max(self._sent, self._wanted) >= moment:
            return PROBE_TIMEOUT
        if self._sent < moment:
            return 0.0
        event = 0.0 if self.is_idle else self._answered + EVENT_WAIT - self._clock()
        return max(self.due, event)

    @property
    def due(self) -> float:
        """Seconds within which a bookmark that is due comes; 0 while none is."""
        began = self._clock() - self._began
        is_due = self._barrier is not None and BARRIER_SOON <= began < BARRIER_DUE
        return BARRIER_DUE - began if is_due else 0.0

    @property
    def sees_nothing(self) -> bool:
        """Tell whether a barrier is up that an event would have reached: none is on its way."""
        return self._barrier is not None and self._clock() - self._began > EVENT_WAIT

    def close(self) -> None:
        """End what is under way."""
        for each in (self._probe, self._barrier, self._retry, self._late, self._check):
            if each is not None:
                each.cancel()

    # --- probes ---

    def _start_probe(self) -> None:
        self._sent = self._clock()
        self._probe = self._spawn(self._send_probe(self._sent), name="probe")

    async def _send_probe(self, sent: float) -> None:
        held = self._informer.version
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                version = await self._prober.current_version()
        except (ServiceUnavailable, Timeout, TimeoutError) as error:
            self._fail(str(error) or f"no answer within {PROBE_TIMEOUT:.0f} s")
        except (ApiError, UnknownLayoutError) as error:  # it's there, and tells nothing
            self.is_away = False
            self.counts["probe", "failed"] += 1
            self._quiet_until = self._clock() + max(RETRY, pause_wanted(error))
            log.debug("probe: %s", error)
            if isinstance(error, Forbidden | Unauthorized):
                self._refused(error)
        else:
            self.is_away = False
            if self._retry is not None:
                self._retry.cancel()
            self._succeed(sent, version, held)
        finally:
            self._probe = None
        if self._wanted > sent and not self.is_mute:
            self._start_probe()
        self._informer.signal.ring()

    def _refused(self, error: ApiError) -> None:
        """Tell of it, and try on: the open watch doesn't show what the proxy may do now."""
        self._informer.doubt(str(error))
        self._retry_in(REFUSED_RETRY)

    def _fail(self, error: str) -> None:
        self.counts["probe", "failed"] += 1
        self.is_away = True
        self._informer.suspect(error)
        self._retry_in(RETRY)

    def _retry_in(self, seconds: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        if self._probe is None:
            self._start_probe()

    def _succeed(self, sent: float, version: int, held: int) -> None:
        """Take over a version; one below what was *held* is of an API server that was set back."""
        self._answered = self._clock()
        if version < held:
            self.counts["probe", "failed"] += 1
            # Before it watches on, a reflector looks at the versions.
            self._informer.reconnect(f"the API server is at {version}, behind {held}")
            return
        self._informer.learn(version, sent)
        proven = self._informer.proofs.proven >= sent
        self.counts["probe", "proven" if proven else "ahead"] += 1
        if not proven:
            self._start_barrier()
        elif self._barrier is None:
            self._idle = 0
        else:  # nothing happens anywhere, so its bookmark won't come
            self._barrier.cancel()

    # --- barriers ---

    def _start_barrier(self) -> None:
        now = self._clock()
        if self._barrier is None and now - self._began >= BARRIER_PACE:
            self._open_barrier(now)

    def _open_barrier(self, now: float) -> None:
        view = self._informer.view
        if view is None:
            return
        self._began = now
        self._barrier = self._spawn(self._watch(view), name="barrier")
        self._barrier.add_done_callback(self._end_barrier)  # one may be cancelled unbegun
        loop = asyncio.get_running_loop()
        self._late = loop.call_later(BARRIER_PROBE, lambda: self.ask(now + BARRIER_PROBE))

    async def _watch(self, view: View) -> None:
        """Watch until the first bookmark or event; either says what came after the start."""
        start = self._informer.version
        result = "needless"
        stream = self._prober.barrier(start)
        try:
            async with asyncio.timeout(BARRIER_TIMEOUT):
                found = await self._first(stream, view)
            result = "failed"
            if isinstance(found, Bookmark) and self._is_followed(view):
                result = "proven"
                self._idle = view.store.changed
                self._informer.bookmark(found.version)
            elif isinstance(found, Change):
                result = "busy"
                self._check = asyncio.get_running_loop().call_later(
                    STUCK, self._check_arrival, view, found.object.version
                )
        except (ApiError, UnknownLayoutError, TimeoutError) as error:
            result = "failed"
            log.debug("barrier at %d: %s", start, error)
        finally:
            self.counts["barrier", result] += 1
            await stream.aclose()
        if result == "proven" and self._renewed > self._began:  # the next round's, if it's in time
            self._open_barrier(self._clock())

    def _end_barrier(self, ended: asyncio.Task[None]) -> None:
        if self._barrier is ended:
            self._barrier = None
        self._informer.signal.ring()

    def _is_followed(self, view: View) -> bool:
        """Tell whether the state goes on; a list that has begun will be older than the barrier."""
        return self._informer.view is view and not self._informer.is_listing

    def _check_arrival(self, view: View, version: int) -> None:
        """Give up the informer's own watch if it hasn't brought what a barrier saw."""
        if self._informer.view is view and self._informer.version < version:
            self._informer.reconnect(f"its watch is stuck at {self._informer.version}")

    async def _first(
        self, stream: AsyncGenerator[Sequence[bytes], None], view: View
    ) -> Bookmark | Change | None:
        async for lines in stream:
            for line in lines:
                event = view.form.decode_event(line)
                return event if isinstance(event, Bookmark | Change) else None
        return None
