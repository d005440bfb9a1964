"""The metadata form in JSON: of every object its ObjectMeta alone, as PartialObjectMetadata.

The API server writes these as Go structs whatever they are of, custom resources too; clients ask
for them in two versions of ``meta.k8s.io``. Upstream is asked for v1.
"""

from collections.abc import Callable, Iterable, Sequence

from proxy.forms.described import metadata_subject, object_decoder
from proxy.forms.form import EventType, Page, UnknownLayoutError
from proxy.forms.kinds import PARTIAL_KINDS, Kind
from proxy.forms.objects import Object
from proxy.forms.wire import (
    JsonLines,
    Layout,
    encode_list_metadata,
    error_line,
    event_line,
    read_page,
    restamp,
)
from proxy.kube.errors import ApiError
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField


def _typed(kind: str, api_version: str) -> bytes:
    """Encode the start of an object or a list, up to its metadata."""
    return b'{"kind":"%s","apiVersion":"%s",' % (kind.encode(), api_version.encode())


_KEPT = PARTIAL_KINDS["v1"]
_HEAD = _typed(_KEPT.kind, _KEPT.api_version) + b'"metadata":'


def _kept_metadata(raw: bytes) -> bytes:
    return raw[len(_HEAD) : -1]


class MetadataRendering:
    """Writes the metadata of *form*'s objects in one version; *read* takes them out of those."""

    content_type = stream_type = b"application/json"
    separator = b","
    is_binary = False

    def __init__(
        self,
        form: JsonLines,
        kind: Kind,
        warnings: tuple[bytes, ...],
        read: Callable[[bytes], bytes] = _kept_metadata,
    ) -> None:
        self.warnings = warnings
        self._form = form
        self._head = _typed(kind.kind, kind.api_version) + b'"metadata":'
        self._list_type = _typed(kind.list_kind, kind.api_version)
        self._read = read
        self._is_as_kept = read is _kept_metadata and self._head == _HEAD

    def encode_object(self, found: Object) -> bytes:
        """Encode the body of a get, with the final newline."""
        return self._as(found.raw) + b"\n"

    def _as(self, raw: bytes) -> bytes:
        return raw if self._is_as_kept else self._head + self._read(raw) + b"}"

    def encode_items(self, objects: Iterable[Object]) -> bytes:
        """Encode a run of items, with commas in between."""
        return b",".join([self._as(found.raw) for found in objects])

    def measure_items(self, objects: Iterable[Object]) -> int:
        """Count the bytes of a run of items, without commas."""
        return sum(len(self._as(found.raw)) for found in objects)

    def encode_list_envelope(
        self, version: int, continue_token: str = "", remaining: int = 0, size: int = 0
    ) -> tuple[bytes, bytes]:
        """Encode the head and the tail of a list."""
        metadata = encode_list_metadata(Layout.STRUCT, version, continue_token, remaining)
        return self._list_type + b'"metadata":' + metadata + b',"items":[', b"]}\n"

    def encode_empty_list(self, version: int) -> bytes:
        """Encode a list without items: Go writes a slice that was never made as null."""
        metadata = encode_list_metadata(Layout.STRUCT, version, "", 0)
        return self._list_type + b'"metadata":' + metadata + b',"items":null}\n'

    def encode_event(self, event_type: EventType, found: Object, version: int) -> bytes:
        """Encode a watch line."""
        raw = found.raw if found.version == version else restamp(found.raw, version)
        return event_line(event_type, self._as(raw))

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK line in the shape of those that the API server sent."""
        if self._form.zero is None:
            return None
        found = self._form.zero.encode(version, initial_end=initial_end)
        return event_line("BOOKMARK", self._as(found))

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR line."""
        return error_line(error)


class MetadataForm(JsonLines):
    """Metadata of one resource in JSON, for which *sample* is a list of it.

    Of the fields that are *declared* only those within the metadata can be told. Raises
    UnknownLayoutError.
    """

    def __init__(
        self,
        info: ResourceInfo,
        sample: bytes,
        declared: Sequence[SelectableField] = (),
        *,
        generation: int = 0,
        warnings: tuple[bytes, ...] = (),
    ) -> None:
        fields = [each for each in declared if all(path[0] == "metadata" for path in each.paths)]
        super().__init__(FormName.METADATA, metadata_subject(info, fields, generation))
        self._objects = object_decoder(fields)
        self._renderings = {
            version: MetadataRendering(self, kind, warnings)
            for version, kind in PARTIAL_KINDS.items()
        }
        self.decode_page(sample)

    def decode_page(self, body: bytes) -> Page:
        """Decode a page of a list; items are copied out so that the body can go."""
        page = read_page(body, self._objects)
        if not all(found.raw.startswith(_HEAD) for found in page.objects):
            raise UnknownLayoutError(f"a list of what isn't {_KEPT.kind}")
        return page

    def _decode_object(self, encoded: bytes) -> Object:
        if not encoded.startswith(_HEAD):
            raise UnknownLayoutError(f"an event of what isn't {_KEPT.kind}")
        return self._objects.decode(encoded, encoded)

    def rendering(self, representation: Representation, include: str) -> MetadataRendering | None:
        """Write in the version of ``meta.k8s.io`` that is asked for."""
        return self._renderings.get(representation.meta)
