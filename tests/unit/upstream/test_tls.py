"""What a kubeconfig says of the server and how it's recognised."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from proxy.upstream.credentials import Credentials, CredentialsError, load

USER = {"token": "t"}


def credentials(tmp_path: Path, server: str, *, user: Any = None, **cluster: Any) -> Credentials:
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "other", "user": "u", "namespace": "ns"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": server, **cluster}},
            {"name": "other", "cluster": {"server": "https://other.example"}},
        ],
        "users": [{"name": "u", "user": user or USER}],
    }
    path.write_text(json.dumps(config))
    return asyncio.run(load(str(path), None))


@pytest.mark.parametrize(
    ("server", "base"),
    [
        ("https://kube.example", "https://kube.example"),
        ("https://kube.example:6443/", "https://kube.example:6443"),
        ("https://kube.example/clusters/a/", "https://kube.example/clusters/a"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_servers(tmp_path: Path, server: str, base: str) -> None:
    found = credentials(tmp_path, server)
    assert found.server == base
    assert (found.ssl is not None) is server.startswith("https")
    assert (found.ssl_anonymous is not None) is server.startswith("https")


@pytest.mark.parametrize(
    ("cluster", "mode", "checks", "name"),
    [
        ({}, ssl.CERT_REQUIRED, True, None),
        ({"insecure-skip-tls-verify": True}, ssl.CERT_NONE, False, None),
        ({"tls-server-name": "kube.internal"}, ssl.CERT_REQUIRED, True, "kube.internal"),
    ],
    ids=["plain", "insecure", "name"],
)
def test_how_the_server_is_recognised(
    tmp_path: Path, cluster: dict[str, Any], mode: ssl.VerifyMode, checks: bool, name: str | None
) -> None:
    found = credentials(tmp_path, "https://kube.example", **cluster)
    assert found.server_hostname == name
    for context in (found.ssl, found.ssl_anonymous):
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (mode, checks)
        assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_a_proxy_on_the_way(tmp_path: Path) -> None:
    url = "http://egress.example:3128"
    assert credentials(tmp_path, "https://kube.example", **{"proxy-url": url}).proxy == url
    assert credentials(tmp_path, "https://kube.example").proxy is None


def test_another_context(tmp_path: Path) -> None:
    credentials(tmp_path, "https://kube.example")
    found = asyncio.run(load(str(tmp_path / "kubeconfig"), "two"))
    assert (found.server, found.namespace) == ("https://other.example", "ns")


@pytest.mark.parametrize("name", ["client-certificate", "client-key"])
def test_certificates_that_are_not_there(tmp_path: Path, name: str) -> None:
    missing = {f"client-{part}": str(tmp_path / part) for part in ("certificate", "key")}
    (tmp_path / name.removeprefix("client-")).write_text("not a certificate")
    with pytest.raises(CredentialsError):
        credentials(tmp_path, "https://kube.example", user=missing)
