"""What a memory that is being added repeats or replaces: shown, and asked about on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from triskele.base.deadlines import within
from triskele.curation.compare import Verdict
from triskele.curation.curator import Curator
from triskele.curation.decide import NearMemory
from triskele.curation.decide import related as decided
from triskele.errors import Conflict
from triskele.serving import shapes
from triskele.serving.cli.render import one_line
from triskele.types import is_secret

if TYPE_CHECKING:
    from triskele.curation.decide import PairDecision
    from triskele.engine import Engine
    from triskele.serving.cli.invocation import Invocation
    from triskele.types import Memory

_MOST = 3
RELATIONS = {Verdict.NOOP: "duplicate", Verdict.UPDATE: "update", Verdict.SUPERSEDE: "contradiction"}
_VERBS = {Verdict.NOOP: "repeats", Verdict.UPDATE: "extends", Verdict.SUPERSEDE: "may replace"}
_REPLACE, _KEEP, _CANCEL = "replace", "keep", "cancel"
_SHOWN_CHARACTERS = 80
# The longest time that `add` waits for recall to find related memories.
DEADLINE_S = 0.15


class OnlyClientAsks(Conflict):
    """The resident process found memories to ask the user about; `ids` names them."""

    def __init__(self, ids: Sequence[str]) -> None:
        super().__init__("only the client can ask")
        self.ids = tuple(ids)


def related(invocation: Invocation, engine: Engine, memory: Memory, *, is_stored: bool = True) -> list[PairDecision]:
    """What a memory repeats, extends or contradicts: by recall in the resident process, otherwise by words only.

    If recall takes longer than the deadline, words are used too. A server uses recall.
    """
    if invocation.remote is not None:
        # A secret does not travel before it is stored.
        is_told = is_stored or not is_secret(memory)
        return invocation.remote.related(memory, is_stored=is_stored)[:_MOST] if is_told else []
    if not engine.settings.curation.propose:
        return []
    curator = Curator(engine)
    if invocation.is_resident:
        try:
            return within(DEADLINE_S, lambda: curator.hints(memory))[:_MOST]
        except TimeoutError:
            return curator.word_hints(memory)[:_MOST]
    named = engine.store.memories(invocation.related) if invocation.related else {}
    found = decided(memory, [NearMemory(each) for each in named.values()])
    return (found or curator.word_hints(memory))[:_MOST]


def ask(invocation: Invocation, engine: Engine, memory: Memory) -> tuple[str | None, list[PairDecision]]:
    """The memory that a new one is to replace, as the user says, and what it is related to; None keeps both.

    Raise if nothing is to be added.

    The resident process cannot ask: the client asks about the memories that the resident process found.
    """
    everything = related(invocation, engine, memory, is_stored=False)
    found = [each for each in everything if each.is_sure]
    if not found:
        return None, everything
    if invocation.is_resident:
        raise OnlyClientAsks([each.old.id for each in found if each.old is not None])
    best = found[0]
    assert best.old is not None
    click.echo(line(best, engine.store.shorten([best.old.id])), err=True)
    answers = click.Choice([_REPLACE, _KEEP, _CANCEL])
    answer = click.prompt("replace it, keep both, or cancel", type=answers, default=_KEEP, err=True)
    if answer == _CANCEL:
        raise Conflict("nothing was added")
    return best.old.id if answer == _REPLACE else None, everything


def can_ask(invocation: Invocation) -> bool:
    """Whether a person sits at the other end."""
    if invocation.as_json:
        return False
    return invocation.has_terminal() and (invocation.is_resident or (sys.stdin is not None and sys.stdin.isatty()))


def line(decision: PairDecision, short: dict[str, str]) -> str:
    """One related memory as a line."""
    assert decision.old is not None
    said = one_line(decision.old.content)
    said = said if len(said) <= _SHOWN_CHARACTERS else f"{said[: _SHOWN_CHARACTERS - 1]}…"
    return f"It {_VERBS[decision.verdict]} {short[decision.old.id]}: {said}"


def lines(decisions: Sequence[PairDecision], engine: Engine, id: str) -> list[str]:
    """Related memories, and how the new one takes the place of the first."""
    olds = [each.old.id for each in decisions if each.old is not None]
    if not olds:
        return []
    short = engine.store.shorten([id, *olds])
    said = [line(each, short) for each in decisions]
    return [*said, f"To replace it: triskele link {short[id]} supersedes {short[olds[0]]}"]


def shape(decisions: Sequence[PairDecision]) -> list[dict[str, Any]]:
    """Related memories as JSON."""
    return [
        {
            "id": each.old.id,
            "relation": RELATIONS[each.verdict],
            "confidence": round(each.confidence, 3),
            "content": shapes.shown_content(each.old, False),
        }
        for each in decisions
        if each.old is not None
    ]
