"""A client that follows a collection as client-go's reflector does, and keeps what it was told."""

from __future__ import annotations

import http.client
import threading
import time
from typing import Self

from proxy.kube.negotiation import FormName
from tests.harness.caching import eventually
from tests.harness.forms import CLIENTS, Found, read_event, read_list, settled
from tests.harness.http import Answer, Server, Watch, get, watch

Objects = dict[str, object]
"""What is shown of each object, by key."""


class Follower:
    """Lists, watches on from there, and watches again from its last version when a watch ends.

    It lists anew only when told that its version has expired, and then counts it in `relists`.
    """

    def __init__(
        self,
        server: Server,
        target: str,
        *,
        form: FormName = FormName.JSON,
        seconds: int | None = None,
    ) -> None:
        """target: a collection, perhaps with selectors; seconds: how long each watch may last."""
        self.target = target
        self.form = form
        self.lines: list[bytes] = []  # the events since its last list, settled
        self.began = ""  # the version of its last list
        self.relists = 0
        self.state: Objects = {}
        self._server = server
        self._version = ""
        self._seconds = seconds
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"follow {target}", daemon=True)

    def __repr__(self) -> str:
        return f"<Follower {self._server.port} {self.target} {self.form} at {self._version}>"

    def __enter__(self) -> Self:
        self._list()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        if self._error:
            raise AssertionError(f"{self!r} failed") from self._error

    @property
    def version(self) -> int:
        """That of the last event or list."""
        return int(self._version)

    def wait(self, version: int) -> None:
        """Waits until it has been told of `version`, which must match its selectors."""
        eventually(
            lambda: self._error or self.version >= version, f"{self!r} is at {version}", timeout=60
        )
        assert not self._error, self._error

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)  # cut, or nobody there: try again
            except BaseException as error:
                self._error = error
                return

    def _list(self) -> None:
        listed = read_list(patient_list(self._server, self.target, self.form))
        self._version = self.began = str(listed.version)
        self.state = {found.key: found.content for found in listed.objects}
        self.lines = []

    def _watch(self) -> None:
        query = f"resourceVersion={self._version}&allowWatchBookmarks=true"
        if self._seconds:
            query += f"&timeoutSeconds={self._seconds}"
        target, headers = watch_target(self.target, query), CLIENTS[self.form].headers()
        with watch(self._server, target, headers=headers) as stream:
            assert stream.status in {200, 429, 503}, stream.status  # else: as one does, again
            while stream.status == 200 and not self._stopping.is_set() and self._next(stream):
                pass

    def _next(self, stream: Watch) -> bool:
        """Takes the next line; whether there may be more."""
        try:
            line = stream.line(0.1)
        except TimeoutError:
            return True
        return bool(line) and self._take(line)

    def _take(self, line: bytes) -> bool:
        kind, found, code = read_event(line)
        if found is None:
            assert code == 410, line
            self.relists += 1
            self._list()
            return False
        if kind == "BOOKMARK":
            assert found.version >= self.version, f"a bookmark goes back from {self._version}"
        else:
            assert found.version > self.version, f"{line[:500]!r} after {self._version}"
            self.lines.append(settled(line))
            self._fold(kind, found)
        self._version = str(found.version)
        return True

    def _fold(self, kind: str, found: Found) -> None:
        key = found.key
        known = key in self.state
        assert known == (kind != "ADDED"), f"{kind} of {key}, which is {'' if known else 'un'}known"
        if kind == "DELETED":
            del self.state[key]
        else:
            self.state[key] = found.content


def watch_target(target: str, query: str) -> str:
    """The URL of a watch of a collection that may have a query already."""
    return f"{target}{'&' if '?' in target else '?'}watch=1&{query}"


def patient_list(server: Server, target: str, form: FormName = FormName.JSON) -> Answer:
    """A list; the API server answers with 429 while it sets its storage up anew."""

    def ready() -> Answer | None:
        answer = get(server, target, headers=CLIENTS[form].headers(listing=True))
        return None if answer.status == 429 else answer.ok()

    return eventually(ready, f"{target} is listed")


def items(server: Server, target: str, form: FormName = FormName.JSON) -> Objects:
    """A list as a follower's state."""
    listed = read_list(patient_list(server, target, form))
    return {found.key: found.content for found in listed.objects}
