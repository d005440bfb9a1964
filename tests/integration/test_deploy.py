"""deploy/ and helm/: the API server takes them, and what they grant is what their proxy needs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.apiserver import ApiServer
from tests.harness.http import get
from tests.harness.kubectl import Kubectl
from tests.harness.proxy import Proxy
from tests.helm import tool

_ROOT = Path(__file__).parents[2]
_CHART = _ROOT / "helm" / "kubecache"
_SIDECAR = ('mode="sidecar"', 'controller.image="example/controller:1.0.0"')

_NO_HELM = "no Go that builds helm: the chart is not tested"

# Compiling helm takes minutes where `make apiserver` has not done it before.
pytestmark = pytest.mark.timeout(900)

Objects = list[dict[str, Any]]
Rendered = dict[str, str]


@pytest.fixture
def kubectl(apiserver: ApiServer, tmp_path: Path) -> Kubectl:
    return Kubectl(apiserver.kubeconfig(), tmp_path)


@pytest.fixture
def restricted(kubectl: Kubectl, namespace: str) -> str:
    """A namespace that takes only pods of the restricted Pod Security Standard."""
    levels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    kubectl("label", "namespace", namespace, *levels).ok()
    return namespace


def _base(namespace: str, kubectl: Kubectl, folder: Path) -> str:
    """deploy/sidecar in an overlay of a namespace."""
    base = os.path.relpath(_ROOT / "deploy" / "sidecar", folder.resolve())
    overlay = {"namespace": namespace, "resources": [base]}
    (folder / "kustomization.yaml").write_text(json.dumps(overlay))
    return kubectl("kustomize", str(folder)).ok().stdout


def _chart(namespace: str, *values: str) -> str:
    """helm/kubecache as release `kubecache`, with values as JSON."""
    words = ["template", "kubecache", str(_CHART), "--namespace", namespace]
    code, output = _helm(*words, *(f"--set-json={value}" for value in values))
    assert code == 0, output
    return output


def _helm(*words: str) -> tuple[int, str]:
    """The exit code of a helm command, and what it printed."""
    if not tool.available():
        assert os.environ.get("CI") != "true", _NO_HELM
        pytest.skip(_NO_HELM)
    done = tool.helm(words, capture=True)
    return done.returncode, done.stdout or done.stderr


_RENDER: dict[str, Callable[[str, Kubectl, Path], str]] = {
    "base": _base,
    "standalone": lambda namespace, *_: _chart(namespace),
    "sidecar": lambda namespace, *_: _chart(namespace, *_SIDECAR),
}


@pytest.fixture(params=_RENDER)
def manifests(
    request: pytest.FixtureRequest, restricted: str, kubectl: Kubectl, tmp_path: Path
) -> str:
    """What is installed, as YAML: by the kustomize base and by both modes of the chart."""
    return _RENDER[request.param](restricted, kubectl, tmp_path)


def test_the_apiserver_takes_all_objects(kubectl: Kubectl, manifests: str) -> None:
    done = kubectl("apply", "--dry-run=server", "-f", "-", stdin=manifests).ok()
    lines = done.stdout.splitlines()
    assert done.stderr == ""  # no warning, which the Deployment would get for its pods
    assert len(lines) == len(_objects(manifests))
    assert all(line.endswith("created (server dry run)") for line in lines)


def test_pods_pass_the_restricted_standard(kubectl: Kubectl, manifests: str) -> None:
    pod = _pod(_objects(manifests))
    done = kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod)).ok()
    assert done.stderr == ""

    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    refused = kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    assert "violates PodSecurity" in refused.stderr  # so it was checked above


def test_the_proxy_runs_with_what_is_installed(
    apiserver: ApiServer, kubectl: Kubectl, restricted: str, manifests: str
) -> None:
    kubectl("apply", "-f", "-", stdin=manifests).ok()
    settings = yaml.safe_load(_config_map(_objects(manifests))["kubecache.yaml"])
    kubeconfig = _service_account(apiserver, kubectl, restricted, _objects(manifests))
    with Proxy(kubeconfig, config=settings) as proxy:  # ready: informers of all settings synced
        for target in ("/api/v1/pods", "/apis/apps/v1/deployments"):
            answer = get(proxy.read, target).ok()
            assert (answer.header("Cache-Status") or "").startswith("kubecache; hit")
        assert get(proxy.read, "/api/v1/configmaps").status == 403
    kubectl("delete", "-f", "-", stdin=manifests).ok()


def test_both_ways_install_the_same_sidecar(kubectl: Kubectl, tmp_path: Path) -> None:
    base, chart = (
        _objects(text) for text in (_base("any", kubectl, tmp_path), _chart("any", *_SIDECAR))
    )
    for part in ("initContainers", "containers"):
        assert _containers(base, part) == _containers(chart, part)
    assert _rules(base) == _rules(chart)
    for name in ("kubecache.yaml", "kubeconfig"):
        assert yaml.safe_load(_config_map(base)[name]) == yaml.safe_load(_config_map(chart)[name])


def test_the_chart_grants_namespaces_only_where_settings_name_them() -> None:
    resources = [
        {"resource": "pods", "namespaces": ["b", "a"]},
        {"resource": "foos.v1beta1.example.com", "namespaces": ["b"]},
        {"resource": "bars.example.com"},
    ]
    objects = _objects(_chart("any", f"config.cache.resources={json.dumps(resources)}"))
    granted = {
        (each["metadata"].get("namespace", ""), rule["apiGroups"][0], rule["resources"][0])
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
    }
    assert granted == {
        ("a", "", "pods"),
        ("b", "", "pods"),
        ("b", "example.com", "foos"),
        ("", "example.com", "bars"),
    }


def test_the_chart_grants_nothing_when_told_so() -> None:
    kinds = {each["kind"] for each in _objects(_chart("any", "rbac.create=false"))}
    assert kinds == {"ServiceAccount", "ConfigMap", "Deployment"}


@pytest.mark.parametrize(
    ("values", "account"),
    [
        ((), "kubecache"),
        (("serviceAccount.create=false",), "default"),
        (('serviceAccount.name="mine"',), "mine"),
        (("serviceAccount.create=false", 'serviceAccount.name="mine"'), "mine"),
    ],
)
def test_the_chart_names_the_service_account_as_helm_does(
    values: tuple[str, ...], account: str
) -> None:
    objects = _objects(_chart("any", *values))
    assert _pod(objects)["spec"]["serviceAccountName"] == account
    assert _one(objects, "ClusterRoleBinding")["subjects"][0]["name"] == account
    made = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
    assert made == ([] if "serviceAccount.create=false" in values else [account])


def test_the_chart_hands_settings_on() -> None:
    config = {"consistency": "strict", "max_staleness": "1h30m", "cache": {"idle_ttl": 12}}
    objects = _objects(_chart("any", f"config={json.dumps(config)}"))
    written = yaml.safe_load(_config_map(objects)["kubecache.yaml"])
    del written["cache"]["resources"]
    assert written == config


def test_the_chart_is_clean_and_refuses_what_it_does_not_know() -> None:
    code, output = _helm("lint", "--strict", str(_CHART))
    assert code == 0, output
    template = ("template", "kubecache", str(_CHART), "--set")
    for value, complaint in {
        "mode=shared": "/mode",
        "mode=sidecar": "mode: sidecar needs controller.image",
        "image.registry=x": "registry",
        "config.consistensy=strict": "consistensy",
        "config.consistency=stricter": "/config/consistency",
        "config.max_staleness=30x": "/config/max_staleness",
        "config.listen=:8001": "listen",
    }.items():
        code, output = _helm(*template, value)
        assert code != 0
        assert complaint in output


def _objects(manifests: str) -> Objects:
    return [each for each in yaml.safe_load_all(manifests) if each]


def _one(objects: Objects, kind: str) -> dict[str, Any]:
    [found] = (each for each in objects if each["kind"] == kind)
    return found


def _pod(objects: Objects) -> dict[str, Any]:
    deployment = _one(objects, "Deployment")
    template = deployment["spec"]["template"]
    named = {"name": "pod", "namespace": deployment["metadata"]["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | named,
        "spec": template["spec"],
    }


def _containers(objects: Objects, part: str) -> list[dict[str, Any]]:
    """A pod's containers, without what the chart lets its user say though it is the default."""
    containers: list[dict[str, Any]] = _pod(objects)["spec"][part]
    return [{k: v for k, v in each.items() if k != "imagePullPolicy"} for each in containers]


def _rules(objects: Objects) -> Any:
    return _one(objects, "ClusterRole")["rules"]


def _config_map(objects: Objects) -> Rendered:
    data: Rendered = _one(objects, "ConfigMap")["data"]
    return data


def _service_account(
    apiserver: ApiServer, kubectl: Kubectl, namespace: str, objects: Objects
) -> Path:
    """A kubeconfig of the installed service account."""
    name = _one(objects, "ServiceAccount")["metadata"]["name"]
    token = kubectl("create", "token", name, "--namespace", namespace).ok().stdout.strip()
    config = json.loads(apiserver.kubeconfig().read_text())
    config["users"][0]["user"] = {"token": token}
    path = apiserver.folder / f"kubeconfig-{namespace}-{name}"
    path.write_text(json.dumps(config))
    return path
