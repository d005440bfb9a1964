"""Complaints about settings: where it was given, what was found, and what is expected there."""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from proxy.server.flags import flag, is_section, kind_of, leaves

LONGEST = 80
"""Characters of a value that a complaint repeats."""

Place = tuple[int | str, ...]


def complaints(
    error: ValidationError, model: type[BaseModel], flags: Mapping[str, Any], file: Path | None
) -> str:
    """Word all that is wrong, in one line; *flags* are those given, by key."""
    errors = error.errors()
    places = [each["loc"] for each in errors]
    return "; ".join(
        f"{where(each['loc'], flags, file)}: {_what(each, model)}"
        for each in errors
        if not any(_is_within(place, each["loc"]) for place in places)
    )


def section_complaint(model: type[BaseModel]) -> str:
    """Name the variable that should be a whole section, and isn't JSON."""
    for key, _ in leaves(model):
        for section in _keys(tuple(key.split(".")))[1:]:
            if _is_given(_variable(section)):
                found = _variable(section)
                return f"{found}: not JSON; give one setting at a time, like {_variable(key)}"
    return ""


def where(place: Place, flags: Mapping[str, Any], file: Path | None) -> str:
    """Name the flag or variable that the value is from, else the file, and the key in it."""
    path = ".".join(map(str, place))
    for key in _keys(place):
        variable = _variable(key) if _is_given(_variable(key)) else ""
        if given := flag(key) if key in flags else variable:
            return given if key == path else f"{given}: {path}"
    return f"{file}: {path}" if file else path or "settings"


def yaml_complaint(error: yaml.YAMLError) -> str:
    """Word what is wrong with a file's syntax, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _variable(key: str) -> str:
    return f"KUBECACHE_{key.replace('.', '__').upper()}"


def _is_given(variable: str) -> bool:
    return variable in map(str.upper, os.environ)


def _is_within(place: Place, other: Place) -> bool:
    return len(place) > len(other) and place[: len(other)] == other


def _keys(place: Place) -> list[str]:
    """The keys that a place is at or below, the longest first."""
    names: list[str] = []
    for step in place:
        if isinstance(step, int):
            break
        names.append(step)
    return [".".join(names[:length]) for length in range(len(names), 0, -1)]


def _what(error: ErrorDetails, model: type[BaseModel]) -> str:
    found, kind = _cut(repr(error["input"])), error["type"]
    if kind == "extra_forbidden":
        return f"no such setting{_did_you_mean(error['loc'], model)}"
    if kind == "missing":
        return f"missing in {found}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    expected = _expected(error["loc"], model) or error.get("ctx", {}).get("expected")
    return f"found {found}, expected {expected or error['msg']}"


def _did_you_mean(place: Place, model: type[BaseModel]) -> str:
    section = _at(place[:-1], model)
    known = list(section.model_fields) if is_section(section) else []
    meant = difflib.get_close_matches(str(place[-1]).replace("-", "_").lower(), known, 1)
    return f"; did you mean {meant[0]}?" if meant else f"; there are {', '.join(known)}"


def _expected(place: Place, model: type[BaseModel]) -> str:
    found = _at(place, model)
    if is_section(found):
        return f"a mapping of {', '.join(found.model_fields)}"
    return kind_of(found).expected if isinstance(found, FieldInfo) else ""


def _at(place: Place, model: type[BaseModel]) -> Any:
    """Find what is at a place: a section, or a field; None for what is within a value."""
    found: Any = model
    for step in place:
        if isinstance(step, int):
            found = get_args(found.annotation)[0] if isinstance(found, FieldInfo) else None
        elif is_section(found) and step in found.model_fields:
            field = found.model_fields[step]
            found = field.annotation if is_section(field.annotation) else field
        else:
            return None
    return found


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
