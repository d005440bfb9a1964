"""The current objects of an informer: by key, and sorted in copy-on-write chunks.

One writer, many readers. An update replaces one chunk, so a snapshot is a list of references that
nobody changes any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from proxy.cache.index import Indexes
from proxy.forms.objects import Object

CHUNK = 64
"""Objects in a chunk at the most: an insert copies up to this many references."""


class KeyRange(NamedTuple):
    """Keys from *low* on and below *high*; "" is no bound."""

    low: str = ""
    high: str = ""

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.low <= key and (not self.high or key < self.high)


EVERYTHING = KeyRange()


def namespace_range(namespace: str) -> KeyRange:
    """The keys of one namespace, which lie together; "" is all namespaces."""
    return (
        KeyRange(f"{namespace}/", f"{namespace}0") if namespace else EVERYTHING
    )  # "0" follows "/"


class Snapshot:
    """The objects of a store at one version, in kube-apiserver's order; immutable."""

    __slots__ = ("_chunks", "_firsts", "_size", "version")

    def __init__(
        self, version: int, size: int, firsts: list[str], chunks: list[list[Object]]
    ) -> None:
        self.version = version
        self._size = size
        self._firsts = firsts
        self._chunks = chunks

    def __iter__(self) -> Iterator[Object]:
        return self.range(EVERYTHING)

    def __len__(self) -> int:
        return self._size

    def range(self, keys: KeyRange) -> Iterator[Object]:
        """Iterate the objects of a range of keys."""
        first, last = self._bounds(keys)
        for chunk in self._chunks[first:last]:
            if chunk[0].key >= keys.low and (not keys.high or chunk[-1].key < keys.high):
                yield from chunk
            else:
                yield from (found for found in chunk if found.key in keys)

    def count(self, keys: KeyRange) -> int:
        """Count the objects of a range of keys, without looking at those in between."""
        if not keys.high:
            return self._size - self._position(keys.low)
        return self._position(keys.high) - self._position(keys.low)

    def _position(self, key: str) -> int:
        """Count the objects before *key*; from the end where that is nearer."""
        at = max(bisect_right(self._firsts, key) - 1, 0)
        if not self._chunks:
            return 0
        within = bisect_left(self._chunks[at], key, key=_key)
        if at <= len(self._chunks) // 2:
            return sum(map(len, self._chunks[:at])) + within
        return self._size - sum(map(len, self._chunks[at:])) + within

    def _bounds(self, keys: KeyRange) -> tuple[int, int]:
        """Number the first chunk of a range and the one behind its last."""
        first = max(bisect_right(self._firsts, keys.low) - 1, 0)
        last = bisect_left(self._firsts, keys.high) if keys.high else len(self._firsts)
        return first, last


class Store:
    """A sorted map of objects; ``version`` is that of the newest event or list it holds.

    ``changed`` is the version of the newest change, which bookmarks leave behind. ``newest`` is the
    object of the highest version, None while that has been removed.
    ``replaced_bytes`` counts the bytes of all versions that were replaced or removed: what a
    snapshot keeps alive at the most is what was added to it since.
    """

    def __init__(self, indexed: Sequence[int] = ()) -> None:
        self.version = 0
        self.changed = 0
        self.newest: Object | None = None
        self.raw_bytes = 0
        self.replaced_bytes = 0
        self.indexes = Indexes(indexed)
        self._objects: dict[str, Object] = {}
        self._firsts: list[str] = []
        self._chunks: list[list[Object]] = []
        self._shared = False

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> Object | None:
        """Find an object by ``namespace/name``."""
        return self._objects.get(key)

    def pick(self, keys: Iterable[str]) -> list[Object]:
        """Take the objects of some keys, in order."""
        objects = self._objects
        return [objects[key] for key in sorted(keys)]

    def snapshot(self) -> Snapshot:
        """Take the present state; costs nothing until the next write, which copies the spine."""
        return self._snapshot(self.version)

    def snapshot_at(self, version: int) -> Snapshot | None:
        """Take the state at exactly *version*, if nothing has changed since."""
        return self._snapshot(version) if self.changed <= version <= self.version else None

    def _snapshot(self, version: int) -> Snapshot:
        self._shared = True
        return Snapshot(version, len(self._objects), self._firsts, self._chunks)

    def put(self, found: Object) -> Object | None:
        """Add or replace an object; returns the one that was there."""
        previous = self._objects.get(found.key)
        self._objects[found.key] = found
        if self.newest is None or found.version >= self.newest.version:
            self.newest = found
        self._account(previous, found)
        self._own_spine()
        at, chunk = self._chunk_of(found.key)
        place = bisect_left(chunk, found.key, key=_key)
        self._write(at, [*chunk[:place], found, *chunk[place + (previous is not None) :]])
        return previous

    def remove(self, key: str) -> Object | None:
        """Take an object out; returns it."""
        previous = self._objects.pop(key, None)
        if previous is not None:
            if previous is self.newest:
                self.newest = None
            self._account(previous, None)
            self._own_spine()
            at, chunk = self._chunk_of(key)
            self._write(at, [found for found in chunk if found.key != key])
        return previous

    def dismantle(self) -> Iterator[None]:
        """Let go of everything in small steps; freeing it at once would take long."""
        self._own_spine()
        while self._chunks:
            for found in self._chunks.pop():
                del self._objects[found.key]
                self.indexes.change(found, None)
            yield

    def _account(self, previous: Object | None, found: Object | None) -> None:
        self.indexes.change(previous, found)
        self.raw_bytes += len(found.raw) if found else 0
        if previous is not None:
            self.raw_bytes -= len(previous.raw)
            self.replaced_bytes += len(previous.raw)

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
        """Put *chunk* in the place of number *at*; a long one in two, an empty one not at all.

        A list that arrives in order only ever splits the last chunk, and leaves full ones behind.
        """
        if len(chunk) > CHUNK:
            cut = CHUNK if at >= len(self._chunks) - 1 else len(chunk) // 2
            parts = [chunk[:cut], chunk[cut:]]
        else:
            parts = [chunk] if chunk else []
        self._chunks[at : at + 1] = parts
        self._firsts[at : at + 1] = [part[0].key for part in parts]


def _key(found: Object) -> str:
    return found.key
