"""The same request to kube-apiserver and to the proxy: what comes back must not differ."""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.harness.forms import list_meta
from tests.harness.http import Answer, Body, Headers, Server, Session, ask

# Differ between two answers of kube-apiserver itself, are about the connection, or are ours.
_IGNORED = {
    "age",
    "audit-id",
    "cache-status",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "transfer-encoding",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
}
_DIFF_LINES = 60


class CacheStatus(NamedTuple):
    """The proxy's member of the Cache-Status header (RFC 9211)."""

    hit: bool
    forwarded: str | None
    detail: str | None

    @property
    def source(self) -> str:
        """`hit`, or `fwd=` and the reason."""
        return "hit" if self.hit else f"fwd={self.forwarded}"


class Compared(NamedTuple):
    """Two answers that were found equal."""

    apiserver: Answer
    proxy: Answer

    @property
    def cache_status(self) -> CacheStatus:
        return cache_status(self.proxy)


def compare(
    apiserver: Server | Session,
    proxy: Server | Session,
    method: str,
    target: str,
    *,
    headers: Headers = (),
    body: Body = None,
    exact: bool = False,
    judged: str | None = None,
    source: str | None = None,
    settle: Callable[[bytes], bytes] = bytes,
) -> Compared:
    """Asserts that both answer with the same status, headers and bytes.

    exact: a list is compared with kube-apiserver's answer at the list's own resourceVersion,
    which is for lists whose resourceVersion moves meanwhile.
    judged: what kube-apiserver is asked in the place of target, if the cache has answered that.
    A session in the place of a server spares a connection for each request.
    source: asserts who answered: `hit`, `fwd`, or `fwd=` and the reason.
    settle: takes out of a body what may differ.
    """
    actual = _ask(proxy, method, target, headers, body)
    asked = judged if judged and cache_status(actual).hit else target
    if exact and actual.status == 200:
        asked = exact_target(asked, list_meta(actual)[0])
    expected = _ask(apiserver, method, asked, headers, body)
    if found := differences(expected, actual, settle=settle):
        raise AssertionError("\n".join((f"{method} {target}", *found)))
    if source:
        assert_source(actual, source)
    return Compared(expected, actual)


def compare_in_time(
    apiserver: Server | Session,
    proxy: Server | Session,
    target: str,
    headers: Headers = (),
    *,
    exact: bool = False,
    source: str | None = None,
    adapt: Callable[[Answer], Answer] = lambda answer: answer,
) -> Answer:
    """Asserts that kube-apiserver says the same to a GET before or after, as ages grow meanwhile.

    exact, source: as for `compare`.
    adapt: makes of kube-apiserver's answer what is expected.
    """
    found: list[str] = []
    for _ in range(6):
        actual = _ask(proxy, "GET", target, headers, None)
        is_list = exact and actual.status == 200
        asked = exact_target(target, list_meta(actual)[0]) if is_list else target
        before = _ask(apiserver, "GET", asked, headers, None)
        actual = _ask(proxy, "GET", target, headers, None)
        if source:
            assert_source(actual, source)
        if not (found := differences(adapt(before), actual)):
            return actual
        after = _ask(apiserver, "GET", asked, headers, None)
        if not (found := differences(adapt(after), actual)):
            return actual
        time.sleep(0.1)
    raise AssertionError("\n".join((f"GET {target} with {headers}", *found)))


def _ask(where: Server | Session, method: str, target: str, headers: Headers, body: Body) -> Answer:
    if isinstance(where, Session):
        return where.ask(method, target, headers=headers, body=body)
    return ask(where, method, target, headers=headers, body=body)


def assert_source(answer: Answer, source: str) -> None:
    """Asserts who answered: `hit`, `fwd`, or `fwd=` and the reason."""
    seen = cache_status(answer).source
    wanted = seen.partition("=")[0] if source == "fwd" else seen
    assert source == wanted, f"answered by {seen}, not {source}: {answer.header('Cache-Status')}"


def cache_status(answer: Answer) -> CacheStatus:
    """Who answered, by what the proxy says; the caches behind it come before it (RFC 9211)."""
    header = answer.header("Cache-Status")
    assert header, f"no Cache-Status in {answer.headers}"
    own = _split(header, ",")[-1]
    name, *parameters = _split(own, ";")
    assert name.strip() == "kubecache", header
    pairs = dict(parameter.strip().partition("=")[::2] for parameter in parameters)
    detail = pairs.get("detail")
    return CacheStatus("hit" in pairs, pairs.get("fwd"), detail and detail.strip('"'))


def _split(text: str, separator: str) -> list[str]:
    """Split a structured field, but not within its strings."""
    return re.findall(rf'(?:[^{separator}"]|"(?:[^"\\]|\\.)*")+', text)


def exact_target(target: str, version: str) -> str:
    """The list's URL, at exactly this resourceVersion."""
    path, _, query = target.partition("?")
    kept = [pair for pair in query.split("&") if pair and not pair.startswith("resourceVersion")]
    pairs = [*kept, f"resourceVersion={version}", "resourceVersionMatch=Exact"]
    return f"{path}?{'&'.join(pairs)}"


def relevant_headers(answer: Answer) -> list[tuple[str, str]]:
    """The headers that a client may act on, sorted, with small names."""
    named = ((name.lower(), value) for name, value in answer.headers)
    return sorted(header for header in named if header[0] not in _IGNORED)


def differences(
    expected: Answer, actual: Answer, *, settle: Callable[[bytes], bytes] = bytes
) -> list[str]:
    """What a client may notice, for a person to read; empty when there is nothing."""
    return list(_differences(expected, actual, settle))


def _differences(
    expected: Answer, actual: Answer, settle: Callable[[bytes], bytes]
) -> Iterator[str]:
    if expected.status != actual.status:
        yield f"status: kube-apiserver {expected.status}, proxy {actual.status}"
    texts = [[f"{k}: {v}" for k, v in relevant_headers(each)] for each in (expected, actual)]
    yield from _diff("headers", *texts)
    bodies = settle(expected.content), settle(actual.content)
    if bodies[0] != bodies[1]:
        yield from _diff("body", *(_lines(body) for body in bodies)) or _first_byte(*bodies)


def _diff(what: str, expected: list[str], actual: list[str]) -> list[str]:
    lines = list(
        difflib.unified_diff(
            expected, actual, f"{what} of kube-apiserver", f"{what} of the proxy", lineterm=""
        )
    )
    more = [f"… {len(lines) - _DIFF_LINES} more lines"] if len(lines) > _DIFF_LINES else []
    return [line[:300] for line in lines[:_DIFF_LINES]] + more


def _lines(body: bytes) -> list[str]:
    try:
        return json.dumps(json.loads(body), indent=1).splitlines()
    except ValueError:
        return body.decode(errors="backslashreplace").splitlines()


def _first_byte(expected: bytes, actual: bytes) -> list[str]:
    """For bodies that mean the same in other bytes: order, spaces, escapes."""
    pairs = zip(expected, actual, strict=False)
    shorter = min(len(expected), len(actual))
    at = next((i for i, (one, other) in enumerate(pairs) if one != other), shorter)
    window = slice(max(0, at - 100), at + 100)
    return [
        f"bodies differ in bytes only, from byte {at}:",
        f"kube-apiserver {expected[window]!r}",
        f"proxy          {actual[window]!r}",
    ]
