"""The protobuf forms: objects kept as the bare message of a list item, framed by joining bytes.

A body is an envelope (``runtime/serializer/protobuf``): a magic number and an Unknown with the
type and the message. A watch is length-delimited frames of bare WatchEvents, each of which holds
an object in its envelope. Bytes are those that gogo-protobuf writes, with empty fields too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from proxy.forms.bookmarks import INITIAL_END
from proxy.forms.described import Described, Subject, metadata_subject
from proxy.forms.form import Bookmark, Change, EventType, Failure, Page, UnknownLayoutError
from proxy.forms.kinds import PARTIAL_KINDS, Kind
from proxy.forms.messages import MessageDecoder
from proxy.forms.objects import Object
from proxy.forms.partial import added_annotations
from proxy.kube.envelope import encode_status, read_error
from proxy.kube.errors import ApiError
from proxy.kube.gogo import field, find, varint, varint_size
from proxy.kube.negotiation import PROTOBUF, FormName, Representation
from proxy.kube.protobuf import CLASSES, MAGIC, unwrap
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, selectable_fields, wire_paths
from proxy.kube.versions import parse_version

_UNENCODED = field(3, b"") + field(4, b"")
"""The end of an Unknown: neither an encoding nor a content type."""

_METADATA = 1
"""Field number of an object's ObjectMeta."""

_RESOURCE_VERSION = 6
"""Field number of an ObjectMeta's resourceVersion."""

_INITIAL_END = field(12, field(1, INITIAL_END.encode()) + field(2, b"true"))
"""The entry of an ObjectMeta's annotations that marks the end of initial events."""

_PARTIALS = {(FormName.METADATA_PROTOBUF, meta): kind for meta, kind in PARTIAL_KINDS.items()}
"""What metadata alone are written as, by form and version of ``meta.k8s.io``."""

_ITEM = 1
"""Bytes of an item's tag."""


def _whole(raw: bytes) -> bytes:
    return raw


def _partial(raw: bytes) -> bytes:
    """Cut out the metadata, whose field in PartialObjectMetadata is that of every object."""
    found = find(raw, _METADATA)
    return raw[found.start : found.end] if found else b""


class ProtobufRendering:
    """Writes the objects of *form* as a *kind*.

    *read* takes out of an object's message what is to be written of it.
    """

    content_type = PROTOBUF.encode()
    stream_type = content_type + b";stream=watch"
    separator = b""
    is_binary = True

    def __init__(
        self,
        form: "ProtobufForm",
        kind: Kind,
        warnings: tuple[bytes, ...],
        read: Callable[[bytes], bytes] = _whole,
    ) -> None:
        self.warnings = warnings
        self._read = read
        self._form = form
        self._kind = kind
        self._object = _type_meta(kind.api_version, kind.kind)
        self._list = _type_meta(kind.api_version, kind.list_kind)
        self._item = varint(kind.items << 3 | 2)

    def encode_object(self, found: Object) -> bytes:
        """Encode the body of a get."""
        return self._enveloped(found.raw)

    def _enveloped(self, raw: bytes) -> bytes:
        message = self._read(raw)
        return self._object + varint(len(message)) + message + _UNENCODED

    def encode_items(self, objects: Iterable[Object]) -> bytes:
        """Encode a run of items, each with its tag and its length."""
        parts: list[bytes] = []
        for found in objects:
            message = self._read(found.raw)
            parts += (self._item, varint(len(message)), message)
        return b"".join(parts)

    def measure_items(self, objects: Iterable[Object]) -> int:
        """Count the bytes of a run of items."""
        sizes = [len(self._read(found.raw)) for found in objects]
        return sum(sizes) + sum(map(varint_size, sizes)) + _ITEM * len(sizes)

    def encode_list_envelope(
        self, version: int, continue_token: str = "", remaining: int = 0, size: int = 0
    ) -> tuple[bytes, bytes]:
        """Encode the head and the tail of a list; its metadata stand where their number says."""
        metadata = (
            field(1, b"")
            + field(2, b"%d" % version)
            + field(3, continue_token.encode())
            + (b"\x20" + varint(remaining) if remaining else b"")
        )
        encoded = field(self._kind.metadata, metadata)
        head = self._list + varint(len(encoded) + size)
        if self._kind.metadata < self._kind.items:
            return head + encoded, _UNENCODED
        return head, encoded + _UNENCODED

    def encode_empty_list(self, version: int) -> bytes:
        """Encode a list without items."""
        return b"".join(self.encode_list_envelope(version))

    def encode_event(self, event_type: EventType, found: Object, version: int) -> bytes:
        """Encode a watch frame."""
        raw = found.raw if found.version == version else restamp(found.raw, version)
        return _frame(event_type.encode(), self._enveloped(raw))

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK frame in the shape of those that the API server sent."""
        if self._form.bookmark is None:
            return None
        raw = restamp(self._form.bookmark, version, _INITIAL_END if initial_end else b"")
        return _frame(b"BOOKMARK", self._enveloped(raw))

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR frame."""
        return _frame(b"ERROR", encode_status(error, PROTOBUF))


