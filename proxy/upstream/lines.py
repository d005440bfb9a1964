"""Lines out of chunks, of any length."""


class LineFramer:
    """Cuts a stream of chunks at newlines; what follows the last one waits for more."""

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
