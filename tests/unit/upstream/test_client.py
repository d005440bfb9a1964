"""The door to the API server, against a server that sees the bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from proxy.kube.errors import ApiError, Expired, RequestTimeout, ServiceUnavailable, Timeout
from proxy.upstream.client import BATCH, CONNECT_TIMEOUT, FORGET, SILENCE, Client, Silence
from proxy.upstream.documents import Documents
from tests.unit.builders import Clock
from tests.unit.upstream.servers import OK, answering, client_of, credentials, serving

Write = Callable[..., str]


def test_what_is_sent(kubeconfig: Write) -> None:
    async def run() -> None:
        async with (
            serving(answering(OK)) as server,
            client_of(kubeconfig(server.url, token="t")) as client,
        ):
            target = "/api/v1/x%2Fy//z?labelSelector=a%20in%20(b)&x"
            async with client.open("GET", target, [(b"x-own", b"1"), (b"x-own", b"2")]) as response:
                assert await response.body() == b"{}"
            assert server.first_lines == [f"GET {target} HTTP/1.1"]
            assert server.heads[0].count("x-own") == 2
            assert server.headers()["authorization"] == "Bearer t"
            assert not {"user-agent", "accept", "accept-encoding"} & server.headers().keys()

    asyncio.run(run())


def test_a_clients_own_credentials_go_alone(kubeconfig: Write) -> None:
    own = [(b"authorization", b"Bearer mine")]

    async def run() -> str:
        async with (
            serving(answering(OK)) as server,
            client_of(kubeconfig(server.url, token="t")) as client,
            client.open("GET", "/", own),
        ):
            return server.headers()["authorization"]

    assert asyncio.run(run()) == "Bearer mine"


def test_answers_come_as_they_are(kubeconfig: Write) -> None:
    compressed = b"\x1f\x8b not really gzip"
    answer = (
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nWarning: 299 - a\r\nWarning: 299 - b\r\n"
        b"Content-Encoding: gzip\r\nSet-Cookie: a=b\r\nContent-Length: %d\r\n\r\n%s"
    ) % (len(compressed), compressed)

    async def run() -> None:
        async with (
            serving(answering(answer)) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            async with client.open("GET", "/") as response:
                assert response.status == 302
                assert await response.body() == compressed
                assert [v for n, v in response.headers if n == b"Warning"] == [
                    b"299 - a",
                    b"299 - b",
                ]
            async with client.open("GET", "/"):
                assert "cookie" not in server.headers()
            assert len(server.heads) == 2

    asyncio.run(run())


@pytest.mark.parametrize("has_body", [True, False])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_on_a_connection_that_breaks_is_sent_once(
    kubeconfig: Write, method: str, *, has_body: bool
) -> None:
    """Also on a pooled connection, where aiohttp would try again."""

    async def run() -> tuple[ApiError, int]:
        answers = 0

        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal answers
            answers += 1
            if answers > 1:
                writer.transport.abort()
            else:
                writer.write(OK)

        async def body() -> AsyncIterator[bytes]:
            yield b"{}"

        async with serving(once) as server, client_of(kubeconfig(server.url)) as client:
            await client.get("/")
            length = [(b"content-length", b"2" if has_body else b"0")]
            with pytest.raises(Timeout) as raised:
                async with client.open(method, "/", length, body() if has_body else None):
                    pass
            return raised.value, len(server.heads)

    error, requests = asyncio.run(run())
    assert requests == 2
    assert (error.code, error.retry_after) == (504, None)
    assert "may or may not have taken effect" in error.message


def test_a_body_that_fails_says_why(kubeconfig: Write) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(0.01)
        raise RequestTimeout("late")

    async def waits(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def run() -> None:
        length = [(b"content-length", b"2")]
        async with (
            serving(waits) as server,
            client_of(kubeconfig(server.url)) as client,
            client.open("PUT", "/", length, body()),
        ):
            pass

    with pytest.raises(RequestTimeout, match="late"):
        asyncio.run(run())


def test_nobody_listens(kubeconfig: Write) -> None:
    async def run() -> ApiError:
        async with serving(answering(OK)) as server:
            url = server.url
        async with client_of(kubeconfig(url)) as client:
            with pytest.raises(ServiceUnavailable) as raised:
                async with client.open("POST", "/", body=None):
                    pass
            return raised.value

    error = asyncio.run(run())
    assert (error.code, error.retry_after) == (503, 1)


def test_a_silent_server_is_given_up(kubeconfig: Write) -> None:
    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)

    async def run(method: str) -> int:
        async with serving(silent) as server, client_of(kubeconfig(server.url)) as client:
            with pytest.raises(ApiError) as raised:
                async with client.open(method, "/", read_timeout=0.05):
                    pass
            return raised.value.code

    assert asyncio.run(run("GET")) == 503
    assert asyncio.run(run("DELETE")) == 504


def test_a_body_that_breaks_off(kubeconfig: Write) -> None:
    async def half(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async def run() -> None:
        async with serving(half) as server, client_of(kubeconfig(server.url)) as client:
            await client.get("/")

    with pytest.raises(ServiceUnavailable):
        asyncio.run(run())


def _chunked(*parts: bytes, end: bool = True) -> bytes:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + (b"0\r\n\r\n" if end else b"")


def test_lines_of_any_length_and_in_small_batches(kubeconfig: Write) -> None:
    long = b"x" * 3_000_000
    many = b"".join(b"%d\n" % number for number in range(2 * BATCH))

    async def run() -> list[list[bytes]]:
        answer = _chunked(long[:5], long[5:] + b"\n", many)
        async with (
            serving(answering(answer)) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            return [list(lines) async for lines in client.frames("/")]

    batches = asyncio.run(run())
    assert batches[0] == []
    lines = [line for batch in batches for line in batch]
    assert lines == [long, *(b"%d" % number for number in range(2 * BATCH))]
    assert max(map(len, batches)) <= BATCH


def test_a_watch_that_ends_in_the_middle_of_a_line(kubeconfig: Write) -> None:
    async def run() -> None:
        answer = _chunked(b'{"a":1}\n{"b"')
        async with (
            serving(answering(answer)) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            async for _ in client.frames("/"):
                pass

    with pytest.raises(ServiceUnavailable, match="middle of an event"):
        asyncio.run(run())


def test_a_refused_watch(kubeconfig: Write) -> None:
    body = json.dumps({"kind": "Status", "message": "too old", "code": 410}).encode()
    answer = b"HTTP/1.1 410 Gone\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def run() -> None:
        async with (
            serving(answering(answer)) as server,
            client_of(kubeconfig(server.url)) as client,
        ):
            async for _ in client.frames("/"):
                pass

    with pytest.raises(Expired, match="too old"):
        asyncio.run(run())


def test_documents_are_revalidated(kubeconfig: Write) -> None:
    async def run() -> None:
        async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if server.headers().get("if-none-match") == '"1"':
                writer.write(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
            else:
                writer.write(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 4\r\n\r\nbody')

        async with serving(handle) as server, client_of(kubeconfig(server.url)) as client:
            documents = Documents(client)
            accept = [(b"accept", b"application/json")]
            found = [await documents.get("/openapi/v2", accept) for _ in range(3)]
            assert [each.body for each in found] == [b"body"] * 3
            assert [each.revalidated for each in found] == [False, True, True]
            assert not (await documents.get("/openapi/v2", [(b"accept", b"other")])).revalidated

    asyncio.run(run())


OTHERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",  # no ETag: it isn't kept
    b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno",
]


@pytest.mark.parametrize("others", OTHERS)
def test_two_clients_that_ask_for_one_document_do_not_disturb_each_other(
    kubeconfig: Write, others: bytes
) -> None:
    async def run() -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            headers = server.headers()
            if headers.get("x") == "other":
                writer.write(others)
            elif headers.get("if-none-match") == '"1"':
                asked.set()
                await answered.wait()
                writer.write(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n')
            else:
                writer.write(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 4\r\n\r\nbody')

        async with serving(handle) as server, client_of(kubeconfig(server.url)) as client:
            documents = Documents(client)
            await documents.get("/apis", [])
            waiting = asyncio.create_task(documents.get("/apis", []))
            await asked.wait()
            await documents.get("/apis", [(b"x", b"other")])
            answered.set()
            assert (await waiting).body == b"body"
            if not others.startswith(b"HTTP/1.1 200"):
                assert (await documents.get("/apis", [])).revalidated

    asyncio.run(run())


def test_a_length_without_a_body_is_not_sent(kubeconfig: Write) -> None:
    async def run() -> None:
        async with serving(answering(OK)) as server, client_of(kubeconfig(server.url)) as client:
            headers = [(b"content-length", b"5"), (b"content-type", b"text/plain")]
            async with client.open("GET", "/api", headers) as response:
                await response.body()
            assert "content-length" not in server.headers()

    asyncio.run(run())


def test_documents_are_kept_apart_for_people(kubeconfig: Write) -> None:
    async def run() -> None:
        ok = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 0\r\n\r\n'
        async with serving(answering(ok)) as server, client_of(kubeconfig(server.url)) as client:
            documents = Documents(client)
            for agent in (b"kubectl/1", b"curl/8", b"kubectl/2", b"Mozilla/5.0"):
                await documents.get("/apis", [(b"user-agent", agent)])
            assert len(documents) == 2

    asyncio.run(run())


def test_what_documents_are_kept_by_counts_too(kubeconfig: Write) -> None:
    async def run() -> None:
        ok = b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Length: 0\r\n\r\n'
        async with serving(answering(ok)) as server, client_of(kubeconfig(server.url)) as client:
            documents = Documents(client, max_bytes=10_000)
            for number in range(20):
                await documents.get(f"/apis/{number}", [(b"accept", b"x" * 1000)])
            assert len(documents) == 9

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "covered"),
    [
        ("/api", True),
        ("/api/v1", True),
        ("/apis/apps/v1", True),
        ("/openapi/v3/api/v1", True),
        ("/apis/apps/v1/deployments", False),
        ("/api/v1/watch/pods", False),
        ("/healthz", False),
    ],
)
def test_which_paths_are_documents(path: str, *, covered: bool) -> None:
    assert Documents.covers("GET", path, []) is covered
    assert not Documents.covers("POST", path, [])
    assert not Documents.covers("GET", path, [(b"if-none-match", b"x")])


def test_a_silent_server_is_connected_to_less_patiently(kubeconfig: Write) -> None:
    came, let = asyncio.Event(), asyncio.Event()

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await let.wait()
        writer.write(OK)

    async def run() -> None:
        clock = Clock()
        async with serving(handle) as server:
            client = Client(await credentials(kubeconfig(server.url)), clock=clock)
            clock.advance(1000)
            assert client.connect_timeout == CONNECT_TIMEOUT  # nobody has asked for anything
            asked = asyncio.create_task(client.get("/"))
            await came.wait()
            clock.advance(SILENCE - 0.1)
            assert client.connect_timeout == CONNECT_TIMEOUT
            clock.advance(0.1)
            assert client.connect_timeout == SILENCE
            with pytest.raises(ServiceUnavailable):
                async with client.open("GET", "/", read_timeout=0.05):
                    pass
            assert client.connect_timeout == SILENCE  # no answer either
            let.set()
            await asked
            clock.advance(1000)
            assert client.connect_timeout == CONNECT_TIMEOUT
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "later", "silent"),
    [
        (None, 0.0, False),
        (asyncio.CancelledError(), SILENCE, False),
        (TimeoutError(), SILENCE, True),
        (TimeoutError(), FORGET, False),
    ],
)
def test_whoever_gives_up_says_nothing_of_the_server(
    failure: BaseException | None, later: float, *, silent: bool
) -> None:
    clock = Clock()
    silence = Silence(clock)
    with suppress(TimeoutError, asyncio.CancelledError), silence.asked() as answered:
        clock.advance(5)
        assert silence.seconds == 5
        if failure is None:
            answered()
            assert silence.seconds == 0
        else:
            raise failure
    clock.advance(later)
    with silence.asked():
        assert silence.seconds == (5 + later if silent else 0)


def test_no_more_is_waited_for_a_connection(kubeconfig: Write) -> None:
    """TLS with a server that never says a word."""

    async def mute(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(10)

    async def run() -> None:
        async with serving(mute) as server:
            url = server.url.replace("http:", "https:")
            clock = Clock()
            client = Client(await credentials(kubeconfig(url)), clock=clock)
            first = asyncio.create_task(client.get("/"))
            while client.connect_timeout == CONNECT_TIMEOUT:
                await asyncio.sleep(0.01)
                clock.advance(SILENCE)
            started = asyncio.get_running_loop().time()
            with pytest.raises(ServiceUnavailable, match="can't be reached"):
                await client.get("/")
            assert SILENCE - 0.1 < asyncio.get_running_loop().time() - started < SILENCE + 2
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await client.close()

    asyncio.run(run())
