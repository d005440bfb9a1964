"""Bookmarks: the zero object of a kind, which carries nothing but a version."""

import msgspec

from proxy.forms.partial import is_unstructured
from proxy.kube import gojson
from proxy.kube.versions import parse_version

INITIAL_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a WatchList's initial events."""


class ZeroObject:
    """The object of a bookmark, as kube-apiserver has sent one for its kind.

    Its metadata are written anew: some kinds have annotations of their own there, as DaemonSets.
    ``initial_end`` tells whether this one marked the end. Raises msgspec.MsgspecError.
    """

    def __init__(self, encoded: bytes) -> None:
        metadata = bytes(gojson.split_members(encoded)["metadata"])
        self._head, _, self._tail = encoded.partition(metadata)
        self._metadata = gojson.split_members(metadata)
        annotations = self._metadata.pop("annotations", msgspec.Raw(b"{}"))
        self._annotations = msgspec.json.decode(annotations, type=dict[str, str])
        self.initial_end = self._annotations.pop(INITIAL_END, None) is not None
        self._sorts_keys = is_unstructured(encoded)

    @property
    def version(self) -> int:
        """resourceVersion of this one. Raises msgspec.MsgspecError, ValueError."""
        stamp = self._metadata.get("resourceVersion", b'""')
        return parse_version(msgspec.json.decode(stamp, type=str))

    def encode(self, version: int, *, initial_end: bool) -> bytes:
        """Write it as one of *version*."""
        return self._head + self._stamped(version, initial_end) + self._tail

    def _stamped(self, version: int, initial_end: bool) -> bytes:
        metadata = {**self._metadata, "resourceVersion": msgspec.Raw(b'"%d"' % version)}
        marks = {INITIAL_END: "true"} if initial_end else {}
        annotations = sorted({**self._annotations, **marks}.items())
        if annotations:
            metadata["annotations"] = msgspec.Raw(gojson.encode(dict(annotations)))
        if self._sorts_keys:
            metadata = dict(sorted(metadata.items()))
        return gojson.join_members(metadata)
