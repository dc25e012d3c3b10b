"""The concept graph and relations for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from triskele.edge.cli.view import (
    ID,
    MATCH,
    OLD,
    QUIET,
    ShortIds,
    day,
    excerpt,
    more,
    note,
    number,
    one_line,
    pairs,
    plural,
    project_label,
    size,
    table,
)
from triskele.edge.wording import SUPERSEDED_PREFIX
from triskele.store.derived import BY_HAND
from triskele.types import Memory

if TYPE_CHECKING:
    from triskele.edge.cli.layout import Part, Table, Text
    from triskele.engine.upkeep import RebuiltGraph
    from triskele.graph.relations import Estimate, Extracted, RelationEdge
    from triskele.replies import ConceptDetails, ConceptEdge, ConceptOverview, ConceptPath, Hop, OtherName, Regrouped

_EXCERPT_CHARACTERS = 70
_REASONS = {BY_HAND: "by hand"}


def concept(details: ConceptDetails, short: ShortIds, superseded: Set[str], project: str | None) -> Iterator[Part]:
    """A concept with its names, memories, neighbours and edges."""
    counts = f"  in {plural(details.memories, 'memory')}, subject of {details.subjects:,}"
    yield _quoted(details.concept) + note(f"{counts} · {project_label(project)}", QUIET)
    if details.other_names:
        yield note("also ", QUIET) + note(", ".join(map(_other_name, details.other_names)))
    for title, memories, count in (
        ("Subject of", details.subject_of, details.subjects),
        ("Mentioned in", details.mentioned_in, details.memories - details.subjects),
    ):
        if memories:
            yield from (note(""), note(title, MATCH), _listing(memories, short, superseded))
        yield from more(count - len(memories), " (--limit)")
    if details.neighbours:
        near = " · ".join(f"“{one_line(near.concept)}” {near.together:,}" for near in details.neighbours)
        yield from (note(""), note("Mentioned together with", MATCH), note(near))
    if details.edges:
        yield from (note(""), note("Edges", MATCH), _edges(details.edges, short))


def _quoted(name: str) -> Text:
    return note(f"“{one_line(name)}”", MATCH)


def _other_name(other: OtherName) -> str:
    why = "" if other.reason is None else f" ({_REASONS.get(other.reason, other.reason)})"
    return f"“{one_line(other.name)}”{why}"


def _listing(memories: Sequence[Memory], short: ShortIds, superseded: Set[str]) -> Table:
    rows = _rows()
    for memory in memories:
        prefix = note(SUPERSEDED_PREFIX if memory.id in superseded else "", OLD)
        text = prefix + note(one_line(memory.content))
        rows.add_row(note(short[memory.id], ID), note(day(memory.updated_at), QUIET), text)
    return rows


def _edges(edges: Iterable[ConceptEdge], short: ShortIds) -> Table:
    rows = _rows()
    for edge in edges:
        text = f"“{one_line(edge.source)}” {edge.kind} “{one_line(edge.target)}”"
        rows.add_row(
            note(short.get(edge.evidence, edge.evidence), ID), note(", ".join(_times(edge)), QUIET), note(text)
        )
    return rows


def _rows() -> Table:
    return table("id", "when", "what", last_takes_rest=True, has_header=False)


def _times(edge: ConceptEdge) -> Iterator[str]:
    until = f" until {day(edge.known_to)}" if edge.known_to else ""
    yield f"known from {day(edge.known_from)}{until}"
    if edge.valid_from or edge.valid_to:
        start = f" from {day(edge.valid_from)}" if edge.valid_from else ""
        end = f" until {day(edge.valid_to)}" if edge.valid_to else ""
        yield f"valid{start}{end}"


def path(path: ConceptPath, short: ShortIds, superseded: Set[str], project: str | None) -> Iterator[Text]:
    """The chain from one concept to the other, one line per memory."""
    # Imported here: other views need no numpy.
    from triskele.graph.lookup import MAX_HOPS

    start, end = one_line(path.start), one_line(path.end)
    if path.hops is None:
        wider = "" if project is None else " Try --all-projects."
        ends = f"“{start}” and “{end}” in {project_label(project)}"
        yield note(f"No chain of at most {MAX_HOPS} memories connects {ends}.{wider}")
    elif not path.hops:
        yield note(f"Both are names of the concept “{start}”.")
    else:
        yield _quoted(start)
        for hop in path.hops:
            yield from (_step(hop, short, superseded), _quoted(hop.concept))
        yield note(f"{plural(len(path.hops), 'memory')} apart · {project_label(project)}", QUIET)


def _step(hop: Hop, short: ShortIds, superseded: Set[str]) -> Text:
    prefix = note(SUPERSEDED_PREFIX if hop.memory.id in superseded else "", OLD)
    text = note(f"“{excerpt(hop.memory.content, _EXCERPT_CHARACTERS)}” —")
    return note("  — in ", QUIET) + note(short[hop.memory.id], ID) + note(" ") + prefix + text


def overview(overview: ConceptOverview) -> Iterator[Part]:
    """Counts of the graph, and the concepts that most memories mention."""
    counts = overview.names
    by_hand = f" ({counts.by_hand:,} by hand)" if counts.by_hand else ""
    connected = f"{overview.connected:,} of {plural(overview.memories, 'memory')}"
    rows = {
        "names": f"{counts.names:,}",
        "concepts": f"{counts.concepts:,}",
        "mentions": f"{counts.mentions:,}",
        "merged": f"{counts.merges:,}{by_hand}",
        "read": f"{plural(counts.read, 'version')} of memories",
        "to read": f"{counts.waiting:,}",
        "connected": f"{connected} ({overview.connected_share:.0%})",
        "size": size(overview.bytes),
    }
    yield pairs((name, note(value)) for name, value in rows.items())
    if overview.common:
        frequent = table("", "", "", has_header=False)
        for common in overview.common:
            remark = "" if common.connects else "too frequent to connect memories"
            frequent.add_row(note(one_line(common.concept)), number(common.memories), note(remark, QUIET))
        yield from (note(""), note("Mentioned most", MATCH), frequent)
    yield from unread(counts.waiting)


def rebuilt(graph: RebuiltGraph, took_ms: float) -> Iterator[Text]:
    """The result of a rebuild."""
    counts = graph.names
    by_hand = f"; {plural(counts.by_hand, 'manual change')} kept" if counts.by_hand else ""
    names = f"{plural(counts.names, 'name')} of {plural(counts.concepts, 'concept')}"
    took = f"Read {plural(graph.read, 'version')} in {took_ms / 1000:.1f} s"
    yield note(f"{took}: {names}, {plural(counts.mentions, 'mention')}{by_hand}.")


def merged(regrouped: Regrouped, name: str) -> Iterator[Text]:
    """The result of a merge."""
    names, concept = regrouped.names, one_line(regrouped.concept)
    if not names:
        yield note(f"Nothing to change: “{one_line(name)}” is already a name of “{concept}”.")
        return
    yield note(f"{_quoted_list(names)} now {_belong(names)} to the concept “{concept}”.")
    yield note(f'Undo with `triskele graph split "{one_line(names[0])}"`.', QUIET)


def split(regrouped: Regrouped) -> Iterator[Text]:
    """The result of a split."""
    names, concept = regrouped.names, one_line(regrouped.concept)
    if not names:
        yield note(f"Nothing to change: “{concept}” has no other name.")
        return
    yield note(f"{_quoted_list(names)} no longer {_belong(names)} to the concept “{concept}”.")
    yield note(f'Undo with `triskele graph merge "{one_line(names[0])}" "{concept}"`.', QUIET)


def _quoted_list(names: Sequence[str]) -> str:
    return ", ".join(f"“{one_line(name)}”" for name in names)


def _belong(names: Sequence[str]) -> str:
    return "belongs" if len(names) == 1 else "belong"


def unread(count: int) -> Iterator[Text]:
    """The number of memories whose names are not read yet, if any."""
    if count:
        yield note(f"{plural(count, 'memory')} not searched for names yet; `triskele reindex` does it.", QUIET)


def estimate(estimate: Estimate) -> Iterator[Part]:
    """What reading relations would cost."""
    if not estimate.memories:
        yield note("Nothing is left to read.")
    else:
        price = "no price is set (llm.price_per_million)" if estimate.cost is None else f"about {estimate.cost:.2f}"
        count = f"{plural(estimate.memories, 'memory')} to read in {plural(estimate.requests, 'request')}"
        yield note(f"{count}, about {estimate.tokens:,} tokens; cost: {price}")
    if estimate.withheld:
        yield note(f"{plural(estimate.withheld, 'memory')} not sent: private, secret, or quoting one that is", QUIET)


def extracted(extracted: Extracted) -> Iterator[Part]:
    """What was read, and what is left."""
    count = f"{plural(extracted.memories, 'memory')} in {plural(extracted.requests, 'request')}"
    yield note(f"Read {count}: {plural(extracted.triples, 'relation')}")
    if extracted.problem:
        yield note(f"Ended early: {extracted.problem}")
    if extracted.left:
        yield note(f"{plural(extracted.left, 'memory')} left; `triskele graph extract` continues there", QUIET)


def relations(edges: Sequence[RelationEdge], short: ShortIds) -> Iterator[Part]:
    """Relations with the memory that states each."""
    if not edges:
        yield note("No relations yet: `triskele graph extract` lets the language model read them.")
        return
    rows = table("id", "subject", "relation", "object", "holds")
    for edge in edges:
        until = "" if edge.valid_to is None else f" to {day(edge.valid_to)}"
        ends = (one_line(edge.subject), one_line(edge.relation), one_line(edge.object))
        rows.add_row(short[edge.evidence.id], *ends, f"from {day(edge.valid_from)}{until}")
    yield rows
