"""Run the proxy."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import uvloop

from proxy.access.hosts import is_loopback
from proxy.server.addresses import Address
from proxy.server.listener import quiet_uvicorn
from proxy.server.proxy import Proxy
from proxy.server.settings import Settings, default_kubeconfig, given_at, load_settings
from proxy.upstream.credentials import CredentialsError, UnknownContextError, load

log = logging.getLogger(__name__)

PROGRAM = "kubecache run"


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; returns 1 when it can't start, 2 for wrong settings."""
    try:
        settings = load_settings(arguments, PROGRAM)
    except ValueError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    quiet_uvicorn()
    keep_pauses_short()
    try:
        uvloop.run(_serve(settings))
    except UnknownContextError as error:
        print(f"{PROGRAM}: {given_at('context', arguments, PROGRAM)}: {error}", file=sys.stderr)
        return 2
    except (CredentialsError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except Exception:
        log.exception("the proxy can't go on")
        return 1
    return 0


def keep_pauses_short() -> None:
    """Let nothing hold the event loop up for long that isn't its own work.

    Full garbage collections are rare: each looks at all that informers hold, for 20 ms at 100,000
    objects. What they hold has no cycles and neither have connections that have ended, so they are
    freed when the last reference goes; 300,000 containers that are not make a collection due.

    A thread that sorts a relist's events gives the interpreter back after a millisecond, not five.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 3, 20)
    sys.setswitchinterval(0.001)


async def _serve(settings: Settings) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    kubeconfig = settings.kubeconfig or default_kubeconfig()
    credentials = await load(str(kubeconfig) if kubeconfig else None, settings.context)
    proxy = Proxy(settings, credentials)
    try:
        proxy.start()
        log.info("%s is served at %s", credentials.server, proxy.read_listener)
        warn_of_exposure(settings.listen)
        log.info("metrics and health at %s", proxy.admin_listener)
        proxy.greet()
        await _first(stopping.wait(), proxy.failure())
        log.info("stopping")
    finally:
        await proxy.stop()


def warn_of_exposure(listen: Address) -> None:
    """Tell who may read, where that is more than this machine: nobody is asked who he is."""
    if not listen.path and not is_loopback(listen.host):
        log.warning("everybody who reaches %s reads as the proxy: it isn't loopback", listen)


async def _first(*awaited: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them ends. Raises what it raised."""
    tasks = [asyncio.create_task(each) for each in awaited]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
