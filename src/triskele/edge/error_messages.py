"""An error as one printable line without secrets, and its name and status over HTTP."""

from __future__ import annotations

import json
from typing import Any

from triskele import errors
from triskele.errors import BadInput, TriskeleError, Unavailable

PREFIX = "urn:triskele:problem:"
MESSAGE_CHARACTERS = 600
_READ_CHARACTERS = 20_000


# The most specific first: the first class that fits decides.
KINDS: dict[str, tuple[type[TriskeleError], int]] = {
    "not-found": (errors.NotFound, 404),
    "ambiguous-id": (errors.AmbiguousId, 422),
    "bad-input": (BadInput, 422),
    "not-allowed": (errors.NotAllowed, 403),
    "conflict": (errors.Conflict, 409),
    "store-damaged": (errors.StoreDamaged, 503),
    "store-newer": (errors.StoreNewer, 503),
    "store-older": (errors.StoreOlder, 503),
    "store-unavailable": (errors.StoreUnavailable, 503),
    "index-unavailable": (errors.IndexUnavailable, 503),
    "model-unavailable": (errors.ModelUnavailable, 503),
    "vault-locked": (errors.VaultLocked, 503),
    "access-denied": (errors.AccessDenied, 403),
    "quota-exceeded": (errors.QuotaExceeded, 429),
    "unavailable": (Unavailable, 503),
}
# Statuses without a separate kind, as the client raises them.
_BY_STATUS: dict[int, type[TriskeleError]] = {
    **dict.fromkeys((400, 413, 421, 422), BadInput),
    **dict.fromkeys((401, 403), errors.AccessDenied),
    404: errors.NotFound,
    409: errors.Conflict,
    429: errors.QuotaExceeded,
}


def error_text(error: BaseException) -> str:
    """The message of an error."""
    if isinstance(error, OSError) and error.strerror:
        path: object = error.filename
        name = path.decode("utf-8", "backslashreplace") if isinstance(path, bytes) else path
        return f"{error.strerror}: {name}" if name else error.strerror
    return str(error) or type(error).__name__


def printable_line(message: str) -> str:
    """A message as one printable line of bounded length; secrets in it are masked."""
    # Imported here: only errors pay for it.
    from triskele.privacy.detect import find

    words = " ".join(message.split())[:_READ_CHARACTERS]
    for finding in reversed(find(words)):
        words = f"{words[: finding.start]}[…]{words[finding.end :]}"
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
