"""Reports of the `graph` commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from triskele.edge.cli.render import (
    ID,
    MATCH,
    OLD,
    QUIET,
    Short,
    counted,
    day,
    memories,
    note,
    one_line,
    pairs,
    place,
    size,
    table,
)
from triskele.edge.shapes import SUPERSEDED_PREFIX
from triskele.graph.lookup import MAX_HOPS
from triskele.store.derived import BY_HAND
from triskele.types import Memory

if TYPE_CHECKING:
    from triskele.engine.upkeep import RebuiltGraph
    from triskele.graph.relations import Estimate, Extracted, RelationEdge
    from triskele.replies import ConceptDetails, ConceptEdge, ConceptOverview, ConceptPath, Hop, OtherName, Regrouped

_EXCERPT_CHARACTERS = 70
_REASONS = {BY_HAND: "by hand"}


def concept(found: ConceptDetails, short: Short, superseded: Set[str], project: str | None) -> RenderableType:
    """A concept with its names, memories, neighbours and edges."""
    counted = f"  in {memories(found.memories)}, subject of {found.subjects:,} · {place(project)}"
    parts: list[RenderableType] = [_quoted(found.concept) + note(counted, style=QUIET)]
    if found.other_names:
        parts.append(note("also ", style=QUIET) + note(", ".join(map(_other_name, found.other_names))))
    for title, listed, count in (
        ("Subject of", found.subject_of, found.subjects),
        ("Mentioned in", found.mentioned_in, found.memories - found.subjects),
    ):
        if listed:
            parts += [Text(), note(title, style=MATCH), _listing(listed, short, superseded)]
        if len(listed) < count:
            parts.append(note(f"… and {count - len(listed):,} more (--limit)", style=QUIET))
    if found.neighbours:
        near = " · ".join(f"“{one_line(each.concept)}” {each.together:,}" for each in found.neighbours)
        parts += [Text(), note("Mentioned together with", style=MATCH), note(near)]
    if found.edges:
        parts += [Text(), note("Edges", style=MATCH), _edges(found.edges, short)]
    return Group(*parts)


def _quoted(name: str) -> Text:
    return note(f"“{one_line(name)}”", style=MATCH)


def _other_name(other: OtherName) -> str:
    why = "" if other.reason is None else f" ({_REASONS.get(other.reason, other.reason)})"
    return f"“{one_line(other.name)}”{why}"


def _listing(listed: Sequence[Memory], short: Short, superseded: Set[str]) -> RenderableType:
    made = _lines()
    for memory in listed:
        mark = Text(SUPERSEDED_PREFIX, style=OLD) if memory.id in superseded else Text()
        made.add_row(
            Text(short[memory.id], style=ID),
            note(day(memory.updated_at), style=QUIET),
            mark + note(one_line(memory.content)),
        )
    return made


def _edges(edges: Iterable[ConceptEdge], short: Short) -> RenderableType:
    made = _lines()
    for edge in edges:
        made.add_row(
            Text(short.get(edge.evidence, edge.evidence), style=ID),
            note(", ".join(_times(edge)), style=QUIET),
            note(f"“{one_line(edge.source)}” {edge.kind} “{one_line(edge.target)}”"),
        )
    return made


def _lines() -> Table:
    made = table("id", "when", "what", last_takes_rest=True)
    made.show_header = False
    return made


def _times(edge: ConceptEdge) -> Iterator[str]:
    until = f" until {day(edge.known_to)}" if edge.known_to else ""
    yield f"known from {day(edge.known_from)}{until}"
    if edge.valid_from or edge.valid_to:
        begins = f" from {day(edge.valid_from)}" if edge.valid_from else ""
        ends = f" until {day(edge.valid_to)}" if edge.valid_to else ""
        yield f"valid{begins}{ends}"


def path(found: ConceptPath, short: Short, superseded: Set[str], project: str | None) -> RenderableType:
    """The chain from one concept to the other, one line per memory."""
    start, end = one_line(found.start), one_line(found.end)
    if found.hops is None:
        wider = "" if project is None else " Try --all-projects."
        said = f"No chain of at most {MAX_HOPS} memories connects “{start}” and “{end}” in {place(project)}.{wider}"
        return note(said)
    if not found.hops:
        return note(f"Both are names of the concept “{start}”.")
    lines = [_quoted(start)]
    for hop in found.hops:
        lines += [_step(hop, short, superseded), _quoted(hop.concept)]
    return Group(*lines, note(f"{memories(len(found.hops))} apart · {place(project)}", style=QUIET))


def _step(hop: Hop, short: Short, superseded: Set[str]) -> Text:
    said = one_line(hop.memory.content)
    cut = said if len(said) <= _EXCERPT_CHARACTERS else said[: _EXCERPT_CHARACTERS - 1] + "…"
    mark = Text(SUPERSEDED_PREFIX, style=OLD) if hop.memory.id in superseded else Text()
    return note("  — in ", style=QUIET) + Text(short[hop.memory.id], style=ID) + Text(" ") + mark + note(f"“{cut}” —")


def overview(found: ConceptOverview) -> RenderableType:
    """Counts of the graph, and the concepts that most memories mention."""
    counts = found.names
    by_hand = f" ({counts.by_hand:,} by hand)" if counts.by_hand else ""
    rows = [
        ("names", f"{counts.names:,}"),
        ("concepts", f"{counts.concepts:,}"),
        ("mentions", f"{counts.mentions:,}"),
        ("merged", f"{counts.merges:,}{by_hand}"),
        ("read", f"{counted(counts.read, 'version')} of memories"),
        ("to read", f"{counts.waiting:,}"),
        ("connected", f"{found.connected:,} of {memories(found.memories)} ({found.connected_share:.0%})"),
        ("size", size(found.bytes)),
    ]
    parts: list[RenderableType] = [pairs((name, note(said)) for name, said in rows)]
    if found.common:
        made = table("", "", "")
        made.show_header = False
        for each in found.common:
            silent = "" if each.connects else "too frequent to connect memories"
            made.add_row(note(one_line(each.concept)), Text(f"{each.memories:,}", justify="right"), note(silent, QUIET))
        parts += [Text(), note("Mentioned most", style=MATCH), made]
    if counts.waiting:
        parts.append(waiting(counts.waiting))
    return Group(*parts)


def rebuilt(done: RebuiltGraph, took_ms: float) -> RenderableType:
    """The result of a rebuild."""
    counts = done.names
    kept = f"; {counted(counts.by_hand, 'manual change')} kept" if counts.by_hand else ""
    names = f"{counted(counts.names, 'name')} of {counted(counts.concepts, 'concept')}"
    found = f"{names}, {counted(counts.mentions, 'mention')}{kept}"
    return note(f"Read {counted(done.read, 'version')} in {took_ms / 1000:.1f} s: {found}.")


def merged(done: Regrouped, asked: str) -> RenderableType:
    """The result of a merge."""
    concept = one_line(done.concept)
    if not done.names:
        return note(f"Nothing to change: “{one_line(asked)}” is already a name of “{concept}”.")
    undo = f'Undo with `triskele graph split "{one_line(done.names[0])}"`.'
    return Group(
        note(f"{_listed(done.names)} now belong{_s(done.names)} to the concept “{concept}”."), note(undo, style=QUIET)
    )


def split(done: Regrouped) -> RenderableType:
    """The result of a split."""
    concept = one_line(done.concept)
    if not done.names:
        return note(f"Nothing to change: “{concept}” has no other name.")
    undo = f'Undo with `triskele graph merge "{one_line(done.names[0])}" "{concept}"`.'
    said = f"{_listed(done.names)} no longer belong{_s(done.names)} to the concept “{concept}”."
    return Group(note(said), note(undo, style=QUIET))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"“{one_line(name)}”" for name in names)


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


def waiting(count: int) -> RenderableType:
    """The number of memories not read yet."""
    return note(f"{memories(count)} not searched for names yet; `triskele reindex` does it.", style=QUIET)


def estimate(found: Estimate) -> Iterator[RenderableType]:
    """What reading relations would cost."""
    if not found.memories:
        yield note("Nothing is left to read.")
    else:
        price = "no price is set (llm.price_per_million)" if found.cost is None else f"about {found.cost:.2f}"
        requests = counted(found.requests, "request")
        yield note(f"{memories(found.memories)} to read in {requests}, about {found.tokens:,} tokens; cost: {price}")
    if found.withheld:
        yield note(f"{memories(found.withheld)} not sent: private, secret, or quoting one that is", style=QUIET)


def extracted(done: Extracted) -> Iterator[RenderableType]:
    """What was read, and what is left."""
    read = f"Read {memories(done.memories)} in {counted(done.requests, 'request')}: {counted(done.triples, 'relation')}"
    yield note(read)
    if done.problem:
        yield note(f"Ended early: {done.problem}")
    if done.left:
        yield note(f"{memories(done.left)} left; `triskele graph extract` continues there", style=QUIET)


def relations(edges: Sequence[RelationEdge], short: Short) -> Iterator[RenderableType]:
    """Relations with the memory that states each."""
    if not edges:
        yield note("No relations yet: `triskele graph extract` lets the language model read them.")
        return
    made = table("id", "subject", "relation", "object", "holds")
    for edge in edges:
        until = "" if edge.valid_to is None else f" to {day(edge.valid_to)}"
        ends = (one_line(edge.subject), one_line(edge.relation), one_line(edge.object))
        made.add_row(short[edge.evidence.id], *ends, f"from {day(edge.valid_from)}{until}")
    yield made
