"""JSON as all forms that are written in it have it: lists, the lines of a watch, versions.

kube-apiserver writes JSON in two layouts. Go structs (built-in resources): kind and apiVersion
first, none of them on list items. Unstructured (custom resources): sorted keys, both on every item.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum

import msgspec

from proxy.forms.bookmarks import ZeroObject
from proxy.forms.described import Described
from proxy.forms.form import Bookmark, Change, EventType, Failure, Page, UnknownLayoutError
from proxy.forms.objects import Object, ObjectDecoder
from proxy.kube import gojson
from proxy.kube.errors import ApiError, from_status
from proxy.kube.versions import parse_version

_VERSION = b'"resourceVersion":"'


class Layout(Enum):
    """The two ways in which Go writes an object."""

    STRUCT = b'{"kind":'
    UNSTRUCTURED = b'{"apiVersion":'


class ListMetadata(msgspec.Struct, rename={"continue_token": "continue"}):
    """What a list's own metadata say."""

    resourceVersion: str = ""  # noqa: N815 - the wire's spelling
    continue_token: str = ""


class _List(msgspec.Struct):
    metadata: ListMetadata
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(_Event)


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


class JsonLines(Described, ABC):
    """A form that is watched as lines of JSON, each with an object of its own kind.

    ``zero`` is the object of the bookmarks that the API server has sent.
    """

    zero: ZeroObject | None = None

    def decode_event(self, line: bytes) -> Change | Bookmark | Failure:
        """Decode one line of a watch."""
        return read_event(line, self._decode_object, self._decode_bookmark)

    @abstractmethod
    def _decode_object(self, encoded: bytes) -> Object:
        """Decode the object of an event."""

    def _decode_bookmark(self, encoded: bytes) -> Bookmark:
        self.zero = ZeroObject(encoded)
        self.has_watch_list = self.has_watch_list or self.zero.initial_end
        return Bookmark(self.zero.version, self.zero.initial_end)


def event_line(event_type: str, encoded: bytes) -> bytes:
    """Encode a line of a watch."""
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), encoded)


def error_line(error: ApiError) -> bytes:
    """Encode an ERROR line."""
    return event_line("ERROR", gojson.encode(error.status()))


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


def read_layout(sample: bytes) -> tuple[Layout, str]:
    """Recognise the layout and the list kind of a list; its items must fit the layout."""
    try:
        page = _LIST.decode(sample)
        typed = any("kind" in gojson.split_members(item) for item in page.items or ())
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
    members = gojson.split_members(raw)
    metadata = gojson.split_members(members["metadata"])
    metadata["resourceVersion"] = msgspec.Raw(b'"%d"' % version)
    members["metadata"] = msgspec.Raw(gojson.join_members(metadata))
    return gojson.join_members(members)
