"""How the API server treats one informer: what it hears, what fails, what is refused."""

import logging
from collections.abc import Callable

from proxy.cache.scope import Scope

log = logging.getLogger(__name__)

STALLED = 70.0
"""Seconds without a sign of the API server after which an informer counts as stalled: the silence
after which a watch is given up (65 s), and time to reconnect."""

FAILING = 10.0
"""Seconds of attempts that fail, after which an informer counts as stalled, whatever it's told
between them: a watch that is refused is as bad as a silent one."""

NEWS = 2
"""Attempts in a row that have failed when the log tells of it."""


class Health:
    """Signs of the API server, and of what is wrong with it; the log tells of changes.

    ``heard`` is the moment of the last sign. ``refusal`` says why probes are refused, empty if they
    aren't.
    """

    def __init__(self, scope: Scope, clock: Callable[[], float]) -> None:
        self.heard = clock()
        self.refusal = ""
        self._scope = scope
        self._clock = clock
        self._suspected = False
        self._failures = 0
        self._failing = 0.0  # since when, if there are any

    @property
    def is_stalled(self) -> bool:
        """Tell whether no news come: the API server is silent, fails, or leaves probes alone."""
        now = self._clock()
        silent = now - self.heard >= STALLED
        failing = self._failures >= NEWS and now - self._failing >= FAILING
        return self._suspected or silent or failing

    def hear(self) -> None:
        """Note a sign of the API server."""
        self.heard = self._clock()
        self._suspected = False

    def work(self) -> None:
        """Note that listing or watching works, so that earlier failures are history."""
        if self._failures >= NEWS:
            log.info("informer %s works again", self._scope)
        self._failures = 0

    def fail(self, error: str) -> None:
        """Note that listing or watching has failed.

        Once is a connection that broke, and no news; of more in a row the log tells once.
        """
        self._failures += 1
        if self._failures == 1:
            self._failing = self._clock()
        if self._failures == NEWS:
            log.warning("informer %s fails, and tries on: %s", self._scope, error)

    def suspect(self, error: str) -> None:
        """Note that the API server doesn't answer, as long as it gives no sign."""
        if not self._suspected:
            log.warning("informer %s: the API server is away: %s", self._scope, error)
        self._suspected = True

    def refuse(self, refusal: str) -> None:
        """Note that the API server refuses the proxy's probes."""
        if not self.refusal:
            log.warning("informer %s: the API server refuses its probes: %s", self._scope, refusal)
        self.refusal = refusal

    def admit(self) -> None:
        """Note that the API server answers a probe."""
        if self.refusal:
            log.info("informer %s: its probes are answered again", self._scope)
        self.refusal = ""
