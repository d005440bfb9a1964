"""Host and Origin checks: a web page must not use a listener on loopback.

DNS rebinding makes a browser send a page's requests to 127.0.0.1 under the page's own host name;
a cross-site form or fetch carries an Origin. kubectl proxy guards itself likewise.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's own."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


class HostCheck:
    """Decides by Host and Origin; a listener beyond loopback may be called by any name."""

    def __init__(self, listen_host: str) -> None:
        self._only_loopback = is_loopback(listen_host)

    def refuses(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return why a request is refused, or None."""
        host = origin = None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
        if self._only_loopback and host and (len(host) > 255 or not is_loopback(_name(host))):
            return f"host {host.decode('latin-1')!r} is not a name of this listener"
        if origin is not None and origin.partition(b"//")[2] != host:
            return f"requests from origin {origin.decode('latin-1')!r} are not allowed"
        return None


def _name(host: bytes) -> str:
    """Take the port off a Host value, and the brackets of an IPv6 address."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]
