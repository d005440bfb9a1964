"""How objects, and lists of them, are typed."""

from typing import NamedTuple


class Kind(NamedTuple):
    """The types of objects and of lists, and in protobuf the fields by which a list has its own."""

    api_version: str
    kind: str
    list_kind: str
    metadata: int = 1
    items: int = 2


_PARTIAL = "PartialObjectMetadata"

PARTIAL_KINDS = {
    "v1": Kind("meta.k8s.io/v1", _PARTIAL, f"{_PARTIAL}List"),
    "v1beta1": Kind("meta.k8s.io/v1beta1", _PARTIAL, f"{_PARTIAL}List", metadata=2, items=1),
}
"""By version; the older one has its list's fields the other way round in protobuf."""
