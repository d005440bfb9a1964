"""Lists: from candidates to the parts of a body, with pages and their continue tokens."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from proxy.cache.snapshots import Snapshots
from proxy.cache.store import KeyRange
from proxy.forms.form import Rendering
from proxy.forms.objects import Object
from proxy.kube.continuation import Token, encode_token
from proxy.reads.plan import ServeList
from proxy.reads.query import MAX_JUDGED, Candidates

BATCH = 128
PART = 256 * 1024
"""Candidates looked at, and bytes written, before the event loop goes on. Larger parts cost more
than they save: memory that is touched for the first time is slower than a write."""

SMALL = 1024
SMALL_BYTES = 2 * PART
"""Candidates of a list that is answered at once, with its length in front, and their weight."""

SCAN = 1000
MAX_SHAPES = 32
"""A list that looks at so many objects, and ten times as many as it returns, is a scan; the shapes
of so many are remembered per resource."""


@dataclass(slots=True)
class Tally:
    """What the lists of a resource looked at, and what they returned.

    ``scans`` counts, by the shape of their selector, the lists that looked at many objects for few.
    """

    scanned: int = 0
    returned: int = 0
    scans: Counter[str] = field(default_factory=Counter)

    def count(self, shape: str, scanned: int, returned: int) -> None:
        """Count one list."""
        self.scanned += scanned
        self.returned += returned
        is_scan = scanned >= SCAN and scanned >= 10 * returned
        if is_scan and (shape in self.scans or len(self.scans) < MAX_SHAPES):
            self.scans[shape] += 1


@dataclass(frozen=True, slots=True)
class Listing:
    """One list to be written: the page that *plan* asks for, out of *candidates*."""

    plan: ServeList
    form: Rendering
    candidates: Candidates
    average_bytes: int
    snapshots: Snapshots
    tally: Tally

    @property
    def is_short(self) -> bool:
        """Tell whether all candidates may be looked at in one go."""
        size = self.candidates.size
        return size <= SMALL and size * self.plan.selection.terms <= MAX_JUDGED

    @property
    def is_small(self) -> bool:
        """Tell whether it may be written at once, by what objects weigh on the average."""
        return self.is_short and self.candidates.size * self.average_bytes <= SMALL_BYTES

    @property
    def _batch(self) -> int:
        """Objects in a part."""
        return max(1, min(BATCH, PART // max(self.average_bytes, 1)))

    def parts(self) -> Iterator[bytes]:
        """Yield the body in parts; an empty part only lets the event loop go on."""
        return self._page() if self.plan.limit > 0 or self.form.is_binary else self._all()

    def _batches(self) -> Iterator[list[Object]]:
        """Select batch by batch; counts what was looked at, also when the client leaves early."""
        candidates = iter(self.candidates.objects)
        scanned = returned = 0
        try:
            while batch := list(islice(candidates, self._batch)):
                selected = self.plan.selection.select(batch)
                scanned += len(batch)
                returned += len(selected)
                yield selected
        finally:
            self.tally.count(self.plan.selection.shape, scanned, returned)

    def _all(self) -> Iterator[bytes]:
        """Begin where something is found: an empty list may be written in another way."""
        version = self.plan.snapshot.version
        head, tail = self.form.encode_list_envelope(version)
        begun = False
        for selected in self._batches():
            if not selected:
                yield b""
            for run in runs(selected):
                if not begun:
                    yield head
                yield (self.form.separator if begun else b"") + self.form.encode_items(run)
                begun = True
        yield tail if begun else self.form.encode_empty_list(version)

    def _page(self) -> Iterator[bytes]:
        """Collect a page first: what its head says depends on it, and on what is left behind it."""
        limit = self.plan.limit
        page: list[Object] = []
        for selected in self._batches():
            page += selected
            if 0 < limit <= len(page):
                del page[limit:]
                break
            yield b""
        if not page:
            yield self.form.encode_empty_list(self.plan.snapshot.version)
            return
        token, remaining = self._rest(page)
        size = 0
        for start in range(0, len(page) if self.form.is_binary else 0, BATCH):
            size += self.form.measure_items(page[start : start + BATCH])
            yield b""
        head, tail = self.form.encode_list_envelope(
            self.plan.snapshot.version, token, remaining, size
        )
        yield head
        separator = b""
        for start in range(0, len(page), self._batch):
            for run in runs(page[start : start + self._batch]):
                yield separator + self.form.encode_items(run)
                separator = self.form.separator
        yield tail

    def _rest(self, page: list[Object]) -> tuple[str, int]:
        """Say how the list goes on behind a full page: by which token, and with how many objects.

        Objects count whether they are selected or not, so the last page may be empty; how many
        there are is only said when all are selected.
        """
        selection, snapshot = self.plan.selection, self.plan.snapshot
        is_full = 0 < self.plan.limit <= len(page)
        if not is_full or selection.single_key is not None:
            return "", 0
        start = page[-1].key + "\0"
        remaining = snapshot.count(KeyRange(start, self.plan.keys.high))
        if not remaining:
            return "", 0
        self.snapshots.keep(snapshot)
        token = Token(snapshot.version, start.removeprefix(selection.keys.low))
        return encode_token(token, slash=self.plan.slash), 0 if selection.filters else remaining


def runs(objects: Sequence[Object]) -> Iterator[Sequence[Object]]:
    """Cut into runs of PART bytes, or what one object more makes of that."""
    start = size = 0
    for end, found in enumerate(objects, 1):
        size += len(found.raw)
        if size >= PART:
            yield objects[start:end]
            start, size = end, 0
    if start < len(objects):
        yield objects[start:]
