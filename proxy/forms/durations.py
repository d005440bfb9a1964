"""Durations as Tables show them (``k8s.io/apimachinery/pkg/util/duration``)."""

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY

_LONGEST = (2**63 - 1) // 10**9
"""Seconds of the longest ``time.Duration``, to which Go cuts what is longer."""

INVALID = "<invalid>"

_RANGES = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below so many seconds: the unit and its name, and those of a second one."""


def human_duration(seconds: float) -> str:
    """Write a duration with two or three figures: ``HumanDuration``.

    Of a moment still to come nearly two seconds are tolerated, as clocks differ that much.
    """
    whole = int(seconds)
    if whole < -1:
        return INVALID
    whole = min(max(whole, 0), _LONGEST)
    for limit, unit, name, small, part in _RANGES:
        if whole < limit:
            rest = whole % unit // small if small else 0
            return f"{whole // unit}{name}{rest}{part}" if rest else f"{whole // unit}{name}"
    return f"{whole // _YEAR}y"
