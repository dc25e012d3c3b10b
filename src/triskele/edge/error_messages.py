"""An error as one printable line without secrets, and its name and status over HTTP."""

from __future__ import annotations

import json
from typing import Any

from triskele.errors import (
    AccessDenied,
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
    VaultLocked,
)

PREFIX = "urn:triskele:problem:"
MESSAGE_CHARACTERS = 600
_READ_CHARACTERS = 20_000


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
    "vault-locked": (VaultLocked, 503),
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


def error_text(error: BaseException) -> str:
    """The message of an error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {_path(error.filename)}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def printable_line(message: str) -> str:
    """A message as one printable line of bounded length; secrets in it are masked."""
    words = _without_secrets(" ".join(message.split())[:_READ_CHARACTERS])
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return shown if len(shown) <= MESSAGE_CHARACTERS else shown[:MESSAGE_CHARACTERS] + "…"


def error_line(error: BaseException) -> str:
    """The message of an error as one printable line."""
    return printable_line(error_text(error))


def raised_again(status: int, body: bytes, reason: str) -> TriskeleError:
    """The error of a response, as the engine would have raised it."""
    try:
        problem: Any = json.loads(body)
    except (ValueError, RecursionError):
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    detail, remedy = str(problem.get("detail") or f"{reason} (status {status})"), str(problem.get("remedy") or "")
    name = str(problem.get("type") or "").removeprefix(PREFIX)
    kind = KINDS[name][0] if name in KINDS else _BY_STATUS.get(status, Unavailable)
    return kind(detail, remedy=remedy)


def store_elsewhere(url: str) -> BadInput:
    """The refusal of what only the machine of the store can do."""
    return BadInput(f"this works only where the store is, not over {url}: run it there, or without server.url")


def _path(name: object) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _without_secrets(text: str) -> str:
    # Imported here: only errors pay for it.
    from triskele.privacy.detect import find

    for finding in reversed(find(text)):
        text = f"{text[: finding.start]}[…]{text[finding.end :]}"
    return text
