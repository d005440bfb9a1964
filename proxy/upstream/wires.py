"""How each form is asked for, and how its watches are framed."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from proxy.kube.negotiation import JSON, PROTOBUF, FormName
from proxy.upstream.client import Client
from proxy.upstream.framing import Framer, LengthFramer, LineFramer

_META = ";g=meta.k8s.io;v=v1"


class Wire(NamedTuple):
    """What to accept for lists and for watches, what to add to queries, and what cuts frames."""

    listing: str
    watching: str
    query: Mapping[str, str] = {}
    framer: Callable[[], Framer] = LineFramer


_TABLE = f"{JSON};as=Table{_META}"
_METADATA = ";as=PartialObjectMetadata"

WIRES = {
    FormName.JSON: Wire(JSON, JSON),
    FormName.TABLE: Wire(_TABLE, _TABLE, {"includeObject": "Object"}),
    FormName.METADATA: Wire(f"{JSON}{_METADATA}List{_META}", f"{JSON}{_METADATA}{_META}"),
    FormName.PROTOBUF: Wire(PROTOBUF, PROTOBUF, framer=LengthFramer),
    FormName.METADATA_PROTOBUF: Wire(
        f"{PROTOBUF}{_METADATA}List{_META}",
        f"{PROTOBUF}{_METADATA}{_META}",
        framer=LengthFramer,
    ),
}


def open_watch(
    client: Client, form: FormName, target: str, *, live: bool = False
) -> AsyncGenerator[Sequence[bytes], None]:
    """Open a watch of a form at a raw *target*, which has a query."""
    wire = WIRES[form]
    if wire.query:
        target = f"{target}&{urlencode(wire.query)}"
    return client.frames(target, wire.watching, wire.framer, live=live)
