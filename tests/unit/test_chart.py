"""The chart's schema of `config` is that of the settings, so that no typo gets as far as a pod."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from proxy.server.settings import Settings

_ROOT = Path(__file__).parents[2]
_SCHEMA = json.loads((_ROOT / "helm" / "kubecache" / "values.schema.json").read_text())

_OF_THE_CHART = {"config", "kubeconfig", "context", "listen", "admin"}
"""Settings that the chart decides: its file and listeners, and the pod's service account."""

_DURATION = _SCHEMA["definitions"]["duration"]


def _outline(schema: Any, whole: Any) -> Any:
    """What a schema allows: keys, choices and bounds, whichever way it is written."""
    if "$ref" in schema:
        kind, name = schema["$ref"].split("/")[1:]
        schema = whole[kind][name]
    if "properties" in schema:
        assert schema["additionalProperties"] is False, schema
        keys = {key: _outline(each, whole) for key, each in schema["properties"].items()}
        return keys, schema.get("required", [])
    if "items" in schema:
        return [_outline(schema["items"], whole)]
    if "enum" in schema:
        return schema["enum"]
    if schema is _DURATION or "ge" in schema:
        return "duration"
    return schema["type"], schema.get("minimum")


def test_the_chart_takes_the_settings_and_nothing_else() -> None:
    settings = Settings.model_json_schema()
    for key in _OF_THE_CHART:
        del settings["properties"][key]
    config = _SCHEMA["properties"]["config"]
    assert _outline(config, _SCHEMA) == _outline(settings, settings)


@pytest.mark.parametrize(
    "value",
    ["30m", "1h30m", "1.5s", "250ms", "12", "0.5", "30x", "30m5", " 30m", "-1s", "-1", "soon", ""],
)
def test_durations_of_the_chart_are_those_of_the_settings(value: str) -> None:
    try:
        Settings(max_staleness=value)  # type: ignore[arg-type]
    except ValueError:
        taken = False
    else:
        taken = True
    assert bool(re.search(_DURATION["pattern"], value)) is taken
