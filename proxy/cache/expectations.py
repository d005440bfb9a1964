"""What reads of an informer have to see: writes that were acknowledged, states that were shown.

Named for client-go's controller expectations. An informer notes an expectation until it's met; in
between, reads that it concerns wait.
"""

from collections.abc import Callable
from typing import NamedTuple

MAX_EXPECTATIONS = 1024
"""Expectations that are told apart; instead of more, everything has to be proven current."""


class Expectation(NamedTuple):
    """Something that has been so by *moment*, which a state must reflect before it's shown.

    *key* is an object's, or a collection's: ``""`` or ``namespace/``. *client* is who has seen it,
    ``""`` for a write, which all must see. It's met by a state of *version* (0: unknown), by one
    without the object of *uid*, and in any case by one that was current at *moment*.
    """

    key: str
    moment: float
    client: str = ""
    version: int = 0
    uid: str = ""

    def concerns(self, key: str, client: str) -> bool:
        """Tell whether a client's read of an object or a collection has to wait."""
        return self.client in ("", client) and _overlap(self.key, key)


class Expectations:
    """The unmet expectations of one informer; empty most of the time, and then false."""

    def __init__(self) -> None:
        self._unmet: dict[tuple[str, str, str], Expectation] = {}

    def __len__(self) -> int:
        return len(self._unmet)

    def add(self, new: Expectation) -> None:
        """Note an expectation; of two alike the later one counts."""
        kind = "version" if new.version else "uid" if new.uid else ""
        if len(self._unmet) >= MAX_EXPECTATIONS:
            self._unmet.clear()
            new, kind = Expectation("", new.moment), ""
        place = (new.key, new.client, kind)
        old = self._unmet.get(place)
        if old is not None:
            new = new._replace(
                version=max(old.version, new.version), moment=max(old.moment, new.moment)
            )
        self._unmet[place] = new

    def settle(self, is_met: Callable[[Expectation], bool]) -> None:
        """Let go of those that are met."""
        met = [place for place, each in self._unmet.items() if is_met(each)]
        for place in met:
            del self._unmet[place]

    def of(self, key: str, client: str) -> list[Expectation]:
        """The unmet ones that a read of *key* by *client* has to wait for."""
        return [each for each in self._unmet.values() if each.concerns(key, client)]

    def clear(self) -> None:
        """Forget them all."""
        self._unmet.clear()


def collection_key(namespace: str) -> str:
    """The key of a collection: all keys in it start so."""
    return f"{namespace}/" if namespace else ""


def _overlap(one: str, other: str) -> bool:
    """Tell whether two keys, of objects or of collections, have an object in common."""
    return (
        one == other
        or (_is_collection(one) and other.startswith(one))
        or (_is_collection(other) and one.startswith(other))
    )


def _is_collection(key: str) -> bool:
    return not key or key.endswith("/")
