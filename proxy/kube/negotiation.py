"""Accept headers: in which representation would kube-apiserver answer?"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from math import inf
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

_MEDIA = re.compile(r"\*/\*|[a-z]+/(\*|[a-z0-9.+-]+)")
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")
_INDENTED_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_META = frozenset({"v1", "v1beta1"})


LONGEST = 1024
"""Characters of a header that is looked at; kubectl's has 150, a browser's 200. A head may have a
megabyte of clauses."""

MOST = 12
"""Clauses that are looked at. Go's ``sort.Sort`` inserts one after the other up to this many, and
of more the order isn't told here."""


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

    Clauses are tried in goautoneg's order until one can be met (``handlers/negotiation``). Those
    behind one that isn't sure to be passed over are left out.
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
    if len(clauses) > MOST:
        return ()
    found = []
    for clause in _ordered(map(_clause, clauses)):
        if not _is_offered(clause):
            continue
        representation = _representation(clause)
        if representation is None:
            break
        found.append(representation)
    return tuple(found)


def _clause(text: str) -> _Clause:
    media, *rest = text.strip(" ").split(";")
    media = media.strip(" ")
    pairs = (part.partition("=")[::2] for part in rest)
    parameters = {name.strip(" "): value for name, value in pairs}
    quality = parameters.get("q", "1")
    if not (_MEDIA.fullmatch(media) and _QUALITY.fullmatch(quality)):
        return _Clause(inf, "", {})  # whatever it means, it is nothing here
    return _Clause(
        float(quality), media, {name: value.strip(" ") for name, value in parameters.items()}
    )


def _ordered(clauses: Iterable[_Clause]) -> list[_Clause]:
    """Order clauses as Go's ``sort.Sort`` does so few.

    As ``_precedes`` is no order, where one lands depends on those that it has to pass.
    """
    ordered: list[_Clause] = []
    for clause in clauses:
        place = len(ordered)
        while place and _precedes(clause, ordered[place - 1]):
            place -= 1
        ordered.insert(place, clause)
    return ordered


def _precedes(one: _Clause, other: _Clause) -> bool:
    """``acceptSlice.Less`` of goautoneg: by quality, but never a wildcard before what is named."""
    if one.quality > other.quality:
        return True
    return any(
        theirs == "*" and mine != "*"
        for mine, theirs in zip(one.media.split("/"), other.media.split("/"), strict=False)
    )


def _is_offered(clause: _Clause) -> bool:
    """Tell what is sure to be passed over, as a browser's ``text/html``, from all else."""
    media = clause.media
    if media == PROTOBUF and clause.parameters.get("as") == "Table":
        return False
    return not media or media in _JSON_RANGES or media in _UNSURE or media == PROTOBUF


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
