"""The start of client-go's informers: typed pods in protobuf, from a list and from a WatchList."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench.report import Figure
from bench.rounds import ROUNDS
from bench.world import Side, World
from tests.clients.build import client
from tests.harness.caching import eventually, hit
from tests.harness.differential import exact_target
from tests.harness.forms import WHOLE, Asked, frames, list_meta
from tests.harness.http import get
from tests.harness.kubectl import kubeconfig_for

SHARE = 0.25
"""The most of kube-apiserver's CPU that a start may cost the proxy; it takes no longer either."""

SIZE = 0.8
"""Bytes of protobuf that a pod has of its JSON's, at most."""

_PODS = "/api/v1/pods"


class _Started(msgspec.Struct):
    """What the client says: how many objects its informer held, after so many seconds."""

    objects: int
    seconds: float


class _Cost(NamedTuple):
    seconds: float
    cpu: float


def starts(world: World) -> Iterator[Figure]:
    """Processes that start in turn at kube-apiserver and at the proxy; the median of each counts.

    The proxy holds the pods in protobuf by then. What the client itself uses counts for neither,
    but slows down either by the same.
    """
    accept = WHOLE["protobuf"].headers(listing=True)
    server = world.proxy.server
    eventually(lambda: hit(server, f"{_PODS}?limit=1", headers=accept), "pods are held", timeout=60)
    with tempfile.TemporaryDirectory() as folder:
        configs = (world.kubeconfig, kubeconfig_for(server, Path(folder)))
        for name, watch_list in (("list", False), ("WatchList", True)):
            rounds = [
                [
                    _start(side, config, len(world.pods), watch_list=watch_list)
                    for side, config in zip(world.sides, configs, strict=True)
                ]
                for _ in range(ROUNDS)
            ]
            theirs, ours = (
                _Cost(*map(median, zip(*costs, strict=True))) for costs in zip(*rounds, strict=True)
            )
            start = f"informer's start by a {name}"
            yield Figure(f"{start}: time", ours.seconds, "s", apiserver=theirs.seconds, share=1)
            yield Figure(f"{start}: CPU", ours.cpu, "s", apiserver=theirs.cpu, share=SHARE)
    yield from _sizes(world)


def _start(side: Side, kubeconfig: Path, objects: int, *, watch_list: bool) -> _Cost:
    before = side.cpu()
    done = subprocess.run(
        [client("informers"), "-kubeconfig", kubeconfig, "-mode", "time"],
        env=os.environ | {"KUBE_FEATURE_WatchListClient": str(watch_list).lower()},
        stdout=subprocess.PIPE,
        check=True,
    )
    started = msgspec.json.decode(done.stdout, type=_Started)
    if started.objects != objects:
        raise RuntimeError(f"an informer synced with {started.objects} of {objects} objects")
    return _Cost(started.seconds, side.cpu() - before)


def _sizes(world: World) -> Iterator[Figure]:
    """The bytes of a list and of a watch's frames, which are those of kube-apiserver itself."""
    bodies = {name: _bodies(world, WHOLE[name]) for name in ("json", "protobuf")}
    for n, what in enumerate(("list", "initial events")):
        size, json = (len(bodies[name][n]) / 1e6 for name in ("protobuf", "json"))
        yield Figure(f"protobuf {what}", size, "MB", SIZE * json)


def _bodies(world: World, asked: Asked) -> tuple[bytes, bytes]:
    """A list, and the frames of a watch that begins with everything; the same on both sides."""
    accept = asked.headers(listing=True)
    ours = get(world.proxy.server, _PODS, headers=accept).ok()
    version, _ = list_meta(ours)
    theirs = get(world.apiserver.server, exact_target(_PODS, version), headers=accept).ok()
    watched = [_watched(side, asked) for side in world.sides]
    if ours.body != theirs.body or watched[0] != watched[1]:
        raise RuntimeError("kubecache has answered other bytes than kube-apiserver")
    return ours.body, b"".join(watched[1])


def _watched(side: Side, asked: Asked) -> list[bytes]:
    """The frames, which come in an order of their own."""
    target = f"{_PODS}?watch=1&resourceVersion=0&timeoutSeconds=5"
    answer = get(side.server, target, headers=asked.headers()).ok()
    return sorted(frames(answer.body, answer.header("Content-Type") or ""))
