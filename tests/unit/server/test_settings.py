"""Settings: where they come from, which wins, what they may be, and what is said otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.cli.main import main
from proxy.kube.requests import Verb
from proxy.server.addresses import Address, parse_address
from proxy.server.settings import ResourceSettings, Settings, default_kubeconfig, load_settings


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
    assert Settings(listen=address).listen == address


@pytest.mark.parametrize(
    "value",
    ["", "8001", "localhost", "localhost:", "localhost:http", "http://a:1", "[::1]", ":-1"],
)
def test_addresses_that_are_none(value: str) -> None:
    with pytest.raises(ValueError, match="neither host:port nor unix:/path"):
        parse_address(value)


@pytest.mark.parametrize("port", [65536, 99999])
def test_a_port_is_within_range(port: int) -> None:
    with pytest.raises(ValueError, match=f"found port {port}, expected one of 0 to 65535"):
        parse_address(f"localhost:{port}")


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
    ("listne: ':1'", "listne: no such setting; did you mean listen?"),
    ("max-staleness: 30s", "max-staleness: no such setting; did you mean max_staleness?"),
    ("cache: {idle: 1}", "cache.idle: no such setting; did you mean idle_ttl?"),
    (
        "cache: {on_demand: {head: 1}}",
        "cache.on_demand.head: no such setting; there are watch, list, get",
    ),
    (
        "cache: {resources: [{resource: pods, index: []}]}",
        "cache.resources.0.index: no such setting; did you mean indexes?",
    ),
    (
        "cache: {resources: [{namespaces: [a]}]}",
        "cache.resources.0.resource: missing in {'namespaces': ['a']}",
    ),
    (
        "cache: {resources: [{resource: Pods}]}",
        "cache.resources.0.resource: 'Pods' is not a resource like pods or deployments.apps",
    ),
    (
        "cache: {resources: [{resource: 7}]}",
        "cache.resources.0.resource: found 7, expected a resource such as pods",
    ),
    (
        "cache: {resources: [pods]}",
        'cache.resources: found \'pods\', expected {"resource": "pods"}',
    ),
    (
        "cache: {resources: 7}",
        'cache.resources: found 7, expected a list such as [{"resource": "pods"}]',
    ),
    (
        "cache: {resources: [{resource: pods, namespaces: default}]}",
        "cache.resources.0.namespaces: found 'default', expected a list such as [default]",
    ),
    (
        "cache: {resources: [{resource: pods, forms: [jsn]}]}",
        "cache.resources.0.forms.0: found 'jsn', expected 'json', 'table', 'metadata', 'protobuf' "
        "or 'metadata-protobuf'",
    ),
    (
        "cache: {resources: [{resource: pods, forms: []}]}",
        "cache.resources.0.forms: found [], expected a list such as [json, table]",
    ),
    (
        "cache: {resources: [{resource: pods, indexes: ['spec[']}]}",
        "cache.resources.0.indexes.0: 'spec[' is not a path like spec.containers[*].image",
    ),
    ("cache: 7", "cache: found 7, expected a mapping of resources, on_demand, on_miss, idle_ttl"),
    (
        "cache: {idle_ttl: soon}",
        "cache.idle_ttl: found 'soon', expected a duration of 0 or more, such as 30s or 5m",
    ),
    (
        "cache: {idle_ttl: -1}",
        "cache.idle_ttl: found -1, expected a duration of 0 or more, such as 30s or 5m",
    ),
    ("cache: {idle_ttl: 30m5}", "cache.idle_ttl: '30m5' is not a duration like 30m or 1h30m"),
    (
        "cache: {on_demand: {get: -1}}",
        "cache.on_demand.get: found -1, expected a whole number of 0 or more",
    ),
    ("live_rate: .nan", "live_rate: found nan, expected a number of 0 or more"),
    ("log_level: loud", "log_level: found 'loud', expected one of debug, info, warning, error"),
    ("consistency: no", "consistency: found False, expected one of session, eventual, strict"),
    ("context: 7", "context: found 7, expected a name"),
    ("listen: localhost", "listen: 'localhost' is neither host:port nor unix:/path"),
    ("listen: 8001", "listen: found 8001, expected host:port or unix:/path"),
]


@pytest.mark.parametrize(("file", "said"), WRONG, ids=[file for file, _ in WRONG])
def test_a_wrong_setting_is_told_in_one_line(
    file: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubecache.yaml"
    path.write_text(file)
    assert main(["run", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"kubecache run: {path}: {said}\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("LISTEN=77", "KUBECACHE_LISTEN: '77' is neither"),
        ("CACHE__IDLE=1m", "KUBECACHE_CACHE__IDLE: no such setting; did you mean idle_ttl?"),
        ("CACHE__RESOURCES=pods", "KUBECACHE_CACHE__RESOURCES: found 'pods', expected {"),
        ("CACHE__RESOURCES=a b", "KUBECACHE_CACHE__RESOURCES: found 'a b', expected {"),
        (
            'CACHE__RESOURCES=[{"resource": "Pods"}]',
            "KUBECACHE_CACHE__RESOURCES: cache.resources.0.resource: 'Pods' is not a resource",
        ),
        ("CACHE__ON_DEMAND__GET=many", "KUBECACHE_CACHE__ON_DEMAND__GET: found 'many', expected"),
        ("CACHE=pods", "KUBECACHE_CACHE: not JSON; give one setting at a time, like KUBECACHE_"),
        ("cache__on_miss=x", "KUBECACHE_CACHE__ON_MISS: found 'x', expected one of serve, confirm"),
        ("--max-staleness=30x", "--max-staleness: found '30x', expected a duration"),
        ("--cache.resources=pods", "--cache.resources: found 'pods', expected {"),
        (
            '--cache.resources={"resource": "pods", "namespaces": "a"}',
            "--cache.resources: cache.resources.0.namespaces: found 'a', expected a list",
        ),
    ],
)
def test_a_wrong_value_is_told_with_its_flag_or_variable(
    given: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, _, value = given.partition("=")
    is_flag = name.startswith("--")
    if not is_flag:
        monkeypatch.setenv(f"KUBECACHE_{name}", value)
    assert main(["run", given] if is_flag else ["run"]) == 2
    assert capsys.readouterr().err.startswith(f"kubecache run: {said}")


def test_all_that_is_wrong_is_told_with_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="neither") as raised:
        load(
            tmp_path,
            monkeypatch,
            "--admin=x",
            variables={"CACHE__IDLE_TTL": "long"},
            file="{log_level: loud, admin: ':1'}",
        )
    told = [each.partition(": ")[0] for each in str(raised.value).split("; ")]
    assert set(told) == {"--admin", str(tmp_path / "kubecache.yaml"), "KUBECACHE_CACHE__IDLE_TTL"}


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        (["--listen=:1", "--listen", ":2"], "listen", Address("0.0.0.0", 2)),
        (["--max-staleness=1s", "--max-staleness=2s"], "max_staleness", 2.0),
        (["--consistency=strict", "--consistency=eventual"], "consistency", "eventual"),
    ],
)
def test_of_a_flag_that_is_given_twice_the_last_counts(
    flags: list[str], key: str, value: object
) -> None:
    assert getattr(load_settings(flags, "kubecache run"), key) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--nope 3", "--nope: no such flag; see --help"),
        ("-x", "-x: no such flag; see --help"),
        ("--cache.on-demand.gets=1", "--cache.on-demand.gets: no such flag; did you mean"),
        ("--log_level=info", "--log_level: no such flag; did you mean --log-level?"),
        ("word", "found 'word', expected a flag such as --listen"),
        ("--listen", "--listen: expected one argument"),
        ("--help=1", "-h/--help: ignored explicit argument '1'"),
        ("--max-staleness -3s", "--max-staleness: '-3s' is not a duration like 30m or 1h30m"),
        ("--max-staleness -3", "--max-staleness: found '-3', expected a duration of 0 or more"),
        ("--listen --admin", "--listen: '--admin' is neither host:port nor unix:/path"),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(
    given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *given.split()]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"kubecache run: {said}")
    assert errors.count("\n") == 1


def parsed(value: Any) -> float:
    return Settings(cache={"idle_ttl": value}).cache.idle_ttl  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "seconds"), [("12", 12.0), (12, 12.0), ("2m", 120.0)])
def test_a_duration_may_be_a_number_of_seconds(value: Any, seconds: float) -> None:
    assert parsed(value) == seconds
