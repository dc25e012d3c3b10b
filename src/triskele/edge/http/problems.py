"""Errors as problem documents (RFC 9457): what the server answers, and what the client raises again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from triskele.edge import error_messages
from triskele.errors import (
    AmbiguousId,
    BadInput,
    Conflict,
    IndexUnavailable,
    ModelUnavailable,
    NotAllowed,
    NotFound,
    QuotaExceeded,
    StoreDamaged,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
    TriskeleError,
    Unavailable,
)

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:triskele:problem:"
BLANK = "about:blank"


class AccessDenied(Unavailable):
    """The key is missing, unknown, expired or revoked, or its scopes do not allow the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """An error: `type` is its kind, `detail` what happened, `remedy` what to do next, if known."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str = ""


# The most specific first: the first class that fits decides.
KINDS: dict[str, tuple[type[TriskeleError], int]] = {
    "not-found": (NotFound, 404),
    "ambiguous-id": (AmbiguousId, 422),
    "bad-input": (BadInput, 422),
    "not-allowed": (NotAllowed, 403),
    "conflict": (Conflict, 409),
    "store-damaged": (StoreDamaged, 503),
    "store-newer": (StoreNewer, 503),
    "store-older": (StoreOlder, 503),
    "store-unavailable": (StoreUnavailable, 503),
    "index-unavailable": (IndexUnavailable, 503),
    "model-unavailable": (ModelUnavailable, 503),
    "access-denied": (AccessDenied, 403),
    "quota-exceeded": (QuotaExceeded, 429),
    "unavailable": (Unavailable, 503),
}
# Statuses without a separate kind, as the client raises them.
_BY_STATUS: dict[int, type[TriskeleError]] = {
    400: BadInput,
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: Conflict,
    413: BadInput,
    421: BadInput,
    422: BadInput,
    429: QuotaExceeded,
}


def problem_of(error: BaseException) -> ProblemDetails:
    """The problem document of an error; the message of an internal error is left out, because it may quote a memory."""
    if isinstance(error, HTTPException):
        return _blank(error.status_code, error.detail)
    for name, (kind, status) in KINDS.items():
        if isinstance(error, kind):
            return ProblemDetails(
                type=_PREFIX + name,
                title=name.replace("-", " ").capitalize(),
                status=status,
                detail=error_messages.error_line(error),
                remedy=error.remedy if isinstance(error, TriskeleError) else "",
            )
    if isinstance(error, OSError):
        return _blank(503, error_messages.error_line(error))
    return _blank(500, f"a fault inside triskele: {type(error).__name__}")


def response_of(error: BaseException, headers: Mapping[str, str] | None = None) -> Response:
    """The response for an error."""
    told = {**(headers or {}), **(getattr(error, "headers", None) or {})}
    if isinstance(error, QuotaExceeded) and error.remedy.isdigit():
        told["Retry-After"] = error.remedy
    return _response(problem_of(error), told)


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response with an error message."""
    return _response(_blank(status, message), headers)


def raised_again(status: int, body: bytes, reason: str) -> TriskeleError:
    """The error of a response, as the engine would have raised it."""
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        told = {}
    detail, remedy = str(told.get("detail") or f"{reason} (status {status})"), str(told.get("remedy") or "")
    name = str(told.get("type") or "").removeprefix(_PREFIX)
    kind = KINDS[name][0] if name in KINDS else _BY_STATUS.get(status, Unavailable)
    return kind(detail, remedy=remedy)


def _blank(status: int, detail: str) -> ProblemDetails:
    return ProblemDetails(type=BLANK, title=HTTPStatus(status).phrase, status=status, detail=detail)


def _response(problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(asdict(problem)), problem.status, dict(headers or {}), MEDIA_TYPE)