class ProtobufForm(Described):
    """Protobuf of one resource, decoded by *decoder*, to be written as one of *kinds*.

    These are by form and version of ``meta.k8s.io`` in which a client asks, "" where there's none.
    ``bookmark`` is the object of the plain bookmarks that the API server has sent.
    """

    bookmark: bytes | None = None

    def __init__(
        self,
        name: FormName,
        subject: Subject,
        kinds: Mapping[tuple[FormName, str], Kind],
        decoder: MessageDecoder,
        warnings: tuple[bytes, ...],
    ) -> None:
        super().__init__(name, subject)
        self.shows = frozenset(form for form, _ in kinds)
        self._decoder = decoder
        self._renderings = {
            asked: ProtobufRendering(self, kind, warnings, _whole if asked[0] is name else _partial)
            for asked, kind in kinds.items()
        }

    def decode_page(self, body: bytes) -> Page:
        """Decode a page of a list; items are copied out so that the body can go."""
        try:
            page = CLASSES["Page"].FromString(_message(body).raw)
            metadata = page.metadata
            objects = [self._decoder.decode(raw) for raw in page.items]
            return Page(objects, parse_version(metadata.resourceVersion), _token(metadata))
        except (DecodeError, ValueError) as error:
            raise UnknownLayoutError(f"not a list of objects: {error}") from error

    def decode_event(self, line: bytes) -> Change | Bookmark | Failure:
        """Decode one frame of a watch."""
        try:
            event = CLASSES["WatchEvent"].FromString(line)
            encoded = event.object.raw
            if event.type == "ERROR":
                return Failure(read_error(0, encoded), len(line).to_bytes(4) + line)
            raw = _message(encoded).raw
            if event.type == "BOOKMARK":
                return self._decode_bookmark(raw)
            return Change(EventType(event.type), self._decoder.decode(raw))
        except (DecodeError, ValueError) as error:
            raise UnknownLayoutError(f"not a watch event: {error}") from error

    def _decode_bookmark(self, raw: bytes) -> Bookmark:
        plain, initial_end = _without_initial_end(raw)
        version = parse_version(CLASSES["Object"].FromString(raw).metadata.resourceVersion)
        self.has_watch_list = self.has_watch_list or initial_end
        self.bookmark = plain
        return Bookmark(version, initial_end)

    def rendering(self, representation: Representation, include: str) -> ProtobufRendering | None:
        """Write as one of the kinds."""
        return self._renderings.get((representation.form, representation.meta))


