"""The JSON form: objects kept as the bytes of a list item, encoded by joining bytes.

kube-apiserver writes JSON in two layouts. Go structs (built-in resources): kind and apiVersion
first, none of them on list items. Unstructured (custom resources): sorted keys, both on every item.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

import msgspec

from proxy.forms.bookmarks import ZeroObject
from proxy.forms.described import Described, Subject, merged, object_decoder
from proxy.forms.form import (
    Bookmark,
    Change,
    EventType,
    Failure,
    Page,
    UnknownLayoutError,
)
from proxy.forms.objects import Object, ObjectDecoder
from proxy.kube import gojson
from proxy.kube.errors import ApiError, from_status
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, selectable_fields
from proxy.kube.versions import parse_version

_VERSION = b'"resourceVersion":"'


class Layout(Enum):
    """The two ways in which Go writes an object."""

    STRUCT = b'{"kind":'
    UNSTRUCTURED = b'{"apiVersion":'


class _ListMetadata(msgspec.Struct, rename={"continue_token": "continue"}):
    resourceVersion: str = ""  # noqa: N815 - the wire's spelling
    continue_token: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(_Event)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class JsonForm(Described):
    """JSON of one resource, in the layout that *sample*, a list of it, shows.

    *declared* are fields beside those that are built in, *generation* is that of the resource's
    definition. Raises UnknownLayoutError when the sample is in neither layout.
    """

    content_type = stream_type = b"application/json"
    separator = b","
    is_binary = False

    def __init__(
        self,
        info: ResourceInfo,
        sample: bytes,
        declared: Sequence[SelectableField] = (),
        *,
        generation: int = 0,
        warnings: tuple[bytes, ...] = (),
    ) -> None:
        resource = info.resource
        self.warnings = warnings
        self._layout, kind = _read_layout(sample)
        built_in = selectable_fields(resource.group, resource.plural)
        fields = merged(built_in, declared)
        is_custom = self._layout is Layout.UNSTRUCTURED
        knows_fields = built_in is not None or is_custom
        super().__init__(FormName.JSON, Subject(info, fields, knows_fields, is_custom, generation))
        self.shape += (self._layout.name, kind)
        self._objects = object_decoder(fields)
        self._type_meta = (
            b'{"kind":' + gojson.encode(info.kind) + b',"apiVersion":'
            + gojson.encode(resource.group_version) + b","
            if self._layout is Layout.STRUCT
            else b""
        )  # fmt: skip
        self._list_kind = gojson.encode(kind)
        self._api_version = gojson.encode(resource.group_version)
        self._zero: ZeroObject | None = None

    def decode_page(self, body: bytes) -> Page:
        """Decode a page of a list; items are copied out so that the body can go."""
        return read_page(body, self._objects)

    def decode_event(self, line: bytes) -> Change | Bookmark | Failure:
        """Decode one line of a watch."""
        return read_event(line, self._decode_object, self._decode_bookmark)

    def _decode_object(self, encoded: bytes) -> Object:
        if not self._type_meta:
            return self._objects.decode(encoded, encoded)
        if not encoded.startswith(self._type_meta):
            raise UnknownLayoutError(
                "an event's object does not start with its kind and apiVersion"
            )
        raw = b"{" + encoded[len(self._type_meta) :]
        return self._objects.decode(raw, raw)

    def _decode_bookmark(self, encoded: bytes) -> Bookmark:
        bookmark, self._zero = read_bookmark(encoded)
        self.has_watch_list = self.has_watch_list or bookmark.initial_end
        return bookmark

    def rendering(self, representation: Representation, include: str) -> "JsonForm":
        """Write as the objects are kept."""
        return self

    def encode_object(self, found: Object) -> bytes:
        """Encode the body of a get, with kind, apiVersion and the final newline."""
        return self._typed(found.raw) + b"\n"

    def _typed(self, raw: bytes) -> bytes:
        return self._type_meta + raw[1:] if self._type_meta else raw

    def encode_items(self, objects: Iterable[Object]) -> bytes:
        """Encode a run of items, with commas in between."""
        return b",".join([found.raw for found in objects])

    def measure_items(self, objects: Iterable[Object]) -> int:
        """Count the bytes of a run of items, without commas."""
        return sum(len(found.raw) for found in objects)

    def encode_list_envelope(
        self, version: int, continue_token: str = "", remaining: int = 0, size: int = 0
    ) -> tuple[bytes, bytes]:
        """Encode the head and the tail of a list, whose metadata stand in either."""
        metadata = encode_list_metadata(self._layout, version, continue_token, remaining)
        if self._layout is Layout.STRUCT:
            head = (
                b'{"kind":' + self._list_kind + b',"apiVersion":' + self._api_version
                + b',"metadata":' + metadata + b',"items":['
            )  # fmt: skip
            return head, b"]}\n"
        head = b'{"apiVersion":' + self._api_version + b',"items":['
        return head, b'],"kind":' + self._list_kind + b',"metadata":' + metadata + b"}\n"

    def encode_empty_list(self, version: int) -> bytes:
        """Encode a list without items."""
        return b"".join(self.encode_list_envelope(version))

    def encode_event(self, event_type: EventType, found: Object, version: int) -> bytes:
        """Encode a watch line."""
        raw = found.raw if found.version == version else restamp(found.raw, version)
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), self._typed(raw))

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK line in the shape of those that the API server sent."""
        if self._zero is None:
            return None
        encoded = self._zero.encode(version, initial_end=initial_end)
        return b'{"type":"BOOKMARK","object":%s}\n' % encoded

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR line."""
        return b'{"type":"ERROR","object":%s}\n' % gojson.encode(error.status())


def read_page(body: bytes, decoder: ObjectDecoder) -> Page:
    """Decode a page of a list, whose items are kept as they are. Raises UnknownLayoutError."""
    try:
        page = _LIST.decode(body)
        objects = []
        for item in page.items or ():
            raw = bytes(item)
            objects.append(decoder.decode(raw, raw))
        return Page(
            objects,
            parse_version(page.metadata.resourceVersion),
            page.metadata.continue_token,
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnknownLayoutError(f"not a list of objects: {error}") from error


def read_bookmark(encoded: bytes) -> tuple[Bookmark, ZeroObject]:
    """Decode a bookmark's object, and keep it for others. Raises MsgspecError, ValueError."""
    zero = ZeroObject(encoded)
    return Bookmark(zero.version, zero.initial_end), zero


