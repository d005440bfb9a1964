"""Take a tour: the proxy in front of a small in-memory API server."""

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from proxy.demo.mover import fill, move
from proxy.demo.standin import StandIn
from proxy.demo.tour import Tour, TourError
from proxy.server.addresses import Address
from proxy.server.listener import quiet_uvicorn
from proxy.server.proxy import Proxy
from proxy.server.settings import Settings
from proxy.upstream.credentials import Credentials, load

PODS = 200
INTERVAL = 0.2
"""Seconds between two changes of a pod."""


def main(arguments: Sequence[str]) -> int:
    """Run the tour; returns 1 when something is not as it is told."""
    parser = argparse.ArgumentParser("kubecache demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="keep running after the tour")
    options = parser.parse_args(arguments)
    quiet_uvicorn()
    try:
        uvloop.run(_demo(serve=options.serve))
    except TourError as error:
        print(f"kubecache demo: {error}", file=sys.stderr)
        return 1
    return 0


async def _demo(*, serve: bool) -> None:
    async with StandIn() as server, _proxy(server.url) as proxy:
        fill(server.storage, PODS)
        moving = asyncio.create_task(move(server.storage, INTERVAL, random.Random(1)))
        print(f"A stand-in API server with {PODS} pods, some of them changing: {server.url}")
        print(f"The proxy in front of it: http://{proxy.read_listener}")
        print(f"Its metrics, health and status: http://{proxy.admin_listener}")
        await Tour(proxy).run()
        if serve:
            await _until_stopped(proxy)
        moving.cancel()


@asynccontextmanager
async def _proxy(url: str) -> AsyncIterator[Proxy]:
    """The proxy itself, on ports of its own choice."""
    anywhere = Address("127.0.0.1", 0)
    proxy = Proxy(Settings(listen=anywhere, admin=anywhere), await _credentials(url))
    proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


async def _credentials(url: str) -> Credentials:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "demo",
                    "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": ""}}],
                    "clusters": [{"name": "demo", "cluster": {"server": url}}],
                }
            )
        )
        return await load(str(path), None)


async def _until_stopped(proxy: Proxy) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    print(
        f"\nStill serving; try: kubectl --server http://{proxy.read_listener} get pods -A -o yaml"
    )
    print("Ctrl-C ends it.")
    await stopping.wait()
