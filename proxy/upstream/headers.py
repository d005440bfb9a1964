"""Which headers travel on, in each direction."""

from proxy.kube.requests import Headers

# RFC 9110 §7.6.1, and what this hop's client library sets itself. What else Connection names
# travels on: kube-apiserver heeds it all the same, and it may be who the client is.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Origin has been held against a Host that the API server is not called by.
_REQUEST_ONLY = frozenset({b"host", b"expect", b"origin"})
# The proxy's own request headers, which mean nothing further up.
OWN = frozenset({b"x-kubecache-read", b"x-kubecache-on-conflict"})


def request_headers(headers: Headers) -> Headers:
    """Choose the request headers to send upstream."""
    return _without(headers, _REQUEST_ONLY | OWN)


def response_headers(headers: Headers) -> Headers:
    """Choose the answer's headers to send on to the client."""
    return _without(headers, frozenset({b"date"}))


def _without(headers: Headers, more: frozenset[bytes]) -> Headers:
    dropped = _HOP_BY_HOP | more
    lowered = [(name.lower(), value) for name, value in headers]
    return [pair for pair in lowered if pair[0] not in dropped]
