"""A synced state and its continuation: what every read is answered from."""

from collections.abc import Callable
from enum import Enum, auto

from proxy.cache.history import History
from proxy.cache.snapshots import Snapshots
from proxy.cache.store import Store
from proxy.forms.form import Form


class Ending(Enum):
    """Why a view is not continued."""

    STOPPED = auto()  # clients may simply watch again
    REWOUND = auto()  # versions that they hold mean nothing any more: 410


class View:
    """A synced state and its continuation: what every read is answered from."""

    __slots__ = ("_clock", "ended", "form", "history", "snapshots", "store")

    def __init__(self, form: Form, store: Store, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.form = form
        self.store = store
        self.snapshots = Snapshots(store, clock)
        self.history = History(store.version, clock)
        self.ended: Ending | None = None

    def relist(self, form: Form, store: Store) -> None:
        """Go on with another store; tokens of the old one are the API server's from now on."""
        self.form = form
        self.store = store
        self.snapshots = Snapshots(store, self._clock)
