"""Lists of an informer that lags behind, against every state there was; a failure is shrunk.

The same oracle as `tests/integration/test_list_oracle.py`, whose judge is kube-apiserver, with a
storage in memory for a judge: writes, deliveries, relists, lists, pages and exact versions in any
order that hypothesis finds.
"""

import asyncio
import json
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proxy.cache.informer import Informer
from proxy.cache.informers import Informers, Policy
from proxy.cache.scope import Scope
from proxy.cache.source import Source
from proxy.cache.store import Store
from proxy.demo.storage import Change, Json, Storage
from proxy.forms.form import Change as Told
from proxy.forms.form import EventType
from proxy.forms.json import JsonForm
from proxy.kube.options import parse_options
from proxy.kube.requests import parse_request
from proxy.kube.resources import Resource, ResourceInfo, object_key
from proxy.reads.plan import Reason
from proxy.reads.reader import Answer, Reader
from tests.unit.builders import Clock

PODS = Resource("", "v1", "pods")
EMPTY = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'

namespaces = st.sampled_from(["a", "a-b", "b"])
names = st.sampled_from(["p0", "p1", "p.2", "p-3"])
labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))
scopes = st.sampled_from(["", "a", "a-b", "b", "none"])
selectors = st.sampled_from(
    [
        "",
        "labelSelector=app%3Dx",
        "labelSelector=app!%3Dx",
        "labelSelector=app+in+(x,y),tier",
        "labelSelector=!tier",
        "fieldSelector=metadata.name%3Dp1",
        "fieldSelector=spec.nodeName%3Dx",
        "fieldSelector=spec.nodeName!%3Dx&labelSelector=app%3Dx",
    ]
)
limits = st.integers(1, 5)


