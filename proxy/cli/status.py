"""Show a running proxy's informers."""

import argparse
import json
import socket
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any

from proxy.server.addresses import Address, parse_address
from proxy.server.columns import rows, state

_EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound
"""Addresses for every interface, and this host's own, by which all listeners may be called."""


class _Connection(HTTPConnection):
    """A connection to a listener, past any web proxy, which can't reach this host."""

    def __init__(self, address: Address) -> None:
        host = "localhost" if address.path else _EVERY.get(address.host, address.host)
        super().__init__(host, address.port, timeout=5)
        self._path = address.path

    def connect(self) -> None:
        if not self._path:
            return super().connect()
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        return self.sock.connect(self._path)


class _StatusError(Exception):
    """There is no status to be had, and why."""


def main(arguments: Sequence[str]) -> int:
    """Print the status as a table; returns 1 when the proxy can't be reached or isn't ready."""
    parser = argparse.ArgumentParser(
        "kubecache status",
        description=__doc__,
        epilog="The columns are explained in docs/metrics.md.",
    )
    parser.add_argument(
        "--admin",
        metavar="ADDRESS",
        type=_address,
        default="127.0.0.1:8002",
        help="the proxy's admin listener: host:port, unix:/path or its URL (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="(default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        status = _ask(options.admin)
    except _StatusError as error:
        print(f"kubecache status: {error}", file=sys.stderr)
        return 1
    print(json.dumps(status, indent=2) if options.output == "json" else render(status))
    return 0 if status["ready"] else 1


def _address(text: str) -> Address:
    """Read an address as the settings do, or a URL."""
    try:
        return parse_address(text.removeprefix("http://").rstrip("/") if "://" in text else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _ask(address: Address) -> dict[str, Any]:
    """Get the status. Raises _StatusError."""
    connection = _Connection(address)
    try:
        connection.request("GET", "/status.json")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            reason = f"{answer.status} {answer.reason}"
            raise _StatusError(f"no proxy's admin listener is at --admin {address}: {reason}")
        status: dict[str, Any] = json.loads(body)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _StatusError(f"no proxy answers at --admin {address}: {reason}") from error
    except (HTTPException, ValueError) as error:
        raise _StatusError(f"no proxy's admin listener is at --admin {address}") from error
    finally:
        connection.close()
    return status


def render(status: dict[str, Any]) -> str:
    """Lay out a status as text."""
    text = f"kubecache {status['version']}, " + "\n".join(state(status))
    text += "\n\n" + _table([*rows(status)])
    for title in ("conflicts", "merges", "live_reads"):
        counts = [f"{name} {count}" for name, count in sorted(status[title].items()) if count]
        if counts:
            text += f"\n\n{title.replace('_', ' ')}: {', '.join(counts)}"
    if status["scans"]:
        scans = [["LISTS THAT SCAN", "SELECTOR", "COUNT"]]
        scans += [
            [each["resource"], each["selector"], str(each["lists"])] for each in status["scans"]
        ]
        text += "\n\n" + _table(scans)
    return text


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
