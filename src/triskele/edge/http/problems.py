"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from triskele.edge import error_messages
from triskele.edge.error_messages import KINDS, PREFIX
from triskele.errors import QuotaExceeded, TriskeleError

MEDIA_TYPE = "application/problem+json"
BLANK = "about:blank"
_ROUTES = "look it up in /openapi.json: it lists the routes and their verbs"
_REMEDIES = {
    401: "send Authorization: Bearer KEY with a key that is valid",
    404: _ROUTES,
    405: _ROUTES,
    413: "send less in one request",
    415: "send JSON with Content-Type: application/json",
    421: "use a name of this machine, or add yours to server.allowed_hosts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemDetails:
    """An error: `type` is its kind, `detail` what happened, `remedy` what to do next, if known."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str = ""


def problem_of(error: BaseException) -> ProblemDetails:
    """Describe an error; messages of internal errors stay out."""
    if isinstance(error, HTTPException):
        return _blank(error.status_code, error.detail)
    for name, (kind, status) in KINDS.items():
        if isinstance(error, kind):
            return ProblemDetails(
                type=PREFIX + name,
                title=name.replace("-", " ").capitalize(),
                status=status,
                detail=error_messages.error_line(error),
                remedy=error.remedy if isinstance(error, TriskeleError) else "",
            )
    if isinstance(error, OSError):
        return _blank(503, error_messages.error_line(error))
    return _blank(500, f"a fault inside triskele: {type(error).__name__}")


def response_of(error: BaseException) -> Response:
    """The response for an error."""
    headers = dict(getattr(error, "headers", None) or {})
    if isinstance(error, QuotaExceeded) and error.remedy.isdigit():
        headers["Retry-After"] = error.remedy
    return _response(problem_of(error), headers)


async def refusal(_: Request, error: Exception) -> Response:
    """The response for an error that a route raised."""
    return response_of(error)


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """A response with an error message."""
    return _response(_blank(status, message), headers)


def _blank(status: int, detail: str) -> ProblemDetails:
    title, remedy = HTTPStatus(status).phrase, _REMEDIES.get(status, "")
    return ProblemDetails(type=BLANK, title=title, status=status, detail=detail, remedy=remedy)


def _response(problem: ProblemDetails, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(asdict(problem)), problem.status, dict(headers or {}), MEDIA_TYPE)
