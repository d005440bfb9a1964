"""Accept headers: in which representation would kube-apiserver answer?"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"

_JSON_RANGES = frozenset({JSON, "*/*"})
_UNSURE = frozenset({"application/yaml", "application/cbor", "application/*"})
"""What one answer is given in and another isn't: YAML never streams, and go-restful's router takes
``application/*`` for nothing on some paths."""

_DECISIVE = frozenset({"pretty", "sv"})
_TRANSFORMING = frozenset({"g", "v"})
"""Parameters by whose values a clause is met or passed over (``acceptMediaTypeOptions``): those
that nobody sends, and those that mean nothing without a kind."""

_MEDIA = re.compile(r"[a-z]+/[a-z0-9.+-]+")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")
_INDENTED_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_META = frozenset({"v1", "v1beta1"})


_SORTED_SIMPLY = 12
"""Clauses that Go sorts by insertion; how more of them would end up isn't followed here."""

LONGEST = 1024
"""Characters of a header that is looked at; kubectl's has 150, a browser's 200. A head may have a
megabyte of clauses."""


class FormName(StrEnum):
    """The representations that informers are kept in, named as settings and metrics name them."""

    JSON = "json"
    TABLE = "table"
    METADATA = "metadata"
    PROTOBUF = "protobuf"
    METADATA_PROTOBUF = "metadata-protobuf"


class Representation(NamedTuple):
    """A form that a client accepts; *meta* is the version of ``meta.k8s.io`` that it's asked in.

    *is_list*: it is that of a collection, which an object's would be refused for.
    """

    form: FormName
    meta: str = ""
    is_list: bool = False


PLAIN = Representation(FormName.JSON)

_AS = {
    (JSON, "Table"): FormName.TABLE,
    (JSON, "PartialObjectMetadata"): FormName.METADATA,
    (JSON, "PartialObjectMetadataList"): FormName.METADATA,
    (PROTOBUF, "PartialObjectMetadata"): FormName.METADATA_PROTOBUF,
    (PROTOBUF, "PartialObjectMetadataList"): FormName.METADATA_PROTOBUF,
}
"""Transformations by media type and kind."""


def negotiate(accept: str) -> tuple[Representation, ...]:
    """The representations that an Accept header asks for, the first choice first.

    Clauses are tried by quality, wildcards last, then in order, until one can be met
    (``handlers/negotiation``). Those behind one that isn't sure to be passed over are left out.
    """
    return _negotiate(accept) if len(accept) <= LONGEST else ()


def prefers_json(accept: str) -> bool:
    """Tell whether the first choice of *accept* is JSON without a transformation."""
    return negotiate(accept)[:1] == (PLAIN,)


class _Clause(NamedTuple):
    quality: float
    media: str
    parameters: dict[str, str]


@lru_cache(maxsize=256)
def _negotiate(accept: str) -> tuple[Representation, ...]:
    if not accept.strip():
        return (PLAIN,)
    clauses = accept.split(",")
    if len(clauses) > _SORTED_SIMPLY:
        return ()
    found = []
    for clause in _in_order(map(_clause, clauses)):
        if not _is_offered(clause):
            continue
        representation = _representation(clause)
        if representation is None:
            break
        found.append(representation)
    return tuple(found)


def _in_order(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Sort by insertion, as Go does: ``_precedes`` is no order, so the way to it counts."""
    found: list[_Clause] = []
    for clause in clauses:
        at = len(found)
        while at and _precedes(clause, found[at - 1]):
            at -= 1
        found.insert(at, clause)
    return found


def _precedes(one: _Clause, other: _Clause) -> bool:
    """Tell whether *one* is tried first (``acceptSlice.Less`` of goautoneg): wildcards are not.

    A wildcard of a higher quality and what has a lower one both precede each other.
    """
    if one.quality > other.quality:
        return True
    pairs = zip(one.media.split("/"), other.media.split("/"), strict=False)
    return any(mine != "*" and theirs == "*" for mine, theirs in pairs)


def _clause(text: str) -> _Clause:
    media, *rest = (part.strip() for part in text.split(";"))
    pairs = (part.partition("=")[::2] for part in rest if part)
    parameters = {name.strip(): value.strip() for name, value in pairs}
    quality = parameters.get("q", "1")
    if not _QUALITY.fullmatch(quality):
        return _Clause(float("inf"), "", {})  # whatever it means, it is nothing here
    return _Clause(float(quality), media, parameters)


def _is_offered(clause: _Clause) -> bool:
    """Tell what is sure to be passed over, as a browser's ``text/html``, from all else."""
    media = clause.media
    if media == PROTOBUF and clause.parameters.get("as") == "Table":
        return False
    known = media in _JSON_RANGES or media in _UNSURE or media == PROTOBUF
    return known or not _MEDIA.fullmatch(media)


def _representation(clause: _Clause) -> Representation | None:
    """Read a clause; None for one whose answer isn't sure."""
    media, parameters = clause.media, clause.parameters
    if clause.quality <= 0 or not _DECISIVE.isdisjoint(parameters):
        return None
    if parameters.get("stream", "") not in ("", "watch"):
        return None
    kind = parameters.get("as")
    if kind is None and not _TRANSFORMING.isdisjoint(parameters):
        return None
    if kind is None:
        if media in _JSON_RANGES:
            return PLAIN
        return Representation(FormName.PROTOBUF) if media == PROTOBUF else None
    form = _AS.get((media, kind))
    version = parameters.get("v", "")
    if form is None or parameters.get("g") != "meta.k8s.io" or version not in _META:
        return None
    return Representation(form, version, kind.endswith("List"))


def wants_indent(pretty: bool | None, user_agent: str) -> bool:
    """``?pretty``, or without it a person's user agent (``isPrettyPrint`` of the writers)."""
    return user_agent.startswith(_INDENTED_AGENTS) if pretty is None else pretty