class Oracle(RuleBasedStateMachine):
    """A storage, an informer that hears of its changes late, and clients that list."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = Storage()
        self.heard = 1
        self.informers = Informers(lambda _: cast(Source, None), Policy(), clock=Clock())
        self.informer = Informer(Scope(PODS), cast(Source, None), clock=Clock())
        self.informers._informers[Scope(PODS)] = self.informer
        self.form = JsonForm(ResourceInfo(PODS, "Pod", namespaced=True), EMPTY)
        self.reader = Reader(self.informers, lambda: "", cast(Any, None), clock=Clock())
        self.tokens: list[tuple[str, str, str, list[str]]] = []
        self.seen = 0

    @initialize()
    def first_list(self) -> None:
        """Nothing is served before it."""
        self.relist()

    @rule()
    def relist(self) -> None:
        """The reflector lists anew; what happened meanwhile is told as events."""
        store = Store(self.form.indexed)
        for found in self.form.decode_page(self._page(self.storage.revision)).objects:
            store.put(found)
        self.heard = self.storage.revision
        asyncio.run(self.informer.replace(self.form, store, self.heard))

    @rule(namespace=namespaces, name=names, labels=labels)
    def write(self, namespace: str, name: str, labels: dict[str, str]) -> None:
        """Create an object, or change it."""
        body = {
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": labels.get("tier", "")},
        }
        known = self._keys(self.storage.revision)
        act = self.storage.update if object_key(namespace, name) in known else self.storage.create
        act(PODS, body)

    @rule(namespace=namespaces, name=names)
    def delete(self, namespace: str, name: str) -> None:
        """Delete an object that is there."""
        if object_key(namespace, name) in self._keys(self.storage.revision):
            self.storage.delete(PODS, namespace, name)

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        """Let the informer hear of some changes."""
        for change in self.storage.since(PODS, self.heard)[:count]:
            self.informer.apply(self._told(change))
            self.heard = change.revision

    @rule(namespace=scopes, selector=selectors)
    def list_all(self, namespace: str, selector: str) -> None:
        """A list is the state at its version, and versions don't go back."""
        body = self._ask(namespace, selector)
        assert body is not None
        version = int(body["metadata"]["resourceVersion"])
        assert version >= self.seen
        self.seen = version
        assert self._found(body) == self._expected(namespace, selector, version)

    @rule(namespace=scopes, selector=selectors, limit=limits)
    def list_page(self, namespace: str, selector: str, limit: int) -> None:
        """A first page; its token may be used much later."""
        body = self._ask(namespace, f"{selector}&limit={limit}")
        assert body is not None
        version = int(body["metadata"]["resourceVersion"])
        whole = self._expected(namespace, selector, version)
        self._turn(body, namespace, selector, whole)

    @rule(data=st.data(), limit=limits)
    def next_page(self, data: st.DataObject, limit: int) -> None:
        """The rest of a list goes on where it stood, whatever was written since."""
        if not self.tokens:
            return
        namespace, selector, token, rest = data.draw(st.sampled_from(self.tokens))
        body = self._ask(namespace, f"{selector}&limit={limit}&continue={token}")
        if body is not None:  # else a relist has let the state go, and it's forwarded
            self._turn(body, namespace, selector, rest)

    def _turn(self, body: Json, namespace: str, selector: str, rest: list[str]) -> None:
        found = self._found(body)
        assert found == rest[: len(found)]
        token = body["metadata"].get("continue")
        if token:
            self.tokens.append((namespace, selector, token, rest[len(found) :]))
        else:
            assert found == rest

    @rule(namespace=scopes, selector=selectors, back=st.integers(0, 6))
    def list_exactly(self, namespace: str, selector: str, back: int) -> None:
        """A version that is served exactly is exactly that one."""
        version = max(self.heard - back, 1)
        exact = f"{selector}&resourceVersion={version}&resourceVersionMatch=Exact"
        body = self._ask(namespace, exact)
        if body is not None:
            assert body["metadata"]["resourceVersion"] == str(version)
            assert self._found(body) == self._expected(namespace, selector, version)

    @invariant()
    def history_is_in_order(self) -> None:
        """Every event is newer than the one before it."""
        view = self.informer.view
        if view is not None:
            events = view.history.read(view.history.end - len(view.history._events), 10_000) or []
            versions = [event.version for event in events]
            assert versions == sorted(set(versions))

    # --- helpers ---

    def _ask(self, namespace: str, query: str) -> Json | None:
        path = PODS.path(namespace)
        outcome = self.reader.read(parse_request("GET", path.encode(), query.encode(), []))
        if isinstance(outcome, Answer):
            body: Json = json.loads(b"".join(outcome.parts))
            return body
        assert outcome is Reason.EXACT, outcome
        return None

    def _found(self, body: Json) -> list[str]:
        return [json.dumps(each, sort_keys=True) for each in body["items"]]

    def _expected(self, namespace: str, selector: str, version: int) -> list[str]:
        options = parse_options(selector.encode())
        return [
            json.dumps(each, sort_keys=True)
            for each in self.storage.list(PODS, version)
            if namespace in ("", each["metadata"]["namespace"])
            and options.labels.matches(each["metadata"]["labels"])
            and all(
                (_field(each, term.field) == term.value) is not term.negated
                for term in options.fields.terms
            )
        ]

    def _keys(self, version: int) -> set[str]:
        found = (each["metadata"] for each in self.storage.list(PODS, version))
        return {object_key(each["namespace"], each["name"]) for each in found}

    def _page(self, version: int) -> bytes:
        items = self.storage.list(PODS, version)
        metadata = {"resourceVersion": str(version)}
        return json.dumps({"metadata": metadata, "items": items}, separators=(",", ":")).encode()

    def _told(self, change: Change) -> Told:
        page = {"metadata": {"resourceVersion": "1"}, "items": [change.after]}
        encoded = json.dumps(page, separators=(",", ":")).encode()
        return Told(EventType(change.type), self.form.decode_page(encoded).objects[0])


def _field(found: Json, field: str) -> str:
    value: Any = found
    for step in field.split("."):
        value = value[step]
    return str(value)


TestOracle = Oracle.TestCase
TestOracle.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
