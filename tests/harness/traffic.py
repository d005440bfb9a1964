"""Seeded writes at kube-apiserver, in the background, for tests that read meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple, Self

from tests.harness.caching import eventually
from tests.harness.http import Answer, Body, Server, Session
from tests.harness.objects import CustomResource, Object, configmap, pod, pod_status

_SEED = "KUBECACHE_TEST_SEED"
_MERGE_PATCH = (("Content-Type", "application/merge-patch+json"),)
_TIERS = ("web", "db", "batch", None)
_NAMES = tuple(f"app{dot}{number}-{number % 3}" for dot in "-." for number in range(8))


def random_of_test() -> Random:
    """Random numbers that are the same in each run; pytest shows the seed when a test fails."""
    seed = os.environ.get(_SEED, "20260105")
    print(f"{_SEED}={seed}")
    return Random(seed)


class Kind(NamedTuple):
    """A resource that is written to: its collection by namespace, objects by name, and a status.

    changes: patches of an object, of which one goes with each change of its labels.
    """

    collection: Callable[[str], str]
    object: Callable[[str], Object]
    status: Object | None = None
    changes: Sequence[Object] = ({},)


def configmaps() -> Kind:
    return Kind(lambda namespace: f"/api/v1/namespaces/{namespace}/configmaps", _configmap)


def pods() -> Kind:
    return Kind(lambda namespace: f"/api/v1/namespaces/{namespace}/pods", pod, pod_status())


def customs(resource: CustomResource) -> Kind:
    colors = [{"spec": {"color": color}} for color in ("red", "blue", "green")]
    return Kind(resource.path, resource.object, {"status": {"phase": "Done"}}, colors)


def bare(group_version: str, plural: str) -> Kind:
    """A resource whose objects need nothing but metadata."""
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    return Kind(
        lambda namespace: f"{root}/namespaces/{namespace}/{plural}",
        lambda name: {"metadata": {"name": name, "labels": {}}},
    )


def _configmap(name: str) -> Object:
    return configmap(name, {"text": f"<{name}> & “ä”"})


class Traffic:
    """Creates, changes and deletes objects of a few names while its `with` lasts."""

    def __init__(
        self,
        server: Server,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        random: Random,
        *,
        names: Sequence[str] = _NAMES,
    ) -> None:
        self.count = 0
        self._names = names
        self._server = server
        self._kinds = kinds
        self._namespaces = namespaces
        self._random = random
        self._stopping = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._writing = threading.Lock()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the writes; raises what went wrong among them."""
        self._stopping.set()
        self._going.set()
        self._thread.join(30)
        if self._error:
            raise self._error

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No write is under way while this `with` lasts."""
        self._going.clear()
        with self._writing:
            pass
        yield
        self._going.set()

    def progress(self, writes: int = 150) -> None:
        """Waits until so many more writes are done."""
        goal = self.count + writes
        eventually(lambda: self._error or self.count >= goal, f"{writes} writes")
        assert not self._error, self._error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._going.wait()
                with Session(self._server) as session:
                    self._write_until_paused(session)
        except BaseException as error:
            self._error = error

    def _write_until_paused(self, session: Session) -> None:
        while not self._stopping.is_set():
            with self._writing:
                if not self._going.is_set():
                    return
                self._write(session)
            self.count += 1

    def _write(self, session: Session) -> None:
        random = self._random
        kind = random.choice(self._kinds)
        collection = kind.collection(random.choice(self._namespaces))
        name = random.choice(self._names)
        what = random.choices(
            (self._create, self._label, self._set_status, self._delete, self._replace, self._sweep),
            weights=(30, 30, 20, 12, 6, 1),
        )[0]
        what(session, kind, collection, name)

    def _create(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        created = kind.object(name)
        for place, values in self._labels().items():
            created["metadata"].setdefault(place, {}).update(values)
        _send(session, "POST", collection, created)

    def _label(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        change = self._random.choice(kind.changes)
        _send(session, "PATCH", f"{collection}/{name}", {**change, "metadata": self._labels()})

    def _labels(self) -> dict[str, dict[str, str]]:
        """Labels, and annotations of which labels that nobody else has say the same."""
        tier = self._random.choice(_TIERS)
        labels = {"rank": str(self._random.randrange(5))}
        if tier:
            labels["tier"] = tier
        mirrored = {f"mirrored-{name}": value for name, value in labels.items()}
        return {"labels": {**labels, **mirrored}, "annotations": labels}

    def _set_status(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        if kind.status:
            _send(session, "PATCH", f"{collection}/{name}/status", kind.status)

    def _delete(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        _send(session, "DELETE", f"{collection}/{name}?gracePeriodSeconds=0")

    def _replace(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        self._delete(session, kind, collection, name)
        self._create(session, kind, collection, name)

    def _sweep(self, session: Session, kind: Kind, collection: str, name: str) -> None:
        _send(session, "DELETE", f"{collection}?labelSelector=tier%3Dbatch&gracePeriodSeconds=0")


def _send(session: Session, method: str, target: str, body: Body = None) -> Answer:
    headers = _MERGE_PATCH if method == "PATCH" else ()
    answer = session.ask(method, target, headers=headers, body=body)
    assert answer.status < 300 or answer.status in {404, 409}, answer
    return answer
