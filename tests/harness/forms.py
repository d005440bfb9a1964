"""Representations that clients ask for, and what their answers say of themselves."""

from __future__ import annotations

from typing import NamedTuple

from proxy.kube.negotiation import JSON, PROTOBUF
from proxy.kube.protobuf import CLASSES, unwrap
from tests.harness.http import Answer


class Asked(NamedTuple):
    """Accept headers of one client: for a list, and for all else."""

    listing: str
    other: str


def plain(*media: str) -> Asked:
    """Ask for whole objects."""
    return Asked(",".join(media), ",".join(media))


def metadata(*media: str, version: str = "v1", last: str = "") -> Asked:
    """Ask for metadata alone, in the first of *media* that can be had, or for what's *last*."""
    kinds = (f"PartialObjectMetadata{suffix};g=meta.k8s.io;v={version}" for suffix in ("List", ""))
    headers = [",".join([*(f"{each};as={kind}" for each in media), last]) for kind in kinds]
    return Asked(*(header.removesuffix(",") for header in headers))


CLIENT_GO = plain(PROTOBUF, JSON)
WHOLE = {"protobuf": plain(PROTOBUF), "client-go": CLIENT_GO, "json": plain(JSON)}
METADATA = {
    "metadata": metadata(JSON),
    "metadata-v1beta1": metadata(JSON, version="v1beta1"),
    "metadata-protobuf": metadata(PROTOBUF),
    "metadata-protobuf-v1beta1": metadata(PROTOBUF, version="v1beta1"),
    "metadata-client": metadata(PROTOBUF, JSON, last=JSON),
}


def list_meta(answer: Answer) -> tuple[str, str]:
    """The resourceVersion and the continue token of a list, in whatever encoding."""
    if (answer.header("Content-Type") or "").startswith(PROTOBUF):
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
    if not content_type.startswith(PROTOBUF):
        return body.splitlines(keepends=True)
    found = []
    at = 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4])
        found.append(body[at:end])
        at = end
    return found
