"""What protocol and app say to each other beside ASGI."""

from typing import NamedTuple, Protocol, runtime_checkable

from proxy.kube.requests import Headers

CONNECTION = "kubecache.connection"
"""ASGI extension: the ``Protocol`` of the connection, whether an ``upgrade`` that is offered may be
meant, and what the ``Door`` has ``begun`` (None: nothing)."""


class Whole(NamedTuple):
    """A complete answer; the length of the body is among the headers."""

    status: int
    headers: Headers
    body: bytes


@runtime_checkable
class Door(Protocol):
    """An app that can answer without ASGI, and take connections over."""

    def begin(self, path: bytes, query: bytes, headers: Headers) -> object:
        """Begin to serve a GET; what isn't a ``Whole`` answer is handed to the app, to go on."""

    def may_upgrade(self, method: str, path: bytes, query: bytes, headers: Headers) -> bool:
        """Tell whether an upgrade that is offered may be meant; else the request is as any."""
