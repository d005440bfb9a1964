"""Objects that move, so that there is something to watch."""

import asyncio
import random
from collections.abc import Iterable
from functools import partial

from proxy.demo.storage import Json, Storage
from proxy.kube.resources import Resource

PODS = Resource("", "v1", "pods")
_NAMESPACES = Resource("", "v1", "namespaces")
_PHASES = ("Pending", "Running", "Succeeded")


def _pods(count: int) -> Iterable[Json]:
    for number in range(count):
        yield {
            "metadata": {
                "name": f"web-{number:03}",
                "namespace": ("shop", "blog")[number % 2],
                "labels": {"app": f"web-{number % 5}"},
            },
            "spec": {
                "nodeName": f"node-{number % 7}",
                "containers": [{"name": "web", "image": "example/web:1.0.0"}],
            },
            "status": {"phase": "Running"},
        }


def fill(storage: Storage, pods: int) -> None:
    """Create two namespaces and so many pods."""
    for name in ("shop", "blog"):
        storage.create(_NAMESPACES, {"metadata": {"name": name}, "status": {"phase": "Active"}})
    for pod in _pods(pods):
        storage.create(PODS, pod)


async def move(storage: Storage, interval: float, chance: random.Random) -> None:
    """Change the phase of a pod of the blog every *interval* seconds, for ever.

    The shop's pods stay as they are, so that its story has one author.
    """
    while True:
        await asyncio.sleep(interval)
        blog = [pod for pod in storage.list(PODS, storage.revision) if _is_of_blog(pod)]
        if not blog:
            continue
        pod = chance.choice(blog)
        metadata = pod["metadata"]
        phase = chance.choice(_PHASES)
        storage.change(
            PODS,
            metadata["namespace"],
            metadata["name"],
            partial(_in_phase, phase),
        )


def _in_phase(phase: str, pod: Json) -> Json:
    return {**pod, "status": {"phase": phase}}


def _is_of_blog(pod: Json) -> bool:
    return bool(pod["metadata"]["namespace"] == "blog")
