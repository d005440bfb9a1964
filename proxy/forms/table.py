"""The Table form: rows as kube-apiserver's printers wrote them, without what time changes in them.

Upstream sends every row with its whole object, so that rows with its metadata or with nothing can
be written as well, and a row's ages are counted anew from the object whenever it is read.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.forms.ages import Age, Ages, duration_text
from proxy.forms.bookmarks import INITIAL_END, ZeroObject
from proxy.forms.described import Described, Subject, merged, object_decoder
from proxy.forms.form import Bookmark, Change, EventType, Failure, Page, UnknownLayoutError
from proxy.forms.objects import Object
from proxy.forms.partial import added_annotations, encode_partial, partial_metadata
from proxy.forms.wire import ListMetadata, error_line, event_line, read_event, restamp
from proxy.kube.columns import PrinterColumn
from proxy.kube.errors import ApiError
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import ResourceInfo
from proxy.kube.selectable import SelectableField, selectable_fields
from proxy.kube.versions import parse_version

_INITIAL_END = b'"annotations":{"%s":"true"}' % INITIAL_END.encode()
_CELLS = b'{"cells":['

_RESORTED = frozenset({("flowcontrol.apiserver.k8s.io", "flowschemas")})
"""Resources whose Tables have an order of their own (``printFlowSchemaList``)."""


class Row(Object, frozen=True, gc=False, eq=False):
    """An object and its row; *raw* is the row with the whole object, and without its *ages*.

    The places of *ages* are in *raw*, and the object in it begins at *body*.
    """

    ages: tuple[Age, ...]
    body: int


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    cells: list[Raw]
    object: Raw
    conditions: Raw | UnsetType = UNSET


class _Table(msgspec.Struct):
    kind: Literal["Table"]
    apiVersion: Literal["meta.k8s.io/v1"]  # noqa: N815 - the wire's spelling
    metadata: ListMetadata
    columnDefinitions: Raw  # noqa: N815 - the wire's spelling
    rows: list[_Row] | None


class _Column(msgspec.Struct):
    name: str


_TABLE = msgspec.json.Decoder(_Table)
_COLUMNS = msgspec.json.Decoder(list[_Column])
_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)

log = logging.getLogger(__name__)


class _Zero(NamedTuple):
    """The row that bookmarks have."""

    cells: bytes
    object: ZeroObject


class TableForm(Described):
    """Tables of one resource, with the columns that *sample* shows, a Table of it without rows.

    *declared* are fields beside those that are built in, *generation* and *columns* are those of
    the resource's definition; columns are None where there is none. *clock* tells Unix time. Raises
    UnknownLayoutError when the sample is no Table.
    """

    def __init__(  # noqa: PLR0913 - most are by keyword
        self,
        info: ResourceInfo,
        sample: bytes,
        declared: Sequence[SelectableField] = (),
        *,
        generation: int = 0,
        warnings: tuple[bytes, ...] = (),
        columns: Sequence[PrinterColumn] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        resource = info.resource
        key = (resource.group, resource.plural)
        self.warnings = warnings
        self.clock = clock
        self.columns, names, self.no_rows = _read_columns(sample)
        built_in = selectable_fields(*key)
        fields = merged(built_in, declared)
        knows_fields = built_in is not None or columns is not None
        super().__init__(
            FormName.TABLE, Subject(info, fields, knows_fields, built_in is None, generation)
        )
        self.shape += (self.columns.decode(),)
        self._ages = Ages(resource, names, columns)
        self._objects = object_decoder((*fields, *self._ages.fields))
        self.zero: _Zero | None = None
        self.hidden = added_annotations(*key)
        self._is_exact = key not in _RESORTED

    def decode_page(self, body: bytes) -> Page:
        """Decode a Table, or a page of one; rows are copied out so that the body can go."""
        try:
            table = self._read(body)
            return Page(
                [self._decode_row(row) for row in table.rows or ()],
                parse_version(table.metadata.resourceVersion),
                table.metadata.continue_token,
            )
        except _FAULTS as error:
            raise UnknownLayoutError(f"not a Table: {error}") from error

    def decode_event(self, line: bytes) -> Change | Bookmark | Failure:
        """Decode one line of a watch, whose object is a Table of one row."""
        return read_event(line, self._decode_object, self._decode_bookmark)

    def _decode_object(self, encoded: bytes) -> Row:
        [row] = self._read(encoded).rows or []
        return self._decode_row(row)

    def _read(self, encoded: bytes) -> _Table:
        table = _TABLE.decode(encoded)
        if bytes(table.columnDefinitions) not in (self.columns, b"null"):
            raise UnknownLayoutError("a Table has other columns than before")
        return table

    def _decode_row(self, row: _Row) -> Row:
        encoded = bytes(row.object)
        found = self._objects.decode(encoded, b"")
        count = len(self.field_labels)
        cells = list(map(bytes, row.cells))
        ages = self._ages.cut(cells, found.fields[count:], encoded, found.name, self.clock())
        if ages is None and self._is_exact:
            self._is_exact = False
            log.info("Tables of %s go live: ages of %s can't be told", self.kind, found.key)
        return Row(
            found.key,
            found.namespace,
            found.name,
            found.uid,
            found.version,
            found.labels,
            found.fields[:count],
            *_assemble(cells, row, encoded, ages or ()),
        )

    def restamped(self, row: Row, version: int) -> Row:
        """Give a row's object another resourceVersion."""
        encoded = restamp(row.raw[row.body : -1], version)
        raw = row.raw[: row.body] + encoded + b"}"
        return msgspec.structs.replace(row, version=version, raw=raw)

    def _decode_bookmark(self, encoded: bytes) -> Bookmark:
        table = self._read(encoded)
        [row] = table.rows or []
        zero = ZeroObject(bytes(row.object))
        self.has_watch_list = self.has_watch_list or zero.initial_end
        cells = _CELLS + b",".join(map(bytes, row.cells)) + b'],"object":'
        self.zero = _Zero(cells, zero)
        return Bookmark(parse_version(table.metadata.resourceVersion), zero.initial_end)

    def rendering(self, representation: Representation, include: str) -> "TableRendering | None":
        """Write Tables; None as long as cells are held that can't be counted anew."""
        if representation.form is not FormName.TABLE or not self._is_exact:
            return None
        return TableRendering(self, representation.meta, include)


