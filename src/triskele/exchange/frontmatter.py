"""The flat `key: value` head of a Markdown file: what people and note programs write there, not all of YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

Value = str | list[str]

_FENCE = "---"
_MAX_LINES = 500
_KEY = re.compile(r"[A-Za-z_][\w -]*$")
_DASH = re.compile(r"\s*-\s+(.*)$")
_LIST_ITEM = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^,\s][^,]*')
_BARE = re.compile(r"[A-Za-z0-9][\w./-]*( [\w./-]+)*$", re.ASCII)
_FOLDED = {"|": "\n", "|-": "\n", ">": " ", ">-": " "}
_EMPTY = ("null", "~", "")


def parse(text: str) -> tuple[dict[str, Value], str, int]:
    """The values of the head, the body, and the number of the body's first line; no head is an empty one."""
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
    """The line that closes the head; 0 when there is none."""
    if lines[0].rstrip() != _FENCE:
        return 0
    closing = (number for number, line in enumerate(lines[1:_MAX_LINES], 1) if line.rstrip() in (_FENCE, "..."))
    return next(closing, 0)


def _values(lines: list[str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    key, fold = "", ""
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indented = line[0] in " \t"
        if indented and fold:
            values[key] = fold.join(filter(None, [str(values[key]), line.strip()]))
        elif key and values[key] in ("", []) and (item := _DASH.match(line)):
            values[key] = [_scalar(item[1])]
        elif key and isinstance(values[key], list) and (item := _DASH.match(line)):
            values[key] = [*values[key], _scalar(item[1])]
        elif not indented and (pair := _pair(line)):
            key, raw = pair
            fold = _FOLDED.get(raw, "")
            values[key] = "" if fold else _value(raw)
    return values


def _pair(line: str) -> tuple[str, str] | None:
    key, colon, raw = line.partition(":")
    key = key.strip()
    if not colon or (raw and not raw[0].isspace()) or not _KEY.match(key):
        return None
    return key.lower().replace("-", "_").replace(" ", "_"), raw.strip()


def _value(raw: str) -> Value:
    if not raw.startswith("[") or "]" not in raw:
        return _scalar(raw)
    inner = raw[1 : raw.rindex("]")]
    return [item for item in (_scalar(match.strip()) for match in _LIST_ITEM.findall(inner)) if item]


def _scalar(raw: str) -> str:
    if raw.startswith('"'):
        try:
            value, _ = json.JSONDecoder().raw_decode(raw)
            return str(value)
        except ValueError:
            return raw.strip('"')
    if len(raw) > 1 and raw.startswith("'") and raw.endswith("'"):
        return raw[1:-1].replace("''", "'")
    bare = raw.split(" #", 1)[0].strip()
    return "" if bare.lower() in _EMPTY else bare


def _written(value: str | float | Sequence[str]) -> str:
    if isinstance(value, str):
        return value if _BARE.match(value) and value.lower() not in _EMPTY else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float | int):
        return repr(value)
    return "[" + ", ".join(_written(item) for item in value) + "]"
