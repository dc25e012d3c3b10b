"""Edit the text of a JSON document and keep every other byte."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from triskele.errors import BadInput

Path = Sequence[str | int]

_SPACE = re.compile(r"[ \t\r\n]*")
_DEFAULT_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Slot:
    """A member of an object or array, with positions and value."""

    key: str | int
    start: int
    value_start: int
    end: int
    value: Any


def parse(text: str) -> Any:
    """The value of a document; ValueError if it is not valid JSON."""
    value, end = _value(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise ValueError("there is text after the end")
    return value


def find(text: str, path: Path) -> Slot | None:
    """The slot at a path of keys and positions."""
    start = _skip(text, 0)
    value, end = _value(text, start)
    slot: Slot | None = Slot("", start, start, end, value)
    for key in path:
        if slot is None or not isinstance(slot.value, list if isinstance(key, int) else dict):
            return None
        # Of duplicate keys the last one counts, as in JSON parsers.
        slot = next((each for each in reversed(_slots(text, slot.value_start)) if each.key == key), None)
    return slot


def put(text: str, path: Path, value: Any) -> str:
    """The document with this value at the path; missing objects are added."""
    if (slot := find(text, path)) is not None:
        written = _written(value, text, _line_indent(text, slot.value_start))
        return text[: slot.value_start] + written + text[slot.end :]
    *parent, key = path
    if (holder := find(text, parent)) is None:
        return put(text, parent, {key: value})
    return _insert(text, holder, parent, key, value)


def append(text: str, path: Path, value: Any) -> str:
    """Append a value to the array at a path, added if missing."""
    slot = find(text, path)
    return put(text, path, [value]) if slot is None else _insert(text, slot, path, None, value)


def drop(text: str, path: Path) -> str:
    """The document without the value at the path."""
    holder = find(text, path[:-1])
    slots = _slots(text, holder.value_start) if holder else []
    at = next((n for n in range(len(slots) - 1, -1, -1) if slots[n].key == path[-1]), None)
    if holder is None or at is None:
        return text
    if len(slots) == 1:
        return text[: holder.value_start + 1] + text[holder.end - 1 :]
    if at == len(slots) - 1:
        return text[: slots[at - 1].end] + text[slots[at].end :]
    return text[: slots[at].start] + text[slots[at + 1].start :]


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _slots(text: str, at: int) -> list[Slot]:
    """The slots of the container that starts here."""
    is_object, slots = text[at] == "{", list[Slot]()
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        start, key = at, len(slots)
        if is_object:
            key, at = _value(text, at)
            at = _skip(text, _skip(text, at) + 1)
        value, end = _value(text, at)
        slots.append(Slot(key, start, at, end, value))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return slots


def _insert(text: str, holder: Slot, path: Path, key: str | int | None, value: Any) -> str:
    """Add a last slot to the container at a path in its present layout; a list takes no key."""
    kind, form = (list, "a list") if key is None else (dict, "an object")
    if not isinstance(holder.value, kind):
        raise BadInput(f"{'.'.join(map(str, path)) or 'the document'} is not {form}")
    slots = _slots(text, holder.value_start)
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if slots:
        indent = _own_line(text, slots[0].start)
        gap = ", " if indent is None else f",{_newline(text)}{indent}"
        return text[: slots[-1].end] + gap + name + _written(value, text, indent) + text[slots[-1].end :]
    opening, closing = text[holder.value_start], text[holder.end - 1]
    if _is_inline(text):
        filled = opening + name + _written(value, text, None) + closing
    else:
        outer = _line_indent(text, holder.value_start) or ""
        inner = outer + _unit(text)
        newline = _newline(text)
        filled = f"{opening}{newline}{inner}{name}{_written(value, text, inner)}{newline}{outer}{closing}"
    return text[: holder.value_start] + filled + text[holder.end :]


def _written(value: Any, text: str, indent: str | None) -> str:
    """Format a value in indented lines, or in one line without indentation."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _is_inline(text: str) -> bool:
    """Whether a document with content is in one line."""
    return "\n" not in text.strip() and bool(_slots(text, _skip(text, 0)))


def _unit(text: str) -> str:
    """The indentation of one level in this document."""
    slots = _slots(text, _skip(text, 0))
    return (slots and _own_line(text, slots[0].start)) or _DEFAULT_INDENT


def _own_line(text: str, at: int) -> str | None:
    """The blanks before this position if it starts a line."""
    before = text[text.rfind("\n", 0, at) + 1 : at]
    return before if "\n" in text[:at] and not before.strip() else None


def _line_indent(text: str, at: int) -> str | None:
    """The indentation of a line; None in a one-line document."""
    if _is_inline(text):
        return None
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]
