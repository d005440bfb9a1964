"""Which headers travel on."""

import pytest

from proxy.kube.requests import Headers
from proxy.upstream.headers import request_headers, response_headers


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([(b"Accept", b"a"), (b"X-Own", b"1"), (b"x-own", b"2")], [b"a", b"1", b"2"]),
        (
            [
                (b"host", b"h"),
                (b"origin", b"http://h"),
                (b"expect", b"100-continue"),
                (b"te", b"x"),
            ],
            [],
        ),
        ([(b"connection", b"close, X-Hop"), (b"x-hop", b"1")], [b"1"]),
        ([(b"connection", b"authorization"), (b"authorization", b"mine")], [b"mine"]),
        ([(b"transfer-encoding", b"chunked"), (b"content-length", b"5")], [b"5"]),
        ([(b"x-kubecache-read", b"live"), (b"cache-control", b"no-cache")], [b"no-cache"]),
        ([(b"authorization", b"mine"), (b"impersonate-user", b"u")], [b"mine", b"u"]),
    ],
)
def test_requests(given: Headers, kept: list[bytes]) -> None:
    assert [value for _, value in request_headers(given)] == kept


def test_answers() -> None:
    given = [(b"Date", b"d"), (b"Keep-Alive", b"k"), (b"Audit-Id", b"i"), (b"Warning", b"w")]
    assert response_headers(given) == [(b"audit-id", b"i"), (b"warning", b"w")]
