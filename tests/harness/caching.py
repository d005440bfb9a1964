"""Bringing resources into a proxy's cache, and waiting for what takes a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.harness.differential import cache_status
from tests.harness.forms import list_meta
from tests.harness.http import Answer, Headers, Server, get, watch

_T = TypeVar("_T")


def eventually(check: Callable[[], _T | None], what: str, *, timeout: float = 20) -> _T:
    """The first truthy value of `check`, which is asked again and again until `timeout`."""
    deadline = time.monotonic() + timeout
    while not (value := check()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)
    return value


def cached(server: Server, collection: str) -> Answer:
    """Earns an informer for a collection by a watch; returns its first list from the cache."""
    with watch(server, f"{collection}?watch=1&timeoutSeconds=1"):
        pass
    return eventually(lambda: hit(server, collection), f"{collection} is cached")


def hit(server: Server, target: str, *, headers: Headers = ()) -> Answer | None:
    """The answer, when it comes from the cache."""
    answer = get(server, target, headers=headers)
    return answer if cache_status(answer).hit else None


def caught_up(
    server: Server, collection: str, version: int | str, *, headers: Headers = ()
) -> Answer:
    """Waits until a list from the cache is of `version` or newer; returns it."""

    def check() -> Answer | None:
        answer = hit(server, collection, headers=headers)
        return answer if answer and int(list_meta(answer)[0]) >= int(version) else None

    return eventually(check, f"{collection} is cached at {version}")
