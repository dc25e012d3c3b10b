"""One long JSON list, read object by object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from triskele.errors import BadInput
from triskele.evaluation.loaders.fields import Fields
from triskele.evaluation.loaders.reading import CHUNK_BYTES, Source

MAX_ITEM_CHARACTERS = 64 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
# A literal or an escape that the end of the buffer cuts is reported at most this far before it.
_CUT_CHARACTERS = 16
_OPEN_STRING = "Unterminated string"
_AFTER_ITEM = frozenset(",]")


def items(source: Source) -> Iterator[Fields]:
    """The objects of a file that is a JSON list; one of them is held at a time."""
    scanner = _Scanner(source)
    if scanner.mark() != "[":
        raise source.wrong("is not a JSON list")
    number, mark = 0, scanner.skip()
    while mark != "]":
        number += 1
        where = f"{source.path}, item {number}"
        yield Fields.of(scanner.value(where), where)
        mark = scanner.mark()
        if mark not in _AFTER_ITEM:
            raise BadInput(f"{where}: {'a comma is missing after it' if mark else 'the file breaks off after it'}")
        # A list that ends with a comma goes on to a bracket that is no value.
        if mark == "," and scanner.skip() == "]":
            raise BadInput(f"{where}: nothing comes after its comma")
    if scanner.skip():
        raise source.wrong("goes on after the end of its list")


class _Scanner:
    """A place in a text that is read on as it is needed."""

    def __init__(self, source: Source) -> None:
        self._texts = source.texts()
        self._buffer = ""
        self._place = 0

    def mark(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._buffer, self._place)
            self._place = space.end() if space else self._place
            if self._place < len(self._buffer):
                return self._buffer[self._place]
            if not self._read_on():
                return ""

    def skip(self) -> str:
        """Go past one character, to the next that is no space."""
        self._place += 1
        return self.mark()

    def value(self, where: str) -> Any:
        """The JSON value that starts here."""
        while True:
            try:
                found, self._place = _DECODER.raw_decode(self._buffer, self._place)
                return found
            except json.JSONDecodeError as error:
                problem = f"is not valid JSON ({error.msg})"
                if not self._is_cut(error):
                    raise BadInput(f"{where}: {problem}") from None
                if error.pos >= len(self._buffer.rstrip()) or error.msg.startswith(_OPEN_STRING):
                    problem = "the file breaks off inside it"
            except (ValueError, RecursionError):
                raise BadInput(f"{where}: is not valid JSON that can be read") from None
            if len(self._buffer) - self._place > MAX_ITEM_CHARACTERS:
                raise BadInput(f"{where}: is longer than {MAX_ITEM_CHARACTERS:,} characters")
            if not self._read_on():
                raise BadInput(f"{where}: {problem}")

    def _is_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith(_OPEN_STRING) or error.pos >= len(self._buffer) - _CUT_CHARACTERS

    def _read_on(self) -> bool:
        """Read as much again as is held, so that a long object is not parsed too often."""
        held = [self._buffer[self._place :]]
        wanted, got = max(CHUNK_BYTES, len(held[0])), 0
        while got < wanted and (text := next(self._texts, None)) is not None:
            held.append(text)
            got += len(text)
        self._buffer, self._place = "".join(held), 0
        return got > 0
