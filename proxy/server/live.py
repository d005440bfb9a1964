"""Live reads: gets and lists that the API server answers; collapsed, limited and counted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from proxy.kube.requests import Headers, Request
from proxy.server.stats import Stats
from proxy.upstream.budget import Budget
from proxy.upstream.client import Client, Response
from proxy.upstream.collapse import Collapse
from proxy.upstream.limit import RateLimit


class LiveReads:
    """Keeps clients that lean on live reads from wearing the API server down."""

    def __init__(self, client: Client, stats: Stats, limit: RateLimit, budget: Budget) -> None:
        self._client = client
        self._collapse = Collapse(client, budget)
        self._stats = stats
        self._limit = limit

    @staticmethod
    def covers(request: Request) -> bool:
        """Tell whether a request without a body that doesn't stream is one.

        Discovery isn't, and is never limited: clients can do nothing without it.
        """
        return request.method == "GET" and request.target is not None

    @asynccontextmanager
    async def open(self, request: Request, headers: Headers) -> AsyncIterator[Response]:
        """Yield the API server's answer, sent for this request or shared with others.

        Raises ApiError; TooManyRequests when a request would have to be sent beyond the limit.
        """
        assert request.target
        family = self._stats.families.of(request.user_agent)
        admit = partial(self._limit.take, family)
        if Collapse.covers(request.target, headers):
            opened = self._collapse.open(request.raw_target, headers, admit)
        else:
            admit()
            opened = self._client.open("GET", request.raw_target, headers)
        async with opened as response:
            self._stats.count_live_read(family, collapsed=response.collapsed)
            yield response
