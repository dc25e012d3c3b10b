"""A language model's reply about numbered texts: strict JSON, one valid row for every number, with one repair try.

A reply that stays invalid raises, and nothing is taken from it: it never reads as "nothing was found".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from triskele.errors import ModelUnavailable
from triskele.models.llm import Llm
from triskele.privacy.clearance import Cleared

AGAIN = "\nYour last answer was not valid. Answer with the JSON object alone, with every number once.\n"
"""What is added to a prompt for the repair try."""
_FENCE = re.compile(r"\A```(?:json)?\s*(.*?)\s*```\Z", re.DOTALL)

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Numbered:
    """The shape of a reply: `{LISTED: [{NUMBERED: 1, …}, …]}` with every number up to `count` once."""

    listed: str
    numbered: str
    count: int


def ask(
    llm: Llm,
    parts: Sequence[str | Cleared],
    shape: Numbered,
    most_tokens: int,
    read: Callable[[dict[str, Any]], _Made | None],
) -> list[_Made]:
    """One value for every number, after at most one retry; raise ModelUnavailable if there is no valid reply."""
    for asking in (parts, [*parts, AGAIN]):
        made = _checked(llm.complete(asking, most_tokens=most_tokens), shape, read)
        if made is not None:
            return made
    raise ModelUnavailable(f"{llm.name} gave no valid {shape.listed}; its answer is not used")


def _checked(reply: str, shape: Numbered, read: Callable[[dict[str, Any]], _Made | None]) -> list[_Made] | None:
    """The values in the order of their numbers; None unless every number has exactly one that is valid."""
    fenced = _FENCE.match(reply.strip())
    try:
        value = json.loads(fenced.group(1) if fenced else reply)
    except (ValueError, RecursionError):
        return None
    rows = value.get(shape.listed) if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(rows, list) or len(rows) != shape.count:
        return None
    found: dict[int, _Made] = {}
    for row in rows:
        number = row.get(shape.numbered) if isinstance(row, dict) else None
        made = read(row) if type(number) is int and 1 <= number <= shape.count else None
        if made is None or type(number) is not int:
            return None
        found[number] = made
    return [found[number] for number in sorted(found)] if len(found) == shape.count else None
