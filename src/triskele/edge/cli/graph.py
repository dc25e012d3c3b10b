"""The `graph` commands: show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

import click

from triskele.edge.cli.commands import command_group
from triskele.edge.cli.emit import Document, emit, memory_document, shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.options import MAX_LISTED, one_project_or_all, reading_place, shown_project
from triskele.edge.cli.view import (
    ID,
    MATCH,
    OLD,
    QUIET,
    ShortIds,
    day,
    more,
    note,
    number,
    pairs,
    plural,
    project_label,
    size,
    table,
)
from triskele.edge.wording import SUPERSEDED_PREFIX, excerpt, one_line, shown_content
from triskele.store.values import BY_HAND
from triskele.types import Memory

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable, Styled, Table
    from triskele.engine.protocol import Engine
    from triskele.engine.upkeep import RebuiltGraph
    from triskele.graph.relations import Estimate, Extracted, RelationEdge
    from triskele.replies.rooms import (
        ConceptDetails,
        ConceptEdge,
        ConceptOverview,
        ConceptPath,
        Hop,
        OtherName,
        Regrouped,
    )

_EXCERPT_CHARACTERS = 70
_REASONS = {BY_HAND: "by hand"}


@command_group('triskele graph show "Argo CD"', 'triskele graph path "Argo CD" billing', "triskele graph stats --json")
def graph() -> None:
    """Show and correct the concepts that connect memories.

    Names, identifiers, tags and titles that several memories mention connect them. Different spellings of one name are
    one concept; merge and split correct the grouping by hand.
    """


@graph.subcommand(
    'triskele graph show "Argo CD"',
    "triskele graph show billing --all-projects --closed --limit 30",
    "triskele graph show billing --json",
)
@click.argument("concept")
@reading_place
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_LISTED),
    default=10,
    show_default=True,
    help="The maximum length of each list.",
)
@click.option("--closed", is_flag=True, help="Also show edges that are no longer valid.")
def show(
    invocation: Invocation, concept: str, project: str | None, all_projects: bool, limit: int, closed: bool
) -> None:
    """Show a concept: its names, memories, neighbours and edges."""
    one_project_or_all(project, all_projects)
    with invocation.open_existing() as engine:
        where = shown_project(engine, project, all_projects)
        details = engine.concepts.show(concept, limit=limit, closed=closed, project=project, all_projects=all_projects)
        ids = {memory.id for memory in (*details.subject_of, *details.mentioned_in)}
        superseded, waiting = _superseded(engine, ids), engine.stats().names.waiting
        lists = {
            "subject_of": [memory_document(memory, memory.id in superseded) for memory in details.subject_of],
            "mentioned_in": [memory_document(memory, memory.id in superseded) for memory in details.mentioned_in],
        }
        emit(
            invocation,
            {**shown(details), **lists, "project": where, "waiting": waiting},
            lambda: [
                *_concept_view(
                    details, engine.shorten(ids | {edge.evidence for edge in details.edges}), superseded, where
                ),
                *_unread_view(waiting),
            ],
        )


@graph.subcommand('triskele graph path "Argo CD" billing', "triskele graph path redis on-call --all-projects --json")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@reading_place
def path(invocation: Invocation, one: str, other: str, project: str | None, all_projects: bool) -> int:
    """Show the shortest chain of memories between two concepts."""
    one_project_or_all(project, all_projects)
    with invocation.open_existing() as engine:
        where = shown_project(engine, project, all_projects)
        path = engine.concepts.path(one, other, project=project, all_projects=all_projects)
        ids = {hop.memory.id for hop in path.hops or ()}
        superseded, waiting = _superseded(engine, ids), engine.stats().names.waiting
        hops = [
            {
                "id": hop.memory.id,
                "content": shown_content(hop.memory, hop.memory.id in superseded),
                "concept": hop.concept,
            }
            for hop in path.hops or ()
        ]
        document = {"found": path.hops is not None, "from": path.start, "to": path.end, "hops": hops}
        emit(
            invocation,
            {**document, "project": where, "waiting": waiting},
            lambda: [*_path_view(path, engine.shorten(ids), superseded, where), *_unread_view(waiting)],
        )
    return 1 if path.hops is None else 0


@graph.subcommand("triskele graph stats", "triskele graph stats --json")
def stats(invocation: Invocation) -> None:
    """Count names, concepts and connected memories of all projects."""
    with invocation.open_existing() as engine:
        overview = engine.concepts.overview()
        hubs = [
            {"name": common.concept, "memories": common.memories, "connects": common.connects}
            for common in overview.common
        ]
        document = {
            **shown(overview.names),
            "memories": overview.memories,
            "connected": overview.connected,
            "connected_share": overview.connected_share,
            "hubs": hubs,
            "bytes": overview.bytes,
        }
        emit(invocation, document, lambda: _overview_view(overview), project=engine.project)


@graph.subcommand("triskele graph rebuild", "triskele graph rebuild --json")
def rebuild(invocation: Invocation) -> None:
    """Extract all names again; manual merges and splits stay."""
    with invocation.stores.open_local_existing() as engine:
        started = time.perf_counter()
        with progress_bar("Reading names", total=engine.stats().versions) as progress:
            rebuilt = engine.upkeep.rebuild_graph(progress)
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        document = {**shown(rebuilt.names), "read": rebuilt.read, "took_ms": took_ms}
        emit(invocation, document, lambda: _rebuilt_view(rebuilt, took_ms), project=engine.project)


@graph.subcommand("triskele graph merge k8s Kubernetes      (undo: triskele graph split k8s)")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
def merge(invocation: Invocation, one: str, other: str) -> None:
    """Make A another name for B, in all projects."""
    with invocation.open_existing() as engine:
        merged = engine.concepts.merge(one, other)
        emit(invocation, _regrouped(engine, "merged", merged), lambda: _merged_view(merged, one))


@graph.subcommand("triskele graph split k8s      (undo: triskele graph merge k8s Kubernetes)")
@click.argument("name")
def split(invocation: Invocation, name: str) -> None:
    """Make a name a separate concept again, in all projects."""
    with invocation.open_existing() as engine:
        split = engine.concepts.split(name)
        emit(invocation, _regrouped(engine, "split", split), lambda: _split_view(split))


@graph.subcommand(
    "triskele graph extract --dry-run", "triskele graph extract --limit 500", "triskele graph extract --json"
)
@click.option("--dry-run", is_flag=True, help="Show how much is left to read and what it would cost; send nothing.")
@click.option("--limit", type=click.IntRange(1), default=None, help="Read at most this many memories.")
def extract(invocation: Invocation, dry_run: bool, limit: int | None) -> int:
    """Let the language model read relations between names.

    Needs a model under [llm] and curation.llm_calls. Only open memories are sent, 25 to a request, each content once.
    After a run that ends early, the next one continues there.
    """
    with invocation.stores.open_local_existing() as engine:
        estimate = engine.upkeep.estimate_relations()
        if dry_run:
            emit(invocation, estimate, lambda: _estimate_view(estimate), dry_run=True)
            return 0
        total = min(estimate.memories, limit or estimate.memories)
        with progress_bar("Reading relations", total=total) as progress:
            extracted = engine.upkeep.extract_relations(limit=limit, progress=progress)
        emit(invocation, extracted, lambda: _extracted_view(extracted))
    return 1 if extracted.problem else 0


@graph.subcommand(
    "triskele graph relations", "triskele graph relations payroll --closed", "triskele graph relations --json"
)
@click.argument("name", required=False)
@click.option("--closed", is_flag=True, help="Also show relations that no longer hold.")
def relations(invocation: Invocation, name: str | None, closed: bool) -> None:
    """Show the relations that the language model read, of all or of one name."""
    with invocation.stores.open_local_existing() as engine:
        edges = engine.upkeep.relations(name, closed=closed)
        emit(
            invocation,
            {"relations": list(map(_relation, edges))},
            lambda: _relations_view(edges, engine.shorten(edge.evidence.id for edge in edges)),
        )


def _superseded(engine: Engine, ids: Iterable[str]) -> set[str]:
    """The ids of those memories that another one replaces."""
    return {memory.id for memory in engine.lookup(ids).values() if memory.superseded}


def _relation(edge: RelationEdge) -> Document:
    ends = {"subject": edge.subject, "relation": edge.relation, "object": edge.object}
    return {**ends, "evidence": edge.evidence.id, "valid_from": edge.valid_from, "valid_to": edge.valid_to}


def _regrouped(engine: Engine, action: str, regrouped: Regrouped) -> Document:
    names = {"names": regrouped.names, "concept": regrouped.concept}
    return {"action": action if regrouped.names else "unchanged", **names, "project": engine.project}


def _concept_view(
    details: ConceptDetails, short: ShortIds, superseded: Set[str], project: str | None
) -> Iterator[Renderable]:
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


def _quoted(name: str) -> Styled:
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


def _path_view(path: ConceptPath, short: ShortIds, superseded: Set[str], project: str | None) -> Iterator[Styled]:
    """The chain from one concept to the other, one line per memory."""
    # Imported here: other commands need no numpy.
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


def _step(hop: Hop, short: ShortIds, superseded: Set[str]) -> Styled:
    prefix = note(SUPERSEDED_PREFIX if hop.memory.id in superseded else "", OLD)
    text = note(f"“{excerpt(hop.memory.content, _EXCERPT_CHARACTERS)}” —")
    return note("  — in ", QUIET) + note(short[hop.memory.id], ID) + note(" ") + prefix + text


def _overview_view(overview: ConceptOverview) -> Iterator[Renderable]:
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
    yield from _unread_view(counts.waiting)


def _rebuilt_view(graph: RebuiltGraph, took_ms: float) -> Iterator[Styled]:
    """The result of a rebuild."""
    counts = graph.names
    by_hand = f"; {plural(counts.by_hand, 'manual change')} kept" if counts.by_hand else ""
    names = f"{plural(counts.names, 'name')} of {plural(counts.concepts, 'concept')}"
    took = f"Read {plural(graph.read, 'version')} in {took_ms / 1000:.1f} s"
    yield note(f"{took}: {names}, {plural(counts.mentions, 'mention')}{by_hand}.")


def _merged_view(regrouped: Regrouped, name: str) -> Iterator[Styled]:
    """The result of a merge."""
    names, concept = regrouped.names, one_line(regrouped.concept)
    if not names:
        yield note(f"Nothing to change: “{one_line(name)}” is already a name of “{concept}”.")
        return
    yield note(f"{_quoted_list(names)} now {_belong(names)} to the concept “{concept}”.")
    yield note(f'Undo with `triskele graph split "{one_line(names[0])}"`.', QUIET)


def _split_view(regrouped: Regrouped) -> Iterator[Styled]:
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


def _unread_view(count: int) -> Iterator[Styled]:
    """The number of memories whose names are not read yet, if any."""
    if count:
        yield note(f"{plural(count, 'memory')} not searched for names yet; `triskele reindex` does it.", QUIET)


def _estimate_view(estimate: Estimate) -> Iterator[Renderable]:
    """What reading relations would cost."""
    if not estimate.memories:
        yield note("Nothing is left to read.")
    else:
        price = "no price is set (llm.price_per_million)" if estimate.cost is None else f"about {estimate.cost:.2f}"
        count = f"{plural(estimate.memories, 'memory')} to read in {plural(estimate.requests, 'request')}"
        yield note(f"{count}, about {estimate.tokens:,} tokens; cost: {price}")
    if estimate.withheld:
        yield note(f"{plural(estimate.withheld, 'memory')} not sent: private, secret, or quoting one that is", QUIET)


def _extracted_view(extracted: Extracted) -> Iterator[Renderable]:
    """What was read, and what is left."""
    count = f"{plural(extracted.memories, 'memory')} in {plural(extracted.requests, 'request')}"
    yield note(f"Read {count}: {plural(extracted.triples, 'relation')}")
    if extracted.problem:
        yield note(f"Ended early: {extracted.problem}")
    if extracted.left:
        yield note(f"{plural(extracted.left, 'memory')} left; `triskele graph extract` continues there", QUIET)


def _relations_view(edges: Sequence[RelationEdge], short: ShortIds) -> Iterator[Renderable]:
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
