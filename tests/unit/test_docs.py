"""What the documents say exists, and what exists is documented."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
import yaml

from proxy.access.hosts import HostCheck
from proxy.cache.histogram import Histogram
from proxy.cache.informer import Informer
from proxy.cache.recovery import Trigger
from proxy.cache.scope import Scope
from proxy.cache.source import Source
from proxy.cli.main import COMMANDS, main
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource
from proxy.reads.listing import Tally
from proxy.reads.plan import Reason
from proxy.server import flags
from proxy.server.admin import InformerStatus, Scan, Status, admin_app
from proxy.server.columns import COLUMNS
from proxy.server.metrics import ProxyCollector
from proxy.server.pulse import Pulse
from proxy.server.settings import ResourceSettings, Settings
from proxy.server.stats import Labels, Stats
from proxy.upstream.budget import Budget
from tests.harness.markdown import Document, word, words

_ROOT = Path(__file__).parents[2]
_MADE = re.compile(r"\.|(build|dist)$")  # folders of tools and of what they made
_PATHS = sorted(
    path.relative_to(_ROOT)
    for path in _ROOT.rglob("*.md")
    if not any(_MADE.match(part) for part in path.relative_to(_ROOT).parts)
)
DOCUMENTS = {str(path): Document(_ROOT / path) for path in _PATHS}
README, READS = DOCUMENTS["README.md"], DOCUMENTS["docs/reads.md"]
SETTINGS, METRICS = DOCUMENTS["docs/settings.md"], DOCUMENTS["docs/metrics.md"]
_ROOMS = "|".join(path.name for path in (_ROOT / "proxy").iterdir() if path.is_dir())

# --- settings -------------------------------------------------------------------------------


class Setting(NamedTuple):
    key: str
    flag: str
    variable: str


def _setting(key: str) -> Setting:
    return Setting(key, f"--{key.replace('_', '-')}", f"KUBECACHE_{key.replace('.', '__').upper()}")


_LEAVES = dict(flags.leaves(Settings))
_FLAGS = {_setting(key).flag for key in _LEAVES}
_VARIABLES = {_setting(key).variable for key in _LEAVES}
_UNSET = "–"  # noqa: RUF001 - the cell of a setting without a default


def test_every_setting_is_documented_under_its_three_names() -> None:
    rows = SETTINGS.rows("key", "flag", "variable", "default", "meaning")
    documented = [Setting(*(word(cell) for cell in row[:3])) for row in rows]
    assert sorted(documented) == sorted(map(_setting, _LEAVES))
    assert all(row[4] for row in rows)


def test_flags_are_those_that_the_command_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    told = capsys.readouterr().out
    assert set(re.findall(r"--[a-z][\w.-]*", told)) == {*_FLAGS, "--help"}
    for python in ("float", "int", "tuple", "Path", "str", "SESSION", "None"):
        assert not re.search(rf"\b{python}\b", told), python


@pytest.mark.parametrize("variable", sorted(_VARIABLES))
def test_variables_are_those_that_are_read(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    default = Settings()
    monkeypatch.setenv(variable, _OTHER.get(variable, "77"))
    assert Settings() != default


_OTHER = {
    "KUBECACHE_LISTEN": ":77",
    "KUBECACHE_ADMIN": ":77",
    "KUBECACHE_CONSISTENCY": "strict",
    "KUBECACHE_CONFLICT_CHECK": "forward",
    "KUBECACHE_LOG_LEVEL": "debug",
    "KUBECACHE_CACHE__ON_MISS": "confirm",
    "KUBECACHE_CACHE__RESOURCES": '[{"resource": "pods"}]',
}


def test_defaults_are_as_documented() -> None:
    rows = SETTINGS.rows("key", "flag", "variable", "default", "meaning")
    documented = {word(row[0]): row[3] for row in rows}
    unset = {key for key, default in documented.items() if default == _UNSET}
    assert unset == {key for key, field in _LEAVES.items() if field.default is None}
    given = [
        (key, yaml.safe_load(word(default)))
        for key, default in documented.items()
        if key not in unset
    ]
    for key, default in documented.items():
        assert flags.shown(_LEAVES[key]) == (word(default) if key not in unset else ""), key
    for pair in given:
        assert Settings(**flags.nested(dict([pair]))) == Settings(), pair


def test_keys_of_resources_are_documented() -> None:
    rows = SETTINGS.rows("key", "default", "meaning")
    assert {word(row[0]) for row in rows} == set(ResourceSettings.model_fields)


def test_the_whole_file_is_whole() -> None:
    [whole] = (
        yaml.safe_load(block) for block in SETTINGS.blocks() if block.startswith("kubeconfig:")
    )
    Settings(**whole)
    resources = {f"cache.resources.{key}" for key in ResourceSettings.model_fields}
    assert set(_keys(whole)) == {*_LEAVES, *resources} - {"config", "cache.resources"}


def _keys(value: Any, prefix: str = "") -> Iterator[str]:
    """The keys of leaves, dotted; those of lists of sections without a number."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keys(inner, f"{prefix}.{name}".lstrip("."))
    elif isinstance(value, list) and all(isinstance(each, dict) for each in value):
        for each in value:
            yield from _keys(each, prefix)
    else:
        yield prefix


# --- metrics, reasons, commands, endpoints --------------------------------------------------


class Family(NamedTuple):
    name: str
    type: str
    labels: tuple[str, ...]


