"""Clients that read and write at random, through a proxy and beside it, and what they record."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from http.client import HTTPException
from itertools import count
from random import Random
from typing import Any

from proxy.kube.negotiation import FormName
from tests.harness.differential import cache_status
from tests.harness.forms import CLIENTS, read_list, read_object
from tests.harness.history import Event, Log, Read, Tide, Update, Write
from tests.harness.http import Answer, Headers, Server, Session, Watch, get
from tests.harness.moves import LABEL, Kind, Move, Place, Shows
from tests.harness.objects import Object, create

_MERGE = (("X-Kubecache-On-Conflict", "merge"),)
_ABOUT_VERSION = "the object has been modified"
_END = "zz-end"
"""Name of the object that is created when all is done: no event comes after."""

POLL = 0.02
"""Seconds between the reads that tell the API server's version."""

STAYING = 0.5
"""Share of operations on the object of the one before: what they show has just been touched."""

_AWAY = (503, 504)
"""What the proxy answers while the line is cut, and where a read may not go upstream."""

_numbers = count(1)


class History:
    """What clients have done and seen, of the objects of some kinds in some namespaces."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.updates: list[Update] = []
        self.reads: list[Read] = []
        self.unanswered: list[str] = []
        self._found: list[tuple[Write, str, Shows]] = []  # by uid, whose event is still to be found

    def note(self, write: Write, shows: Shows, uid: str) -> None:
        """Record a write whose event has to be found."""
        self._found.append((write, uid, shows))

    def find(self, truth: Truth) -> None:
        """Find the events of all writes."""
        self.writes += [
            write._replace(version=truth.version(uid, shows)) for write, uid, shows in self._found
        ]
        self._found.clear()

    @property
    def hits(self) -> list[Read]:
        return [read for read in self.reads if read.hit]

    @property
    def through_proxy(self) -> list[Read]:
        return [read for read in self.reads if read.through_proxy]

    @property
    def proxied_writes(self) -> list[Write]:
        return [write for write in self.writes if write.through_proxy]


class Player:
    """One that reads and writes at random, on a connection of its own.

    Each read is in one of *forms*, and *headers* go with it, but for one beside the proxy. Each
    operation is followed by a *rest* of so many seconds.
    """

    def __init__(
        self,
        name: str,
        server: Server,
        history: History,
        places: Sequence[Place],
        *,
        through_proxy: bool,
        headers: Headers = (),
        forms: Sequence[FormName] = (FormName.JSON,),
        rest: float = 0.0,
    ) -> None:
        self._name = name
        self._server = server.adding(("User-Agent", name))
        self._session = Session(self._server)
        self._history = history
        self._places = places
        self._through_proxy = through_proxy
        self._headers = headers
        self._forms = forms
        self._rest = rest
        self._random = Random(name)
        self._known: dict[str, Object] = {}
        self._last = self._random.choice(places)

    def play(self, writing: float) -> None:
        """One operation, which is a write in such a share of all."""
        if self._random.random() >= STAYING:
            self._last = self._random.choice(self._places)
        place = self._last
        known = self._known.get(place.key)
        if self._random.random() >= writing:
            self._read(place)
        elif known and self._random.random() < 0.25:
            self._update(place, known)
        else:
            uid = known["metadata"]["uid"] if known else ""
            self._write(place._replace(uid=uid))
        time.sleep(self._rest)

    def close(self) -> None:
        self._session.__exit__()

    # --- writes ---

    def _write(self, place: Place) -> None:
        move = place.kind.move(place, self._random)
        called = time.monotonic()
        answer = self._ask(move.method, move.target, move.headers, move.body)
        done = Write(place.key, 0, called, time.monotonic(), self._through_proxy)
        if answer is None or answer.status >= 300 or move.shows is Shows.NOTHING:
            return
        found = answer.json()
        if move.shows is not Shows.ANSWER:
            self._history.note(done, move.shows, place.uid)
        elif found["kind"].endswith("List"):
            self._note_all(place, done, found["items"])
        else:
            self._note(place, done, move, found)

    def _note_all(self, place: Place, done: Write, swept: Sequence[Object]) -> None:
        for each in swept:
            other = place._replace(name=each["metadata"]["name"])
            self._history.note(done._replace(key=other.key), Shows.END, each["metadata"]["uid"])

    def _note(self, place: Place, done: Write, move: Move, found: Object) -> None:
        """Deletions take versions of their own, which answers don't always show."""
        metadata = found["metadata"]
        if found["kind"] == "Status":
            if uid := found.get("details", {}).get("uid"):
                self._history.note(done, Shows.GONE, uid)
            return
        lingers = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not lingers:
            self._history.note(done, Shows.GONE, metadata["uid"])
            return
        self._history.writes.append(done._replace(version=version_of(found)))
        if found["kind"] == place.kind.singular and move.method != "DELETE":
            self._known[place.key] = found

    def _update(self, place: Place, known: Object) -> None:
        """Set an annotation of what was read, whatever has become of it since."""
        mine = {f"by-{self._name}": str(next(_numbers))}
        body = deepcopy(known)
        body["metadata"].setdefault("annotations", {}).update(mine)
        merged = self._through_proxy and self._random.random() < 0.6
        called = time.monotonic()
        answer = self._ask("PUT", place.target, _MERGE if merged else (), body)
        if answer is None:
            return
        returned, base = time.monotonic(), version_of(known)
        done = Update(place.key, base, mine, called, returned, merged=merged)
        if answer.status == 200:
            self._updated(place, done, answer.json())
            return
        self._known.pop(place.key)
        if answer.status == 409 and _ABOUT_VERSION in answer.json()["message"]:
            local = self._through_proxy and cache_status(answer).hit
            self._history.updates.append(done._replace(local=local))

    def _updated(self, place: Place, done: Update, found: Object) -> None:
        self._history.updates.append(done._replace(version=version_of(found)))
        version, times = version_of(found), (done.called, done.returned)
        self._history.writes.append(Write(place.key, version, *times, self._through_proxy))
        self._known[place.key] = found

    # --- reads ---

    def _read(self, place: Place) -> None:
        kind, namespace = place.kind, place.namespace
        match self._random.randrange(10):
            case 0:
                self._list(kind.path(), f"{kind.plural}/")
            case 1 | 2:
                self._list(place.collection, f"{kind.plural}/{namespace}/")
            case 3:
                self._list(place.collection, f"{kind.plural}/{namespace}/", LABEL)
            case _:
                self._get(place)

    def _get(self, place: Place) -> None:
        form = self._random.choice(self._forms)
        read, answer = self._ask_for(place.target, form)
        if read is None:
            return
        found = {}
        if form is FormName.JSON:  # the others aren't what an update takes
            self._known.pop(place.key, None)
        if answer:
            shown = read_object(answer)
            assert place.key.endswith(shown.key)
            found = {place.key: shown.version}
            if form is FormName.JSON:
                self._known[place.key] = answer.json()
        self._history.reads.append(read._replace(key=place.key, found=found))

    def _list(self, target: str, prefix: str, label: str = "") -> None:
        query = f"?labelSelector={label.replace('=', '%3D')}" if label else ""
        read, answer = self._ask_for(target + query, self._random.choice(self._forms), listing=True)
        if read is None or not answer:
            return
        plural = prefix.partition("/")[0]
        ours = {place.key for place in self._places}
        listed = read_list(answer)
        keyed = {f"{plural}/{each.key}": each.version for each in listed.objects}
        found = {key: version for key, version in keyed.items() if key in ours}
        shown = read._replace(prefix=prefix, label=label, version=listed.version, found=found)
        self._history.reads.append(shown)

    def _ask_for(
        self, target: str, form: FormName, *, listing: bool = False
    ) -> tuple[Read | None, Answer | None]:
        """What is read, without what it is about; None where nothing was shown."""
        wishes = self._wishes() if self._through_proxy else ()
        accept = CLIENTS[form].headers(listing=listing)
        called = time.monotonic()
        answer = self._ask("GET", target, (*accept, *wishes))
        returned = time.monotonic()
        if answer is None or answer.status in _AWAY:
            how = answer.body[:200] if answer else "the connection broke"
            self._history.unanswered.append(f"{self._name}: GET {target}: {how!r}")
            return None, None
        assert answer.status in (200, 404), f"GET {target}: {answer}"
        read = Read(
            self._name, called, returned, {}, form=str(form), through_proxy=self._through_proxy
        )
        if self._through_proxy:
            age = int(answer.header("Age") or 0)
            read = read._replace(hit=cache_status(answer).hit, age=age)
        else:
            read = read._replace(hit=False)
        return read, answer if answer.status == 200 else None

    def _wishes(self) -> Headers:
        """Mostly what was given; some reads are live, or never."""
        match self._random.randrange(20):
            case 0 | 1:
                return (("Cache-Control", "no-cache"),)
            case 2:
                return (*self._headers, ("X-Kubecache-Read", "cache"))
            case _:
                return self._headers

    def _ask(self, method: str, target: str, headers: Headers, body: Any = None) -> Answer | None:
        """The answer; None where the connection broke."""
        try:
            answer = self._session.ask(method, target, headers=headers, body=body)
        except (OSError, HTTPException):
            self.close()
            self._session = Session(self._server)
            return None
        assert answer.status < 500 or answer.status in _AWAY, f"{method} {target}: {answer}"
        return answer


