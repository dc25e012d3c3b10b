"""An error as one printable line, without secrets."""

from __future__ import annotations

from triskele.errors import BadInput

MESSAGE_CHARACTERS = 600
_READ_CHARACTERS = 20_000


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


def only_at_the_store(url: str) -> BadInput:
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
