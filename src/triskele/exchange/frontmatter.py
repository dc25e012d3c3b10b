"""Read and write the YAML head of a Markdown file: texts and lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

Value = str | list[str]

_FENCE = "---"
_MAX_LINES = 500
_MAX_CHARACTERS = 200_000
_KEY = re.compile(r"[A-Za-z_][\w -]*$")
_BARE = re.compile(r"[A-Za-z0-9][\w./-]*( [\w./-]+)*$", re.ASCII)
# `tags: #bread`, as note programs write it, is a comment in YAML.
_HASHTAG = re.compile(r"^([A-Za-z_][\w -]*:[ \t]+)(#\w.*)$", re.MULTILINE)
_NULL = re.compile(r"(?:~|null|Null|NULL|)$")
_NULL_TAG = "tag:yaml.org,2002:null"
_UNBOUNDED = 10**9


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Reads every scalar as text, and null as the empty text."""


_Loader.add_implicit_resolver(_NULL_TAG, _NULL, ["~", "n", "N", ""])
_Loader.add_constructor(_NULL_TAG, lambda *_: "")


def parse(text: str) -> tuple[dict[str, Value], str, int]:
    """The values of the head, the body, and its first line."""
    lines = text.split("\n")
    end = _end(lines)
    values = _values(lines[1:end]) if end else {}
    if not values:
        return {}, text, 1
    return values, "\n".join(lines[end + 1 :]), end + 2


def write(values: Mapping[str, str | float | Sequence[str]]) -> str:
    """A head that `parse` reads back exactly."""
    return "\n".join([_FENCE, *(f"{name}: {_written(value)}" for name, value in values.items()), _FENCE]) + "\n"


def _end(lines: list[str]) -> int:
    """The line that closes the head; 0 if there is no head."""
    if lines[0].rstrip() != _FENCE:
        return 0
    closing = (number for number, line in enumerate(lines[1:_MAX_LINES], 1) if line.rstrip() in (_FENCE, "..."))
    return next(closing, 0)


def _values(lines: list[str]) -> dict[str, Value]:
    head = "\n".join(lines)
    if len(head) > _MAX_CHARACTERS:
        return {}
    document = _loaded(head)
    if document is None:
        # Not valid as a whole: take the lines that are.
        document = {}
        for line in lines:
            document |= _loaded(line) or _pair(line)
    pairs = ((_name(key), value) for key, value in document.items() if isinstance(key, str) and _KEY.match(key))
    return {name: _value(value) for name, value in pairs}


def _loaded(text: str) -> dict[Any, Any] | None:
    """The mapping of a YAML text; None if invalid."""
    try:
        document = yaml.load(_HASHTAG.sub(lambda found: found[1] + _quoted(found[2].rstrip()), text), _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        return None
    return document if isinstance(document, dict) else {}


def _pair(line: str) -> dict[str, str]:
    key, colon, value = line.partition(":")
    is_pair = colon and not key[:1].isspace() and (not value or value[0].isspace())
    return {key.strip(): value.strip().strip("\"'")} if is_pair else {}


def _name(key: str) -> str:
    return key.strip().lower().replace("-", "_").replace(" ", "_")


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return [item.rstrip("\n") for item in value if isinstance(item, str) and item]
    return value.rstrip("\n") if isinstance(value, str) else ""


def _written(value: str | float | Sequence[str]) -> str:
    if isinstance(value, str):
        return value if _BARE.match(value) and not _NULL.match(value) else _quoted(value)
    if isinstance(value, float | int):
        return repr(value)
    return "[" + ", ".join(_written(item) for item in value) + "]"


def _quoted(text: str) -> str:
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=_UNBOUNDED)
    return quoted.rstrip("\n")
