"""Cells of Tables that depend on the time of the request, and the moments that they count from.

kube-apiserver's printers are compiled; which of their cells call ``time.Now`` is told here
(``pkg/printers/internalversion/printers.go``, and ``tableconvertor.go`` for custom resources).
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from proxy.forms.durations import INVALID, human_duration
from proxy.kube import gojson
from proxy.kube.columns import PrinterColumn
from proxy.kube.resources import Resource
from proxy.kube.selectable import EACH, Path, SelectableField, declared_field, selectable_fields

Age = tuple[int, float]
"""Where a duration goes in the cells, which are written without, and what it counts from, in
seconds of Unix time."""

_SLACK = sorted(range(-60, 61), key=abs)
"""Seconds by which a guessed moment may miss a cell: clocks differ, and a long list takes time."""

_INVALID = gojson.encode(INVALID)[1:-1]
_FIGURES = rb"\d+[smhdy](?:\d+[smhd])?|" + re.escape(_INVALID)
_DURATION = re.compile(rb'"(?:\d+ \()?(' + _FIGURES + rb')(?: ago\))?"')
"""A cell that is a duration, and a pod's restarts with that of the last one."""

_TIMELY = re.compile(rb'"(?:' + _FIGURES + rb")|\bago\b")
"""What any cell looks like that may depend on the time."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

_MAYBE_TIME = re.compile(r"\d{4}-")
_TEXT = msgspec.json.Decoder(str)


class Rule(NamedTuple):
    """Where the moment of a cell is found: the first of *paths* that is set, or what *read* tells.

    Once one of *until* is set, the cell stands still. One that is *guessed* has to fit the cell.
    """

    paths: tuple[Path, ...] = ()
    until: tuple[Path, ...] = ()
    read: Callable[[bytes], str] | None = None
    guessed: bool = False


class _Terminated(msgspec.Struct, rename="camel", frozen=True):
    finished_at: str | None = None
    exit_code: int = 0


class _ContainerState(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    restart_policy: str = ""


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    started: bool | None = None
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _Condition(msgspec.Struct):
    type: str
    status: str


class _PodSpec(msgspec.Struct, rename="camel"):
    init_containers: list[_Container] = []


class _PodStatus(msgspec.Struct, rename="camel"):
    conditions: list[_Condition] = []
    init_container_statuses: list[_ContainerStatus] = []
    container_statuses: list[_ContainerStatus] = []


class _Pod(msgspec.Struct):
    spec: _PodSpec
    status: _PodStatus


_POD = msgspec.json.Decoder(_Pod)


def last_restart(encoded: bytes) -> str:
    """Find when a pod's container was last restarted (``printPod``); empty if none was.

    While the pod initializes its init containers count, later those of them that go on running.
    """
    pod = _POD.decode(encoded)
    sidecars = {each.name for each in pod.spec.init_containers if each.restart_policy == "Always"}
    seen: list[_ContainerStatus] = []
    initializing = False
    for each in pod.status.init_container_statuses:
        seen.append(each)
        ended = each.state.terminated
        if not (ended and ended.exit_code == 0) and not (each.name in sidecars and each.started):
            initializing = True
            break
    if not initializing or _is_initialized(pod.status):
        seen = [each for each in seen if each.name in sidecars]
        seen += pod.status.container_statuses
    ends = [each.last_state.terminated.finished_at for each in seen if each.last_state.terminated]
    return max(filter(None, ends), default="")


def _is_initialized(status: _PodStatus) -> bool:
    """``isPodInitializedConditionTrue``: the first condition of the type counts."""
    found = (each.status for each in status.conditions if each.type == "Initialized")
    return next(found, "") == "True"


_AGE = Rule((("metadata", "creationTimestamp"),))
_LAST_SEEN = (("series", "lastObservedTime"),)

_RULES: dict[tuple[str, str], dict[str, Rule]] = {
    ("", "pods"): {"Restarts": Rule(read=last_restart)},
    ("", "events"): {
        "Last Seen": Rule((*_LAST_SEEN, ("lastTimestamp",), ("firstTimestamp",), ("eventTime",))),
        "First Seen": Rule((("firstTimestamp",), ("eventTime",))),
    },
    ("events.k8s.io", "events"): {
        "Last Seen": Rule(
            (
                *_LAST_SEEN,
                ("deprecatedLastTimestamp",),
                ("deprecatedFirstTimestamp",),
                ("eventTime",),
            )
        ),
        "First Seen": Rule((("deprecatedFirstTimestamp",), ("eventTime",))),
    },
    ("batch", "jobs"): {
        "Duration": Rule((("status", "startTime"),), until=(("status", "completionTime"),))
    },
    ("batch", "cronjobs"): {"Last Schedule": Rule((("status", "lastScheduleTime"),))},
    ("resource.k8s.io", "devicetaintrules"): {"TimeAdded": Rule((("spec", "taint", "timeAdded"),))},
}
"""Columns by resource and name. An Age counts from the creation wherever there is one."""


class Ages:
    """The columns of one resource's Tables that depend on the time.

    *names* are those of all columns, *columns* what a custom resource's definition says of those
    after the first; None where there is none, or it may not be read. ``fields`` are what must be
    read of an object for ``cut``.
    """

    def __init__(
        self,
        resource: Resource,
        names: Sequence[str],
        columns: Sequence[PrinterColumn] | None = None,
    ) -> None:
        built_in = selectable_fields(resource.group, resource.plural) is not None
        declared = columns is not None and [each.name for each in columns] == [*names[1:]]
        if columns is not None and declared:
            rules = _declared_rules(columns)
        else:
            own = _RULES.get((resource.group, resource.plural), {})
            age = _AGE if built_in else _AGE._replace(guessed=True)
            known = {"Age": age, **own}
            rules = {place: known[name] for place, name in enumerate(names) if name in known}
        self._rules = sorted(rules.items())
        self._width = len(names)
        self._others = [n for n in range(self._width) if n not in rules]
        self._is_known = built_in or declared
        self.fields = tuple(
            SelectableField(f"{names[place]} {number}", paths)
            for place, rule in self._rules
            for number, paths in enumerate((rule.paths, rule.until))
        )

    def cut(
        self, cells: list[bytes], texts: Sequence[object], encoded: bytes, name: str, now: float
    ) -> tuple[Age, ...] | None:
        """Cut the durations out of a row's *cells*, and tell where they were.

        *texts* are the values of ``fields``, *encoded* is the object, and *name* its own. None,
        and nothing cut, where some cell can't be told from one that will be another tomorrow.
        """
        if len(cells) != self._width or not self._explains(cells, name):
            return None
        found = []
        for number, (place, rule) in enumerate(self._rules):
            match = _DURATION.fullmatch(cells[place])
            if match is None or texts[2 * number + 1] != "":
                continue
            text = rule.read(encoded) if rule.read is not None else texts[2 * number]
            moment = moment_of(text)
            if moment is None and match[1] == _INVALID and _is_no_time(text):
                continue
            if moment is None or (rule.guessed and not _fits(match[1].decode(), now - moment)):
                return None
            found.append((place, match.span(1), moment))
        ages = []
        for place, (start, end), moment in found:
            cells[place] = cells[place][:start] + cells[place][end:]
            ages.append((sum(map(len, cells[:place])) + place + start, moment))
        return tuple(ages)

    def _explains(self, cells: list[bytes], name: str) -> bool:
        """Tell whether the cells without a rule stand still.

        Of built-in and of defined resources all is known; those of others may say anything.
        """
        if self._is_known:
            return True
        named = b'"%s"' % name.encode()
        return not any(_TIMELY.search(cells[n]) for n in self._others if cells[n] != named)


def _declared_rules(columns: Sequence[PrinterColumn]) -> dict[int, Rule]:
    """Rules of a custom resource's columns of type ``date``.

    One with a path that isn't read here has none that finds a moment.
    """
    return {
        place: _declared_rule(column.json_path)
        for place, column in enumerate(columns, 1)
        if column.type == "date"
    }


def _declared_rule(json_path: str) -> Rule:
    """Read a path when there is a duration to explain: it may lead to anything in some objects."""
    try:
        [path] = declared_field(json_path).paths
    except ValueError:
        return Rule()
    if (path,) == _AGE.paths:
        return _AGE
    return Rule() if EACH in path else Rule(read=partial(_text_at, path))


def _text_at(path: Path, encoded: bytes) -> str:
    """Read the text that a path leads to; empty where it leads to none."""
    node = msgspec.Raw(encoded)
    try:
        for step in path:
            node = gojson.split_members(node)[step]
        return _TEXT.decode(node)
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return ""


def moment_of(text: object) -> float | None:
    """Read a timestamp, in seconds of Unix time; None for what is none."""
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _is_no_time(text: object) -> bool:
    """Tell a text that will be no time tomorrow either, from what Go may read as one."""
    return isinstance(text, str) and text != "" and not _MAYBE_TIME.match(text)


def _fits(text: str, seconds: float) -> bool:
    """Tell whether a duration is about what is shown."""
    return any(human_duration(seconds + each) == text for each in _SLACK)


def duration_text(seconds: float) -> bytes:
    """Write a duration into a JSON string."""
    text = human_duration(seconds)
    return text.encode() if text != INVALID else _INVALID
