"""The Go clients of the tests, where there is a Go that builds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.clients import build

_NO_CLIENTS = "no Go that builds clients: none is run"


def client(name: str) -> Path:
    """One of `build.CLIENTS`, or else skips the test, which CI=true forbids."""
    if not build.available():
        assert os.environ.get("CI") != "true", _NO_CLIENTS
        pytest.skip(_NO_CLIENTS)
    return build.client(name)
