"""Lists whose elements have keys, by which they are the same ones wherever they stand."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple


class Item(NamedTuple):
    """An element of a list, by the fields that name it: ``(("name", "app"),)``."""

    keys: tuple[tuple[str, str | int], ...]


class Member(NamedTuple):
    """A value in a list that is a set."""

    value: str


Element = str | Item | Member
Path = tuple[Element, ...]
"""Where a value is in an object: keys of JSON objects, and elements of lists that have keys."""


class Schema(Enum):
    """Whose types an object is of, which tells what is known of its lists."""

    BUILT_IN = "built-in"
    CUSTOM = "custom"


_ANY_OBJECT = (("metadata", "ownerReferences", "uid"), ("metadata", "finalizers", ""))

# CRDs say themselves whether conditions have keys, but the API conventions tell all to.
_CUSTOM = (*_ANY_OBJECT, ("status", "conditions", "type"))

# The fields of k8s.io/api whose patchStrategy has "merge": the field above, the field, and the
# fields that name an element, those of listMapKey; the first is the patchMergeKey. A set has none.
# Left out: what only the API server's own components write, and status but for conditions.
_POD_SPEC = (
    ("spec", "containers", "name"),
    ("spec", "ephemeralContainers", "name"),
    ("spec", "hostAliases", "ip"),
    ("spec", "imagePullSecrets", "name"),
    ("spec", "initContainers", "name"),
    ("spec", "resourceClaims", "name"),
    ("spec", "schedulingGates", "name"),
    ("spec", "topologySpreadConstraints", "topologyKey whenUnsatisfiable"),
    ("spec", "volumes", "name"),
)
_CONTAINER = (
    ("env", "name"),
    ("ports", "containerPort protocol"),
    ("volumeDevices", "devicePath"),
    ("volumeMounts", "mountPath"),
)
_BUILT_IN = (
    *_CUSTOM,
    *_POD_SPEC,
    *(
        (containers, *field)
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for field in _CONTAINER
    ),
    ("spec", "drivers", "name"),  # CSINode
    ("spec", "matchConditions", "name"),  # admission policies
    ("spec", "podCIDRs", ""),  # Node
    ("spec", "ports", "port protocol"),  # Service
    ("spec", "variables", "name"),  # admission policies
    ("status", "addresses", "type"),  # Node
    ("status", "podIPs", "ip"),
    ("status", "reservedFor", "uid"),  # ResourceClaim
    ("status", "resourceClaimStatuses", "name"),
    ("webhooks", "matchConditions", "name"),
    ("", "imagePullSecrets", "name"),  # ServiceAccount
    ("", "secrets", "name"),  # ServiceAccount
    ("", "webhooks", "name"),  # webhook configurations
)

_KEYS = {
    schema: {(above, field): tuple(keys.split()) for above, field, keys in table}
    for schema, table in ((Schema.BUILT_IN, _BUILT_IN), (Schema.CUSTOM, _CUSTOM))
}
_DEFAULTS = {"protocol": "TCP"}
"""What a field that is missing says; only those that aren't an element's first."""

_BUILT_IN_GROUP = re.compile(
    r"(|apps|autoscaling|batch|extensions|policy|"
    r"(admissionregistration|apiextensions|apiregistration|apiserver|authentication|authorization"
    r"|certificates|coordination|discovery|events|flowcontrol\.apiserver|internal\.apiserver"
    r"|lifecycle|networking|node|rbac\.authorization|resource|scheduling|storage"
    r"|storagemigration)\.k8s\.io)"
)


def schema_of(*objects: Mapping[str, Any]) -> Schema:
    """Tell the schema of states of an object by the first that has an apiVersion.

    Only items of lists of built-in types have none.
    """
    api_version = next((found["apiVersion"] for found in objects if found.get("apiVersion")), "")
    group = str(api_version).rpartition("/")[0]
    return Schema.BUILT_IN if _BUILT_IN_GROUP.fullmatch(group) else Schema.CUSTOM


def keys_of(path: Path, schema: Schema) -> tuple[str, ...] | None:
    """Tell the keys of the elements of the list at *path*; none for a set, None for an atomic."""
    if not path or not isinstance(path[-1], str):
        return None
    above = [element for element in path[-3:-1] if isinstance(element, str)]
    return _KEYS[schema].get((above[-1] if above else "", path[-1]))


def by_keys(elements: Sequence[Any], keys: tuple[str, ...]) -> dict[Element, Any] | None:
    """Sort elements by their keys; None where one has none, or two have the same."""
    named: dict[Element, Any] = {}
    for element in elements:
        name = name_of(element, keys)
        if name is None or name in named:
            return None
        named[name] = element
    return named


def name_of(element: Any, keys: tuple[str, ...]) -> Element | None:
    """Name an element by *keys*, or as a member of a set; None if it can't be named."""
    if not keys:
        return Member(element) if isinstance(element, str) else None
    if not isinstance(element, dict) or element.get(keys[0]) is None:
        return None
    values = ((key, element.get(key, _DEFAULTS.get(key))) for key in keys)
    found = tuple((key, value) for key, value in values if value is not None)
    return Item(found) if all(type(value) in (str, int) for _, value in found) else None


def position(elements: Sequence[Any], name: Item | Member) -> int | None:
    """Find an element by its name."""
    keys = tuple(key for key, _ in name.keys) if isinstance(name, Item) else ()
    found = (n for n, element in enumerate(elements) if name_of(element, keys) == name)
    return next(found, None)


def same_order(one: Iterable[Element], other: Iterable[Element]) -> bool:
    """Tell whether what is in both stands in the same order."""
    first, second = dict.fromkeys(one), dict.fromkeys(other)
    return [key for key in first if key in second] == [key for key in second if key in first]


def interleave(first: Iterable[Element], second: Iterable[Element]) -> list[Element]:
    """Join two orders: what only *second* has comes after what it comes after there.

    Keeps both orders where what is in both has the same.
    """
    order: dict[Element | None, list[Element]] = {None: [], **{name: [] for name in first}}
    before: Element | None = None
    for name in second:
        if name in order:
            before = name
        else:
            order[before].append(name)
    return [
        found
        for name, after in order.items()
        for found in ((name, *after) if name is not None else after)
    ]
