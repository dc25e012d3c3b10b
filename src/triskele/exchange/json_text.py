"""Parse untrusted JSON with strict numbers and bounded depth."""

from __future__ import annotations

import json
import re
from typing import Any

from triskele.errors import BadInput

MAX_INTEGER = 2**63 - 1
_SHORT = 5
_PLAIN = re.compile(r"[A-Za-z_\- ]{1,40}")


def parse(text: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise BadInput("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"is not valid JSON ({error.msg}, line {error.lineno} column {error.colno})") from error
    except ValueError as error:
        raise BadInput(f"is not valid JSON ({error})") from error


def first_object(head: str) -> dict[str, Any]:
    """The object on a first line; empty without one."""
    line = head.lstrip().split("\n", 1)[0]
    try:
        first = parse(line) if line.startswith("{") else {}
    except BadInput:
        return {}
    return dict(first)


def parse_object(raw: bytes, text: str) -> dict[str, Any]:
    """The object on one line."""
    try:
        value = parse(text)
    except BadInput:
        if not raw.endswith(b"\n"):
            raise BadInput("is cut off: the file is incomplete") from None
        raise
    if not isinstance(value, dict):
        raise BadInput("is not a JSON object")
    return value


def string(value: Any, what: str) -> str:
    """A text value."""
    if not isinstance(value, str):
        raise BadInput(f"{what} must be text, not {_kind(value)}")
    return value


def number(value: Any, what: str) -> float:
    """A number, whole or not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_INTEGER:
        raise BadInput(f"{what} must be a number, not {_kind(value)}")
    # Adding zero turns a negative zero, which databases do not keep, into a plain one.
    return float(value) + 0.0


def whole(value: Any, what: str) -> int:
    """A whole number that a store can hold."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INTEGER:
        raise BadInput(f"{what} must be a whole number, not {_kind(value)}")
    return value


def strings(value: Any, what: str) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise BadInput(f"{what} must be a list, not {_kind(value)}")
    return tuple(string(item, f"each of {what}") for item in value)


def shown(name: str) -> str:
    """A value from a file for a message, if it is short or a plain word; anything else may be a secret."""
    return repr(name) if len(name) <= _SHORT or _PLAIN.fullmatch(name) else "(not shown: it may be a secret)"


def _kind(value: Any) -> str:
    """The type of a value; the value itself may be a secret."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds: dict[type, str] = {str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
