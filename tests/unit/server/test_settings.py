"""Settings: where they come from, which wins, what they may be, and what is said otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.cli.main import main
from proxy.kube.requests import Verb
from proxy.server.settings import (
    Address,
    ResourceSettings,
    Settings,
    default_kubeconfig,
    load_settings,
    parse_address,
    parse_duration,
)


def load(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *flags: str,
    file: str = "",
    variables: dict[str, str] | None = None,
) -> Settings:
    path = tmp_path / "kubecache.yaml"
    path.write_text(file)
    for name, value in (variables or {}).items():
        monkeypatch.setenv(f"KUBECACHE_{name}", value)
    return load_settings([f"--config={path}", *flags], "kubecache run")


# --- where they come from --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "variables", "file", "expected"),
    [
        ([], {}, "", "info"),
        ([], {}, "log_level: error", "error"),
        ([], {"LOG_LEVEL": "warning"}, "log_level: error", "warning"),
        (["--log-level=debug"], {"LOG_LEVEL": "warning"}, "log_level: error", "debug"),
        (["--log-level=debug"], {}, "log_level: error", "debug"),
    ],
    ids=["default", "file", "variable", "flag", "flag-over-file"],
)
def test_flags_win_over_variables_and_these_over_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    variables: dict[str, str],
    file: str,
    expected: str,
) -> None:
    assert load(tmp_path, monkeypatch, *flags, file=file, variables=variables).log_level == expected


def test_a_section_may_come_from_all_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load(
        tmp_path,
        monkeypatch,
        "--cache.on-demand.get=3",
        variables={"CACHE__ON_DEMAND__LIST": "5", "CACHE__IDLE_TTL": "1h"},
        file="cache: {idle_ttl: 1m, on_demand: {get: 8, list: 8, watch: 0}}",
    )
    assert found.cache.on_demand.thresholds == {Verb.WATCH: 0, Verb.LIST: 5, Verb.GET: 3}
    assert found.cache.idle_ttl == 3600.0


@pytest.mark.parametrize("given", ["flag", "flag and value", "variable", "both"])
def test_the_file_is_named_by_a_flag_or_a_variable(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubecache.yaml"
    path.write_text("listen: unix:/run/it")
    flags = {"flag": [f"--config={path}"], "flag and value": ["--config", str(path)]}.get(given, [])
    if given == "both":
        flags = [f"--config={path}"]
        monkeypatch.setenv("KUBECACHE_CONFIG", str(tmp_path / "other.yaml"))
    if given == "variable":
        monkeypatch.setenv("KUBECACHE_CONFIG", str(path))
    found = load_settings([*flags, "--log-level=debug"], "kubecache run")
    assert (found.listen.path, found.config, found.log_level) == ("/run/it", path, "debug")


RESOURCES = (
    ResourceSettings(resource="pods", namespaces=("a", "b")),
    ResourceSettings(resource="widgets.v1.example.com", indexes=("spec.owner",)),
)


@pytest.mark.parametrize(
    ("flags", "variables", "file"),
    [
        (
            [],
            {},
            """
cache:
  resources:
  - {resource: pods, namespaces: [a, b]}
  - {resource: widgets.v1.example.com, indexes: [spec.owner]}
