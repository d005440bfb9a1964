"""Merging: what a client wanted to write, on top of what another has written since. Pure."""

import msgspec

from proxy.kube import gojson
from proxy.kube.envelope import NOT_UNDERSTOOD
from proxy.writes.attempt import Attempt
from proxy.writes.changes import Json, merge, retarget_patch
from proxy.writes.states import States

RESULTS = ("merged", "overlap", "lost", "unknown", "failed")
"""What may come of a merge (docs/metrics.md)."""


class NotMergedError(Exception):
    """Merging has come to nothing; *result* is what it's counted as."""

    def __init__(self, result: str) -> None:
        super().__init__(result)
        self.result = result


def merged_body(attempt: Attempt, states: States, has_status: bool) -> bytes:
    """Build the body to send in the place of an attempt's, for *states* whose base is known.

    *has_status*: the status is a subresource. Raises OverlapError where both changed the same, and
    NotMergedError for what isn't understood.
    """
    assert states.base is not None
    try:
        base, theirs, mine = map(decoded, (states.base, states.theirs, attempt.body))
        if attempt.request.method == "PATCH":
            return gojson.encode(retarget_patch(attempt.media_type, mine, base, theirs))
        mine = {**_unwritten(attempt.target.subresource, base, has_status), **mine}
        return gojson.encode(merge(base, theirs, mine))
    except NOT_UNDERSTOOD as error:
        raise NotMergedError("unknown") from error


def decoded(body: bytes) -> Json:
    """Decode an object. Raises one of NOT_UNDERSTOOD."""
    return msgspec.json.decode(body, type=Json)


def _unwritten(subresource: str, base: Json, has_status: bool) -> Json:
    """Take what an update doesn't write, so that leaving it out removes nothing.

    Of the status that's all else; of the object the status, where that is a subresource.
    """
    if subresource == "":
        return {"status": base["status"]} if has_status and "status" in base else {}
    return {key: value for key, value in base.items() if key != "status"}
