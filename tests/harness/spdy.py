"""SPDY/3.1 as kubectl and kube-apiserver speak it to a kubelet: streams, half-close and pings."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

# What both sides have their compressors know beforehand: words with their sizes, then text.
_WORDS = b"""
options head post put delete trace accept accept-charset accept-encoding accept-language
accept-ranges age allow authorization cache-control connection content-base content-encoding
content-language content-length content-location content-md5 content-range content-type date etag
expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer
retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status
"""
_TEXT = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    b"203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    b"401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    b"503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 "
    b"Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    b"application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    b"gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _sized(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


DICTIONARY = (
    b"".join(_sized(word) for word in _WORDS.split())
    + _sized(b"200 OK")
    + b"".join(_sized(word) for word in (b"version", b"HTTP/1.1", b"url", b"public"))
    + b"".join(_sized(word) for word in (b"set-cookie", b"keep-alive", b"origin"))
    + _TEXT
)

_CONTROL = 0x8003
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_FIN = 1
_HEAD = struct.Struct(">II")

Write = Callable[[bytes], Awaitable[None]]


class Stream(NamedTuple):
    """One stream: its headers, what the client sends, and how to send and end its own side."""

    headers: Mapping[str, str]
    reader: asyncio.StreamReader
    write: Write
    end: Callable[[], Awaitable[None]]


class Session:
    """The server's side of one connection; `opened` is told each stream that the client opens."""

    def __init__(
        self, reader: asyncio.StreamReader, write: Write, opened: Callable[[Stream], None]
    ) -> None:
        self._reader = reader
        self._write = write
        self._opened = opened
        self._streams: dict[int, asyncio.StreamReader] = {}
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def run(self) -> None:
        """Reads frames to the end of the connection, which ends all streams."""
        try:
            while True:
                first, second = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                payload = await self._reader.readexactly(second & 0xFFFFFF)
                if first >> 16 == _CONTROL:
                    await self._control(first & 0xFFFF, second >> 24, payload)
                elif reader := self._streams.get(first):
                    _feed(reader, payload, ends=bool(second >> 24 & _FIN))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for reader in self._streams.values():
                reader.feed_eof()

    async def _control(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == _SYN_STREAM:
            await self._open(int.from_bytes(payload[:4], "big"), payload[10:], flags)
        elif kind == _PING:
            await self._write(_control_frame(_PING, payload))
        elif kind == _RST_STREAM:
            _feed(self._streams[int.from_bytes(payload[:4], "big")], b"", ends=True)

    async def _open(self, number: int, block: bytes, flags: int) -> None:
        headers = _headers(self._inflate.decompress(block))
        reader = self._streams[number] = asyncio.StreamReader()
        _feed(reader, b"", ends=bool(flags & _FIN))
        nothing = self._deflate.compress(bytes(4)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        await self._write(_control_frame(_SYN_REPLY, struct.pack(">I", number) + nothing))

        async def write(data: bytes) -> None:
            await self._write(_HEAD.pack(number, len(data)) + data)

        async def end() -> None:
            await self._write(_HEAD.pack(number, _FIN << 24))

        self._opened(Stream(headers, reader, write, end))


def _control_frame(kind: int, payload: bytes) -> bytes:
    return _HEAD.pack(_CONTROL << 16 | kind, len(payload)) + payload


def _feed(reader: asyncio.StreamReader, data: bytes, *, ends: bool) -> None:
    if not reader.at_eof():
        reader.feed_data(data)
    if ends:
        reader.feed_eof()


def _headers(block: bytes) -> dict[str, str]:
    """Parse a header block: a count, then names and values with their sizes."""
    texts, at = [], 4
    while at < len(block):
        size = int.from_bytes(block[at : at + 4], "big")
        texts.append(block[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return dict(zip(texts[::2], texts[1::2], strict=True))
