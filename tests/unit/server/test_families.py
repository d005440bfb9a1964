"""What clients are called in metrics, whatever they call themselves."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.server.families import MAX_FAMILIES, MAX_LENGTH, Families, product_of


@pytest.mark.parametrize(
    ("user_agent", "family"),
    [
        ("kubectl/v1.37.2 (linux/amd64) kubernetes/abc", "kubectl"),
        ("kube-controller-manager/v1.37.2 (linux/amd64)", "kube-controller-manager"),
        ("Go-http-client/1.1", "go-http-client"),
        ("Mozilla/5.0 (X11)", "mozilla"),
        ("curl", "curl"),
        ("my controller/1", "my-controller"),
        ("a_b.c-d/1", "a_b.c-d"),
        ('x"}\n evil 1/2', "x-evil-1"),
        ("", "none"),
        ("  ", "none"),
        ("/1.0", "other"),
        ("\u00fc\u00fc/1", "other"),
        ("x" * 1000, "x" * MAX_LENGTH),
    ],
)
def test_products(user_agent: str, family: str) -> None:
    assert product_of(user_agent) == family
    assert Families().of(user_agent) == family


@given(st.text())
def test_every_product_is_a_sane_label(user_agent: str) -> None:
    assert re.fullmatch(rf"[a-z0-9._-]{{1,{MAX_LENGTH}}}", product_of(user_agent))


def test_families_are_bounded() -> None:
    families = Families()
    found = [families.of(f"client-{number}/1") for number in range(1000)]
    assert found[:MAX_FAMILIES] == [f"client-{number}" for number in range(MAX_FAMILIES)]
    assert set(found[MAX_FAMILIES:]) == {"other"}
    assert families.of("client-3/2") == "client-3"
    assert families.of("") == "none"
