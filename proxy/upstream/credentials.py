"""Who the proxy is at the API server: a kubeconfig or the pod's service account.

Loading, exec plugins, OIDC and token files are kubernetes_asyncio's.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from yaml import YAMLError

REFRESH = 60.0
"""Seconds after which a token is read again (client-go's token file cache: one minute)."""

PATIENCE = 0.1
"""Seconds for which a request waits for a newer token: files are quick, plugins may not be."""

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

log = logging.getLogger(__name__)


class CredentialsError(Exception):
    """The kubeconfig or the service account can't be used."""


class UnknownContextError(CredentialsError):
    """The kubeconfig has no context of the name that was given."""


class Credentials:
    """Server address, TLS and the current Authorization value; made by ``load``.

    ``ssl_anonymous`` lacks the client certificate: at the API server a certificate would win over
    the token that a client shows.
    """

    def __init__(
        self,
        configuration: Configuration,
        loader: KubeConfigLoader | None,
        namespace: str,
        clock: Callable[[], float],
    ) -> None:
        self.server: str = (configuration.host or "").rstrip("/")
        self.namespace = namespace
        self.server_hostname: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy
        self.ssl = _ssl_context(configuration, certificate=True)
        self.ssl_anonymous = _ssl_context(configuration, certificate=False)
        self._configuration = configuration
        self._loader = loader
        self._clock = clock
        self._refreshed = clock()
        self._refreshing: asyncio.Task[None] | None = None
        self._authorization = ""

    async def authorization(self) -> str:
        """Return the Authorization value to use now, or "" for none; tokens rotate underneath.

        The old one stays in use while there is no new one to be had: a plugin may take long.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh(), name="credentials")
            self._refreshing.add_done_callback(self._refreshed_or_not)
            await asyncio.wait({self._refreshing}, timeout=PATIENCE)
        return self._authorization

    def _refreshed_or_not(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("credentials were not refreshed: %s", error)

    @property
    def last_authorization(self) -> str:
        """The value that was used last: what a client of the same identity shows."""
        return self._authorization

    async def _refresh(self) -> None:
        """Ask token files and plugins again, but a kubeconfig's not at every request."""
        if self._loader is not None and self._clock() - self._refreshed > REFRESH:
            self._refreshed = self._clock()
            await self._loader.load_and_set(self._configuration)
        value = await self._configuration.get_api_key_with_prefix("BearerToken")
        self._authorization = (value or "").strip()


async def load(
    kubeconfig: str | None, context: str | None, *, clock: Callable[[], float] = time.monotonic
) -> Credentials:
    """Load a kubeconfig, or with None the service account of the pod.

    Raises CredentialsError.
    """
    if kubeconfig is not None and not any(map(os.path.exists, kubeconfig.split(os.pathsep))):
        raise CredentialsError(f"no kubeconfig at {kubeconfig}")
    configuration = Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            credentials = Credentials(configuration, None, _pod_namespace(), clock)
        else:
            if context is not None:
                _check_context(kubeconfig, context)
            loader = await config.load_kube_config(
                config_file=kubeconfig,
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
            current = loader.current_context or {}
            namespace = current.get("context", {}).get("namespace", "")
            credentials = Credentials(configuration, loader, namespace, clock)
        await credentials._refresh()
    except (KeyError, TypeError, AttributeError) as error:  # what the loader says of another format
        raise CredentialsError(f"{kubeconfig} isn't in the format of a kubeconfig") from error
    except (ConfigException, OSError, ValueError, YAMLError) as error:
        raise CredentialsError(str(error)) from error
    return credentials


def _check_context(kubeconfig: str, context: str) -> None:
    """Name the contexts that there are; the loader would name its own error alone."""
    merged = KubeConfigMerger(kubeconfig).config
    known = [each["name"] for each in merged.value["contexts"]] if merged else []
    if known and context not in known:
        expected = f"one of {', '.join(known)}, the contexts of {kubeconfig}"
        raise UnknownContextError(f"found {context!r}, expected {expected}")


def _pod_namespace() -> str:
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else ""


def _ssl_context(configuration: Configuration, *, certificate: bool) -> ssl.SSLContext | None:
    if not (configuration.host or "").startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Cluster CAs often lack extensions that Python 3.13 began to demand and Go doesn't.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file and certificate:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
