"""What a representation of a resource offers to the cache and to the readers."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, Protocol

from proxy.forms.objects import Object
from proxy.kube.errors import ApiError
from proxy.kube.negotiation import PLAIN, FormName, Representation


class EventType(StrEnum):
    """Types of watch events that carry an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(NamedTuple):
    """A decoded event; for DELETED the last state, at the version of the deletion."""

    type: EventType
    object: Object


class Bookmark(NamedTuple):
    """A decoded BOOKMARK; *initial_end* marks the end of a WatchList's initial events."""

    version: int
    initial_end: bool


class Failure(NamedTuple):
    """A decoded ERROR event, and the *frame* that it came in."""

    error: ApiError
    frame: bytes


class Page(NamedTuple):
    """A decoded page of a list; *version* is the list's own resourceVersion."""

    objects: list[Object]
    version: int
    continue_token: str


class UnknownLayoutError(ValueError):
    """The API answers in a shape that this form does not know; the resource can't be cached."""


class Rendering(Protocol):
    """How the objects of a form are written for one client."""

    content_type: bytes
    stream_type: bytes
    """Media types of a get or a list, and of a watch."""
    warnings: tuple[bytes, ...]
    """``Warning`` headers of every answer, as of a deprecated version."""
    separator: bytes
    """What stands between the items of a list."""
    is_binary: bool
    """A list says at its head how many bytes its items have; nothing is indented."""

    def encode_object(self, found: Object) -> bytes:
        """Encode the body of a get."""

    def encode_items(self, objects: Iterable[Object]) -> bytes:
        """Encode a run of items of a list."""

    def measure_items(self, objects: Iterable[Object]) -> int:
        """Count the bytes of a run of items."""

    def encode_list_envelope(
        self, version: int, continue_token: str = "", remaining: int = 0, size: int = 0
    ) -> tuple[bytes, bytes]:
        """Encode the head and the tail of a list; the items, of *size* bytes, stand between.

        A page has a token, and where it's known how many objects are left behind it.
        """

    def encode_empty_list(self, version: int) -> bytes:
        """Encode a list, or the last page of one, that has no items."""

    def encode_event(self, event_type: EventType, found: Object, version: int) -> bytes:
        """Encode a watch frame; an object of another version than *version* is restamped."""

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK frame; None as long as the API server has not shown one."""

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR frame, which is how a watch fails once it has begun."""


class Form(Protocol):
    """One representation of one resource: decodes what upstream sends, knows how to render it.

    Decoders raise UnknownLayoutError for bytes that they don't understand.
    """

    name: FormName
    kind: str
    shape: tuple[str, ...]
    """What the form depends on; another shape needs all objects anew."""
    is_custom: bool
    """Its objects are read by a definition, which may change."""
    namespaced: bool
    has_status: bool
    """The status is a subresource, which updates of the object don't write."""
    shows: frozenset[FormName]
    """Forms in which its objects can be written: its own, and maybe that of their metadata."""
    has_watch_list: bool
    """The API server has marked the end of initial events, so it offers WatchList."""
    namespace_selectable: bool
    indexed: tuple[int, ...]
    """Places of the fields in ``Object.fields`` that are worth an index."""
    field_labels: dict[str, int]
    """Selectable fields beyond metadata, to their place in ``Object.fields``."""
    knows_fields: bool
    """Those, and the two of metadata, are all that there are."""

    def decode_page(self, body: bytes) -> Page:
        """Decode a page of a list."""

    def decode_event(self, line: bytes) -> Change | Bookmark | Failure:
        """Decode one frame of a watch."""

    def rendering(self, representation: Representation, include: str) -> Rendering | None:
        """Tell how to write for a client, who may watch; None if that can't be done now.

        *include* is the ``includeObject`` of a Table.
        """


def plainly(form: Form) -> Rendering:
    """Tell how to write for a client without wishes, of a form that needs none."""
    rendering = form.rendering(PLAIN, "")
    assert rendering is not None
    return rendering
