"""What a pod costs in each form, in this process: decoding it, and writing it into a list."""

import time
from collections.abc import Callable, Iterator

from bench.report import Figure
from bench.world import World
from proxy.forms.form import Form, Rendering
from proxy.forms.json import JsonForm
from proxy.forms.metadata import MetadataForm
from proxy.forms.objects import Object
from proxy.forms.protobuf import metadata_protobuf_form, protobuf_form
from proxy.kube.negotiation import FormName, Representation
from proxy.kube.resources import Resource, ResourceInfo
from proxy.upstream.wires import WIRES
from tests.harness.http import get

PAGE = 1000
"""Pods of the one page that is looked at."""

ROUNDS = 7

_INFO = ResourceInfo(Resource("", "v1", "pods"), "Pod", namespaced=True, has_status=True)
_FORMS: dict[FormName, Callable[..., Form]] = {
    FormName.JSON: JsonForm,
    FormName.PROTOBUF: protobuf_form,
    FormName.METADATA: MetadataForm,
    FormName.METADATA_PROTOBUF: metadata_protobuf_form,
}
_PARTIAL = {FormName.JSON: FormName.METADATA, FormName.PROTOBUF: FormName.METADATA_PROTOBUF}


def forms(world: World) -> Iterator[Figure]:
    """CPU of a pod, the least of several rounds, since noise only adds."""
    for name, make in _FORMS.items():
        accept = [("Accept", WIRES[name].listing)]
        body = get(world.apiserver.server, f"/api/v1/pods?limit={PAGE}", headers=accept).ok().body
        form = make(_INFO, body)
        objects = form.decode_page(body).objects
        each = 1e6 / len(objects)
        writing = _rendering(form, form.name)
        size = writing.measure_items(objects)
        yield Figure(f"{name}: a pod", size / len(objects) / 1e3, "KB")
        yield Figure(f"{name}: decoding a pod", _least(form.decode_page, body) * each, "µs")
        yield Figure(f"{name}: a pod in a list", _least(_write, writing, objects) * each, "µs")
        if partial := _PARTIAL.get(name):
            writing = _rendering(form, partial)
            seconds = _least(_write, writing, objects)
            yield Figure(f"{name}: a pod's metadata in a list", seconds * each, "µs")


def _rendering(form: Form, name: FormName) -> Rendering:
    meta = "v1" if name in (FormName.METADATA, FormName.METADATA_PROTOBUF) else ""
    found = form.rendering(Representation(name, meta), "")
    if found is None:
        raise ValueError(f"{form.name} can't be written as {name}")
    return found


def _write(writing: Rendering, objects: list[Object]) -> bytes:
    if writing.is_binary:
        writing.measure_items(objects)
    return writing.encode_items(objects)


def _least(work: Callable[..., object], *given: object) -> float:
    """The CPU seconds of the best round."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        work(*given)
        seconds.append(time.process_time() - started)
    return min(seconds)
