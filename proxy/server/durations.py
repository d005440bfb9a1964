"""Durations as settings spell them, which is Go's way: ``30m``, ``1h30m``, ``1.5s``."""

import re

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")


def parse_duration(value: object) -> object:
    """Read a duration, in seconds; what isn't a text with a unit is left as it is.

    Raises ValueError for a text that has units, but is no duration.
    """
    if not isinstance(value, str) or not (pieces := _PIECE.findall(value)):
        return value
    if "".join(number + unit for number, unit in pieces) != value:
        raise ValueError(f"{value!r} is not a duration like 30m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def spell_duration(seconds: float) -> str:
    """Spell so many seconds in the largest unit that they are a whole number of."""
    for unit, length in _UNITS.items():
        if length >= 1 and seconds and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}"
