"""JSON as all forms that are written in it have it: lists, the lines of a watch, versions.

kube-apiserver writes JSON in two layouts. Go structs (built-in resources): kind and apiVersion
first, none of them on list items. Unstructured (custom resources): sorted keys, both on every item.
"""

from collections.abc import Callable
from enum import Enum

import msgspec

from proxy.forms.bookmarks import ZeroObject
from proxy.forms.form import Bookmark, Change, EventType, Failure, Page, UnknownLayoutError
from proxy.forms.objects import Object, ObjectDecoder
from proxy.kube import gojson
from proxy.kube.errors import from_status
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


def read_layout(sample: bytes) -> tuple[Layout, str]:
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
