"""A program that follows resources: it is asked on its stdin, and answers on its stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_ROOT = Path(__file__).parents[2]
_END = 30.0  # seconds that it may take to end once it is told to


class Program:
    """A module of tests/clients/python; use it in a `with`, which it must leave in order."""

    def __init__(self, module: str, *words: str, kubeconfig: Path, folder: Path) -> None:
        self.name = " ".join((module, *words))
        self._command = [sys.executable, "-m", f"tests.clients.python.{module}", *words]
        # What some keep of discovery is named by the server's port, which is another's later.
        own = {"KUBECONFIG": str(kubeconfig), "TMPDIR": str(folder), "HOME": str(folder)}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("KUBE")}
        self._env = {**inherited, **own}
        self._log = folder / "log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=_ROOT,
                env=self._env,
                encoding="utf-8",
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends it by the end of its stdin."""
        with self._process:  # closes its pipes and waits for it
            if kind:
                self._process.kill()
                print(f"--- log of {self.name}\n{self._tail()}")  # pytest shows it with the failure
                return
            try:
                self._process.communicate(timeout=_END)
            except BaseException:
                self._process.kill()
                raise
        assert self._process.returncode == 0, self._tail()

    def ask(self, *words: str) -> Any:
        """The answer to a command."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # then there is no answer
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self.name} does not answer {words}: {self._tail()}"
        return json.loads(line)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
