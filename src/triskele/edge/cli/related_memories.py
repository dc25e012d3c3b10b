"""What a memory that is being added repeats or replaces: shown, and asked about on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.view import excerpt
from triskele.edge.shapes import shown_content
from triskele.errors import Conflict

if TYPE_CHECKING:
    from triskele.edge.cli.invocation import Invocation
    from triskele.engine.protocol import Engine
    from triskele.replies import Related

MOST = 3
_VERBS: Mapping[str, str] = {"duplicate": "repeats", "update": "extends", "contradiction": "may replace"}
_REPLACE, _KEEP, _CANCEL = "replace", "keep", "cancel"
_SHOWN_CHARACTERS = 80


def ask(engine: Engine, content: str, project: str | None) -> tuple[str | None, Sequence[Related]]:
    """The memory that a new one is to replace, as the user says, and what it is related to; None keeps both.

    Raise if nothing is to be added.
    """
    related = engine.related(content=content, project=project)[:MOST]
    sure = [each for each in related if each.is_sure]
    if not sure:
        return None, related
    best = sure[0]
    click.echo(line(best, engine.shorten([best.memory.id])), err=True)
    answers = click.Choice([_REPLACE, _KEEP, _CANCEL])
    answer = click.prompt("replace it, keep both, or cancel", type=answers, default=_KEEP, err=True)
    if answer == _CANCEL:
        raise Conflict("nothing was added")
    return best.memory.id if answer == _REPLACE else None, related


def can_ask(invocation: Invocation) -> bool:
    """Whether a person sits at the other end."""
    return not invocation.as_json and sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()


def line(related: Related, short: Mapping[str, str]) -> str:
    """One related memory as a line."""
    text = excerpt(related.memory.content, _SHOWN_CHARACTERS)
    return f"It {_VERBS[related.relation]} {short[related.memory.id]}: {text}"


def lines(related: Sequence[Related], engine: Engine, id: str) -> list[str]:
    """Related memories, and how the new one takes the place of the first."""
    if not related:
        return []
    older = [each.memory.id for each in related]
    short = engine.shorten([id, *older])
    return [
        *(line(each, short) for each in related),
        f"To replace it: triskele link {short[id]} supersedes {short[older[0]]}",
    ]


def shape(related: Sequence[Related]) -> list[dict[str, Any]]:
    """Related memories as JSON."""
    return [
        {
            "id": each.memory.id,
            "relation": each.relation,
            "confidence": round(each.confidence, 3),
            "content": shown_content(each.memory, False),
        }
        for each in related
    ]
