"""Lists and updates at 1,000 to 100,000 objects, in this process: the cost must stay flat."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from bench.report import Figure
from proxy.cache.store import Store
from proxy.cache.view import View
from proxy.forms.form import plainly
from proxy.forms.json import JsonForm
from proxy.forms.objects import Object
from proxy.kube.options import parse_options
from proxy.kube.paths import ResourcePath
from proxy.kube.requests import Verb
from proxy.kube.resources import Resource, ResourceInfo
from proxy.reads.listing import Listing, Tally
from proxy.reads.plan import Read, ServeList, plan

SIZES = (1_000, 10_000, 100_000)
ROUNDS = 100
RETURNED = 100
"""Objects that each list returns, whatever the size."""

_PODS = Resource("", "v1", "pods")
INFO = ResourceInfo(_PODS, "Pod", namespaced=True)
SAMPLE = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'
_LISTS = {
    "namespace": ("ns-3", b""),
    "label": ("", b"labelSelector=app%3Da3"),
    "field": ("", b"fieldSelector=spec.nodeName%3Dn3"),
    "page": ("", b"limit=100"),
}


def scale() -> Iterator[Figure]:
    """Lists of a hundred objects out of more and more, and updates."""
    filled = {size: _filled(size) for size in SIZES}
    for name, (namespace, query) in _LISTS.items():
        works = [partial(_list, view, namespace, query) for _, view in filled.values()]
        least, *_, most = _alternating(works)
        yield Figure(f"list by {name} at 100,000, of that at 1,000", most / least, "x", 1.3)
    objects, view = filled[SIZES[-1]]
    yield Figure("update at 100,000", _update_seconds(objects, view.store) * 1e6, "µs", 30)


def _alternating(works: Sequence[Callable[[], None]]) -> list[float]:
    """The CPU seconds of each, in turns, so that all see the same noise; the medians count."""
    rounds = [[_cpu_seconds(work) for work in works] for _ in range(ROUNDS)]
    return [median(each) for each in zip(*rounds, strict=True)]


def _cpu_seconds(work: Callable[[], None], times: int = 10) -> float:
    started = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - started


def _filled(size: int) -> tuple[list[Object], View]:
    form = JsonForm(INFO, SAMPLE)
    page = form.decode_page(_page(size))
    page.objects.sort(key=lambda found: found.key)
    store = Store(form.indexed)
    for found in page.objects:
        store.put(found)
    store.version = store.changed = page.version
    return page.objects, View(form, store, time.monotonic)


def _page(size: int) -> bytes:
    groups = size // RETURNED
    items = ",".join(
        f'{{"metadata":{{"name":"p{n:06}","namespace":"ns-{n % groups}","uid":"u{n}",'
        f'"resourceVersion":"{n + 1}","labels":{{"app":"a{n % groups}"}}}},'
        f'"spec":{{"nodeName":"n{n % groups}"}},"status":{{"phase":"Running"}}}}'
        for n in range(size)
    )
    return f'{{"metadata":{{"resourceVersion":"{size}"}},"items":[{items}]}}'.encode()


def _list(view: View, namespace: str, query: bytes) -> None:
    b"".join(listing(view, namespace, query).parts())


def listing(view: View, namespace: str, query: bytes) -> Listing:
    """Plan a list, as the reader does."""
    target = ResourcePath(_PODS, namespace, "", "")
    decided = plan(Read(Verb.LIST, target, parse_options(query), indent=False), view)
    if not isinstance(decided, ServeList):
        raise TypeError(decided)
    candidates = decided.selection.candidates(view.store, decided.snapshot, decided.keys)
    return Listing(decided, plainly(view.form), candidates, 0, view.snapshots, Tally())


def _update_seconds(objects: list[Object], store: Store) -> float:
    chosen = random.sample(objects, 2_000)
    started = time.process_time()
    for found in chosen:
        store.snapshot()  # as a list takes one between any two updates
        store.put(found)
    return (time.process_time() - started) / len(chosen)
