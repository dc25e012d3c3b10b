"""The reply of a command: its view for a person or, with --json, one document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.http.codec import to_json
from triskele.edge.wording import mark, query_change, shown_content
from triskele.text import timestamps
from triskele.types import Answer, Hit, LegEvidence, Link, Memory, MemoryView, Outcome, Period, UseCount, WhyNot

if TYPE_CHECKING:
    from triskele.edge.cli.invocation import Invocation
    from triskele.edge.cli.view import Renderable
    from triskele.replies import Statistics

Document = dict[str, Any]
View = Callable[[], str | Iterable["Renderable"]]

_MEMORY = tuple(field.name for field in fields(Memory))
_TIMES = ("as_of", "known_at", "since", "until", "valid_from", "valid_to")
_COUNTS = tuple("memories forgotten superseded versions links journal bytes by_category by_project".split())
# Options of recall that a change of the question can name, as the command line writes them.
_FLAGS = {
    "project": "--project",
    "category": "--category",
    "tags": "--tag",
    "as_of": "--as-of",
    "known_at": "--known-at",
    "since": "--since",
    "until": "--until",
    "show_superseded": "--superseded",
    "limit": "--limit",
}


def emit(invocation: Invocation, reply: Any, view: View, *, is_list: bool = False, **more: Any) -> None:
    """Write the document of a reply, with `more` fields, or its view."""
    if invocation.as_json:
        return invocation.write_json({**shown(reply), **shown(more)})
    parts = view()
    return click.echo(parts) if isinstance(parts, str) else invocation.write(*parts, is_list=is_list)


@singledispatch
def shown(value: Any) -> Any:
    """A value as the JSON of commands."""
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: shown(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Sequence | set | frozenset) and not (isinstance(value, str) or hasattr(value, "_asdict")):
        return [shown(item) for item in value]
    return to_json(value)


@shown.register(Memory)
def _version(version: Memory) -> Any:
    return to_json(version)


@shown.register(MemoryView)
def _memory(memory: MemoryView) -> Document:
    return memory_document(memory, memory.superseded)


def memory_document(memory: Memory, is_superseded: bool = False) -> Document:
    """A memory with its state; prefixes mark superseded memories and secrets."""
    document = {name: to_json(getattr(memory, name)) for name in _MEMORY}
    document |= {"owner": memory.shared_by or memory.owner, "content": shown_content(memory, is_superseded)}
    return {**document, "superseded": is_superseded, "forgotten": memory.known_to is not None}


@shown.register(Link)
def _link(link: Link) -> Document:
    return {"source": link.source, "kind": link.kind.value, "target": link.target}


@shown.register(Outcome)
def _outcome(outcome: Outcome) -> Document:
    raised = {"origin": outcome.origin.value} if outcome.origin else {}
    return {"id": outcome.id, "action": outcome.action.value, "version": outcome.version, **raised}


@shown.register(Answer)
def _answer(answer: Answer) -> Document:
    document = {field.name: shown(getattr(answer, field.name)) for field in fields(answer)}
    resolutions = [memory_document(memory) for memory in answer.resolutions]
    return {**document, "resolutions": resolutions, "took_ms": round(answer.took_ms, 3)}


@shown.register(Hit)
def _hit(hit: Hit) -> Document:
    """A hit; terms in tags or keywords start at -1."""
    memory = memory_document(hit.memory, hit.superseded)
    # A recall may return an older version, which is not a forgotten memory.
    del memory["forgotten"]
    legs = {name: _leg(leg, hit) for name, leg in hit.legs.items()}
    ranked = {"score": hit.score, "reason": hit.reason, "evidence": {**legs, "prior": hit.prior}}
    return {**memory, **ranked, "stands_for": hit.stands_for, "links": shown(hit.links)}


def _leg(leg: LegEvidence, hit: Hit) -> Document:
    shift = len(mark(hit.memory, hit.superseded))
    document: Document = to_json(leg)
    for term in document["terms"]:
        # Terms of a superseded memory are in its own text, not in its successor's.
        is_elsewhere = hit.stands_for is not None or term["start"] < 0
        term |= {side: -1 if is_elsewhere else term[side] + shift for side in ("start", "end")}
    if leg.path is None:
        del document["path"]
    return document


@shown.register(Period)
def _period(period: Period) -> Document:
    """A period with its words and its days, the last one included."""
    # Imported here, as below: few answers name a time.
    from triskele.text import periods

    return {**to_json(period), "days": periods.describe(period)}


@shown.register(WhyNot)
def _why_not(explained: WhyNot) -> Document:
    change = change_in_options(explained)
    return {"verdict": explained.verdict, "stages": to_json(explained.stages), "smallest_change": change}


def change_in_options(explained: WhyNot) -> str | None:
    """The smallest change that finds the memory, as command line options."""
    return None if explained.smallest_change is None else query_change(explained.smallest_change, _FLAGS)


@shown.register(UseCount)
def _use_count(count: UseCount) -> Document:
    return {"recalled": count.recalled, "injected": count.injected, "tokens": count.tokens, "last": to_json(count.last)}


def statistics_document(counts: Statistics) -> Document:
    """The counts of a whole memory."""
    most_used = [{"id": count.id, **_use_count(count)} for count in counts.most_used]
    return {
        **{name: to_json(getattr(counts, name)) for name in _COUNTS},
        "waiting": counts.jobs.embed,
        "jobs": to_json(counts.jobs),
        "graph": to_json(counts.names),
        "adopted": to_json(counts.adopted),
        "uses": {"memories": most_used, "days": to_json(counts.days)},
        "agreement": to_json(counts.agreement),
        "curation": {"proposals": counts.proposals, "today": to_json(counts.today)},
    }


def times(options: Mapping[str, Any]) -> Document:
    """How the time options were understood: words, moment and day."""
    return {name: _time(name, options[name]) for name in _TIMES if isinstance(options.get(name), str)}


def _time(name: str, words: str) -> Document:
    from triskele.text import periods

    if name != "until":
        moment = periods.parse_start(words, timestamps.now())
        return {"words": words, "moment": to_json(moment), "day": periods.say_moment(moment)}
    moment = periods.parse_end(words, timestamps.now())
    day = periods.describe(Period(None, moment)).removeprefix("until ")
    return {"words": words, "moment": to_json(moment), "day": day}
