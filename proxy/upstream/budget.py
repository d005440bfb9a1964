"""A budget: how many bytes may be held in memory at once, by all who hold some together."""

from collections.abc import Iterator
from contextlib import contextmanager


class Share:
    """What one holder has taken of a budget."""

    def __init__(self, budget: "Budget") -> None:
        self._budget = budget
        self._taken = 0

    def take(self, count: int) -> bool:
        """Take *count* bytes more, if there are so many left."""
        if not self._budget.spend(count):
            return False
        self._taken += count
        return True

    def give_back(self) -> None:
        """Let others have all that was taken."""
        self._budget.spend(-self._taken)
        self._taken = 0


class Budget:
    """*size* bytes, of which ``held`` are taken; ``refusals`` counts who got no more."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self.refusals = 0

    def spend(self, count: int) -> bool:
        """Take *count* bytes, or give them back when it's negative."""
        if self.held + count > self.size:
            self.refusals += 1
            return False
        self.held += count
        return True

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Let somebody take, until he leaves."""
        share = Share(self)
        try:
            yield share
        finally:
            share.give_back()
