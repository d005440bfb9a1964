"""One flat family of API errors; each class knows its HTTP code and its Status reason.

The wire form is ``metav1.Status`` as ``apimachinery/pkg/api/errors`` builds it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from proxy.kube import gojson, gostrings
from proxy.kube.resources import Resource


class ApiError(Exception):
    """A failure in the API server's own terms.

    Raised by this program, or rebuilt from an API server's answer (``from_status``).
    *retry_after* is in whole seconds and becomes ``details.retryAfterSeconds`` and a header.
    """

    code: int = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.details = dict(details or {})
        if retry_after:
            self.details["retryAfterSeconds"] = retry_after

    @property
    def retry_after(self) -> int | None:
        """Seconds after which to try again, when the error names them."""
        seconds = self.details.get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) and seconds > 0 else None

    def status(self) -> dict[str, Any]:
        """Build the Status object, empty fields left out as Go's omitempty does."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def status_body(self) -> bytes:
        """Return the response body: compact JSON and a newline."""
        return gojson.encode(self.status()) + b"\n"


def pause_wanted(error: Exception) -> float:
    """How many seconds a failure asks its client to wait; 0 for any."""
    return float(error.retry_after or 0) if isinstance(error, ApiError) else 0.0


class BadRequest(ApiError):
    """The request can't be understood."""

    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    """The credentials are missing or refused."""

    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    """The caller may not do this."""

    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    """No such object, resource or path."""

    code = 404
    reason = "NotFound"


class MethodNotAllowed(ApiError):
    """The resource doesn't know this verb."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    """406: the resource isn't shown in any of the representations that are asked for."""

    code = 406
    reason = "NotAcceptable"


class RequestTimeout(ApiError):
    """The request did not arrive in time, and has had no effect."""

    code = 408
    reason = "Timeout"


class Conflict(ApiError):
    """The object has changed since the caller read it."""

    code = 409
    reason = "Conflict"


class AlreadyExists(Conflict):
    """The name is taken."""

    reason = "AlreadyExists"


class Expired(ApiError):
    """The resourceVersion or continue token is too old."""

    code = 410
    reason = "Expired"


class UnsupportedMediaType(ApiError):
    """The body is of a kind that can't be read."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(ApiError):
    """The request is well formed and breaks a rule."""

    code = 422
    reason = "Invalid"


class TooManyRequests(ApiError):
    """Try again later."""

    code = 429
    reason = "TooManyRequests"


class RequestTooLarge(ApiError):
    """The request's head is larger than is read."""

    code = 431
    reason = "RequestEntityTooLarge"


class InternalError(ApiError):
    """Something failed that should not have."""


class ServiceUnavailable(ApiError):
    """The API server can't be reached; nothing was sent to it."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    """No answer in time; whether the request took effect is unknown."""

    code = 504
    reason = "Timeout"


_BY_CODE: dict[int, type[ApiError]] = {
    cls.code: cls
    for cls in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        NotAcceptable,
        RequestTimeout,
        Conflict,
        Expired,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        RequestTooLarge,
        ServiceUnavailable,
        Timeout,
    )
}


def not_found(resource: Resource, name: str) -> NotFound:
    """``NewNotFound``."""
    return NotFound(
        f"{resource.qualified} {gostrings.quote(name)} not found", details=_about(resource, name)
    )


def already_exists(resource: Resource, name: str) -> AlreadyExists:
    """``NewAlreadyExists``."""
    message = f"{resource.qualified} {gostrings.quote(name)} already exists"
    return AlreadyExists(message, details=_about(resource, name))


def conflict(resource: Resource, name: str) -> Conflict:
    """``NewConflict`` as the registry words it (``OptimisticLockErrorMsg``)."""
    return Conflict(
        f"Operation cannot be fulfilled on {resource.qualified} {gostrings.quote(name)}: "
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
        details=_about(resource, name),
    )


def _about(resource: Resource, name: str) -> dict[str, str]:
    """Details of an object; their kind is the plural name."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


class _Details(msgspec.Struct):
    retryAfterSeconds: int = 0  # noqa: N815 - the wire's spelling
    causes: list[dict[str, str]] = []


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0
    details: _Details = msgspec.field(default_factory=_Details)


def from_status(code: int, body: bytes) -> ApiError:
    """Rebuild the error that an API server answered with HTTP *code* (or in an ERROR event)."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:
        status = _Status(message=body[:200].decode("utf-8", "replace").strip())
    code = code or status.code
    details: dict[str, Any] = {"causes": status.details.causes} if status.details.causes else {}
    return _BY_CODE.get(code, InternalError)(
        status.message,
        code=code,
        details=details,
        retry_after=status.details.retryAfterSeconds or None,
    )
