"""The current objects of an informer: by key, and sorted in copy-on-write chunks.

One writer, many readers. An update replaces one chunk, so a snapshot is a list of references that
nobody changes any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from proxy.forms.objects import Object

CHUNK = 64
"""Objects in a chunk at the most: an insert copies up to this many references."""


class Snapshot:
    """The objects of a store at one version, in kube-apiserver's order; immutable."""

    __slots__ = ("_chunks", "_firsts", "version")

    def __init__(self, version: int, firsts: list[str], chunks: list[list[Object]]) -> None:
        self.version = version
        self._firsts = firsts
        self._chunks = chunks

    def __iter__(self) -> Iterator[Object]:
        for chunk in self._chunks:
            yield from chunk

    def in_namespace(self, namespace: str) -> Iterator[Object]:
        """Iterate the objects of one namespace: one contiguous range of keys."""
        low, high = f"{namespace}/", f"{namespace}0"  # "0" follows "/" in ASCII
        start = max(bisect_right(self._firsts, low) - 1, 0)
        for chunk in self._chunks[start : bisect_left(self._firsts, high)]:
            if chunk[0].key >= low and chunk[-1].key < high:
                yield from chunk
            else:
                yield from (found for found in chunk if low <= found.key < high)


class Store:
    """A sorted map of objects; ``version`` is that of the newest event or list it holds."""

    def __init__(self) -> None:
        self.version = 0
        self.raw_bytes = 0
        self._objects: dict[str, Object] = {}
        self._firsts: list[str] = []
        self._chunks: list[list[Object]] = []
        self._shared = False

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Object | None:
        """Find an object by ``namespace/name``."""
        return self._objects.get(key)

    def snapshot(self) -> Snapshot:
        """Take the present state; costs nothing until the next write, which copies the spine."""
        self._shared = True
        return Snapshot(self.version, self._firsts, self._chunks)

    def replace(self, objects: Iterable[Object], version: int) -> None:
        """Hold exactly *objects* from now on."""
        ordered = sorted(objects, key=lambda found: found.key)
        half = CHUNK // 2
        self._objects = {found.key: found for found in ordered}
        self._chunks = [ordered[n : n + half] for n in range(0, len(ordered), half)]
        self._firsts = [chunk[0].key for chunk in self._chunks]
        self._shared = False
        self.raw_bytes = sum(len(found.raw) for found in ordered)
        self.version = version

    def put(self, found: Object) -> Object | None:
        """Add or replace an object; returns the one that was there."""
        previous = self._objects.get(found.key)
        self._objects[found.key] = found
        self.raw_bytes += len(found.raw) - (len(previous.raw) if previous else 0)
        self._own_spine()
        at, chunk = self._chunk_of(found.key)
        place = bisect_left(chunk, found.key, key=_key)
        self._write(at, [*chunk[:place], found, *chunk[place + (previous is not None) :]])
        return previous

    def remove(self, key: str) -> Object | None:
        """Take an object out; returns it."""
        previous = self._objects.pop(key, None)
        if previous is not None:
            self.raw_bytes -= len(previous.raw)
            self._own_spine()
            at, chunk = self._chunk_of(key)
            self._write(at, [found for found in chunk if found.key != key])
        return previous

    def _own_spine(self) -> None:
        """Leave the present spine to the snapshots that hold it."""
        if self._shared:
            self._firsts = self._firsts.copy()
            self._chunks = self._chunks.copy()
            self._shared = False

    def _chunk_of(self, key: str) -> tuple[int, list[Object]]:
        """Find the chunk in which *key* is or would be."""
        at = max(bisect_right(self._firsts, key) - 1, 0)
        return at, self._chunks[at] if self._chunks else []

    def _write(self, at: int, chunk: list[Object]) -> None:
        """Put *chunk* in the place of number *at*; a long one in two, an empty one not at all."""
        half = len(chunk) // 2
        parts = [chunk[:half], chunk[half:]] if len(chunk) > CHUNK else [chunk] if chunk else []
        self._chunks[at : at + 1] = parts
        self._firsts[at : at + 1] = [part[0].key for part in parts]


def _key(found: Object) -> str:
    return found.key
