"""What a view tells of what is expected: of a write, or of what a live read has shown."""

from proxy.cache.expectations import Expectation
from proxy.cache.lag import Write
from proxy.cache.view import View
from proxy.forms.form import EventType

RECENT = 256
"""Events among which a deletion is looked for that has just been acknowledged."""


def holds(view: View | None, expected: Expectation) -> bool:
    """Tell whether the object is there, and is still the same one."""
    found = view.store.get(expected.key) if view else None
    return found is not None and found.uid == expected.uid


def shows(view: View | None, expected: Expectation) -> bool:
    """Tell whether a version that should be held is: that of a collection needs no look."""
    if view is None or expected.is_of_collection:
        return True
    found = view.store.get(expected.key)
    return (found is not None and found.version == expected.version) or (
        view.history.version_of(expected.key, expected.version) is not None
    )


def has_deleted(view: View | None, expected: Expectation) -> bool:
    """Tell whether the object was seen to go."""
    return view is not None and any(
        event.type is EventType.DELETED and event.object.uid == expected.uid
        for event in view.history.newest(RECENT)
    )


def contradicts(view: View | None, expected: Expectation, write: Write | None) -> bool:
    """Tell whether an answer is of another history than the one held: etcd was restored.

    It shows an object at a version that was passed without seeing it, or that was given out
    after a higher one had been seen. A write that changes nothing answers with an old version
    too, which is the one that was held.
    """
    if view is None or not 0 < expected.version <= view.store.version:
        return False
    now = view.store.get(expected.key)
    if now is not None and now.version < expected.version:
        return True
    if write is None:
        return False
    later = view.history.after(write.version)
    if later is None or later.seen >= write.sent:
        return False
    held = view.history.before(write.sent, expected.key, now)
    return held is None or held.version != write.version
