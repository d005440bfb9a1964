"""Snapshots that a client may come back to: those whose version stands in a continue token."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from proxy.cache.store import Snapshot, Store

KEEP_SECONDS = 300.0
"""As long as etcd keeps history (``--etcd-compaction-interval``): an older token is the API
server's to answer, mostly with 410."""

MAX_SNAPSHOTS = 64
MAX_BYTES = 64 * 1024 * 1024
"""Bytes of replaced objects that all snapshots of a store together may keep alive."""


class _Kept(NamedTuple):
    snapshot: Snapshot
    since: float
    replaced_bytes: int


class Snapshots:
    """Snapshots of one store by version; the oldest go first when there are too many."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def __len__(self) -> int:
        self._let_go()
        return len(self._kept)

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot whose version a client is about to learn."""
        if snapshot.version not in self._kept:
            kept = _Kept(snapshot, self._clock(), self._store.replaced_bytes)
            self._kept[snapshot.version] = kept
            self._let_go()

    def at(self, version: int) -> Snapshot | None:
        """Find the state at exactly *version*: the present one, or one that was kept."""
        self._let_go()
        kept = self._kept.get(version)
        return kept.snapshot if kept else self._store.snapshot_at(version)

    def _let_go(self) -> None:
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if (
                len(self._kept) <= MAX_SNAPSHOTS
                and self._clock() - oldest.since <= KEEP_SECONDS
                and self._store.replaced_bytes - oldest.replaced_bytes <= MAX_BYTES
            ):
                return
            self._kept.popitem(last=False)
