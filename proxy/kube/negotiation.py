"""Accept headers: would kube-apiserver answer this one in plain JSON?"""

import re
from functools import lru_cache

JSON = "application/json"

_JSON_RANGES = frozenset({JSON, "*/*"})  # go-restful's router takes "application/*" for neither
# Parameters that change nothing about a JSON body.
_NEUTRAL = frozenset({"q", "charset", "stream"})
_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")
_INDENTED_AGENTS = ("curl", "Wget", "Mozilla/5.0")


LONGEST = 1024
"""Characters of a header that is looked at; kubectl's has 150, a browser's 200. A head may have a
megabyte of clauses."""


def prefers_json(accept: str) -> bool:
    """Tell whether the first choice of *accept* is JSON without a transformation.

    Clauses are tried by quality, then in order (``handlers/negotiation``). Only a first choice is
    certain: whether an earlier clause can be met depends on the resource.
    """
    return len(accept) <= LONGEST and _is_json(accept)


@lru_cache(maxsize=256)
def _is_json(accept: str) -> bool:
    if not accept.strip():
        return True
    clauses = [_clause(text) for text in accept.split(",")]
    quality, media, parameters = max(clauses, key=lambda clause: clause[0])
    return quality > 0 and media in _JSON_RANGES and parameters <= _NEUTRAL


def _clause(text: str) -> tuple[float, str, frozenset[str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest if part)
    quality = parameters.get("q", "1")
    if not _QUALITY.fullmatch(quality):
        return float("inf"), "", frozenset()  # whatever it means, it is no JSON here
    return float(quality), media, frozenset(parameters)


def wants_indent(pretty: bool | None, user_agent: str) -> bool:
    """``?pretty``, or without it a person's user agent (``isPrettyPrint`` of the writers)."""
    return user_agent.startswith(_INDENTED_AGENTS) if pretty is None else pretty
