"""Settings files that can't be read: one clear line and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.main import main


def test_a_settings_file_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.yaml"
    assert main(["run", f"--config={missing}", "--log-level=info", "--kubeconfig=/none"]) == 2
    assert str(missing) in capsys.readouterr().err


@pytest.mark.parametrize("text", ["cache: [", "\t- a", "- a", "text"])
def test_a_settings_file_that_is_not_a_mapping(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubecache.yaml"
    path.write_text(text)
    assert main(["run", f"--config={path}"]) == 2
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "indexes",
    ['["spec.a","spec.a.b"]', '["spec.a.b","spec.a"]', '["metadata.labels.x"]', '["a b"]'],
)
def test_indexes_that_cannot_be(indexes: str, capsys: pytest.CaptureFixture[str]) -> None:
    resource = f'{{"resource":"pods","indexes":{indexes}}}'
    assert main(["run", f"--cache.resources=[{resource}]"]) == 2
    assert "cache.resources.0" in capsys.readouterr().err
