"""What a form says of the resource that its objects are of."""

from collections.abc import Sequence
from typing import NamedTuple

from proxy.kube.negotiation import FormName
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, knows_namespace


class Subject(NamedTuple):
    """A resource, and the *fields* that a form can read of its objects.

    With *knows_fields* those and the two of metadata are all that the API server knows.
    *generation* is that of the resource's definition, 0 for what has none.
    """

    info: ResourceInfo
    fields: Sequence[SelectableField]
    knows_fields: bool
    generation: int


class Described:
    """The part of a ``Form`` that follows from its subject."""

    has_watch_list = False

    def __init__(self, name: FormName, subject: Subject) -> None:
        info = subject.info
        resource = info.resource
        self.name = name
        self.kind = info.kind
        self.namespaced = info.namespaced
        self.has_status = info.has_status
        self.is_custom = subject.generation > 0
        self.knows_fields = subject.knows_fields
        self.namespace_selectable = info.namespaced and knows_namespace(
            resource.group, resource.plural
        )
        self.field_labels = {each.label: n for n, each in enumerate(subject.fields)}
        self.indexed = tuple(n for n, each in enumerate(subject.fields) if each.indexed)
        traits = (info.kind, info.namespaced, info.has_status, subject.generation)
        self.shape = (*map(str, (name, *traits)), *self.field_labels)
