"""Text that may leave this machine: only what was cleared here has the type that egress takes."""

from __future__ import annotations

from typing import Any, NoReturn, final

from triskele.privacy.detect import find
from triskele.privacy.disguises import readings
from triskele.privacy.quotes import Quotes
from triskele.types import Memory

_OPEN = "open"
_MADE_HERE = object()


@final
class Cleared:
    """Text cleared for others; made by the functions of this room alone."""

    __slots__ = ("__made", "__source", "__text")

    def __init__(self, text: str, made: object, source: str = "") -> None:
        if made is not _MADE_HERE:
            raise TypeError("cleared text is made by clear_memory and clear_question alone")
        object.__setattr__(self, "_Cleared__text", text)
        object.__setattr__(self, "_Cleared__made", made)
        object.__setattr__(self, "_Cleared__source", source)

    @property
    def text(self) -> str:
        """The text that may be sent."""
        if getattr(self, "_Cleared__made", None) is not _MADE_HERE:
            raise TypeError("this text was not cleared")
        return str(getattr(self, "_Cleared__text"))  # noqa: B009

    @property
    def source(self) -> str:
        """The id of the memory that it is the text of; empty for a question."""
        return str(getattr(self, "_Cleared__source"))  # noqa: B009

    def part(self, start: int, end: int) -> Cleared:
        """A piece of it, for models that read windows."""
        return Cleared(self.text[start:end], _MADE_HERE, self.source)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("cleared text never changes")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("cleared text has one type")

    def __reduce__(self) -> NoReturn:
        raise TypeError("cleared text is neither copied nor pickled: clear it anew")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cleared) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<Cleared, {len(self.text)} characters>"


def clear_memory(memory: Memory) -> Cleared | None:
    """The content of an open memory; nothing of any other."""
    return Cleared(memory.content, _MADE_HERE, memory.id) if memory.sensitivity.value == _OPEN else None


def clear_question(text: str, quotes: Quotes) -> Cleared | None:
    """The question, unless it, in any writing, holds a secret or shares something rare with what must stay here."""
    return None if quotes.shares(text) or any(map(find, readings(text))) else Cleared(text, _MADE_HERE)