def _informers() -> list[Informer]:
    """One informer that never ran, but has counted."""
    informer = Informer(Scope(Resource("", "v1", "pods")), cast(Source, None))
    informer.terminated["client"] += 1
    for reason in Trigger:
        informer.reflector.relists[reason] += 1
        informer.reflector.restarts[reason] += 1
    informer.prover.counts["probe", "proven"] += 1
    return [informer]


def _exported() -> set[Family]:
    stats = Stats()
    labels = Labels(Verb.GET, "", "pods", "cache")
    stats.count(labels, 200, 0.1)
    stats.count_forward(Reason.LIVE, labels)
    stats.count_live_read("kubectl", collapsed=True)
    tally = Tally()
    served = SimpleNamespace(
        stats=stats,
        informers=_informers(),
        reader=SimpleNamespace(tallies={Resource("", "v1", "pods"): tally}, waits=Histogram()),
        conflicts=SimpleNamespace(counts={"local": 1}, merges={"merged": 1}),
        pulse=Pulse(),
        budgets={"answers": Budget(1)},
    )
    collector = ProxyCollector(cast(Any, served))
    return {
        Family(
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            tuple(label for label in family.samples[0].labels if label != "le"),
        )
        for family in collector.collect()
    }


def test_metrics_are_those_that_are_exported() -> None:
    rows = METRICS.rows("metric", "type", "labels", "meaning")
    documented = [Family(word(row[0]), row[1], tuple(words(row[2]))) for row in rows]
    assert sorted(documented) == sorted(_exported())
    assert all(row[3] for row in rows)


def test_the_status_is_documented() -> None:
    rows = METRICS.rows("field", "column", "meaning")
    columns = {key: title for title, key in COLUMNS}
    documented = [(word(row[0]), row[1]) for row in rows]
    existing = [(key, columns.get(key, "")) for key in InformerStatus.model_fields]
    assert sorted(documented) == sorted(existing)
    whole = {word(row[0]): words(row[1]) for row in METRICS.rows("of the proxy", "meaning")}
    assert list(whole) == list(Status.model_fields)
    assert set(Scan.model_fields) <= set(whole["scans"])


def test_names_of_metrics_are_right_wherever_they_are_written() -> None:
    histograms = {each.name for each in _exported() if each.type == "histogram"}
    known = {each.name for each in _exported()} | {f"{name}_bucket" for name in histograms}
    for document in DOCUMENTS.values():
        assert set(re.findall(r"\bkubecache_[a-z_]+", document.code())) <= known, document


def test_labels_in_queries_exist() -> None:
    labels = {label for each in _exported() for label in each.labels} | {"le"}
    for query in (block for block in METRICS.blocks() if "kubecache_" in block):
        matched = re.findall(r"(\w+)(?:=|!=|=~|!~)\"", query)
        grouped = re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query)))
        assert {*matched, *grouped} <= labels, query


def test_reasons_to_list_and_to_watch_anew_are_documented() -> None:
    rows = METRICS.rows("reason", "of")
    assert {word(row[0]) for row in rows} == set(Trigger)
    assert {row[1] for row in rows} == {"relists", "restarts"}


def test_reasons_to_forward_are_documented() -> None:
    documented = [word(row[0]) for row in READS.rows("reason", "the request")]
    assert sorted(documented) == sorted(reason.detail for reason in Reason)


def test_commands_are_documented() -> None:
    documented = [word(row[0]) for row in SETTINGS.rows("command")]
    assert sorted(documented) == sorted(f"kubecache {name}" for name in COMMANDS)


def test_endpoints_of_the_admin_listener_are_documented() -> None:
    served = SimpleNamespace(informers=(), stats=Stats(), unready={}, unreached="")
    app = admin_app(cast(Any, served), HostCheck("0.0.0.0"))
    paths = app.openapi()["paths"]
    existing = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    rows = METRICS.rows("endpoint")
    documented = {each for row in rows for each in words(row[0])}
    assert documented == {*existing, f"GET {app.docs_url}"}
    assert app.openapi_url in METRICS.code().split()


# --- every document -------------------------------------------------------------------------

every_document = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


@every_document
def test_code_names_what_exists(document: Document) -> None:
    code = document.code()
    targets = set(re.findall(r"^([a-z]+):", (_ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?<![\w./-])make ([a-z]+)", code)) <= targets
    assert set(re.findall(r"\bKUBECACHE_[A-Z_]+", code)) <= {*_VARIABLES, "KUBECACHE_"}
    assert [path for path in _files(code) if not any(_ROOT.glob(path))] == []


def _files(code: str) -> Iterator[str]:
    """Words that name a file of this tree, from its root or from proxy/."""
    for path in re.findall(r"(?<![\w./~-])[\w.-]+/[\w./-]*", code):
        if re.match(r"(proxy|tests|docs|deploy|helm|bench|requirements|\.ci)/", path):
            yield path.rstrip("/.")
        elif re.match(rf"({_ROOMS})/\w+\.py$", path):
            yield f"proxy/{path}"


@pytest.mark.parametrize("document", [README, SETTINGS], ids=["README.md", "docs/settings.md"])
def test_commands_in_blocks_can_be_given(document: Document) -> None:
    found = [
        line[match.end() :]
        for block in document.blocks()
        for line in block.splitlines()
        if (match := re.search(r"\bkubecache (?=\w)", line))
    ]
    assert found
    for command in found:
        name, *arguments = shlex.split(command, comments=True)
        assert name in COMMANDS
        flags = {each.partition("=")[0] for each in arguments if each.startswith("--")}
        assert flags <= _FLAGS