def play(players: Mapping[Player, float], operations: int) -> None:
    """Let all play, each with its share of writes, until so many operations are done."""
    left = iter(range(operations))
    errors: list[BaseException] = []

    def work(player: Player, writing: float) -> None:
        try:
            for _ in left:
                player.play(writing)
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=each, daemon=True) for each in players.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3000)
    for player in players:
        player.close()
    assert not errors, errors[0]


class Truth:
    """What happened at kube-apiserver itself, while its `with` lasts, to objects of some kinds."""

    def __init__(self, server: Server, kinds: Sequence[Kind], namespaces: Sequence[str]) -> None:
        self._server = server
        self._kinds = kinds
        self._namespaces = namespaces
        self._watches: dict[str, Watch] = {}
        self._events: list[tuple[Event, Object]] = []
        self._shown: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="tide", daemon=True)

    def __enter__(self) -> Truth:
        for kind in self._kinds:
            version = get(self._server, kind.path()).ok().version
            target = f"{kind.path()}?watch=1&resourceVersion={version}"
            self._watches[kind.plural] = Watch(self._server, target)
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._poller.join(10)
        for watch in self._watches.values():
            watch.close()

    def _poll(self) -> None:
        """Read the version from the list of an object that isn't there."""
        target = f"{self._kinds[0].path(self._namespaces[0])}?fieldSelector=metadata.name%3Dnone"
        with Session(self._server) as session:
            while not self._ended.wait(POLL):
                sent = time.monotonic()
                self._shown.append((sent, int(session.ask("GET", target).ok().version)))

    def end(self) -> None:
        """Read all that has happened by now."""
        for kind in self._kinds:
            create(self._server, kind.path(self._namespaces[0]), kind.object(_END))
            for event in self._watches[kind.plural]:
                found = event["object"]
                if found["metadata"]["name"] == _END:
                    break
                if found["metadata"]["namespace"] in self._namespaces:
                    self._events.append((_event(kind.plural, event), found))
            else:
                raise AssertionError("the watch of the truth has ended")

    @property
    def log(self) -> Log:
        return Log(event for event, _ in self._events)

    @property
    def tide(self) -> Tide:
        return Tide(self._shown)

    def version(self, uid: str, shows: Shows) -> int:
        """Of the first event of an object that shows what a write has done."""
        for event, found in self._events:
            if found["metadata"]["uid"] == uid and _is_shown(shows, event, found):
                return event.version
        raise AssertionError(f"no event shows {shows} of {uid}")


def _is_shown(shows: Shows, event: Event, found: Object) -> bool:
    if shows is Shows.BOUND:
        return "nodeName" in found["spec"]
    return event.gone or (shows is Shows.END and "deletionTimestamp" in found["metadata"])


def _event(plural: str, event: Mapping[str, Any]) -> Event:
    metadata = event["object"]["metadata"]
    return Event(
        key_of(plural, event["object"]),
        version_of(event["object"]),
        event["type"] == "DELETED",
        frozenset(f"{name}={value}" for name, value in metadata.get("labels", {}).items()),
        metadata.get("annotations", {}),
    )


def key_of(plural: str, found: Object) -> str:
    metadata = found["metadata"]
    return f"{plural}/{metadata['namespace']}/{metadata['name']}"


def version_of(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])
