"""Addresses: where a listener binds, and how settings spell it."""

from typing import NamedTuple


class Address(NamedTuple):
    """Where a listener binds: host and port, or the path of a Unix socket."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        """Spell it as the setting does."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"unix:{self.path}" if self.path else f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read ``host:port``, ``[::1]:port``, ``:port`` for all of IPv4, or ``unix:/path``.

    Raises ValueError.
    """
    if text.startswith("unix:"):
        if not text[5:].startswith("/"):
            raise ValueError("a Unix socket needs an absolute path: unix:/run/kubecache.sock")
        return Address("", 0, text[5:])
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        raise ValueError(f"{text!r} is neither host:port nor unix:/path")
    if int(port) > 65535:
        raise ValueError(f"found port {port}, expected one of 0 to 65535")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - what ":port" means
