"""Who may be called by which name."""

import pytest

from proxy.access.hosts import HostCheck


@pytest.mark.parametrize(
    ("listen", "host", "origin", "refused"),
    [
        ("127.0.0.1", "127.0.0.1:8001", None, False),
        ("127.0.0.1", "localhost", None, False),
        ("127.0.0.1", "LOCALHOST:8001", None, False),
        ("::1", "[::1]:8001", None, False),
        ("127.0.0.1", "evil.example", None, True),
        ("127.0.0.1", "127.0.0.1:" + "8" * 250, None, True),
        ("127.0.0.1", "127.0.0.1.evil.example", None, True),
        ("127.0.0.1", None, None, False),
        ("127.0.0.1", "127.0.0.1:8001", "http://127.0.0.1:8001", False),
        ("127.0.0.1", "127.0.0.1:8001", "http://evil.example", True),
        ("127.0.0.1", "127.0.0.1:8001", "null", True),
        ("127.0.0.1", "127.0.0.1:8001", "http://evil.127.0.0.1:8001", True),
        ("127.0.0.1", "127.0.0.1:8001", "http://127.0.0.1:8002", True),
        ("127.0.0.1", None, "http://127.0.0.1:8001", True),
        ("127.0.0.1", "127.0.0.1:8001", "", True),
        ("localhost", "::1", None, True),  # no name without its brackets
        ("localhost", "[::1]", "http://[::1]", False),
        ("localhost", "", None, False),
        ("0.0.0.0", "cache.team.svc", None, False),
        ("0.0.0.0", "cache.team.svc", "http://evil.example", True),
    ],
)
def test_hosts_and_origins(
    listen: str, host: str | None, origin: str | None, *, refused: bool
) -> None:
    headers = [
        (name, value.encode())
        for name, value in ((b"host", host), (b"origin", origin))
        if value is not None
    ]
    assert (HostCheck(listen).refuses(headers) is not None) is refused
