"""Which objects of a view a request selects. Pure: selectors against typed headers, no bytes."""

from collections.abc import Callable, Iterator

from proxy.cache.history import Event
from proxy.cache.store import Snapshot
from proxy.forms.form import EventType, Form
from proxy.forms.objects import LabelSet, Object
from proxy.kube.selectors import FieldSelector, LabelSelector

FieldTest = Callable[[Object], bool]


class Selection:
    """A namespace ("" for all), a label selector and tests of fields.

    A label set that many objects share is matched once in the life of a selection.
    """

    def __init__(
        self, namespace: str, labels: LabelSelector, field_tests: tuple[FieldTest, ...]
    ) -> None:
        self._namespace = namespace
        self._labels = labels
        self._field_tests = field_tests
        self._verdicts: dict[LabelSet, bool] = {}

    def list(self, snapshot: Snapshot) -> Iterator[Object]:
        """Iterate the selected objects in order."""
        namespace = self._namespace
        found = snapshot.in_namespace(namespace) if namespace else iter(snapshot)
        if self._labels:
            found = filter(self._matches_labels, found)
        for test in self._field_tests:
            found = filter(test, found)
        return found

    @property
    def filters(self) -> bool:
        """Tell whether objects of the namespace may be left out."""
        return bool(self._labels or self._field_tests)

    def matches(self, found: Object) -> bool:
        """Tell whether one object is selected."""
        return (
            (not self._namespace or found.namespace == self._namespace)
            and (not self._labels or self._matches_labels(found))
            and all(test(found) for test in self._field_tests)
        )

    def _matches_labels(self, found: Object) -> bool:
        verdict = self._verdicts.get(found.labels)
        if verdict is None:
            verdict = self._verdicts[found.labels] = self._labels.matches(found.labels)
        return verdict

    def transition(self, event: Event) -> tuple[EventType, Object] | None:
        """What a watcher of this selection is told of an event (``cacher/cache_watcher.go``).

        An object that leaves the selection is DELETED with its previous state; the frame gets the
        event's version. None when the watcher is told nothing.
        """
        before = event.previous is not None and self.matches(event.previous)
        if event.type is EventType.DELETED:
            return (EventType.DELETED, event.object) if before else None
        after = self.matches(event.object)
        if after:
            return (EventType.MODIFIED if before else EventType.ADDED, event.object)
        if before and event.previous is not None:
            return (EventType.DELETED, event.previous)
        return None


def select_by(
    form: Form, namespace: str, labels: LabelSelector, fields: FieldSelector
) -> Selection | None:
    """Build a selection; None when a field is not known to be selectable."""
    tests = []
    for term in fields.terms:
        read = _field_reader(form, term.field)
        if read is None:
            return None
        tests.append(_field_test(read, term.value, term.negated))
    return Selection(namespace, labels, tuple(tests))


def _field_reader(form: Form, field: str) -> Callable[[Object], str] | None:
    if form.field_labels is None:
        return None
    if field == "metadata.name":
        return lambda found: found.name
    if field == "metadata.namespace" and form.namespace_selectable:
        return lambda found: found.namespace
    place = form.field_labels.get(field)
    return None if place is None else lambda found: found.fields[place]


def _field_test(read: Callable[[Object], str], value: str, negated: bool) -> FieldTest:
    if negated:
        return lambda found: read(found) != value
    return lambda found: read(found) == value
