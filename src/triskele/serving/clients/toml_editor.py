"""A table of our own in the text of a TOML document; comments and tables of others stay as they are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from triskele.errors import BadInput

MARK = "# Written by `triskele install`; `triskele uninstall` takes it out again."

_HEADER = re.compile(r"[ \t]*\[{1,2}(?P<name>[^\]]*)")


def put(text: str, path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The document with this table at its end, in the place of an earlier one of ours."""
    before = tomllib.loads(text)
    if _at(before, path) == entry:
        return text
    rest = drop(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = newline if rest.endswith("\n") else newline * 2
    changed = f"{rest}{gap if rest.strip() else ''}{newline.join([MARK, *_lines(path, entry)])}{newline}"
    expected = _changed(before, path, entry)
    return _verified(changed, expected, path)


def drop(text: str, path: Sequence[str]) -> str:
    """The document without this table and the tables inside it."""
    before = tomllib.loads(text)
    if _at(before, path) is None:
        return text
    kept, ours, waiting = list[str](), False, list[str]()
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            was, ours = ours, _is_inside(header["name"], path)
            if ours and not was:
                _forget_mark(kept)
        if not ours:
            kept += [*waiting, line]
            waiting.clear()
        elif header or not _is_quiet(line):
            waiting.clear()
        else:
            # Blank lines and comments after our last value belong to what follows.
            waiting.append(line)
    return _verified("".join([*kept, *waiting]), _changed(before, path, None), path)


def shown(path: Sequence[str], entry: Mapping[str, Any]) -> str:
    """The table as text."""
    return "\n".join(_lines(path, entry))


def _lines(path: Sequence[str], entry: Mapping[str, Any]) -> list[str]:
    """A table as text: plain values first, then the tables inside it."""
    inner = {key: value for key, value in entry.items() if isinstance(value, Mapping)}
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_value(entry[key])}" for key in entry if key not in inner)]
    for key, table in inner.items():
        lines += ["", *_lines([*path, key], table)]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    # What JSON escapes, TOML's basic strings escape alike; it wants DEL escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_inside(name: str, path: Sequence[str]) -> bool:
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    return parts[: len(path)] == list(path)


def _is_quiet(line: str) -> bool:
    said = line.strip()
    return not said or said.startswith("#")


def _forget_mark(kept: list[str]) -> None:
    """Take back our own comment, and the blank line that we put before it."""
    if kept and kept[-1].strip() == MARK:
        kept.pop()
        if len(kept) > 1 and not kept[-1].strip():
            kept.pop()


def _at(document: Any, path: Sequence[str]) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _changed(document: dict[str, Any], path: Sequence[str], entry: Mapping[str, Any] | None) -> dict[str, Any]:
    """The document's values with another entry, or none, at the path."""
    key, rest = path[0], path[1:]
    others = {k: v for k, v in document.items() if k != key}
    if not rest:
        return others if entry is None else {**others, key: entry}
    inner = document.get(key, {})
    changed = _changed(inner if isinstance(inner, dict) else {}, rest, entry)
    return {**others, key: changed} if changed else others


def _verified(text: str, expected: dict[str, Any], path: Sequence[str]) -> str:
    """The text, if it says what it is meant to say."""
    try:
        if _without_empty(tomllib.loads(text), path) == _without_empty(expected, path):
            return text
    except tomllib.TOMLDecodeError:
        pass
    raise BadInput(f"[{'.'.join(path)}] is written there in a form of its own: change it by hand")


def _without_empty(document: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The values without an empty table of our table's parent, which a file may or may not spell out."""
    return {key: value for key, value in document.items() if key != path[0] or value}
