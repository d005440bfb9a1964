"""Representations that clients ask for, and what their answers say of themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from proxy.kube.negotiation import JSON, PROTOBUF, FormName
from proxy.kube.protobuf import CLASSES, unwrap
from tests.harness.http import Answer, Headers, cut


class Asked(NamedTuple):
    """Accept headers of one client: for a list, and for all else."""

    listing: str
    other: str

    def headers(self, *, listing: bool = False) -> Headers:
        return (("Accept", self.listing if listing else self.other),)


def plain(*media: str) -> Asked:
    """Ask for whole objects."""
    return Asked(",".join(media), ",".join(media))


def metadata(*media: str, version: str = "v1", last: str = "") -> Asked:
    """Ask for metadata alone, in the first of *media* that can be had, or for what's *last*."""
    kinds = (f"PartialObjectMetadata{suffix};g=meta.k8s.io;v={version}" for suffix in ("List", ""))
    headers = [",".join([*(f"{each};as={kind}" for each in media), last]) for kind in kinds]
    return Asked(*(header.removesuffix(",") for header in headers))


def table(version: str = "v1") -> Asked:
    """Ask for Tables as kubectl does, or for JSON."""
    return plain(f"{JSON};as=Table;g=meta.k8s.io;v={version}", JSON)


CLIENT_GO = plain(PROTOBUF, JSON)
WHOLE = {"protobuf": plain(PROTOBUF), "client-go": CLIENT_GO, "json": plain(JSON)}
METADATA = {
    "metadata": metadata(JSON),
    "metadata-v1beta1": metadata(JSON, version="v1beta1"),
    "metadata-protobuf": metadata(PROTOBUF),
    "metadata-protobuf-v1beta1": metadata(PROTOBUF, version="v1beta1"),
    "metadata-client": metadata(PROTOBUF, JSON, last=JSON),
}

CLIENTS: Mapping[FormName, Asked] = {
    FormName.JSON: plain(JSON),
    FormName.TABLE: table(),
    FormName.METADATA: metadata(JSON, last=JSON),
    FormName.PROTOBUF: CLIENT_GO,
    FormName.METADATA_PROTOBUF: metadata(PROTOBUF, last=JSON),
}
"""One for each form, who takes failures in another one, and what has no protobuf in JSON."""


class Found(NamedTuple):
    """An object as it's shown in a form; *content* is the same wherever the form shows it."""

    namespace: str
    name: str
    version: int
    content: object

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Listed(NamedTuple):
    """A list's own version, and its objects."""

    version: int
    objects: list[Found]


def read_list(answer: Answer) -> Listed:
    """Read a list in whatever form."""
    version = int(list_meta(answer)[0])
    if _is_protobuf(answer):
        items = CLASSES["Page"].FromString(_unwrapped(answer.body)).items
        return Listed(version, [_message(item) for item in items])
    return Listed(version, [*_read_json(json.loads(settled(answer.content)))])


def read_object(answer: Answer) -> Found:
    """Read an object in whatever form."""
    if _is_protobuf(answer):
        return _message(_unwrapped(answer.ok().body))
    [found] = _read_json(json.loads(settled(answer.ok().content)))
    return found


class Told(NamedTuple):
    """An event, without its object where that's an error of *code*."""

    type: str
    object: Found | None
    code: int = 0


def read_event(frame: bytes) -> Told:
    """Read a frame of a watch in whatever form."""
    if frame.startswith(b"{"):
        event = json.loads(settled(frame))
        if event["type"] == "ERROR":
            return Told("ERROR", None, event["object"]["code"])
        [found] = _read_json(event["object"])
        return Told(event["type"], found)
    event = CLASSES["WatchEvent"].FromString(frame[4:])
    raw = _unwrapped(event.object.raw)
    if event.type == "ERROR":
        return Told("ERROR", None, CLASSES["Status"].FromString(raw).code)
    return Told(event.type, _message(raw))


def _read_json(shown: Mapping[str, Any]) -> Iterator[Found]:
    """The objects of a list, of a Table's rows, or what is no list itself."""
    if shown["kind"] == "Table":
        for row in shown["rows"] or ():
            yield _found(row["object"]["metadata"], row)
    else:
        listed = shown["kind"].endswith("List")
        for each in (shown["items"] or ()) if listed else [shown]:
            # Items of a list lack these.
            rest = {name: each[name] for name in each if name not in {"kind", "apiVersion"}}
            yield _found(each["metadata"], rest)


def _found(metadata: Mapping[str, Any], content: object) -> Found:
    namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
    return Found(namespace, name, int(metadata["resourceVersion"]), content)


def _unwrapped(body: bytes) -> bytes:
    unknown = unwrap(body)
    assert unknown is not None
    raw: bytes = unknown.raw
    return raw


def _message(raw: bytes) -> Found:
    metadata = CLASSES["Object"].FromString(raw).metadata
    return Found(metadata.namespace, metadata.name, int(metadata.resourceVersion), raw)


_AGE = re.compile(rb'"\d+[smhd](?:\d+[smh])?"')
_COLUMNS = re.compile(rb'"columnDefinitions":(?:null|\[.*?\]),"rows"')


def settled(content: bytes) -> bytes:
    """A body or a frame without what may differ between two Tables that are right.

    Ages depend on the moment, and which event of a watch has columns on where it began.
    """
    if not re.search(rb'"kind": ?"Table"', content[:100]):
        return content
    ageless = _AGE.sub(b'"0s"', content)
    return _COLUMNS.sub(b'"rows"', ageless) if content.startswith(b'{"type"') else ageless


def _is_protobuf(answer: Answer) -> bool:
    return (answer.header("Content-Type") or "").startswith(PROTOBUF)


def list_meta(answer: Answer) -> tuple[str, str]:
    """The resourceVersion and the continue token of a list, in whatever encoding."""
    if _is_protobuf(answer):
        unknown = unwrap(answer.ok().body)
        assert unknown is not None
        if unknown.typeMeta.apiVersion.endswith("/v1beta1") and "Partial" in unknown.typeMeta.kind:
            found = CLASSES["ListMeta"].FromString(_last_field(unknown.raw))
        else:
            found = CLASSES["Page"].FromString(unknown.raw).metadata
        return found.resourceVersion, getattr(found, "continue")
    found = answer.ok().json()["metadata"]
    return found["resourceVersion"], found.get("continue", "")


def _last_field(raw: bytes) -> bytes:
    """The metadata of a list that ends with them: no length in them is above 127."""
    at = raw.rindex(b"\n\x00\x12")
    return raw[at:]


def frames(body: bytes, content_type: str) -> list[bytes]:
    """Cut a finished watch into its frames."""
    found, rest = cut(body, content_type)
    assert not rest
    return found