""",
        ),
        (
            [],
            {
                "CACHE__RESOURCES": '[{"resource":"pods","namespaces":["a","b"]},'
                '{"resource":"widgets.v1.example.com","indexes":["spec.owner"]}]'
            },
            "cache: {resources: [{resource: nodes}]}",
        ),
        (
            [
                '--cache.resources={"resource":"pods","namespaces":["a","b"]}',
                '--cache.resources={"resource":"widgets.v1.example.com","indexes":["spec.owner"]}',
            ],
            {},
            "cache: {resources: [{resource: nodes}]}",
        ),
    ],
    ids=["file", "variable", "flags"],
)
def test_resources_are_named_in_each_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    variables: dict[str, str],
    file: str,
) -> None:
    found = load(tmp_path, monkeypatch, *flags, variables=variables, file=file)
    assert found.cache.resources == RESOURCES


def test_settings_and_their_sections_do_not_change() -> None:
    settings = Settings()
    for part, name in ((settings, "log_level"), (settings.cache, "idle_ttl")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(part, name, "other")


# --- what they may be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30m", 1800.0),
        ("1h30m", 5400.0),
        ("1h30m15s", 5415.0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("0s", 0.0),
        (12, 12),
        (0.5, 0.5),
        ("12", "12"),  # a number, which pydantic reads
    ],
)
def test_durations(value: object, seconds: object) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize("value", ["30m ", " 30m", "30m5", "x30m", "1h-30m", "30M1s", "1.m1s"])
def test_durations_that_are_none(value: str) -> None:
    with pytest.raises(ValueError, match="is not a duration like 30m or 1h30m"):
        parse_duration(value)


@pytest.mark.parametrize(
    ("value", "address", "spelt"),
    [
        ("127.0.0.1:8001", Address("127.0.0.1", 8001), ""),
        ("localhost:0", Address("localhost", 0), ""),
        ("[::1]:65535", Address("::1", 65535), ""),
        (":8001", Address("0.0.0.0", 8001), "0.0.0.0:8001"),
        ("unix:/run/kubecache.sock", Address("", 0, "/run/kubecache.sock"), ""),
    ],
)
def test_addresses(value: str, address: Address, spelt: str) -> None:
    assert parse_address(value) == address
    assert str(address) == (spelt or value)
    assert parse_address(str(address)) == address
    assert parse_address(address) is address


@pytest.mark.parametrize(
    "value",
    ["", "8001", "localhost", "localhost:", "localhost:http", "localhost:65536", "[::1]", ":-1"],
)
def test_addresses_that_are_none(value: str) -> None:
    with pytest.raises(ValueError, match="neither host:port nor unix:/path"):
        parse_address(value)


@pytest.mark.parametrize("value", ["unix:", "unix:run/it", "unix:./it"])
def test_a_socket_has_an_absolute_path(value: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        parse_address(value)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KUBECONFIG": "/etc/k"}, Path("/etc/k")),
        ({"KUBECONFIG": "/etc/k", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Path("/etc/k")),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        ({}, Path("/home/me/.kube/config")),
    ],
    ids=["variable", "variable-in-pod", "pod", "home"],
)
def test_the_kubeconfig_is_where_kubectl_looks(
    variables: dict[str, str], expected: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": "/home/me"}).items():
        monkeypatch.setenv(name, value)
    assert default_kubeconfig() == expected


# --- what is said otherwise ------------------------------------------------------------------

WRONG: list[tuple[str, str]] = [
    ("listne: ':1'", "listne: Extra inputs are not permitted"),
    ("cache: {idle: 1}", "cache.idle: Extra inputs are not permitted"),
    ("cache: {on_demand: {head: 1}}", "cache.on_demand.head: Extra inputs are not permitted"),
    ("cache: {resources: [{resource: pods, x: 1}]}", "cache.resources.0.x: Extra inputs are not"),
    ("cache: {resources: [{}]}", "cache.resources.0.resource: Field required"),
    ("cache: {resources: [{resource: Pods}]}", "'Pods' is not a resource like pods or"),
    ("cache: {resources: [{resource: apps/pods}]}", "'apps/pods' is not a resource like pods"),
    (
        "cache: {resources: [{resource: pods, indexes: ['spec[']}]}",
        "cache.resources.0.indexes.0: Value error, 'spec[' is not a path like",
    ),
    ("cache: {idle_ttl: soon}", "cache.idle_ttl: Input should be a valid number"),
    ("cache: {idle_ttl: -1}", "cache.idle_ttl: Input should be greater than or equal to 0"),
    ("cache: {on_demand: {get: -1}}", "cache.on_demand.get: Input should be greater than or"),
    ("log_level: loud", "log_level: Input should be 'debug', 'info', 'warning' or 'error'"),
    ("listen: localhost", "listen: Value error, 'localhost' is neither host:port nor unix:/path"),
    ("listen: 8001", "listen: "),
    ("{log_level: loud, admin: x}", "admin: Value error, 'x' is neither"),
]


@pytest.mark.parametrize(("file", "said"), WRONG, ids=[file for file, _ in WRONG])
def test_a_wrong_setting_is_named_in_one_line(
    file: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubecache.yaml"
    path.write_text(file)
    assert main(["run", "--config", str(path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("kubecache run: ")
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LISTEN", "77", "listen: "),
        ("CACHE__IDLE", "1m", "cache.idle: Extra inputs"),
        ("CACHE__RESOURCES", "pods", "cache"),
        ("CACHE__ON_DEMAND__GET", "many", "cache.on_demand.get: "),
    ],
)
def test_a_wrong_variable_is_named(
    name: str,
    value: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(f"KUBECACHE_{name}", value)
    assert main(["run"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--nope", "--cache.on-demand.head=1", "--log_level=info"])
def test_a_wrong_flag_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", flag])
    assert ended.value.code == 2
    assert flag.partition("=")[0] in capsys.readouterr().err


def parsed(value: Any) -> float:
    return Settings(cache={"idle_ttl": value}).cache.idle_ttl  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "seconds"), [("12", 12.0), (12, 12.0), ("2m", 120.0)])
def test_a_duration_may_be_a_number_of_seconds(value: Any, seconds: float) -> None:
    assert parsed(value) == seconds