def read_event(
    line: bytes,
    decode_object: Callable[[bytes], Object],
    decode_bookmark: Callable[[bytes], Bookmark],
) -> Change | Bookmark | Failure:
    """Decode a line of a watch. Raises UnknownLayoutError."""
    try:
        event = _EVENT.decode(line)
        encoded = bytes(event.object)
        if event.type == "BOOKMARK":
            return decode_bookmark(encoded)
        if event.type == "ERROR":
            return Failure(from_status(0, encoded), line + b"\n")
        return Change(EventType(event.type), decode_object(encoded))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnknownLayoutError(f"not a watch event: {error}") from error


def encode_list_metadata(
    layout: Layout, version: int, continue_token: str, remaining: int
) -> bytes:
    """Encode the metadata of a list.

    Structs leave out what is empty and are in declared order; the others are sorted.
    """
    token = b'"continue":"%s"' % continue_token.encode()
    count = b'"remainingItemCount":%d' % remaining if remaining else b""
    stamp = _VERSION + b'%d"' % version
    if layout is Layout.STRUCT:
        members = (stamp, token if continue_token else b"", count)
    else:
        members = (token, count, stamp)
    return b"{" + b",".join(filter(None, members)) + b"}"


def list_version(body: bytes) -> int:
    """Read the resourceVersion of a list and nothing else of it."""
    try:
        return parse_version(_LIST.decode(body).metadata.resourceVersion)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnknownLayoutError(f"not a list: {error}") from error


def _read_layout(sample: bytes) -> tuple[Layout, str]:
    """Recognise the layout and the list kind of a list; its items must fit the layout."""
    try:
        page = _LIST.decode(sample)
        typed = any("kind" in _MEMBERS.decode(item) for item in page.items or ())
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnknownLayoutError(f"not a list of objects: {error}") from error
    for layout in Layout:
        if sample.startswith(layout.value):
            if page.items and typed is (layout is Layout.STRUCT):
                raise UnknownLayoutError("list items that carry kind in neither known layout")
            return layout, page.kind
    raise UnknownLayoutError("a list that starts with neither kind nor apiVersion")


def restamp(raw: bytes, version: int) -> bytes:
    """Give an object another resourceVersion, all other bytes kept.

    Members are taken apart and put together, since a search could hit a look-alike elsewhere.
    """
    members = _MEMBERS.decode(raw)
    metadata = _MEMBERS.decode(members["metadata"])
    metadata["resourceVersion"] = msgspec.Raw(b'"%d"' % version)
    members["metadata"] = msgspec.Raw(gojson.join_members(metadata))
    return gojson.join_members(members)
