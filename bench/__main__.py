"""Run the benchmarks: ``python -m bench [NAME …] [--pods N] [--json FILE] [--check]``."""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import (
    conflicts,
    consistency,
    forms,
    gets,
    lists,
    pauses,
    pings,
    scale,
    starts,
    sync,
    watches,
)
from bench.report import Figure, table, write_json
from bench.world import NAMESPACES, World, build

_Measure = Callable[[World], Iterable[Figure]]

IN_PROCESS: dict[str, Callable[[], Iterable[Figure]]] = {
    "scale": scale.scale,
    "pauses": pauses.pauses,
}
FEW_PODS: dict[str, _Measure] = {"fanout": watches.fanout, "conflicts": conflicts.conflicts}
MANY_PODS: dict[str, _Measure] = {
    "delay": watches.delay,
    "gets": gets.gets,
    "live": gets.live,
    "lists": lists.lists,
    "forms": forms.forms,
    "starts": starts.starts,
    "sync": sync.sync,
    "pings": pings.pings,
    "session": consistency.session,
    "waits": consistency.waits,
    "strict": consistency.strict,
    "max-age": consistency.max_age,
}


def main() -> int:
    """Measure what was asked for; returns 1 when something failed, or --check finds a miss."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    names = [*IN_PROCESS, *FEW_PODS, *MANY_PODS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--check", action="store_true", help="a missed bound is an error")
    options = parser.parse_args()
    wanted = options.names or names
    if unknown := set(wanted) - set(names):
        parser.error(f"no benchmark {', '.join(unknown)}")
    run = _Run()
    run.measure(wanted, options.pods)
    print(table(run.figures))
    if options.json:
        write_json(run.figures, options.json)
    missed = any(each.verdict == "MISSED" for each in run.figures)
    return int(run.failed or (options.check and missed))


class _Run:
    """Collects figures; a benchmark that fails takes none of the others along."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.failed = False

    def measure(self, wanted: list[str], pods: int) -> None:
        for name, measure in IN_PROCESS.items():
            if name in wanted:
                self._add(name, measure())
        self._with_server(FEW_PODS, wanted, NAMESPACES)
        self._with_server(MANY_PODS, wanted, pods)

    def _with_server(self, measures: dict[str, _Measure], wanted: list[str], pods: int) -> None:
        chosen = [name for name in measures if name in wanted]
        if not chosen:
            return
        _progress(f"kube-apiserver with {pods} pods")
        with build(pods) as world:
            for name in chosen:
                self._add(name, measures[name](world))

    def _add(self, name: str, figures: Iterable[Figure]) -> None:
        _progress(name)
        try:
            self.figures += figures
        except Exception:
            self.failed = True
            traceback.print_exc()


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
