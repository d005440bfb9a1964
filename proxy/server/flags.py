"""The flags of a command: one for each setting, of which the last that is given counts."""

import argparse
import difflib
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, NoReturn, TypeGuard, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.server.durations import spell_duration


class Kind(NamedTuple):
    """What the values of a setting are: *name* for the help, *expected* for complaints."""

    name: str
    expected: str


def kind_of(field: FieldInfo) -> Kind:
    """Tell what a field's values are: by its annotation, or one of its choices."""
    for each in field.metadata:
        if isinstance(each, Kind):
            return each
    if found := _choices(field.annotation):
        return Kind(f"{{{','.join(found)}}}", f"one of {', '.join(found)}")
    return Kind("VALUE", "a text")


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(each.value) for each in annotation]
    return []


def is_section(found: object) -> TypeGuard[type[BaseModel]]:
    """Tell a model, whose fields are settings of their own."""
    return isinstance(found, type) and issubclass(found, BaseModel)


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The keys of a model and of the sections within, dotted."""
    for name, field in model.model_fields.items():
        if is_section(field.annotation):
            yield from leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def flag(key: str) -> str:
    """Name the flag of a key."""
    return f"--{key.replace('_', '-')}"


def parse(arguments: Sequence[str], program: str, model: type[BaseModel]) -> dict[str, Any]:
    """Read a command line: the values given, by key. Raises ValueError, SystemExit for --help."""
    parser = _Parser(program, description=model.__doc__, allow_abbrev=False)
    for key, field in leaves(model):
        parser.add_argument(
            flag(key),
            dest=key,
            metavar=kind_of(field).name,
            action="append" if isinstance(field.default, tuple) and not field.default else "store",
            default=argparse.SUPPRESS,
            help=_help(field).replace("%", "%%"),
        )
    known = [flag(key) for key, _ in leaves(model)]
    found, others = parser.parse_known_args(_paired(arguments, known))
    if others:
        raise ValueError(_unknown(others[0], known))
    return vars(found)


class _Parser(argparse.ArgumentParser):
    """Raises what is wrong, for one line, instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message.removeprefix("argument "))


def _paired(arguments: Sequence[str], known: Collection[str]) -> Iterator[str]:
    """Tie values to their flags: argparse would take -3s for a flag of its own."""
    rest = iter(arguments)
    for each in rest:
        value = next(rest, None) if each in known else None
        yield each if value is None else f"{each}={value}"


def _unknown(argument: str, known: Collection[str]) -> str:
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        return f"found {argument!r}, expected a flag such as --listen"
    meant = difflib.get_close_matches(name.replace("_", "-"), known, 1)
    return f"{name}: no such flag; " + (f"did you mean {meant[0]}?" if meant else "see --help")


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Put dotted keys into the sections that they are of."""
    whole: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        place = whole
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return whole


def _help(field: FieldInfo) -> str:
    default = shown(field)
    return f"{field.description} (default: {default})" if default else str(field.description)


def shown(field: FieldInfo) -> str:
    """Spell a field's default as one would write it; empty where it has none."""
    match field.default:
        case None:
            return ""
        case float(seconds) if kind_of(field).name == "DURATION":
            return spell_duration(seconds)
        case float(number):
            return f"{number:g}"
        case ():
            return "[]"
        case Enum(value=value):
            return str(value)
        case default:
            return str(default)
