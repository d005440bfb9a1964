"""Run the benchmarks: ``python -m bench [NAME …] [--pods N] [--json FILE] [--check]``."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import memory, pauses, reads, scale, watches
from bench.report import Figure, table, write_json
from bench.world import World, build

WITH_SERVER: dict[str, Callable[[World], Iterator[Figure]]] = {
    "gets": reads.gets,
    "live": reads.live_gets,
    "delay": watches.delay,
    "memory": memory.memory,
    "lists": reads.lists,
    "fanout": watches.fanout,
}
IN_PROCESS: dict[str, Callable[[], Iterator[Figure]]] = {
    "scale": scale.scale,
    "pauses": pauses.pauses,
}


def main() -> int:
    """Measure what was asked for; returns 1 when --check finds a bound missed."""
    parser = argparse.ArgumentParser("python -m bench", description=__doc__)
    names = [*IN_PROCESS, *WITH_SERVER]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all")
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    wanted = options.names or names
    if unknown := set(wanted) - set(names):
        parser.error(f"no benchmark {', '.join(unknown)}")
    figures = list(_measure(wanted, options.pods))
    print(table(figures))
    if options.json:
        write_json(figures, options.json)
    return int(options.check and any(each.verdict == "MISSED" for each in figures))


def _measure(wanted: list[str], pods: int) -> Iterator[Figure]:
    for name, measure in IN_PROCESS.items():
        if name in wanted:
            _progress(name)
            yield from measure()
    chosen = [name for name in WITH_SERVER if name in wanted]
    if not chosen:
        return
    _progress(f"kube-apiserver with {pods} pods")
    with build(pods) as world:
        for name in chosen:
            _progress(name)
            yield from WITH_SERVER[name](world)


def _progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
