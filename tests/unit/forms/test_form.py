"""What is the same in every form, and in all that it's written as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from proxy.forms.form import Bookmark, Form
from proxy.forms.json import JsonForm
from proxy.forms.metadata import MetadataForm
from proxy.forms.protobuf import metadata_protobuf_form, protobuf_form
from proxy.forms.table import TableForm
from proxy.kube.negotiation import FormName, Representation
from tests.unit.builders import PODS
from tests.unit.messages import Messages

META = "meta.k8s.io/v1"
PARTIAL = "PartialObjectMetadata"
PARTIAL_HEAD = f'{{"kind":"{PARTIAL}","apiVersion":"{META}","metadata":'
PARTIAL_LIST = PARTIAL_HEAD.replace(PARTIAL, f"{PARTIAL}List") + '{"resourceVersion":"9"}}'
TABLE = f'{{"kind":"Table","apiVersion":"{META}","metadata":{{"resourceVersion":"9"}},'


def _metadata(*, initial_end: bool) -> str:
    marks = ',"annotations":{"k8s.io/initial-events-end":"true"}' if initial_end else ""
    return f'{{"resourceVersion":"9"{marks}}}'


def _event(encoded: str) -> bytes:
    return f'{{"type":"BOOKMARK","object":{encoded}}}'.encode()


def _message(wire: Messages) -> Callable[[bool], bytes]:
    return lambda initial_end: wire.bookmark(9, initial_end=initial_end)[4:]


def _partial(initial_end: bool) -> bytes:
    return _event(f"{PARTIAL_HEAD}{_metadata(initial_end=initial_end)}}}")


def _table(initial_end: bool) -> bytes:
    zero = f'{{"kind":"Pod","apiVersion":"v1","metadata":{_metadata(initial_end=initial_end)}}}'
    return _event(f'{TABLE}"columnDefinitions":[],"rows":[{{"cells":[],"object":{zero}}}]}}')


class Case(NamedTuple):
    """How a form is made, of which sample, and a bookmark in it; what it's written as."""

    make: Callable[..., Form]
    sample: bytes
    bookmark: Callable[[bool], bytes]
    written: tuple[FormName, ...]


POD = Messages("v1", "Pod")
PARTIALS = Messages(META, PARTIAL)
CASES: Mapping[FormName, Case] = {
    FormName.JSON: Case(
        JsonForm,
        PODS.page(),
        lambda initial_end: PODS.bookmark(9, initial_end=initial_end),
        (FormName.JSON, FormName.METADATA),
    ),
    FormName.PROTOBUF: Case(
        protobuf_form,
        POD.page(),
        _message(POD),
        (FormName.PROTOBUF, FormName.METADATA_PROTOBUF),
    ),
    FormName.METADATA: Case(
        MetadataForm,
        PARTIAL_LIST.encode(),
        _partial,
        (FormName.METADATA,),
    ),
    FormName.METADATA_PROTOBUF: Case(
        metadata_protobuf_form, PARTIALS.page(), _message(PARTIALS), (FormName.METADATA_PROTOBUF,)
    ),
    FormName.TABLE: Case(
        TableForm, f'{TABLE}"columnDefinitions":[],"rows":[]}}'.encode(), _table, (FormName.TABLE,)
    ),
}
WRITTEN = [(name, each) for name, case in CASES.items() for each in case.written]


def test_no_form_is_left_out() -> None:
    assert CASES.keys() == {*FormName}


@pytest.mark.parametrize(("name", "written"), WRITTEN)
def test_warnings_go_with_whatever_is_written(name: FormName, written: FormName) -> None:
    """Those of a deprecated version are of each answer, whoever is asked for it."""
    form = CASES[name].make(PODS.info, CASES[name].sample, warnings=(b"old",))
    meta = "" if written in (FormName.JSON, FormName.PROTOBUF) else "v1"
    rendering = form.rendering(Representation(written, meta), "")
    assert rendering is not None
    assert rendering.warnings == (b"old",)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_watch_list_that_was_seen_stays_known(case: Case) -> None:
    """Bookmarks that come later are without its mark."""
    form = case.make(PODS.info, case.sample)
    for initial_end, known in ((False, False), (True, True), (False, True)):
        assert form.decode_event(case.bookmark(initial_end)) == Bookmark(9, initial_end)
        assert form.has_watch_list is known
