"""The smallest change of a why-not, spelled with the names of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triskele.base import timestamps
from triskele.recall.why_not import SmallestChange, WhyNot

Option = Callable[[str], str]

_SPELLED: Mapping[str, Callable[[Option, Any], str]] = {
    "project": lambda option, value: f"{option('project')} {value or repr('')}",
    "category": lambda option, _: f"leave out {option('category')}",
    "tags": lambda option, _: f"leave out {option('tag')}",
    "as_of": lambda option, value: f"{option('as_of')} {timestamps.to_text(value)}",
    "known_at": lambda option, value: (
        f"{option('known_at')} {timestamps.to_text(value)}" if value else f"leave out {option('known_at')}"
    ),
    "show_superseded": lambda option, _: option("superseded"),
    "limit": lambda option, value: f"{option('limit')} {value}",
}


def flag(name: str) -> str:
    """An option of the command line."""
    return "--" + name.replace("_", "-")


def spelled(change: SmallestChange | None, option: Option = flag) -> str | None:
    """A change in words, with options as the reader calls them; None where no change helps."""
    if change is None:
        return None
    words = [f"ask also for “{change.words}”"] if change.words else []
    options = [_SPELLED[name](option, value) for name, value in change.options.items() if name in _SPELLED]
    return " ".join([*words, *options])


def why_not(value: WhyNot) -> dict[str, Any]:
    """A why-not as JSON of the command line."""
    stages = [{"name": stage.name, "passed": stage.passed, "detail": stage.detail} for stage in value.stages]
    return {"verdict": value.verdict, "stages": stages, "smallest_change": spelled(value.smallest_change)}
