"""The `graph` commands: show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command_group
from triskele.edge.cli.documents import memory_document, picked, shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.options import limit_option, reading_place, shown_project
from triskele.edge.cli.view import (
    ID,
    MATCH,
    OLD,
    QUIET,
    Table,
    day,
    more,
    note,
    number,
    pairs,
    plural,
    project_label,
    size,
)
from triskele.edge.wording import SUPERSEDED_PREFIX, excerpt, one_line, shown_content
from triskele.store.values import BY_HAND

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable, ShortIds, Styled
    from triskele.engine.protocol import Engine
    from triskele.graph.relations import Estimate
    from triskele.replies.rooms import ConceptDetails, ConceptEdge, ConceptOverview, ConceptPath, Regrouped

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
@limit_option(10, "The maximum length of each list.")
@click.option("--closed", is_flag=True, help="Also show edges that are no longer valid.")
def show(invocation: Invocation, concept: str, limit: int, closed: bool, **place: Any) -> None:
    """Show a concept: its names, memories, neighbours and edges."""
    with invocation.open() as engine:
        where = shown_project(engine, place)
        details = engine.concepts.show(concept, limit=limit, closed=closed, **place)
        ids = {memory.id for memory in (*details.subject_of, *details.mentioned_in)}
        superseded, waiting = _superseded(engine, ids), engine.stats().names.waiting
        lists = {
            "subject_of": [memory_document(memory, memory.id in superseded) for memory in details.subject_of],
            "mentioned_in": [memory_document(memory, memory.id in superseded) for memory in details.mentioned_in],
        }

        def view() -> Iterator[Renderable]:
            short = engine.shorten(ids | {edge.evidence for edge in details.edges})
            yield from _concept_view(details, short, superseded, where)
            yield from _unread_view(waiting)

        invocation.emit({**shown(details), **lists}, view, project=where, waiting=waiting)


@graph.subcommand('triskele graph path "Argo CD" billing', "triskele graph path redis on-call --all-projects --json")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@reading_place
def path(invocation: Invocation, one: str, other: str, **place: Any) -> int:
    """Show the shortest chain of memories between two concepts."""
    with invocation.open() as engine:
        where = shown_project(engine, place)
        path = engine.concepts.path(one, other, **place)
        ids = {hop.memory.id for hop in path.hops or ()}
        superseded, waiting = _superseded(engine, ids), engine.stats().names.waiting
        hops = []
        for hop in path.hops or ():
            content = shown_content(hop.memory, hop.memory.id in superseded)
            hops.append({"id": hop.memory.id, "content": content, "concept": hop.concept})
        invocation.emit(
            {"found": path.hops is not None, "from": path.start, "to": path.end, "hops": hops},
            lambda: [*_path_view(path, engine.shorten(ids), superseded, where), *_unread_view(waiting)],
            project=where,
            waiting=waiting,
        )
    return 1 if path.hops is None else 0


@graph.subcommand("triskele graph stats", "triskele graph stats --json")
def stats(invocation: Invocation) -> None:
    """Count names, concepts and connected memories of all projects."""
    with invocation.open() as engine:
        overview = engine.concepts.overview()
        hubs = [{"name": common.concept, **picked(common, "memories connects")} for common in overview.common]
        counts = {**shown(overview.names), **picked(overview, "memories connected connected_share bytes")}
        invocation.emit(counts, lambda: _overview_view(overview), hubs=hubs, project=engine.project)


@graph.subcommand("triskele graph rebuild", "triskele graph rebuild --json")
def rebuild(invocation: Invocation) -> None:
    """Extract all names again; manual merges and splits stay."""
    with invocation.stores.open_local() as engine:
        started = time.perf_counter()
        with progress_bar("Reading names", total=engine.stats().versions) as progress:
            rebuilt = engine.upkeep.rebuild_graph(progress)
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        counts = rebuilt.names
        by_hand = f"; {plural(counts.by_hand, 'manual change')} kept" if counts.by_hand else ""
        names = f"{plural(counts.names, 'name')} of {plural(counts.concepts, 'concept')}"
        took = f"Read {plural(rebuilt.read, 'version')} in {took_ms / 1000:.1f} s"
        line = note(f"{took}: {names}, {plural(counts.mentions, 'mention')}{by_hand}.")
        document = {**shown(counts), "read": rebuilt.read, "took_ms": took_ms}
        invocation.emit(document, lambda: [line], project=engine.project)


@graph.subcommand("triskele graph merge k8s Kubernetes      (undo: triskele graph split k8s)")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
def merge(invocation: Invocation, one: str, other: str) -> None:
    """Make A another name for B, in all projects."""
    with invocation.open() as engine:
        merged = engine.concepts.merge(one, other)
        unchanged = f"“{one_line(one)}” is already a name of “{one_line(merged.concept)}”"
        undo = 'split "{}"'
        _report_regrouped(invocation, engine, "merged", merged, unchanged=unchanged, adverb="now", undo=undo)


@graph.subcommand("triskele graph split k8s      (undo: triskele graph merge k8s Kubernetes)")
@click.argument("name")
def split(invocation: Invocation, name: str) -> None:
    """Make a name a separate concept again, in all projects."""
    with invocation.open() as engine:
        split = engine.concepts.split(name)
        unchanged = f"“{one_line(split.concept)}” has no other name"
        undo = 'merge "{}" "{}"'
        _report_regrouped(invocation, engine, "split", split, unchanged=unchanged, adverb="no longer", undo=undo)


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
    with invocation.stores.open_local() as engine:
        estimate = engine.upkeep.estimate_relations()
        if dry_run:
            invocation.emit(estimate, lambda: _estimate_view(estimate), dry_run=True)
            return 0
        total = min(estimate.memories, limit or estimate.memories)
        with progress_bar("Reading relations", total=total) as progress:
            extracted = engine.upkeep.extract_relations(limit=limit, progress=progress)

        def view() -> Iterator[Renderable]:
            count = f"{plural(extracted.memories, 'memory')} in {plural(extracted.requests, 'request')}"
            yield note(f"Read {count}: {plural(extracted.triples, 'relation')}")
            if extracted.problem:
                yield note(f"Ended early: {extracted.problem}")
            if extracted.left:
                yield note(f"{plural(extracted.left, 'memory')} left; `triskele graph extract` continues there", QUIET)

        invocation.emit(extracted, view)
    return 1 if extracted.problem else 0


@graph.subcommand(
    "triskele graph relations", "triskele graph relations payroll --closed", "triskele graph relations --json"
)
@click.argument("name", required=False)
@click.option("--closed", is_flag=True, help="Also show relations that no longer hold.")
def relations(invocation: Invocation, name: str | None, closed: bool) -> None:
    """Show the relations that the language model read, of all or of one name."""
    with invocation.stores.open_local() as engine:
        edges = engine.upkeep.relations(name, closed=closed)

        def view() -> Iterator[Renderable]:
            if not edges:
                yield note("No relations yet: `triskele graph extract` lets the language model read them.")
                return
            short, rows = engine.shorten(edge.evidence.id for edge in edges), []
            for edge in edges:
                until = "" if edge.valid_to is None else f" to {day(edge.valid_to)}"
                ends = (one_line(edge.subject), one_line(edge.relation), one_line(edge.object))
                rows.append((short[edge.evidence.id], *ends, f"from {day(edge.valid_from)}{until}"))
            yield Table(("id", "subject", "relation", "object", "holds"), rows)

        fields = "subject relation object valid_from valid_to"
        invocation.emit({"relations": [{**picked(each, fields), "evidence": each.evidence.id} for each in edges]}, view)


def _superseded(engine: Engine, ids: Iterable[str]) -> set[str]:
    """The ids of those memories that another one replaces."""
    return {memory.id for memory in engine.lookup(ids).values() if memory.superseded}


def _report_regrouped(
    invocation: Invocation, engine: Engine, action: str, result: Regrouped, *, unchanged: str, adverb: str, undo: str
) -> None:
    """Show the names that were merged or split, and the command that undoes it."""

    def view() -> Iterator[Styled]:
        names, concept = [one_line(name) for name in result.names], one_line(result.concept)
        if not names:
            yield note(f"Nothing to change: {unchanged}.")
            return
        quoted, verb = ", ".join(f"“{name}”" for name in names), "belongs" if len(names) == 1 else "belong"
        yield note(f"{quoted} {adverb} {verb} to the concept “{concept}”.")
        yield note(f"Undo with `triskele graph {undo.format(names[0], concept)}`.", QUIET)

    document = {"action": action if result.names else "unchanged", **shown(result), "project": engine.project}
    invocation.emit(document, view)


def _concept_view(
    details: ConceptDetails, short: ShortIds, superseded: Set[str], project: str | None
) -> Iterator[Renderable]:
    """A concept with its names, memories, neighbours and edges."""
    counts = f"  in {plural(details.memories, 'memory')}, subject of {details.subjects:,}"
    yield _quoted(details.concept) + note(f"{counts} · {project_label(project)}", QUIET)
    names = []
    for other in details.other_names:
        why = "" if other.reason is None else f" ({_REASONS.get(other.reason, other.reason)})"
        names.append(f"“{one_line(other.name)}”{why}")
    if names:
        yield note("also ", QUIET) + note(", ".join(names))
    for title, memories, count in (
        ("Subject of", details.subject_of, details.subjects),
        ("Mentioned in", details.mentioned_in, details.memories - details.subjects),
    ):
        rows = []
        for memory in memories:
            text = note(SUPERSEDED_PREFIX if memory.id in superseded else "", OLD) + note(one_line(memory.content))
            rows.append((note(short[memory.id], ID), note(day(memory.updated_at), QUIET), text))
        if rows:
            yield from (note(""), note(title, MATCH), Table((), rows, last_takes_rest=True))
        yield from more(count - len(memories), " (--limit)")
    if details.neighbours:
        near = " · ".join(f"“{one_line(near.concept)}” {near.together:,}" for near in details.neighbours)
        yield from (note(""), note("Mentioned together with", MATCH), note(near))
    if details.edges:
        edges = Table((), (_edge_row(edge, short) for edge in details.edges), last_takes_rest=True)
        yield from (note(""), note("Edges", MATCH), edges)


def _quoted(name: str) -> Styled:
    return note(f"“{one_line(name)}”", MATCH)


def _edge_row(edge: ConceptEdge, short: ShortIds) -> tuple[Styled, ...]:
    until = f" until {day(edge.known_to)}" if edge.known_to else ""
    times = f"known from {day(edge.known_from)}{until}"
    if edge.valid_from or edge.valid_to:
        start = f" from {day(edge.valid_from)}" if edge.valid_from else ""
        end = f" until {day(edge.valid_to)}" if edge.valid_to else ""
        times += f", valid{start}{end}"
    text = f"“{one_line(edge.source)}” {edge.kind} “{one_line(edge.target)}”"
    return note(short.get(edge.evidence, edge.evidence), ID), note(times, QUIET), note(text)


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
            prefix = note(SUPERSEDED_PREFIX if hop.memory.id in superseded else "", OLD)
            text = note(f"“{excerpt(hop.memory.content, _EXCERPT_CHARACTERS)}” —")
            yield note("  — in ", QUIET) + note(short[hop.memory.id], ID) + note(" ") + prefix + text
            yield _quoted(hop.concept)
        yield note(f"{plural(len(path.hops), 'memory')} apart · {project_label(project)}", QUIET)


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
        common = []
        for concept in overview.common:
            remark = "" if concept.connects else "too frequent to connect memories"
            common.append((note(one_line(concept.concept)), number(concept.memories), note(remark, QUIET)))
        yield from (note(""), note("Mentioned most", MATCH), Table((), common))
    yield from _unread_view(counts.waiting)


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
