"""The tour, as a person starts it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from proxy.cli.demo import PODS
from tests.harness.caching import eventually
from tests.harness.http import Server, get
from tests.harness.processes import Process


def test_the_tour_tells_its_story_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli.main", "demo"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^== ", done.stdout, re.M)) == 6
    assert f"{PODS // 2} pods" in done.stdout
    assert 'status.phase changed from "Running" to "Succeeded"' in done.stdout
    assert "both changes are in" in done.stdout


def test_it_goes_on_serving_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "proxy.cli.main", "demo", "--serve"]
    process = Process(command, log=tmp_path / "log", env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        eventually(lambda: "Still serving" in process.tail(), "the end of the tour", timeout=60)
        found = re.search(
            r"^The proxy in front of it: http://127\.0\.0\.1:(\d+)$", log(process), re.M
        )
        assert found
        server = Server("127.0.0.1", int(found[1]))
        first = get(server, "/api/v1/pods").ok()
        assert len(first.json()["items"]) >= PODS
        eventually(lambda: get(server, "/api/v1/pods").version != first.version, "a pod moves")
        assert process.code is None
        process.send(signal.SIGTERM)
        assert process.wait(20) == 0
        assert "Traceback" not in log(process)
    finally:
        process.kill()


def log(process: Process) -> str:
    return process.log.read_text()
