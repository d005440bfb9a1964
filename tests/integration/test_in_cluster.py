"""`kubecache run` as in a pod: its service account's files, and no kubeconfig.

The files are where they are in every pod, below /var/run, which the proxy sees in a mount
namespace of its own.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness.apiserver import ApiServer
from tests.harness.caching import cached
from tests.harness.differential import compare
from tests.harness.http import Server, ask, get
from tests.harness.objects import configmap, create
from tests.harness.proxy import Proxy

RBAC = "/apis/rbac.authorization.k8s.io/v1"

# Shows the folder $0 as a pod's service account to the command that follows.
_AS_IN_A_POD = """
mount -t tmpfs pod /var/run && mkdir -p /var/run/secrets/kubernetes.io &&
ln -s "$0" /var/run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""
_WAYS = (["--mount"], ["--map-root-user", "--mount"])  # as root, and as anybody else


@cache
def _unshare() -> list[str]:
    """The command that gives another one a mount namespace; skips the test where there is none."""
    for flags in _WAYS if shutil.which("unshare") else ():
        command = ["unshare", *flags, "sh", "-c", _AS_IN_A_POD]
        done = subprocess.run([*command, "/", "true"], capture_output=True, check=False, timeout=30)
        if done.returncode == 0:
            return command
    pytest.skip("no mount namespaces here: the proxy is not tested with a service account")


class Account:
    """A service account, and the folder that is mounted into its pods."""

    def __init__(self, apiserver: ApiServer, namespace: str, folder: Path) -> None:
        self.name = f"system:serviceaccount:{namespace}:reader"
        self.folder = folder
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        create(apiserver.server, accounts, {"metadata": {"name": "reader"}})
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        asked = ask(apiserver.server, "POST", f"{accounts}/reader/token", body=request).ok()
        token: str = asked.json()["status"]["token"]
        self.server: Server = apiserver.anonymous().bearer(token)
        (folder / "token").write_text(token)
        (folder / "namespace").write_text(namespace)
        shutil.copy(apiserver.ca, folder / "ca.crt")


@pytest.fixture
def account(apiserver: ApiServer, namespace: str, tmp_path: Path) -> Account:
    """An account that may do everything in its namespace, and nothing elsewhere."""
    account = Account(apiserver, namespace, tmp_path)
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [subject]}
    create(apiserver.server, f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    return account


@pytest.fixture
def proxy(apiserver: ApiServer, account: Account) -> Iterator[Proxy]:
    """It knows the API server by the variables of a pod."""
    where = {
        "KUBERNETES_SERVICE_HOST": apiserver.server.host,
        "KUBERNETES_SERVICE_PORT": str(apiserver.port),
    }
    launcher = [*_unshare(), str(account.folder)]
    with Proxy(None, env=where, launcher=launcher, chain=False) as running:
        yield running


def test_it_is_its_service_account_and_serves_what_that_may_read(
    proxy: Proxy, account: Account, namespace: str
) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = ask(proxy.read, "POST", reviews, body=review).ok()
    assert answer.json()["status"]["userInfo"]["username"] == account.name

    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    ask(proxy.read, "POST", collection, body=configmap("a")).ok()
    cached(proxy.read, collection)
    compare(account.server, proxy.read, "GET", collection, exact=True, source="hit")
    compare(account.server, proxy.read, "GET", f"{collection}/a", source="hit")
    compare(account.server, proxy.read, "GET", "/api/v1/configmaps", source="fwd")
    assert get(proxy.read, "/api/v1/configmaps").status == 403
