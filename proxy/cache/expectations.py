"""What reads of an informer have to see: writes that were acknowledged, states that were shown.

Named for client-go's controller expectations. An informer notes an expectation until it's met; in
between, reads that it concerns wait.
"""

from collections.abc import Callable
from typing import NamedTuple

MAX_EXPECTATIONS = 1024
"""Expectations that events will meet; instead of more, all of a client's (or all writes) are one
that takes a proof."""

MAX_UNPROVEN = 64
"""Expectations that only a proof meets, which nobody may need; instead of more, likewise. Beyond
twice as many, what was shown first is forgotten."""


class Expectation(NamedTuple):
    """Something that has been so by *moment*, which a state must reflect before it's shown.

    *key* is an object's, or a collection's: ``""`` or ``namespace/``. *client* is who has seen it,
    ``""`` for a write, which all must see. It's met by a state of *version* (0: unknown), by one
    without the object of *uid*, and in any case by one that was current at *moment*. *absent*: what
    was shown is that there's no such object.
    """

    key: str
    moment: float
    client: str = ""
    version: int = 0
    uid: str = ""
    absent: bool = False

    @property
    def is_of_collection(self) -> bool:
        """Tell whether it's about all objects of a collection."""
        return _is_collection(self.key)

    def concerns(self, key: str, client: str) -> bool:
        """Tell whether a client's read of an object or a collection has to wait."""
        return self.client in ("", client) and _overlap(self.key, key)


class Expectations:
    """The unmet expectations of one informer; empty most of the time, and then false.

    Kept by what may meet them, so that an event looks only at those that it may concern.
    """

    def __init__(self) -> None:
        self._versions: _Kept = {}
        self._uids: _Kept = {}
        self._proofs: _Kept = {}
        self._lowest = 0  # no version is below

    def __len__(self) -> int:
        return len(self._versions) + len(self._uids) + len(self._proofs)

    def add(self, new: Expectation) -> None:
        """Note an expectation; of two alike the later one counts."""
        kept = self._versions if new.version else self._uids if new.uid else self._proofs
        if len(kept) >= (MAX_UNPROVEN if kept is self._proofs else MAX_EXPECTATIONS):
            alike = [each.moment for each in kept.values() if each.client == new.client]
            _drop(kept, lambda each: each.client == new.client)
            kept, new = self._proofs, Expectation("", max(new.moment, *alike, 0.0), new.client)
            _drop_oldest_shown(kept)
        place = (new.key, new.client)
        old = kept.get(place)
        if old is not None:
            new = new._replace(
                version=max(old.version, new.version),
                moment=max(old.moment, new.moment),
                absent=old.absent and new.absent,
            )
        kept[place] = new
        if new.version:
            self._lowest = min(self._lowest or new.version, new.version)

    def reach(self, version: int) -> None:
        """Let go of what a state of *version* meets."""
        if self._versions and version >= self._lowest:
            _drop(self._versions, lambda each: each.version <= version)
            self._lowest = min((each.version for each in self._versions.values()), default=0)

    def lose(self, key: str) -> None:
        """Let go of what is met when an object is gone, or another one in its place."""
        if self._uids:
            _drop(self._uids, lambda each: each.key == key)

    def relisted(self, holds: Callable[[Expectation], bool]) -> None:
        """Let go of what is met by another state, which may hold other objects."""
        _drop(self._uids, lambda each: not holds(each))

    def prove(self, moment: float) -> None:
        """Let go of what a state that was current at *moment* meets."""
        for kept in (self._versions, self._uids, self._proofs):
            if kept:
                _drop(kept, lambda each: each.moment <= moment)

    def of(self, key: str, client: str) -> list[Expectation]:
        """The unmet ones that a read of *key* by *client* has to wait for."""
        return [
            each
            for kept in (self._versions, self._uids, self._proofs)
            for each in kept.values()
            if each.concerns(key, client)
        ]

    def distrust(self) -> None:
        """Let only proofs meet them from now on: versions mean something else."""
        unmet = [*self._versions.values(), *self._uids.values()]
        self._versions.clear()
        self._uids.clear()
        self._lowest = 0
        for each in unmet:
            self.add(each._replace(version=0, uid=""))


_Kept = dict[tuple[str, str], Expectation]
"""By key and client."""


def _drop(kept: _Kept, is_met: Callable[[Expectation], bool]) -> None:
    for place in [place for place, each in kept.items() if is_met(each)]:
        del kept[place]


def _drop_oldest_shown(kept: _Kept) -> None:
    """Make room; what one client was shown must not take it from the writes of all."""
    while len(kept) >= 2 * MAX_UNPROVEN:
        del kept[next((place for place, each in kept.items() if each.client), next(iter(kept)))]


def _overlap(one: str, other: str) -> bool:
    """Tell whether two keys, of objects or of collections, have an object in common."""
    return (
        one == other
        or (_is_collection(one) and other.startswith(one))
        or (_is_collection(other) and one.startswith(other))
    )


def _is_collection(key: str) -> bool:
    return not key or key.endswith("/")
