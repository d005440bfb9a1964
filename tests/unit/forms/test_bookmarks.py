"""Bookmarks are written as the API server wrote one, at other versions."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.forms.bookmarks import ZeroObject
from proxy.kube import gojson

END = {"k8s.io/initial-events-end": "true"}
OWN = {"a.example.com/x": "0"}


def struct(**metadata: Any) -> bytes:
    members = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"a": None}}
    return gojson.encode(members)


def custom(**metadata: Any) -> bytes:
    ordered = dict(sorted(metadata.items()))
    return gojson.encode({"apiVersion": "e/v1", "kind": "X", "metadata": ordered})


@pytest.mark.parametrize("layout", [struct, custom])
@pytest.mark.parametrize("own", [{}, OWN], ids=["bare", "annotated"])
@pytest.mark.parametrize("shown", [False, True])
def test_versions_and_ends(layout: Any, own: dict[str, str], *, shown: bool) -> None:
    seen = {**own, **(END if shown else {})}
    zero = ZeroObject(layout(resourceVersion="9", **({"annotations": seen} if seen else {})))
    assert zero.initial_end is shown
    marked = layout(resourceVersion="12", annotations={**own, **END})
    assert zero.encode(12, initial_end=True) == marked
    plain = {"annotations": own} if own else {}
    assert zero.encode(13, initial_end=False) == layout(resourceVersion="13", **plain)


def test_other_members_stay() -> None:
    zero = ZeroObject(custom(creationTimestamp=None, resourceVersion="9"))
    wanted = custom(creationTimestamp=None, resourceVersion="10")
    assert zero.encode(10, initial_end=False) == wanted
