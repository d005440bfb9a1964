"""The API server is down, stuck, or has lost its memory: what the proxy's clients see."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from proxy.kube.negotiation import FormName
from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached, caught_up, eventually
from tests.harness.differential import assert_source, compare
from tests.harness.faults import FaultProxy
from tests.harness.follower import Follower, items
from tests.harness.forms import CLIENTS, settled
from tests.harness.http import Answer, Server, Session, ask, get, watch
from tests.harness.objects import configmap, create, create_pods, patch
from tests.harness.proxy import CHAINED, Proxy, metrics

CONFIGMAPS = "/api/v1/configmaps"
DEFAULT = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/secrets"
NAMED = {"cache": {"resources": [{"resource": "configmaps"}]}}
SILENCE = "test_silence_is_noticed"
MERGE_PATCH = ("Content-Type", "application/merge-patch+json")


@contextmanager
def an_apiserver() -> Iterator[ApiServer]:
    """A kube-apiserver that may be hurt, with a ConfigMap `a` and some pods."""
    with ApiServer() as server:
        create(server.server, DEFAULT, configmap("a"))
        create_pods(server.server, ["default"], 30)
        yield server


@pytest.fixture(scope="module")
def own() -> Iterator[ApiServer]:
    with an_apiserver() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def silence(request: pytest.FixtureRequest) -> Iterator[Future[None] | None]:
    """One test waits for 80 s, which it does beside those that follow: slow ones come last."""
    if CHAINED or not any(item.name == SILENCE for item in request.session.items):
        yield None
        return
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(notice_silence)


@pytest.fixture
def faults(own: ApiServer) -> Iterator[FaultProxy]:
    with FaultProxy(own.port) as line:
        yield line


@pytest.fixture
def proxy(own: ApiServer, faults: FaultProxy) -> Iterator[Proxy]:
    """A proxy with all ConfigMaps in its cache, behind a line that may fail."""
    with Proxy(own.kubeconfig(port=faults.port), config=NAMED) as running:
        yield running


@contextmanager
def stopped(own: ApiServer) -> Iterator[None]:
    own.stop_apiserver()
    try:
        yield
    finally:
        own.start_apiserver()


@contextmanager
def frozen(own: ApiServer) -> Iterator[None]:
    own.freeze()
    try:
        yield
    finally:
        own.thaw()


def assert_cache_goes_on(server: Server) -> None:
    """All reads of ConfigMaps are answered, at once."""
    for target in (CONFIGMAPS, f"{DEFAULT}/a", f"{DEFAULT}/none", f"{DEFAULT}?resourceVersion=0"):
        answer = ask(server, "GET", target, timeout=2)
        assert_source(answer, "hit")
    with watch(server, f"{DEFAULT}?watch=1") as stream:
        assert stream.event(2)["object"]["metadata"]["name"] == "a"


def assert_age_grows(server: Server) -> None:
    def age() -> int:
        return int(get(server, f"{DEFAULT}/a").header("Age") or "-1")

    before = age()
    eventually(lambda: age() > before + 1, "a growing age")


def assert_caught_up(own: ApiServer, proxy: Proxy) -> None:
    written = patch(own.server, f"{DEFAULT}/a", {"data": {"at": str(time.monotonic_ns())}})
    version = written["metadata"]["resourceVersion"]
    caught_up(proxy.read, CONFIGMAPS, version)
    compare(own.server, proxy.read, "GET", CONFIGMAPS, exact=True, source="hit")


def relists(proxy: Proxy) -> float:
    return metrics(proxy).total("kubecache_informer_relists_total")


def restarts(proxy: Proxy) -> float:
    return metrics(proxy).total("kubecache_informer_restarts_total")


def test_a_stopped_apiserver(own: ApiServer, proxy: Proxy) -> None:
    with watch(proxy.read, f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3Da") as stream:
        assert stream.event()["type"] == "ADDED"
        with stopped(own):
            assert_cache_goes_on(proxy.read)
            assert_age_grows(proxy.read)
            _assert_nothing_else_is_served(proxy.read)
        assert_caught_up(own, proxy)
        assert stream.event()["type"] == "MODIFIED"


def _assert_nothing_else_is_served(server: Server) -> None:
    for method, target in (
        ("POST", DEFAULT),
        ("PUT", f"{DEFAULT}/a"),
        ("PATCH", f"{DEFAULT}/a"),
        ("DELETE", f"{DEFAULT}/a"),
        ("GET", SECRETS),
        ("GET", f"{SECRETS}?watch=1"),
        ("GET", f"/live{CONFIGMAPS}"),
        ("GET", f"{DEFAULT}/a/unknown"),
        ("GET", "/api/v1/nodes"),
    ):
        body = configmap("a") if method in {"POST", "PUT", "PATCH"} else None
        headers = (MERGE_PATCH,) if method == "PATCH" else ()
        answer = ask(server, method, target, headers=headers, body=body, timeout=2)
        _assert_unavailable(answer, 503)


def _assert_unavailable(answer: Answer, code: int) -> None:
    assert answer.status == code, answer
    status = answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    assert answer.header("Content-Type") == "application/json"
    assert answer.header("Cache-Status")
    assert answer.header("Age") is None
    if code == 503:
        assert answer.header("Retry-After") == str(status["details"]["retryAfterSeconds"])


def test_an_apiserver_that_is_not_there_yet(own: ApiServer, faults: FaultProxy) -> None:
    """Nobody has asked for anything, so no informer could tell."""
    faults.refuse()
    with Proxy(own.kubeconfig(port=faults.port), chain=False) as proxy:

        def unreached() -> str:
            return str(get(proxy.admin, "/status.json").ok().json()["unreached"])

        told = eventually(unreached, "the status tells", timeout=5)
        assert told == "the API server can't be reached: Connection refused"
        assert proxy.log().count(told) == 1
        faults.resume()
        eventually(lambda: not unreached(), "the status tells of the contact")
        assert proxy.log().count("answers now") == 1


def test_connects_that_are_reset_harm_nobody_else(own: ApiServer, proxy: Proxy) -> None:
    """The line takes them and then breaks, as a load balancer's without a server behind it does."""
    with (
        stopped(own),
        watch(proxy.read, f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name%3Da") as stream,
        Session(proxy.read) as session,
    ):
        assert stream.event()["type"] == "ADDED"
        for _ in range(400):
            _assert_unavailable(ask(proxy.read, "GET", SECRETS), 503)
            assert session.ask("GET", f"{DEFAULT}/a").status == 200
        stream.quiet(0.1)


def test_a_line_that_is_cut_needs_no_relist(
    own: ApiServer, faults: FaultProxy, proxy: Proxy
) -> None:
    before = restarts(proxy)
    faults.refuse()
    faults.cut()
    assert_cache_goes_on(proxy.read)
    assert_age_grows(proxy.read)
    faults.resume()
    assert_caught_up(own, proxy)
    assert restarts(proxy) == before + 1
    assert relists(proxy) == 1  # the first


def test_a_frozen_apiserver_holds_up_nobody_else(own: ApiServer, proxy: Proxy) -> None:
    with ThreadPoolExecutor() as pool:
        with frozen(own):
            waiting = [pool.submit(get, proxy.read, SECRETS) for _ in range(3)]
            waiting.append(pool.submit(ask, proxy.read, "POST", DEFAULT, body=configmap("late")))
            for _ in range(20):
                assert_cache_goes_on(proxy.read)
            assert_age_grows(proxy.read)
            assert not any(each.done() for each in waiting)
        assert [each.result(30).status for each in waiting] == [200, 200, 200, 201]
    assert_caught_up(own, proxy)
    assert relists(proxy) == 1


def test_who_needs_a_frozen_apiserver_is_told_soon(own: ApiServer, proxy: Proxy) -> None:
    """Once it's known to be silent: a bound asks for more than is held."""
    bounded = ("Cache-Control", "max-age=0")
    with frozen(own):
        proxy.wait("readyz", status=200)
        get(proxy.read, f"{DEFAULT}/a", headers=(bounded,))
        proxy.wait("readyz", status=500)
        started = time.monotonic()
        answer = get(proxy.read, f"{DEFAULT}/a", headers=(bounded,))
        assert (answer.status, answer.header("Retry-After")) == (503, "1")
        assert time.monotonic() - started < 5
    assert_caught_up(own, proxy)


def silence_line(line: FaultProxy) -> None:
    line.freeze()


def cut_line(line: FaultProxy) -> None:
    line.refuse()
    line.cut()


@pytest.mark.parametrize("fault", [cut_line, silence_line])
def test_each_form_tells_the_truth_of_its_line(
    own: ApiServer, faults: FaultProxy, fault: Callable[[FaultProxy], None]
) -> None:
    """Cached reads go on and age, bounds are kept, and then all goes on without a relist."""
    config = {"cache": {"resources": [{"resource": "configmaps", "forms": [*map(str, FormName)]}]}}
    with (
        Proxy(own.kubeconfig(port=faults.port), config=config, chain=False) as proxy,
        ExitStack() as stack,
        ThreadPoolExecutor() as pool,
    ):
        followers = [stack.enter_context(Follower(proxy.read, DEFAULT, form=f)) for f in FormName]
        before = restarts(proxy)
        fault(faults)
        list(pool.map(partial(_assert_honest, proxy.read), FormName))
        create(own.server, DEFAULT, configmap(f"missed-{fault.__name__.replace('_', '-')}"))
        faults.resume()
        version = patch(own.server, f"{DEFAULT}/a", {"data": {"at": str(time.monotonic_ns())}})
        for follower in followers:
            _assert_goes_on(own, proxy, follower, version["metadata"]["resourceVersion"])
        assert restarts(proxy) - before == (len(FormName) if fault is cut_line else 0)
        assert relists(proxy) == len(FormName)


def _assert_honest(server: Server, form: FormName) -> None:
    asked = CLIENTS[form]
    targets = [(DEFAULT, asked.headers(listing=True)), (f"{DEFAULT}/a", asked.headers())]

    def ages(*wishes: tuple[str, str]) -> list[int]:
        answers = [get(server, target, headers=(*accept, *wishes)) for target, accept in targets]
        for answer in answers:
            assert_source(answer.ok(), "hit")
        return [int(answer.header("Age") or "-1") for answer in answers]

    bounded = ("Cache-Control", "max-age=0, only-if-cached")
    before = ages()
    eventually(lambda: min(ages()) > max(before) + 1, f"a growing age of {form}")
    for target, accept in targets:
        answer = get(server, target, headers=(*accept, bounded))
        assert answer.status == 504, (form, answer)
    assert min(ages(("Cache-Control", "max-age=0, max-stale"))) > max(before)
    assert get(server, f"{DEFAULT}/none", headers=asked.headers()).status == 404


def _assert_goes_on(own: ApiServer, proxy: Proxy, follower: Follower, version: str) -> None:
    follower.wait(int(version))
    headers = CLIENTS[follower.form].headers(listing=True)
    caught_up(proxy.read, DEFAULT, version, headers=headers)
    compare(
        own.server,
        proxy.read,
        "GET",
        DEFAULT,
        headers=headers,
        exact=True,
        source="hit",
        settle=settled,
    )
    assert follower.state == items(own.server, DEFAULT, follower.form)
    assert follower.relists == 0


def test_a_frozen_apiserver_leaves_no_watch_hanging(own: ApiServer, proxy: Proxy) -> None:
    """One that it would have to catch up is refused where the proxy stops."""
    target = f"{CONFIGMAPS}?watch=1&resourceVersion=1"
    get(proxy.read, "/live/api/v1/pods").ok()  # leaves a connection, which has no time to connect
    with ThreadPoolExecutor() as pool:
        with frozen(own):
            waiting = pool.submit(ask, proxy.read, "GET", target, timeout=30)
            with pytest.raises(TimeoutError):
                waiting.result(1)
            proxy.stop()
        _assert_unavailable(waiting.result(1), 503)


def notice_silence() -> None:
    """A connect is given up after 10 s, or 3 once the silence is known; a read after 65 s.

    After 70 s an informer has stalled.
    """
    with (
        an_apiserver() as own,
        Proxy(own.kubeconfig(), config=NAMED) as proxy,
        ThreadPoolExecutor() as pool,
    ):
        list(pool.map(lambda _: get(proxy.read, "/live/api/v1/pods").ok(), range(4)))  # connect
        with frozen(own):
            started = time.monotonic()
            requests = [("GET", SECRETS), ("DELETE", f"{DEFAULT}/none")] * 4
            waiting = [pool.submit(_timed, proxy.read, *each) for each in requests]
            assert_cache_goes_on(proxy.read)
            _assert_given_up([each.result(100) for each in waiting])
            assert_cache_goes_on(proxy.read)
            proxy.wait("readyz", status=500, timeout=60)
            assert time.monotonic() - started < 80
        proxy.wait("readyz", timeout=60)
        assert_caught_up(own, proxy)
        assert relists(proxy) == 1


def _assert_given_up(results: list[tuple[str, float, Answer]]) -> None:
    assert {seconds > 20 for _, seconds, _ in results} == {True, False}
    for method, seconds, answer in results:
        _assert_unavailable(answer, 504 if method == "DELETE" and seconds > 20 else 503)
        assert 2 < seconds < 20 or 60 < seconds < 80


def _timed(server: Server, method: str, target: str) -> tuple[str, float, Answer]:
    started = time.monotonic()
    answer = ask(server, method, target, timeout=100)
    return method, time.monotonic() - started, answer


def test_a_crash_breaks_off_what_is_streamed(own: ApiServer, proxy: Proxy) -> None:
    """So that a client does not take it for the end."""
    with watch(
        proxy.read,
        f"/live{CONFIGMAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
    ) as stream:
        own.kill()
        with pytest.raises((http.client.HTTPException, OSError)):
            stream.line()
    own.start_apiserver()
    assert_caught_up(own, proxy)


def test_an_answer_that_is_cut_breaks_off(own: ApiServer, faults: FaultProxy, proxy: Proxy) -> None:
    faults.throttle(200_000)
    with watch(proxy.read, "/live/api/v1/pods") as stream:
        assert stream.status == 200
        faults.cut()
        with pytest.raises((http.client.HTTPException, OSError)):
            list(iter(stream.line, b""))
    faults.resume()
    assert_caught_up(own, proxy)


def test_an_apiserver_restored_from_a_backup(own: ApiServer) -> None:
    """Versions that clients hold mean nothing any more: watches end, and reads are right again."""
    own.backup()
    with Proxy(own.kubeconfig()) as proxy:
        cached(proxy.read, CONFIGMAPS)
        for number in range(150):
            last = create(own.server, DEFAULT, configmap(f"lost-{number}"))
        version = int(last["metadata"]["resourceVersion"])
        caught_up(proxy.read, CONFIGMAPS, version)
        with watch(proxy.read, f"{DEFAULT}?watch=1&resourceVersion={version}") as stream:
            own.restore()
            assert own.revision() < version
            event = stream.event(60)
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert event["object"]["reason"] == "Expired"
            assert stream.line() == b""
        eventually(lambda: get(proxy.read, f"{DEFAULT}/lost-0").status == 404, "the past is gone")
        cached(proxy.read, CONFIGMAPS)
        assert_caught_up(own, proxy)
        seen = metrics(proxy.nearest)
        assert seen.total("kubecache_informer_relists_total", reason="rewound") == 1


def lose(own: ApiServer, proxy: Proxy, name: str) -> None:
    """Writes a ConfigMap that the backup doesn't know, often, and lets the cache see it."""
    if get(own.server, f"{DEFAULT}/{name}").status == 404:
        create(own.server, DEFAULT, configmap(name))
    for number in range(40):
        lost = patch(own.server, f"{DEFAULT}/{name}", {"data": {"k": f"lost-{number}"}})
    caught_up(proxy.read, CONFIGMAPS, lost["metadata"]["resourceVersion"])


def overtake(own: ApiServer, version: int) -> None:
    """Writes until the API server's versions are beyond one that it has had before."""
    with Session(own.server) as session:
        while own.revision() <= version:
            name = {"metadata": {"generateName": "overtaking-"}}
            session.ask("POST", "/api/v1/namespaces/default/serviceaccounts", body=name).ok()


@pytest.mark.parametrize("name", ["a", "new"])
def test_a_restored_apiserver_whose_versions_have_overtaken_the_cache(
    own: ApiServer, faults: FaultProxy, proxy: Proxy, name: str
) -> None:
    """The watch could go on where it was, and what was lost would never be missed."""
    cached(proxy.read, CONFIGMAPS)
    own.backup()
    eventually(lambda: get(proxy.read, f"{DEFAULT}/a").status == 200, "back again")
    lose(own, proxy, name)
    version = own.revision()
    faults.refuse()
    faults.cut()
    own.restore()
    overtake(own, version)
    faults.resume()

    def is_right() -> bool:
        direct, seen = get(own.server, f"{DEFAULT}/{name}"), get(proxy.read, f"{DEFAULT}/{name}")
        return (direct.status, direct.content) == (seen.status, seen.content)

    eventually(is_right, "what was lost is gone")
    cached(proxy.read, CONFIGMAPS)
    assert is_right()
    assert_caught_up(own, proxy)


def test_writes_to_a_restored_apiserver_are_seen(own: ApiServer) -> None:
    """Also before the watch has shown that it's another history, and when it no longer would."""
    own.backup()
    with Proxy(own.kubeconfig(), config=NAMED) as proxy:
        cached(proxy.read, CONFIGMAPS)
        lose(own, proxy, "a")
        version = own.revision()
        own.restore()

        def write() -> bool:
            mine, header = {"data": {"k": "mine"}}, [MERGE_PATCH]
            return ask(proxy.read, "PATCH", f"{DEFAULT}/a", headers=header, body=mine).status == 200

        eventually(write, "a write that goes through")
        assert get(proxy.read, f"{DEFAULT}/a").json()["data"]["k"] == "mine"
        overtake(own, version)
        cached(proxy.read, CONFIGMAPS)
        for wishes in ((), (("Cache-Control", "max-age=0"),)):
            seen = get(proxy.read, f"{DEFAULT}/a", headers=wishes)
            assert seen.json()["data"]["k"] == "mine"
        assert_caught_up(own, proxy)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.unchained("the one behind takes the silence for quiet, and is never silent itself")
def test_silence_is_noticed(silence: Future[None]) -> None:
    silence.result(200)
