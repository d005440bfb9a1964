"""A real kube-apiserver on a real etcd, both on free loopback ports."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.apiserver.build import assets
from tests.harness.http import Server, ask, get
from tests.harness.processes import Process, free_port

# Users by name, with their groups. `limited` may do everything in the namespace `limited` only.
USERS = {"admin": "system:masters", "limited": "limited", "nobody": "nobodies"}

_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "limited", "namespace": "limited"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}
_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "limited", "namespace": "limited"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited"},
    "subjects": [{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}],
}


class ApiServer:
    """Started by `start` or `with`; holds everything in one folder that goes when it stops."""

    def __init__(self, *, flags: Sequence[str] = (), etcd_flags: Sequence[str] = ()) -> None:
        self._flags = list(flags)
        self._etcd_flags = list(etcd_flags)
        self._scratch = tempfile.TemporaryDirectory(prefix="kubecache-apiserver-")
        self.folder = Path(self._scratch.name)
        self.port = free_port()
        self.etcd = Server("127.0.0.1", free_port())
        self._etcd_process: Process | None = None
        self._process: Process | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ca(self) -> Path:
        """The certificate that kube-apiserver made for itself; it holds the signer too."""
        return self.folder / "certs" / "apiserver.crt"

    @property
    def server(self) -> Server:
        """Where and how to ask it as administrator."""
        return self.as_user("admin")

    def as_user(self, user: str) -> Server:
        """Where and how to ask it as one of `USERS`."""
        return self.anonymous().bearer(token(user))

    def anonymous(self) -> Server:
        return Server("127.0.0.1", self.port, ca=self.ca)

    def kubeconfig(self, user: str = "admin", *, port: int | None = None) -> Path:
        """A kubeconfig for one of `USERS`, which may lead through another port of this host."""
        port = port or self.port
        path = self.folder / f"kubeconfig-{user}-{port}"
        path.write_text(json.dumps(_kubeconfig(user, port, self.ca)))  # JSON is YAML too
        return path

    def start(self) -> None:
        self._write_tokens()
        self._etcd_process = self._start_etcd()
        self.start_apiserver()
        self._set_up_users()

    def stop(self) -> None:
        """Stops kube-apiserver, then etcd: the other way round kube-apiserver hangs."""
        self.stop_apiserver()
        if self._etcd_process:
            self._etcd_process.stop()
        self._scratch.cleanup()

    def start_apiserver(self) -> None:
        """Starts kube-apiserver alone, on the port that it had before."""
        self._process = Process(self._command(), log=self.folder / "kube-apiserver.log")
        self.wait_ready()

    def stop_apiserver(self) -> None:
        if self._process:
            self._process.stop()
            self._process = None

    def restart(self) -> None:
        """Stops and starts kube-apiserver; etcd, port, certificate and tokens stay."""
        self.stop_apiserver()
        self.start_apiserver()

    def kill(self) -> None:
        """Ends kube-apiserver as a crash does."""
        if self._process:
            self._process.kill()
            self._process = None

    def freeze(self) -> None:
        """Stops kube-apiserver's processor time: its connections stay open and silent."""
        self.process.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send(signal.SIGCONT)

    def backup(self) -> None:
        """Keeps etcd's data as it is now, for `restore`; both servers are away for a moment."""
        with self._without_servers():
            shutil.copytree(self.folder / "etcd", self.folder / "backup")

    def restore(self) -> None:
        """Goes back to the data of `backup`: to older objects and older resourceVersions."""
        with self._without_servers():
            shutil.rmtree(self.folder / "etcd")
            (self.folder / "backup").rename(self.folder / "etcd")

    @contextmanager
    def _without_servers(self) -> Iterator[None]:
        self.stop_apiserver()
        assert self._etcd_process, "etcd is stopped"
        self._etcd_process.stop()
        yield
        self._etcd_process = self._start_etcd()
        self.start_apiserver()

    def wait_ready(self, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            if self._etcd_process and self._etcd_process.code is not None:
                raise self._etcd_process.failure("has ended")
            process = self.process
            if process.code is not None or time.monotonic() > deadline:
                raise process.failure("is not ready")
            time.sleep(0.05)

    def revision(self) -> int:
        """etcd's revision now: the newest resourceVersion of any resource."""
        return int(self._ask_etcd("/v3/kv/range", {"key": _base64("nothing")})["revision"])

    def compact(self, revision: int | None = None) -> int:
        """Makes etcd forget what was before `revision` (before now, unless given).

        kube-apiserver goes on to answer older revisions from its own watch cache and snapshots;
        `restart` makes it forget those.
        """
        revision = revision or self.revision()
        self._ask_etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _ask_etcd(self, target: str, body: dict[str, object]) -> dict[str, str]:
        header: dict[str, str] = ask(self.etcd, "POST", target, body=body).ok().json()["header"]
        return header

    def _is_ready(self) -> bool:
        try:
            return get(self.server, "/readyz").status == 200
        except OSError:  # no certificate yet, or nobody listens
            return False

    @property
    def process(self) -> Process:
        """The process of kube-apiserver."""
        assert self._process, "kube-apiserver is stopped"
        return self._process

    def _write_tokens(self) -> None:
        lines = (f'{token(user)},{user},uid-{user},"{group}"\n' for user, group in USERS.items())
        (self.folder / "tokens.csv").write_text("".join(lines))

    def new_namespace(self, name: str = "") -> str:
        """Creates a namespace, of a name that was never used unless given, and returns its name."""
        namespace = {"metadata": {"name": name} if name else {"generateName": "test-"}}
        answer = ask(self.server, "POST", "/api/v1/namespaces", body=namespace).ok()
        created: str = answer.json()["metadata"]["name"]
        return created

    def _set_up_users(self) -> None:
        self.new_namespace("limited")
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/limited"
        ask(self.server, "POST", f"{rbac}/roles", body=_ROLE).ok()
        ask(self.server, "POST", f"{rbac}/rolebindings", body=_BINDING).ok()

    def _start_etcd(self) -> Process:
        command: list[str | Path] = [
            assets() / "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd.url}",
            f"--advertise-client-urls={self.etcd.url}",
            f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
            "--unsafe-no-fsync",
            "--log-level=error",
            "--watch-progress-notify-interval=5s",  # as kubeadm sets: bookmarks come in time
            *self._etcd_flags,
        ]
        return Process(command, log=self.folder / "etcd.log")

    def _command(self) -> list[str | Path]:
        key = self.folder / "certs" / "apiserver.key"
        return [
            assets() / "kube-apiserver",
            f"--etcd-servers={self.etcd.url}",
            "--etcd-compaction-interval=0",  # history goes when a test says so
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder / 'certs'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--disable-admission-plugins=ServiceAccount",  # no controller makes the accounts
            "--shutdown-watch-termination-grace-period=1s",  # else open watches delay it by 60 s
            "--profiling=false",
            *self._flags,
        ]


def token(user: str) -> str:
    """The bearer token of one of `USERS`."""
    return f"token-of-{user}"


def _kubeconfig(user: str, port: int, ca: Path) -> dict[str, object]:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token(user)}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        "current-context": "test",
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
