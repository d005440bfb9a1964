"""Frames of a watch out of chunks, of any length."""

from typing import Protocol


class Framer(Protocol):
    """Cuts a stream of chunks into frames; what isn't complete waits for more."""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the frames that it completes, without what marks their ends."""

    @property
    def is_empty(self) -> bool:
        """Tell whether the stream stands at the start of a frame."""


class LineFramer:
    """Cuts at newlines, as JSON streams are."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the lines that it completes, without their newlines."""
        head, newline, rest = chunk.partition(b"\n")
        self._parts.append(head)
        if not newline:
            return []
        lines = [b"".join(self._parts), *rest.split(b"\n")]
        self._parts = [lines.pop()]
        return lines

    @property
    def is_empty(self) -> bool:
        """Tell whether the stream stands at the start of a line."""
        return not any(self._parts)


class LengthFramer:
    """Cuts by the length in front of each frame, four bytes, as protobuf streams are."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk; return the frames that it completes, without their lengths."""
        self._parts.append(chunk)
        self._held += len(chunk)
        # Of a length that came in pieces the first is less than the whole: joined once in vain.
        if self._held < 4 + int.from_bytes(self._parts[0][:4]):
            return []
        whole = b"".join(self._parts)
        frames, start = [], 0
        while len(whole) - start >= 4:
            end = start + 4 + int.from_bytes(whole[start : start + 4])
            if end > len(whole):
                break
            frames.append(whole[start + 4 : end])
            start = end
        rest = whole[start:]
        self._parts, self._held = [rest] if rest else [], len(rest)
        return frames

    @property
    def is_empty(self) -> bool:
        """Tell whether the stream stands at the start of a frame."""
        return not self._held
