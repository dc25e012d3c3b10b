"""A failure as one printable line, wherever it is told."""

from __future__ import annotations

MESSAGE_CHARACTERS = 600
_READ_CHARACTERS = 20_000


def said(error: BaseException) -> str:
    """What an error says of itself."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def line(message: str) -> str:
    """A message as one printable line, whatever was typed into it; a secret in it is not told back."""
    words = _without_secrets(" ".join(message.split())[:_READ_CHARACTERS])
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return shown if len(shown) <= MESSAGE_CHARACTERS else shown[:MESSAGE_CHARACTERS] + "…"


def _without_secrets(text: str) -> str:
    # Imported here: only what fails pays for it.
    from triskele.privacy.detect import find

    for finding in reversed(find(text)):
        text = f"{text[: finding.start]}[…]{text[finding.end :]}"
    return text
