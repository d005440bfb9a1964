"""Who the proxy is: kubeconfigs, service accounts, and tokens that rotate."""

import asyncio
import datetime
import json
import re
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from kubernetes_asyncio.config import incluster_config

from proxy.upstream.credentials import REFRESH, CredentialsError, UnknownContextError, load
from tests.unit.builders import Clock

Write = Callable[..., str]


def test_a_token_of_a_kubeconfig(kubeconfig: Write) -> None:
    async def run() -> None:
        found = await load(kubeconfig("https://127.0.0.1:1", token="t"), None)
        assert (found.server, found.namespace) == ("https://127.0.0.1:1", "own")
        assert await found.authorization() == found.last_authorization == "Bearer t"

    asyncio.run(run())


def test_without_credentials_there_is_no_authorization(kubeconfig: Write) -> None:
    async def run() -> str:
        return await (await load(kubeconfig("http://127.0.0.1:1"), None)).authorization()

    assert asyncio.run(run()) == ""


def test_a_token_file_is_read_again(kubeconfig: Write, tmp_path: Path) -> None:
    clock = Clock()
    token = tmp_path / "token"
    token.write_text("old")

    async def run() -> list[str]:
        found = await load(
            kubeconfig("http://127.0.0.1:1", tokenFile=str(token)), None, clock=clock
        )
        before = await found.authorization()
        token.write_text("new")
        still = await found.authorization()
        clock.now += REFRESH + 1
        return [before, still, await found.authorization()]

    assert asyncio.run(run()) == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_plugin_that_hangs_holds_nobody_up(kubeconfig: Write, tmp_path: Path) -> None:
    """It is asked for a newer token beside those who go on with the old one."""
    clock = Clock()
    plugin, asked = tmp_path / "plugin", tmp_path / "asked"
    version = "client.authentication.k8s.io/v1"
    found = json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": {"token": "t"}})
    plugin.write_text(f"#!/bin/sh\n[ -e {asked} ] && sleep 2\ntouch {asked}\necho '{found}'\n")
    plugin.chmod(0o755)
    command = {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}

    async def run() -> list[bool | str]:
        credentials = await load(kubeconfig("http://127.0.0.1:1", exec=command), None, clock=clock)
        clock.now += REFRESH + 1
        shown: list[bool | str] = [await credentials.authorization()]
        hanging = [task for task in asyncio.all_tasks() if task.get_name() == "credentials"]
        shown += [await credentials.authorization(), any(not task.done() for task in hanging)]
        await asyncio.wait(hanging)
        return shown

    assert asyncio.run(run()) == ["Bearer t", "Bearer t", True]


def test_a_refresh_that_fails_leaves_the_old_token(kubeconfig: Write, tmp_path: Path) -> None:
    clock = Clock()
    token = tmp_path / "token"
    token.write_text("old")

    async def run() -> str:
        found = await load(
            kubeconfig("http://127.0.0.1:1", tokenFile=str(token)), None, clock=clock
        )
        token.unlink()
        clock.now += REFRESH + 1
        return await found.authorization()

    assert asyncio.run(run()) == "Bearer old"


def test_a_service_account_whose_token_rotates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names and the period are kubernetes_asyncio's; the files are a pod's."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("old")
    authority.write_bytes(_certificate())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setattr(incluster_config, "TOKEN_REFRESH_PERIOD", datetime.timedelta())

    async def run() -> list[str]:
        found = await load(None, None)
        assert found.server == "https://[::1]:443"
        before = await found.authorization()
        token.write_text("new")
        after = await found.authorization()
        token.write_text("")
        empty = await found.authorization()
        token.unlink()
        return [before, after, empty, await found.authorization()]

    assert asyncio.run(run()) == ["Bearer old", "Bearer new", "Bearer new", "Bearer new"]


def _certificate() -> bytes:
    """Any certificate that Python trusts by itself."""
    return ssl.DER_cert_to_PEM_cert(
        ssl.create_default_context().get_ca_certs(binary_form=True)[0]
    ).encode()


@pytest.mark.parametrize(
    "content", [None, "", "[]", "a", "clusters: 1", "contexts: [1]", "a: [", "kind: Config"]
)
def test_kubeconfigs_that_cannot_be_used(content: str | None, tmp_path: Path) -> None:
    """Who reads of it learns which file it is."""
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    for context in (None, "c"):
        with pytest.raises(CredentialsError, match=re.escape(path.name)):
            asyncio.run(load(str(path), context))


def test_a_context_that_is_not_there(kubeconfig: Write) -> None:
    path = kubeconfig("http://127.0.0.1:1")
    with pytest.raises(UnknownContextError) as raised:
        asyncio.run(load(path, "other"))
    assert str(raised.value) == f"found 'other', expected one of c, the contexts of {path}"
