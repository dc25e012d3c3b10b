"""What a memory that is being added repeats or replaces: shown, and asked about on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from triskele.edge.cli.view import excerpt
from triskele.edge.shapes import shown_content
from triskele.errors import Conflict
from triskele.replies import Related, RelationName

if TYPE_CHECKING:
    from triskele.edge.cli.invocation import Invocation
    from triskele.engine.protocol import Engine

MOST = 3
_VERBS: Mapping[str, str] = {"duplicate": "repeats", "update": "extends", "contradiction": "may replace"}
_REPLACE, _KEEP, _CANCEL = "replace", "keep", "cancel"
_SHOWN_CHARACTERS = 80


class OnlyClientAsks(Conflict):
    """The resident process found memories to ask the user about; `words` name them for the client."""

    def __init__(self, related: Sequence[Related]) -> None:
        super().__init__("only the client can ask")
        self.words = tuple(f"{each.memory.id}:{each.relation}:{each.confidence:.4f}" for each in related)


def ask(
    invocation: Invocation, engine: Engine, content: str, project: str | None
) -> tuple[str | None, Sequence[Related]]:
    """The memory that a new one is to replace, as the user says, and what it is related to; None keeps both.

    Raise if nothing is to be added. The resident process cannot ask: the client asks about what it found.
    """
    related = _named(engine, invocation.related) or engine.related(content=content, project=project)[:MOST]
    sure = [each for each in related if each.is_sure]
    if not sure:
        return None, related
    if invocation.is_resident:
        raise OnlyClientAsks(sure)
    best = sure[0]
    click.echo(line(best, engine.shorten([best.memory.id])), err=True)
    answers = click.Choice([_REPLACE, _KEEP, _CANCEL])
    answer = click.prompt("replace it, keep both, or cancel", type=answers, default=_KEEP, err=True)
    if answer == _CANCEL:
        raise Conflict("nothing was added")
    return best.memory.id if answer == _REPLACE else None, related


def _named(engine: Engine, words: Sequence[str]) -> list[Related]:
    """What the resident process found; a word of another form, or of a memory that is gone, is left out."""
    found = [word.split(":") for word in words]
    parts = [each for each in found if len(each) == 3 and each[1] in get_args(RelationName)]
    memories = engine.lookup([id for id, _, _ in parts]) if parts else {}
    return [
        Related(memories[id], relation, float(confidence))  # type: ignore[arg-type]
        for id, relation, confidence in parts
        if id in memories
    ]


def can_ask(invocation: Invocation) -> bool:
    """Whether a person sits at the other end."""
    if invocation.as_json:
        return False
    return invocation.has_terminal() and (invocation.is_resident or (sys.stdin is not None and sys.stdin.isatty()))


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
