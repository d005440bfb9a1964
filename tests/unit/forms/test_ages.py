"""Which cells depend on the time, by which moment, and which of those nobody can tell."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.forms.ages import Age, Ages, duration_text, last_restart, moment_of
from proxy.forms.objects import ObjectDecoder
from proxy.kube import gojson
from proxy.kube.columns import PrinterColumn, served_columns
from proxy.kube.resources import Resource
from tests.unit.builders import item

NOW = 1767225600.0  # 2026-01-01T00:00:00Z
THEN = "2025-12-31T23:59:00Z"
PODS = Resource("", "v1", "pods")
WIDGETS = Resource("example.com", "v1", "widgets")
BORN = {"name": "x", "resourceVersion": "1", "creationTimestamp": THEN}


def cut(
    resource: Resource,
    row: dict[str, Any],
    columns: tuple[PrinterColumn, ...] | None = None,
    **members: Any,
) -> tuple[dict[str, Any], dict[str, float]] | None:
    """The cells without their ages, and the moments of those by column."""
    ages = Ages(resource, list(row), columns)
    encoded = gojson.encode({**item("x"), "metadata": BORN, **members})
    texts = ObjectDecoder(ages.fields).decode(encoded, encoded).fields
    cells = [gojson.encode(cell) for cell in row.values()]
    found = ages.cut(cells, texts, encoded, "x", NOW)
    if found is None:
        return None
    left = [bytes(cell).decode().strip('"') for cell in cells]
    return dict(zip(row, left, strict=True)), _by_column(list(row), cells, found)


def _by_column(names: list[str], cells: list[bytes], ages: tuple[Age, ...]) -> dict[str, float]:
    joined = b",".join(cells)
    return {names[joined[:place].count(b",")]: NOW - moment for place, moment in ages}


CRON, JOBS = Resource("batch", "v1", "cronjobs"), Resource("batch", "v1", "jobs")
EVENTS, NEW_EVENTS = Resource("", "v1", "events"), Resource("events.k8s.io", "v1", "events")
TAINTS = Resource("resource.k8s.io", "v1", "devicetaintrules")
EARLIER = "2025-12-31T23:58:00Z"
SECOND = {"name": "c", "lastState": {"terminated": {"exitCode": 1, "finishedAt": THEN}}}


@pytest.mark.parametrize(
    ("resource", "row", "members", "left", "moments"),
    [
        (PODS, {"Name": "5m", "Age": "60s"}, {}, {"Name": "5m", "Age": ""}, {"Age": 60}),
        (PODS, {"Age": "<unknown>"}, {}, {"Age": "\\u003cunknown\\u003e"}, {}),
        (PODS, {"Age": "<invalid>"}, {}, {"Age": ""}, {"Age": 60}),
        (
            PODS,
            {"Restarts": "3 (60s ago)", "Age": "60s"},
            {"spec": {}, "status": {"containerStatuses": [SECOND]}},
            {"Restarts": "3 ( ago)", "Age": ""},
            {"Restarts": 60, "Age": 60},
        ),
        (PODS, {"Restarts": "3"}, {"spec": {}, "status": {}}, {"Restarts": "3"}, {}),
        (
            JOBS,
            {"Duration": "2m"},
            {"status": {"startTime": EARLIER}},
            {"Duration": ""},
            {"Duration": 120},
        ),
        (
            JOBS,
            {"Duration": "60s"},
            {"status": {"startTime": EARLIER, "completionTime": THEN}},
            {"Duration": "60s"},
            {},
        ),
        (JOBS, {"Duration": ""}, {"status": {}}, {"Duration": ""}, {}),
        (
            CRON,
            {"Last Schedule": "60s"},
            {"status": {"lastScheduleTime": THEN}},
            {"Last Schedule": ""},
            {"Last Schedule": 60},
        ),
        (CRON, {"Last Schedule": "<none>"}, {}, {"Last Schedule": "\\u003cnone\\u003e"}, {}),
        (
            EVENTS,
            {"Last Seen": "60s", "Message": "5m ago", "First Seen": "2m"},
            {"lastTimestamp": THEN, "firstTimestamp": EARLIER},
            {"Last Seen": "", "Message": "5m ago", "First Seen": ""},
            {"Last Seen": 60, "First Seen": 120},
        ),
        (
            EVENTS,
            {"Last Seen": "60s", "First Seen": "60s"},
            {"lastTimestamp": None, "firstTimestamp": None, "eventTime": THEN},
            {"Last Seen": "", "First Seen": ""},
            {"Last Seen": 60, "First Seen": 60},
        ),
        (
            NEW_EVENTS,
            {"Last Seen": "60s", "First Seen": "2m"},
            {
                "series": {"lastObservedTime": "2025-12-31T23:59:00.000000Z"},
                "deprecatedLastTimestamp": EARLIER,
                "deprecatedFirstTimestamp": EARLIER,
            },
            {"Last Seen": "", "First Seen": ""},
            {"Last Seen": 60, "First Seen": 120},
        ),
        (
            TAINTS,
            {"Value": "5m", "TimeAdded": "2m", "Age": "60s"},
            {"spec": {"taint": {"timeAdded": EARLIER}}},
            {"Value": "5m", "TimeAdded": "", "Age": ""},
            {"TimeAdded": 120, "Age": 60},
        ),
    ],
)
def test_built_in_kinds(
    resource: Resource,
    row: dict[str, Any],
    members: dict[str, Any],
    left: dict[str, str],
    moments: dict[str, float],
) -> None:
    assert cut(resource, row, **members) == (left, moments)


def date(path: str) -> tuple[PrinterColumn, ...]:
    return (PrinterColumn("Ran", "date", path),)


@pytest.mark.parametrize(
    ("path", "cell", "members", "expected"),
    [
        (".status.ran", "60s", {"status": {"ran": THEN}}, {"Ran": 60}),
        (".status.ran", "60s", {"status": {"ran": "2026-01-01T00:59:00.5+01:00"}}, {"Ran": 59.5}),
        (".status.ran", None, {}, {}),
        (".status.ran", "<invalid>", {"status": {"ran": "soon"}}, {}),
        (
            ".status.ran",
            "<invalid>",
            {"status": {"ran": "2027-01-01T00:00:00Z"}},
            {"Ran": -31536e3},
        ),
        (".status.ran", None, {"status": {"ran": 5}}, {}),
        (".status.ran", "60s", {}, None),
        ('.status.conditions[?(@.type=="A")].at', "60s", {}, None),
        ('.status.conditions[?(@.type=="A")].at', None, {}, {}),
        (".status.runs[*].at", "60s", {"status": {"runs": [{"at": THEN}]}}, None),
        # What can't be read here may be a time tomorrow, and what Go reads otherwise too.
        (".status.runs[0].at", "<invalid>", {"status": {"runs": [{"at": THEN}]}}, None),
        (".status.ran", "<invalid>", {"status": {"ran": "2027-01-01T00:00:00,5Z"}}, None),
        (".status.ran", "<invalid>", {"status": {"ran": "2027-01-01T9:00:00Z"}}, None),
        # A path may lead to anything.
        (".status.ran", None, {"status": {"ran": ["2027"]}}, {}),
        (".status.ran", None, {"status": {"ran": {"at": THEN}}}, {}),
        (".status.ran", None, {"status": "odd"}, {}),
        (r".metadata.annotations['a\.b/c']", None, {}, {}),
        (".metadata.creationTimestamp", "60s", {}, {"Ran": 60}),
    ],
)
def test_dates_of_custom_resources(
    path: str, cell: str | None, members: dict[str, Any], expected: dict[str, float] | None
) -> None:
    found = cut(WIDGETS, {"Name": "x", "Ran": cell}, date(path), **members)
    assert (found and found[1]) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"Name": "x", "Age": "60s"}, {"Age": 60}),
        ({"Name": "x", "Age": "75s"}, {"Age": 60}),
        ({"Name": "x", "Age": "<unknown>"}, {}),
        ({"Name": "x", "Age": "3m10s"}, None),
        ({"Name": "x", "Age": "<invalid>"}, None),
        ({"Name": "x", "Since": "60s"}, None),
        ({"Name": "x", "Since": "5m30s"}, None),
        ({"Name": "x", "Last": "3 (5m ago)"}, None),
        ({"Name": "x", "Size": 5, "Of": "chicago", "In": "5km"}, {}),
        ({"Name": "5m"}, None),
    ],
)
def test_resources_of_which_nothing_is_known(
    row: dict[str, Any], expected: dict[str, float] | None
) -> None:
    """An Age has to fit the creation, and nothing else may look like a time."""
    found = cut(WIDGETS, row)
    assert (found and found[1]) == expected


def test_a_name_that_looks_like_a_time() -> None:
    ages = Ages(WIDGETS, ["Name"])
    assert ages.cut([b'"5m"'], ("",), b"", "5m", NOW) == ()


def test_columns_that_a_definition_does_not_have() -> None:
    """It has changed since; what looks like a time is then unknown."""
    ran = {"status": {"ran": THEN}}
    assert cut(WIDGETS, {"Name": "x", "Other": "60s"}, date(".status.ran"), **ran) is None


def test_a_row_of_another_width() -> None:
    assert Ages(PODS, ["Name", "Age"]).cut([b'"x"'], ("", ""), b"", "x", NOW) is None


def test_a_definition_without_columns_has_an_age() -> None:
    assert cut(WIDGETS, {"Name": "x", "Age": "60s"}, served_columns(())) == (
        {"Name": "x", "Age": ""},
        {"Age": 60},
    )


def _container(name: str, ended: int = 0, **state: Any) -> dict[str, Any]:
    last = {"terminated": {"exitCode": 1, "finishedAt": _at(ended)}} if ended else {}
    return {"name": name, "lastState": last, "state": state.pop("state", {}), **state}


def _at(day: int) -> str:
    return f"2026-01-{day:02}T00:00:00Z"


DONE = {"terminated": {"exitCode": 0, "finishedAt": None}}
FAILED = {"terminated": {"exitCode": 2, "finishedAt": _at(30)}}
SIDECAR = {"initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "i"}]}
INITIALIZED = [{"type": "Initialized", "status": "True"}]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {"containerStatuses": [_container("a")]}, ""),
        ({}, {"containerStatuses": [_container("a", 2), _container("b", 1)]}, _at(2)),
        (
            {"initContainers": [{"name": "i"}]},
            {
                "initContainerStatuses": [_container("i", 5, state=DONE)],
                "containerStatuses": [_container("a", 2)],
            },
            _at(2),
        ),
        (
            {"initContainers": [{"name": "i"}]},
            {
                "initContainerStatuses": [_container("i", 5, state=FAILED)],
                "containerStatuses": [_container("a", 9)],
            },
            _at(5),
        ),
        (
            SIDECAR,
            {
                "initContainerStatuses": [
                    _container("s", 4, started=True),
                    _container("i", 5, state=DONE),
                ],
                "containerStatuses": [_container("a", 2)],
            },
            _at(4),
        ),
        (
            SIDECAR,
            {
                "initContainerStatuses": [_container("s", 4, started=False), _container("i", 5)],
                "containerStatuses": [_container("a", 7)],
            },
            _at(4),
        ),
        (
            {"initContainers": [{"name": "i"}]},
            {
                "conditions": INITIALIZED,
                "initContainerStatuses": [_container("i", 5, state=FAILED)],
                "containerStatuses": [_container("a", 2)],
            },
            _at(2),
        ),
    ],
    ids=["none", "latest", "initialized", "initializing", "sidecar", "starting", "restarting"],
)
def test_the_last_restart(spec: dict[str, Any], status: dict[str, Any], expected: str) -> None:
    assert last_restart(gojson.encode({"spec": spec, "status": status})) == expected


@pytest.mark.parametrize("text", ["", None, 5, "soon", "2026-01-01", "2026-13-01T00:00:00Z"])
def test_what_is_no_moment(text: object) -> None:
    assert moment_of(text) is None


def test_durations_within_json() -> None:
    assert duration_text(61) == b"61s"
    assert duration_text(-5) == b"\\u003cinvalid\\u003e"


def test_date_columns_that_lie_within_each_other() -> None:
    columns = (PrinterColumn("A", "date", ".spec.a"), PrinterColumn("B", "date", ".spec.a.b"))
    row = {"Name": "x", "A": None, "B": "60s"}
    found = cut(WIDGETS, row, columns, spec={"a": {"b": THEN}})
    assert found == ({"Name": "x", "A": "null", "B": ""}, {"B": 60})
