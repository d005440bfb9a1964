"""Kubeconfigs for tests."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[..., str]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Write:
    """Write a kubeconfig for a server; further arguments are the user's."""

    def write(url: str, **user: object) -> str:
        path = tmp_path / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [
                        {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "own"}}
                    ],
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "users": [{"name": "u", "user": user}],
                }
            )
        )
        return str(path)

    return write
