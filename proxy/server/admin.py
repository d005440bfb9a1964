"""The admin listener: metrics, health and status, and two levers (FastAPI, OpenAPI at /docs)."""

from collections.abc import Mapping
from math import isinf
from typing import Annotated, Protocol

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import BaseModel

from proxy import __version__
from proxy.access.hosts import HostCheck, is_loopback
from proxy.cache.informer import Informer
from proxy.cache.informers import Informers
from proxy.server.metrics import Measured, render
from proxy.server.page import status_page


class Served(Measured, Protocol):
    """What the admin listener shows of a proxy."""

    @property
    def unready(self) -> Mapping[str, str]:
        """Named resources that can't be served from an informer now, and why."""

    @property
    def unreached(self) -> str:
        """Why the API server hasn't answered yet; empty once it has."""


class InformerStatus(BaseModel):
    """One informer; *staleness*, *unproven* and *lag* in seconds, *raw_bytes* those of its JSON.

    *unproven* is null before the first proof, *lag* before the first write. *expected*: writes that
    it hasn't seen yet. *last_error* is empty once it works again.
    """

    id: str
    named: bool
    synced: bool
    resource_version: str
    objects: int
    raw_bytes: int
    staleness: float
    unproven: float | None
    lag: float | None
    expected: int
    stalled: bool
    watchers: int
    last_error: str


class Scan(BaseModel):
    """Lists of one selector shape that looked at many objects for few: an index is missing."""

    resource: str
    selector: str
    lists: int


class Status(BaseModel):
    """The proxy and its informers.

    *unready*: the named resources that can't be served from an informer now, and why.
    *unreached*: why the API server hasn't answered yet, empty once it has. *conflicts* are counted
    by who saw them, *merges* by result, *live_reads* by kind of client.
    """

    version: str
    ready: bool
    unready: dict[str, str]
    unreached: str
    informers: list[InformerStatus]
    scans: list[Scan]
    conflicts: dict[str, int]
    merges: dict[str, int]
    live_reads: dict[str, int]


_LOOPBACK = HostCheck("localhost")


async def _refuse_remote(request: Request) -> None:
    """Kubelet and Prometheus reach this listener over the pod's address; the levers are local.

    A web page that is open on the proxy's host is not.
    """
    if request.client is not None and not is_loopback(request.client.host):
        raise HTTPException(403, "only from the proxy's own host")
    if refusal := _LOOPBACK.refuses(request.scope["headers"]):
        raise HTTPException(403, refusal)


_LOCAL = Depends(_refuse_remote)


def admin_app(proxy: Served, hosts: HostCheck) -> FastAPI:
    """Build the admin app of *proxy*."""

    async def check_host(request: Request) -> None:
        if refusal := hosts.refuses(request.scope["headers"]):
            raise HTTPException(403, refusal)

    app = FastAPI(
        title="kubecache admin",
        version=__version__,
        redoc_url=None,
        dependencies=[Depends(check_host)],
    )
    _add_probes(app, proxy)
    _add_status(app, proxy)
    _add_levers(app, proxy.informers)
    return app


def _add_probes(app: FastAPI, proxy: Served) -> None:
    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Metrics in Prometheus' text format."""
        body = render(proxy)
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/healthz", response_class=PlainTextResponse)
    @app.get("/livez", response_class=PlainTextResponse)
    async def livez() -> str:
        """200 as long as the process serves."""
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse)
    async def readyz(verbose: Annotated[str | None, Query()] = None) -> Response:
        """200 once the informers named in the settings are synced, and none has stalled."""
        return _readiness(proxy, verbose=verbose is not None)


def _add_status(app: FastAPI, proxy: Served) -> None:
    @app.get("/status.json")
    async def status() -> Status:
        """Show the proxy and its informers."""
        return _status(proxy)

    @app.get("/", response_class=HTMLResponse)
    async def page() -> str:
        """The status as a page."""
        return status_page(_status(proxy).model_dump())


def _add_levers(app: FastAPI, informers: Informers) -> None:
    @app.delete("/informers/{informer_id:path}", status_code=204, dependencies=[_LOCAL])
    async def stop(informer_id: str) -> None:
        """Stop an informer that was earned; its reads are forwarded until it is earned again."""
        informer = _find(informers, informer_id)
        if informer.named:
            raise HTTPException(409, f"informer {informer_id} is named in the settings")
        informers.stop_informer(informer)

    @app.post("/informers/{informer_id:path}/relist", status_code=202, dependencies=[_LOCAL])
    async def relist(informer_id: str) -> None:
        """Let an informer list its resource anew."""
        informers.relist(_find(informers, informer_id))


def _readiness(proxy: Served, *, verbose: bool) -> Response:
    """Word the result as kube-apiserver words its own (``server/healthz``)."""
    unready = proxy.unready
    code = 500 if unready else 200
    if not (verbose or unready):
        return PlainTextResponse("ok")
    ready = sorted(
        f"[+]informer {each.scope} ok{_after_colon(proxy.informers.error(each))}"
        for each in proxy.informers
        if each.named and str(each.scope) not in unready
    )
    failed = [f"[-]informer {name} failed{_after_colon(why)}" for name, why in unready.items()]
    lines = [*ready, *failed]
    lines.append(f"readyz check {'failed' if unready else 'passed'}")
    return PlainTextResponse("\n".join(lines) + "\n", code)


def _after_colon(reason: str) -> str:
    """Add a reason, which the API server may have worded in more than one line."""
    return f": {' '.join(reason.split())}" if reason else ""


def _find(informers: Informers, informer_id: str) -> Informer:
    for informer in informers:
        if str(informer.scope) == informer_id:
            return informer
    raise HTTPException(404, f"no informer {informer_id}")


def _status(proxy: Served) -> Status:
    return Status(
        version=__version__,
        ready=not proxy.unready,
        unready={name: " ".join(why.split()) for name, why in proxy.unready.items()},
        unreached=proxy.unreached,
        informers=[
            InformerStatus(
                id=str(each.scope),
                named=each.named,
                synced=each.view is not None,
                resource_version=str(each.version),
                objects=len(each.view.store) if each.view else 0,
                raw_bytes=each.view.store.raw_bytes if each.view else 0,
                staleness=round(each.staleness, 3),
                unproven=None if isinf(each.unproven) else round(each.unproven, 3),
                lag=None if each.lag.last is None else round(each.lag.last, 4),
                expected=len(each.expectations.of("", "")),  # what clients were shown is no write
                stalled=each.is_stalled,
                watchers=each.watchers,
                last_error=proxy.informers.error(each),
            )
            for each in proxy.informers
        ],
        scans=[
            Scan(resource=str(resource), selector=shape or "(everything)", lists=count)
            for resource, tally in proxy.reader.tallies.items()
            for shape, count in tally.scans.most_common()
        ],
        conflicts=dict(proxy.conflicts.counts),
        merges=dict(proxy.conflicts.merges),
        live_reads=dict(proxy.stats.live_reads_by_family()),
    )
