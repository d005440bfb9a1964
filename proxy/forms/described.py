"""What a form says of the resource that its objects are of."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.forms.form import UnknownLayoutError
from proxy.forms.objects import ObjectDecoder
from proxy.kube.negotiation import FormName
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, knows_namespace, selectable_fields


class Subject(NamedTuple):
    """A resource, and the *fields* that a form can read of its objects.

    With *knows_fields* those and the two of metadata are all that the API server knows.
    *generation* is that of the definition that it has with *is_custom*, 0 where that can't be read.
    """

    info: ResourceInfo
    fields: Sequence[SelectableField]
    knows_fields: bool
    is_custom: bool
    generation: int


class Described:
    """The part of a ``Form`` that follows from its subject."""

    has_watch_list = False
    shows: frozenset[FormName]

    def __init__(self, name: FormName, subject: Subject) -> None:
        info = subject.info
        resource = info.resource
        self.name = name
        self.shows = frozenset({name})
        self.kind = info.kind
        self.namespaced = info.namespaced
        self.has_status = info.has_status
        self.is_custom = subject.is_custom
        self.knows_fields = subject.knows_fields
        self.namespace_selectable = info.namespaced and knows_namespace(
            resource.group, resource.plural
        )
        self.field_labels = {each.label: n for n, each in enumerate(subject.fields)}
        self.indexed = tuple(n for n, each in enumerate(subject.fields) if each.indexed)
        traits = (info.kind, info.namespaced, info.has_status, subject.generation)
        self.shape = (*map(str, (name, *traits)), *self.field_labels)


def metadata_subject(
    info: ResourceInfo, fields: Sequence[SelectableField], generation: int
) -> Subject:
    """Describe what metadata alone say, by whether name and namespace are selected by as usual.

    An aggregated API may mean anything by them; what a definition was read of is no such.
    """
    resource = info.resource
    is_built_in = selectable_fields(resource.group, resource.plural) is not None
    is_custom = generation > 0
    return Subject(info, fields, is_built_in or is_custom, is_custom, generation)


def merged(
    built_in: Sequence[SelectableField] | None, declared: Sequence[SelectableField]
) -> list[SelectableField]:
    """Join the fields of a built-in resource and those *declared*, which count where both are."""
    return list({each.label: each for each in (*(built_in or ()), *declared)}.values())


def object_decoder(fields: Iterable[SelectableField]) -> ObjectDecoder:
    """Make a decoder that reads *fields*. Raises UnknownLayoutError for some that overlap."""
    try:
        return ObjectDecoder(tuple(fields))
    except ValueError as error:
        raise UnknownLayoutError(str(error)) from error
