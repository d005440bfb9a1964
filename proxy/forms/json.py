"""The JSON form: objects kept as the bytes of a list item, encoded by joining bytes."""

from collections.abc import Iterable, Sequence

from proxy.forms.described import Subject, merged, object_decoder
from proxy.forms.form import (
    EventType,
    Page,
    Rendering,
    UnknownLayoutError,
)
from proxy.forms.kinds import PARTIAL_KINDS
from proxy.forms.metadata import MetadataRendering
from proxy.forms.objects import Object
from proxy.forms.partial import added_annotations, partial_metadata
from proxy.forms.wire import (
    JsonLines,
    Layout,
    encode_list_metadata,
    error_line,
    event_line,
    read_layout,
    read_page,
    restamp,
)
from proxy.kube import gojson
from proxy.kube.errors import ApiError
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, selectable_fields


class JsonForm(JsonLines):
    """JSON of one resource, in the layout that *sample*, a list of it, shows.

    Its metadata alone can be written of it too, as custom and built-in resources have them.
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
        self._layout, kind = read_layout(sample)
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
        hidden = added_annotations(resource.group, resource.plural)
        self._partials = {
            version: MetadataRendering(
                self, kind, warnings, lambda raw: partial_metadata(raw, hidden)
            )
            for version, kind in PARTIAL_KINDS.items()
            if knows_fields
        }
        if knows_fields:
            self.shows |= {FormName.METADATA}

    def decode_page(self, body: bytes) -> Page:
        """Decode a page of a list; items are copied out so that the body can go."""
        return read_page(body, self._objects)

    def _decode_object(self, encoded: bytes) -> Object:
        if not self._type_meta:
            return self._objects.decode(encoded, encoded)
        if not encoded.startswith(self._type_meta):
            raise UnknownLayoutError(
                "an event's object does not start with its kind and apiVersion"
            )
        raw = b"{" + encoded[len(self._type_meta) :]
        return self._objects.decode(raw, raw)

    def rendering(self, representation: Representation, include: str) -> Rendering | None:
        """Write as the objects are kept, or their metadata."""
        if representation.form is FormName.METADATA:
            return self._partials.get(representation.meta)
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
        return event_line(event_type, self._typed(raw))

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK line in the shape of those that the API server sent."""
        if self.zero is None:
            return None
        return event_line("BOOKMARK", self.zero.encode(version, initial_end=initial_end))

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR line."""
        return error_line(error)