def protobuf_form(
    info: ResourceInfo,
    sample: bytes,
    declared: Sequence[SelectableField] = (),
    *,
    generation: int = 0,
    warnings: tuple[bytes, ...] = (),
) -> ProtobufForm:
    """Make the form of a built-in resource, whose types are those of *sample*, a list of it.

    Its metadata alone can be written of it too, unless some are only added when objects are.
    Of fields that are *declared* beside those of the API server no numbers are known, so lists by
    them are forwarded. Raises UnknownLayoutError.
    """
    resource = info.resource
    built_in = selectable_fields(resource.group, resource.plural)
    wanted = {each.label for each in declared}
    fields = [
        each._replace(indexed=each.indexed or each.label in wanted) for each in built_in or ()
    ]
    try:
        types = _message(sample).typeMeta
    except (DecodeError, ValueError) as error:
        raise UnknownLayoutError(f"not a list of objects: {error}") from error
    kinds = {(FormName.PROTOBUF, ""): Kind(types.apiVersion, info.kind, types.kind)}
    if built_in is not None and not added_annotations(resource.group, resource.plural):
        kinds |= _PARTIALS
    form = ProtobufForm(
        FormName.PROTOBUF,
        Subject(info, fields, built_in is not None, generation > 0, generation),
        kinds,
        MessageDecoder(fields, wire_paths(resource.group, resource.plural)),
        warnings,
    )
    form.decode_page(sample)
    return form


def metadata_protobuf_form(
    info: ResourceInfo,
    sample: bytes,
    declared: Sequence[SelectableField] = (),
    *,
    generation: int = 0,
    warnings: tuple[bytes, ...] = (),
) -> ProtobufForm:
    """Make the form of a resource's metadata in protobuf; *sample* is a list of it.

    Nothing that is *declared* can be told. Raises UnknownLayoutError.
    """
    form = ProtobufForm(
        FormName.METADATA_PROTOBUF,
        metadata_subject(info, (), generation),
        _PARTIALS,
        MessageDecoder(),
        warnings,
    )
    form.decode_page(sample)
    return form


def restamp(raw: bytes, version: int, more: bytes = b"") -> bytes:
    """Give an object another resourceVersion, all other bytes kept.

    *more* are fields for the end of its metadata. Raises ValueError.
    """
    outer = find(raw, _METADATA)
    inner = outer and find(raw, _RESOURCE_VERSION, outer.value, outer.end)
    if outer is None or inner is None:
        raise ValueError("an object without metadata, or without resourceVersion")
    stamp = field(_RESOURCE_VERSION, b"%d" % version)
    metadata = raw[outer.value : inner.start] + stamp + raw[inner.end : outer.end] + more
    return raw[: outer.start] + field(_METADATA, metadata) + raw[outer.end :]


def _without_initial_end(raw: bytes) -> tuple[bytes, bool]:
    """Take the mark of the end of initial events from a bookmark, if it has one."""
    outer = find(raw, _METADATA)
    if outer is None:
        raise ValueError("a bookmark without metadata")
    metadata = raw[outer.value : outer.end]
    plain = metadata.replace(_INITIAL_END, b"")
    return raw[: outer.start] + field(_METADATA, plain) + raw[outer.end :], plain != metadata


def _message(body: bytes) -> Any:
    """Open an envelope. Raises DecodeError or ValueError."""
    unknown = unwrap(body)
    if unknown is None:
        raise ValueError("no envelope of plain protobuf")
    return unknown


def _token(metadata: Any) -> str:
    """The continue token of a list; its field is named by a word of Python."""
    token: str = getattr(metadata, "continue")
    return token


def _type_meta(api_version: str, kind: str) -> bytes:
    """Encode an envelope up to the length of its message."""
    types = field(1, field(1, api_version.encode()) + field(2, kind.encode()))
    return MAGIC + types + varint(2 << 3 | 2)


def _frame(event_type: bytes, enveloped: bytes) -> bytes:
    event = field(1, event_type) + field(2, field(1, enveloped))
    return len(event).to_bytes(4) + event