class TableRendering:
    """Writes Tables of *form* for one client, in version *meta* of ``meta.k8s.io``.

    With each row goes what *include* says: ``None``, the ``Object``, or else its ``Metadata``.
    Only the first event of a watch has columns, so that each answer needs a rendering of its own.
    """

    content_type = stream_type = b"application/json"
    separator = b","
    is_binary = False

    def __init__(self, form: TableForm, meta: str, include: str) -> None:
        self.warnings = form.warnings
        self._form = form
        self._meta = meta
        self._include = include
        self._head = b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":{' % meta.encode()
        self._columns = form.columns

    def encode_object(self, found: Object) -> bytes:
        """Encode the body of a get: a Table of one row, at the version of the object."""
        return self._table(found.version, self._row(found), self._form.columns) + b"\n"

    def encode_items(self, objects: Iterable[Object]) -> bytes:
        """Encode a run of rows, with commas in between."""
        return b",".join([self._row(found) for found in objects])

    def measure_items(self, objects: Iterable[Object]) -> int:
        """Count the bytes of a run of rows, without commas."""
        return sum(len(self._row(found)) for found in objects)

    def encode_list_envelope(
        self, version: int, continue_token: str = "", remaining: int = 0, size: int = 0
    ) -> tuple[bytes, bytes]:
        """Encode the head of a Table, with its columns, and the tail."""
        members = [_stamp(version)]
        if continue_token:
            members.append(b'"continue":"%s"' % continue_token.encode())
        if remaining:
            members.append(b'"remainingItemCount":%d' % remaining)
        head = self._head + b",".join(members) + b'},"columnDefinitions":' + self._form.columns
        return head + b',"rows":[', b"]}\n"

    def encode_empty_list(self, version: int) -> bytes:
        """Encode a Table without rows, which are null where there is no printer."""
        head, _ = self.encode_list_envelope(version)
        return head[:-1] + self._form.no_rows + b"}\n"

    def encode_event(self, event_type: EventType, found: Object, version: int) -> bytes:
        """Encode a watch line."""
        if found.version != version:
            found = self._form.restamped(cast(Row, found), version)
        return self._event(event_type, version, self._row(found))

    def encode_bookmark(self, version: int, *, initial_end: bool) -> bytes | None:
        """Encode a BOOKMARK line with the zero object's row, as the API server has sent one.

        That of the end of initial events tells its metadata whatever is to be included.
        """
        zero = self._form.zero
        if zero is None:
            return None
        if self._include == "Object":
            encoded = zero.object.encode(version, initial_end=initial_end)
        elif self._include == "None" and not initial_end:
            encoded = b"null"
        else:
            stamp = [_stamp(version)] + [_INITIAL_END] * initial_end
            encoded = encode_partial(b"{" + b",".join(stamp) + b"}", self._meta)
        return self._event("BOOKMARK", version, zero.cells + encoded + b"}")

    def encode_error(self, error: ApiError) -> bytes:
        """Encode an ERROR line."""
        return error_line(error)

    def _event(self, event_type: str, version: int, row: bytes) -> bytes:
        table = self._table(version, row, self._columns)
        self._columns = b"null"
        return event_line(event_type, table)

    def _table(self, version: int, row: bytes, columns: bytes) -> bytes:
        return b'%s%s},"columnDefinitions":%s,"rows":[%s]}' % (
            self._head,
            _stamp(version),
            columns,
            row,
        )

    def _row(self, found: Object) -> bytes:
        """Put the ages of now into a row, and what is to be included behind it."""
        row = cast(Row, found)
        raw, now = row.raw, self._form.clock()
        parts: list[bytes] = []
        at = 0
        for place, moment in row.ages:
            parts += (raw[at:place], duration_text(now - moment))
            at = place
        if self._include == "Object":
            parts.append(raw[at:])
        else:
            parts += (raw[at : row.body], self._included(row), b"}")
        return b"".join(parts)

    def _included(self, row: Row) -> bytes:
        if self._include == "None":
            return b"null"
        encoded = memoryview(row.raw)[row.body : -1]
        return encode_partial(partial_metadata(encoded, self._form.hidden), self._meta)


def _read_columns(sample: bytes) -> tuple[bytes, list[str], bytes]:
    """Read a Table's columns, their names, and how it's written without rows."""
    try:
        table = _TABLE.decode(sample)
        names = [each.name for each in _COLUMNS.decode(table.columnDefinitions)]
    except _FAULTS as error:
        raise UnknownLayoutError(f"not a Table with columns: {error}") from error
    return bytes(table.columnDefinitions), names, b"null" if table.rows is None else b"[]"


def _assemble(
    cells: list[bytes], row: _Row, encoded: bytes, ages: tuple[Age, ...]
) -> tuple[bytes, tuple[Age, ...], int]:
    """Put a row together; tells where its ages and its object are in it."""
    conditions = b"" if row.conditions is UNSET else b',"conditions":' + bytes(row.conditions)
    head = _CELLS + b",".join(cells) + b"]" + conditions + b',"object":'
    placed = tuple((len(_CELLS) + place, moment) for place, moment in ages)
    return head + encoded + b"}", placed, len(head)


def _stamp(version: int) -> bytes:
    return b'"resourceVersion":"%d"' % version
