"""The JSON of commands: what it adds to the JSON of values, such as prefixes, spans, days and times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from triskele.edge.http.codec import to_json
from triskele.text import timestamps
from triskele.types import Answer, Hit, JournalEntry, LegEvidence, Link, Memory, Outcome, Period, is_secret

if TYPE_CHECKING:
    from triskele.replies import MemoryView, Share, Statistics, UseCount
    from triskele.types import SmallestChange, WhyNot

SUPERSEDED_PREFIX = "[SUPERSEDED] "
SECRET_PREFIX = "[SECRET] "
# Recall options as the command line names them.
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

_COUNTS = (
    "memories",
    "forgotten",
    "superseded",
    "versions",
    "links",
    "journal",
    "bytes",
    "by_category",
    "by_project",
)
_TIMES = ("as_of", "known_at", "since", "until", "valid_from", "valid_to")

_MEMORY = tuple(each.name for each in fields(Memory))

Shape = dict[str, Any]
# Versions of memories by their id and number.
Versions = Mapping[tuple[str, int], Memory]


def numbered(versions: Iterable[Memory]) -> Versions:
    """Versions by their id and number."""
    return {(memory.id, memory.version): memory for memory in versions}


def memory(value: Memory | MemoryView, *, superseded: bool | None = None) -> Shape:
    """One memory with its state; the text of a superseded one says so."""
    is_superseded = getattr(value, "superseded", False) if superseded is None else superseded
    shape = version(value) | {"content": shown_content(value, is_superseded)}
    return {**shape, "superseded": is_superseded, "forgotten": value.known_to is not None}


def version(value: Memory) -> Shape:
    """One version of a memory; `owner` is whose memory it is, `shared_by` the same where that is not the reader."""
    shape = {name: to_json(getattr(value, name)) for name in _MEMORY}
    return shape | {"owner": value.shared_by or value.owner}


def shown_content(value: Memory, superseded: bool) -> str:
    """The text with its prefixes; of a secret only the title."""
    return mark(value, superseded) + value.content


def mark(value: Memory, superseded: bool) -> str:
    """The prefix of a superseded memory, and of a secret."""
    return (SUPERSEDED_PREFIX if superseded else "") + (SECRET_PREFIX if is_secret(value) else "")


def link(value: Link) -> Shape:
    """A connection between two memories."""
    return {"source": value.source, "kind": value.kind.value, "target": value.target}


def described(share: Share) -> str:
    """A share in one line."""
    return f"{share.subject} {share.target} with {share.grantee_kind} {share.grantee} ({share.access})"


def outcome(value: Outcome) -> Shape:
    """What became of one change."""
    return {"id": value.id, "action": str(value.action), "version": value.version}


def use_count(value: UseCount | None) -> Shape:
    """How often a memory was recalled and injected."""
    if value is None:
        return {"recalled": 0, "injected": 0, "tokens": 0, "last": None}
    shape: Shape = to_json(value)
    del shape["id"]
    return shape


def statistics(value: Statistics) -> Shape:
    """The counts of a store, with those of its queues and of its usage."""
    counts = {name: to_json(getattr(value, name)) for name in _COUNTS}
    most_used = [{"id": count.id, **use_count(count)} for count in value.most_used]
    return {
        **counts,
        "waiting": value.jobs.embed,
        "jobs": to_json(value.jobs),
        "graph": to_json(value.names),
        "adopted": to_json(value.adopted),
        "uses": {"memories": most_used, "days": to_json(value.days)},
        "agreement": to_json(value.agreement),
        "curation": {"proposals": value.proposals, "today": to_json(value.today)},
    }


def journal_entry(value: JournalEntry) -> Shape:
    """One line of the journal."""
    shape: Shape = to_json(value)
    return shape


def hit(value: Hit) -> Shape:
    """A hit with its evidence; a term's span is its place in `content`, or -1 if it is in tags or keywords."""
    evidence: Shape = {name: _leg(leg, value) for name, leg in value.legs.items()}
    shape = memory(value.memory, superseded=value.superseded)
    # A recall may return an older version, which is not a forgotten memory.
    del shape["forgotten"]
    return {
        "id": shape.pop("id"),
        "content": shape.pop("content"),
        "score": value.score,
        "reason": value.reason,
        "evidence": {**evidence, "prior": value.prior},
        **shape,
        "stands_for": value.stands_for,
        "links": [link(each) for each in value.links],
    }


def answer(value: Answer) -> Shape:
    """The whole answer of a recall."""
    return {
        "hits": [hit(each) for each in value.hits],
        "resolutions": [memory(each) for each in value.resolutions],
        "confidence": value.confidence,
        "project": value.project,
        "took_ms": round(value.took_ms, 3),
        "waiting": value.waiting,
        "missing": list(value.missing),
        "agreement": to_json(value.agreement),
        "wordings": list(value.wordings),
        "period": period(value.period),
        "within": period(value.within),
    }


def period(value: Period | None) -> Shape | None:
    """A period with its words and its days, the last one included; `end` is the moment after it."""
    if value is None:
        return None
    # Imported here: few answers name a time.
    from triskele.text import periods

    return {**to_json(value), "days": periods.describe(value)}


def times(given: Mapping[str, Any]) -> Shape:
    """How the time options among these were understood: words, moment and day; the day of `until` is included."""
    named = {name: given[name] for name in _TIMES if isinstance(given.get(name), str)}
    if not named:
        return {}
    from triskele.text import periods

    read: Shape = {}
    for name, words in named.items():
        is_end = name == "until"
        moment = (periods.parse_end if is_end else periods.parse_start)(words, timestamps.now())
        day = (
            periods.say_moment(moment) if not is_end else periods.describe(Period(None, moment)).removeprefix("until ")
        )
        read[name] = {"words": words, "moment": to_json(moment), "day": day}
    return read


def why_not(value: WhyNot) -> Shape:
    """Why a memory was not found; the change that finds it as options of the command line."""
    change = value.smallest_change
    said = None if change is None else query_change(change, _FLAGS)
    return {"verdict": value.verdict, "stages": [to_json(stage) for stage in value.stages], "smallest_change": said}


def query_change(change: SmallestChange, names: Mapping[str, str]) -> str:
    """A change of a query in words, with the names that the reader's options have."""
    parts = [f"ask also for “{change.words}”"] if change.words else []
    for option, value in change.options.items():
        if option not in names:
            continue
        if value is None or value == ():
            parts.append(f"leave out {names[option]}")
        else:
            parts.append(names[option] if value is True else f"{names[option]} {_option_value(value)}")
    return " ".join(parts)


def _option_value(value: Any) -> str:
    return timestamps.to_text(value) if isinstance(value, datetime) else str(value) or "''"


def _leg(leg: LegEvidence, found: Hit) -> Shape:
    shift = len(mark(found.memory, found.superseded))
    # Terms of a superseded memory are in its own text, not in its successor's.
    is_elsewhere = found.stands_for is not None
    terms: Sequence[Shape] = [
        {
            "text": term.text,
            "start": -1 if is_elsewhere or term.start < 0 else term.start + shift,
            "end": -1 if is_elsewhere or term.start < 0 else term.end + shift,
        }
        for term in leg.terms
    ]
    shape = {**to_json(leg), "terms": terms}
    if leg.path is None:
        del shape["path"]
    return shape
