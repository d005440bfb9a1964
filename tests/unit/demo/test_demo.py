"""The tour, as a person starts it."""

import re
import subprocess
import sys

from proxy.cli.demo import PODS


def test_the_tour_tells_its_story_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli.main", "demo"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^== ", done.stdout, re.M)) == 5
    assert f"{PODS // 2} pods" in done.stdout
    assert re.search(r"saw it, \d+\.\d ms after the write", done.stdout)
    assert "409" in done.stdout
    assert "the object has been modified" in done.stdout
