"""WebSockets (RFC 6455) as far as kubectl and kube-apiserver speak them: whole messages only."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
_FIN, _MASKED = 0x80, 0x80
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(key: str) -> str:
    """What a server answers to a client's `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode()).digest()).decode()


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def frame(kind: int, payload: bytes, *, masked: bool = False) -> bytes:
    """One message; a client's is masked."""
    size, flag = len(payload), _MASKED if masked else 0
    head = bytes([_FIN | kind])
    if size < 126:
        head += bytes([flag | size])
    elif size < 1 << 16:
        head += bytes([flag | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([flag | 127]) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + _unmasked(payload, mask)


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The kind and the payload of the next message; IncompleteReadError at the end."""
    kind, payload, last = 0, b"", False
    while not last:
        first, second = await reader.readexactly(2)
        last = bool(first & _FIN)
        kind = first & 15 or kind
        size = second & 127
        if size > 125:
            size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
        mask = await reader.readexactly(4) if second & _MASKED else b""
        part = await reader.readexactly(size)
        payload += _unmasked(part, mask) if mask else part
    return kind, payload


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    """XOR with the repeated mask, which masks and unmasks."""
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    whole = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return whole.to_bytes(size, "big")
