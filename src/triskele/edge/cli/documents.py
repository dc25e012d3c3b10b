"""The JSON documents of replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from triskele.edge.http.codec import to_json
from triskele.edge.wording import mark, query_change, shown_content
from triskele.text import timestamps
from triskele.types import Answer, Hit, LegEvidence, Link, Memory, MemoryView, Outcome, Period, UseCount, WhyNot

if TYPE_CHECKING:
    from triskele.replies import Statistics
    from triskele.types import JournalEntry

Document = dict[str, Any]

_MEMORY = tuple(field.name for field in fields(Memory))
_TIMES = ("as_of", "known_at", "since", "until", "valid_from", "valid_to")
# Options of recall that a change of the question can name, as the command line writes them.
_FLAGS = {name: f"--{name.replace('_', '-')}" for name in "project category as_of known_at since until limit".split()}
_FLAGS |= {"tags": "--tag", "show_superseded": "--superseded"}
# Replies whose documents have some of the fields.
_FIELDS = {Link: ("source", "kind", "target"), UseCount: ("recalled", "injected", "tokens", "last")}


def picked(value: Any, names: str) -> Document:
    """The fields of a reply that its document has."""
    return {name: shown(getattr(value, name)) for name in names.split()}


@singledispatch
def shown(value: Any) -> Any:
    """A value as the JSON of commands."""
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = _FIELDS.get(type(value)) or [field.name for field in fields(value) if field.init]
        return {name: shown(getattr(value, name)) for name in names}
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


def entry_document(entry: JournalEntry, memory: Memory | None) -> Document:
    """A journal entry with the text and the project of a memory."""
    text = {"content": memory and shown_content(memory, False), "project": memory and memory.project}
    return {**shown(entry), **text}


@shown.register(Outcome)
def _outcome(outcome: Outcome) -> Document:
    return picked(outcome, "id action version origin" if outcome.origin else "id action version")


@shown.register(Answer)
def _answer(answer: Answer) -> Document:
    document = {field.name: shown(getattr(answer, field.name)) for field in fields(answer)}
    resolutions = [memory_document(memory) for memory in answer.resolutions]
    return {**document, "fit": answer.fit, "resolutions": resolutions, "took_ms": round(answer.took_ms, 3)}


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
    change = explained.smallest_change
    return {**picked(explained, "verdict stages"), "smallest_change": change and query_change(change, _FLAGS)}


def statistics_document(counts: Statistics) -> Document:
    """The counts of a whole memory."""
    most_used = [picked(count, "id recalled injected tokens last") for count in counts.most_used]
    return {
        **picked(counts, "memories forgotten superseded versions links journal bytes by_category by_project"),
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
    understood = {}
    for name in _TIMES:
        words = options.get(name)
        if isinstance(words, str):
            from triskele.text import periods

            moment = (periods.parse_end if name == "until" else periods.parse_start)(words, timestamps.now())
            last_day = periods.describe(Period(None, moment)).removeprefix("until ")
            day = last_day if name == "until" else periods.say_moment(moment)
            understood[name] = {"words": words, "moment": to_json(moment), "day": day}
    return understood
