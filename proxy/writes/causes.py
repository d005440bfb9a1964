"""What a 409 says about itself: ``details.causes`` that name what changed, and who changed it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from proxy.kube.resources import Resource
from proxy.writes.changes import ABSENT, Change, Json, each_change
from proxy.writes.lists import Element, Item, Member, Path, position

REASON = "FieldValueChanged"
"""The causes' reason: ``metav1.CauseType`` is an open set, and has none for this."""

MAX_CAUSES = 16
"""Changes that are named, one cause each; another cause counts the rest."""

_MAX_COUNTED = 1000
"""Changes that are looked for at the most: whoever has to read them all doesn't want the number."""

_MAX_VALUE = 100
"""Characters of a value that are shown."""

_MAX_FIELD = 512
"""Characters of a field; label keys have up to 317, keys of custom objects any number."""

_MAPS = frozenset(
    {
        "allocatable",
        "annotations",
        "binaryData",
        "capacity",
        "data",
        "hard",
        "labels",
        "limits",
        "matchLabels",
        "nodeSelector",
        "overhead",
        "parameters",
        "requests",
        "selector",
        "stringData",
        "used",
    }
)
"""Fields of built-in types that are maps: field paths write their keys in brackets."""

_LABEL_SELECTOR = frozenset({"matchLabels", "matchExpressions"})
"""Fields of the selectors that aren't maps."""

Cause = dict[str, str]
ManagedFields = Sequence[Mapping[str, Any]]


def conflict_causes(
    resource: Resource, base: Json | None, theirs: Json, read_version: int
) -> list[Cause]:
    """Explain why an update of what was read at *read_version* conflicts with *theirs*.

    *base* is the object as it was then, None if that isn't known. No values of Secrets are shown.
    """
    version = theirs.get("metadata", {}).get("resourceVersion", "")
    if base is None:
        since = f"changed since resourceVersion {read_version}, which is no longer known"
        return [_cause(f"{since}; now it is {version}{_last_written(theirs)}")]
    old, new = (found.get("metadata", {}).get("uid") for found in (base, theirs))
    if old and new and old != new:
        message = f"deleted and created again: changed from {_show(old)} to {_show(new)}"
        return [_cause(message, "metadata.uid")]
    causes = change_causes(resource, each_change(base, theirs), base, theirs)
    if causes:
        return causes
    return [_cause(f"no field differs between resourceVersion {read_version} and {version}")]


def change_causes(
    resource: Resource, changes: Iterable[Change], base: Json, theirs: Json
) -> list[Cause]:
    """Tell changes from *base* to *theirs*, such as those that overlap.

    A position in a list is that in *theirs*, for what was removed that in *base*.
    """
    left = iter(changes)
    is_secret = (resource.group, resource.plural) == ("", "secrets")
    managed = _managed_fields(theirs)
    causes = []
    for change in islice(left, MAX_CAUSES):
        by = "" if change.new is ABSENT else _by(_owner(managed, change.path))
        told = _tell_name(change) if is_secret else _tell(change)
        causes.append(_cause(told + by, _field(change.path, theirs, base)))
    more = sum(1 for _ in islice(left, _MAX_COUNTED))
    if more:
        number = f"more than {more - 1}" if more == _MAX_COUNTED else f"{more}"
        causes.append(_cause(f"and {number} more changed"))
    return causes


def _cause(message: str, field: str = "") -> Cause:
    """Build a StatusCause; Go leaves an empty field out."""
    cause = {"reason": REASON, "message": message}
    return {**cause, "field": _cut(field, _MAX_FIELD)} if field else cause


def _tell(change: Change) -> str:
    if change.new is ABSENT:
        return f"removed, was {_show(change.old)}"
    if change.old is ABSENT:
        return f"set to {_show(change.new)}"
    return f"changed from {_show(change.old)} to {_show(change.new)}"


def _tell_name(change: Change) -> str:
    """Tell a change without the values."""
    if change.new is ABSENT:
        return "removed"
    return "set" if change.old is ABSENT else "changed"


def _show(value: Any) -> str:
    """Write a value as compact JSON, or the beginning of it."""
    if isinstance(value, str):
        value = value[:_MAX_VALUE]  # with its quotes that's too long to be shown whole
    return _cut(msgspec.json.encode(value).decode(), _MAX_VALUE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _field(path: Path, *states: Json) -> str:
    """Write a path as apimachinery's ``field.Path`` does: ``spec.containers[0].env[1].value``."""
    text = ""
    above: Element = ""
    nodes: list[Any] = list(states)
    for element in path:
        if not isinstance(element, str):
            found = (position(node, element) for node in nodes if isinstance(node, list))
            text += f"[{next((n for n in found if n is not None), '')}]"
        elif _is_key(above, element):
            text += f"[{element}]"
        else:
            text += f".{element}"
        nodes = [_child(node, element) for node in nodes]
        above = element
    return text.removeprefix(".")


def _is_key(above: Element, element: str) -> bool:
    in_map = above in _MAPS and element not in _LABEL_SELECTOR
    return in_map or not element.isidentifier()


def _child(node: Any, element: Element) -> Any:
    if isinstance(element, str):
        return node.get(element) if isinstance(node, dict) else None
    place = position(node, element) if isinstance(node, list) else None
    return None if place is None else node[place]


def _managed_fields(found: Json) -> ManagedFields:
    entries = found.get("metadata", {}).get("managedFields") or ()
    return [entry for entry in entries if _is_sound(entry)]


def _is_sound(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("manager"), str)


def _last_written(theirs: Json) -> str:
    manager = _newest(_managed_fields(theirs))
    return f", last written by {_show(manager)}" if manager else ""


def _by(manager: str | None) -> str:
    return f" by {_show(manager)}" if manager else ""


def _newest(entries: ManagedFields) -> str | None:
    """Name the manager whose entry is the newest; None where several may be.

    Times are in seconds, and the entry of an update by the scale subresource has none.
    """
    times = [(str(entry.get("time", "")), entry["manager"]) for entry in entries]
    newest = max(times, default=("", ""))[0]
    names = {manager for time, manager in times if time in (newest, "")}
    return names.pop() if len(names) == 1 else None


def _owner(managed: ManagedFields, path: Path) -> str | None:
    """Name the manager that last set what is at *path*, by the fields that the managers own.

    Whoever owns a value above owns it as a whole, unless somebody owns what is in it. Who removes a
    field owns nothing by that, so that nobody is known to have.
    """
    keys = [_fields_key(element) for element in path]
    depths = [(_depth(entry.get("fieldsV1"), keys), entry) for entry in managed]
    deepest = max((depth for depth, _ in depths), default=0)
    return _newest([entry for depth, entry in depths if depth == deepest]) if deepest else None


def _depth(fields: Any, keys: Sequence[str]) -> int:
    """Count the *keys* down to what a set of fields owns; 0 where it owns something else."""
    for depth, key in enumerate(keys):
        if not isinstance(fields, dict) or key not in fields:
            return depth if fields == {} else 0
        fields = fields[key]
    return len(keys)


def _fields_key(element: Element) -> str:
    """Write an element as ``fieldsV1`` does (structured-merge-diff's ``PathElement``)."""
    if isinstance(element, Item):
        return "k:" + msgspec.json.encode(dict(sorted(element.keys))).decode()
    if isinstance(element, Member):
        return "v:" + msgspec.json.encode(element.value).decode()
    return f"f:{element}"
