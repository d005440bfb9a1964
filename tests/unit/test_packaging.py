"""What is shipped: the locked requirements, the wheel, the image and the verbs of make."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from proxy.server.settings import load_settings

_ROOT = Path(__file__).parents[2]
_PROJECT: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())
_LOCKS = sorted((_ROOT / "requirements").glob("*.txt"))

Pins = dict[str, str]


def _entries(lock: Path) -> list[str]:
    """A lock's requirements, each on one line with its hashes."""
    lines = [line for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", "").splitlines()


def _requirements(lock: Path) -> list[Requirement]:
    return [Requirement(entry.split(" --hash=")[0]) for entry in _entries(lock)]


def _pins(name: str) -> Pins:
    """The version of each package that a lock names."""
    found = _requirements(_ROOT / "requirements" / name)
    return {each.name: str(each.specifier).removeprefix("==") for each in found}


@pytest.mark.parametrize("lock", _LOCKS, ids=lambda lock: lock.name)
def test_locks_are_hashed_and_name_no_host(lock: Path) -> None:
    entries = _entries(lock)
    assert entries
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", entry) for entry in entries)
    assert all(re.fullmatch(r"==[^,*]+", str(each.specifier)) for each in _requirements(lock))
    assert "://" not in lock.read_text()


def test_the_runtime_lock_has_what_the_project_needs() -> None:
    pins = _pins("run.txt")
    for needed in map(Requirement, _PROJECT["project"]["dependencies"]):
        assert pins[canonicalize_name(needed.name)] in needed.specifier


def test_locks_pin_extras_with_their_package() -> None:
    """Else pip takes the newest release for the extras, and refuses it: it has no hash here."""
    locked = {each.name: each.extras for each in _requirements(_ROOT / "requirements/dev.txt")}
    wanted = [Requirement(each) for found in distributions() for each in found.requires or ()]
    with_extras = [
        each
        for each in wanted
        if each.extras and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]
    assert with_extras
    for each in with_extras:
        assert each.extras <= locked[canonicalize_name(each.name)], each


def test_tests_run_with_the_versions_that_are_shipped() -> None:
    tested = _pins("dev.txt").items()
    assert _pins("run.txt").items() <= tested
    assert _pins("build.txt").items() <= tested
    [backend] = map(Requirement, _PROJECT["build-system"]["requires"])
    assert _pins("build.txt")[backend.name] in backend.specifier


def test_the_wheel_holds_the_package_and_its_command(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", tmp_path], cwd=_ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        info = next(name for name in names if name.endswith("/entry_points.txt"))
        assert "kubecache = proxy.cli.main:main" in file.read(info).decode()
    assert "proxy/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"proxy", "kubecache"}


def _instructions(word: str) -> Iterator[list[str]]:
    """The words that follow a Dockerfile instruction, each time that it comes."""
    text = (_ROOT / "Dockerfile").read_text().replace("\\\n", "")
    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if name == word:
            yield rest


def test_the_image_is_pinned_and_runs_as_nobody_with_a_number() -> None:
    defaults = dict(each[0].split("=") for each in _instructions("ARG"))
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", defaults["PYTHON"])
    assert {base for base, *_ in _instructions("FROM")} == {"${PYTHON}"}
    assert defaults["VERSION"] == _PROJECT["project"]["version"]
    [[user]] = _instructions("USER")
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)


def test_the_image_starts_the_command_without_a_shell() -> None:
    assert list(_instructions("ENTRYPOINT")) == [['["kubecache"]']]
    assert list(_instructions("CMD")) == [['["run"]']]
    assert "kubecache" in _PROJECT["project"]["scripts"]


def test_what_the_image_copies_is_there_and_let_in() -> None:
    ignored = (_ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:].strip("/") for line in ignored if line.startswith("!")}
    sources = {
        source.rstrip("/")
        for *given, _ in _instructions("COPY")
        for source in given
        if not given[0].startswith("--from")
    }
    assert all((_ROOT / source).exists() for source in sources)
    assert {source.split("/")[0] for source in sources} == let_in


def test_versions_agree() -> None:
    version = _PROJECT["project"]["version"]
    chart = yaml.safe_load((_ROOT / "helm/kubecache/Chart.yaml").read_text())
    base = yaml.safe_load((_ROOT / "deploy/sidecar/kustomization.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert base["images"] == [{"name": "kubecache", "newTag": version}]
    assert f"## [{version}]" in (_ROOT / "CHANGELOG.md").read_text()


def test_the_sidecar_of_deploy_is_started_as_the_settings_have_it() -> None:
    folder = _ROOT / "deploy" / "sidecar"
    deployment = yaml.safe_load((folder / "deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["initContainers"]
    command, *flags = container["args"]
    flags = [flag.replace("/etc/kubecache/", f"{folder}/") for flag in flags]
    settings = load_settings(flags, "kubecache run")
    assert command == "run"
    assert str(settings.listen) == "127.0.0.1:8001"
    assert settings.admin.port == container["ports"][0]["containerPort"]
    assert [each.resource for each in settings.cache.resources] == ["pods", "deployments.apps"]


def test_the_documented_verbs_are_those_of_make() -> None:
    makefile = (_ROOT / "Makefile").read_text()
    verbs = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"\bmake ([a-z]+)\b`", (_ROOT / document).read_text()))
        assert named <= verbs
    assert verbs <= set(re.findall(r"[a-z]+", makefile.partition(".PHONY:")[2].partition("\n")[0]))
