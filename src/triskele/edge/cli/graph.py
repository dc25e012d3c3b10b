"""The `graph` commands: show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from triskele.edge.cli import graph_view
from triskele.edge.cli.commands import command_group
from triskele.edge.cli.emit import Document, emit, memory_document, shown
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.options import MAX_LISTED, one_project_or_all, reading_place, shown_project
from triskele.edge.wording import shown_content

if TYPE_CHECKING:
    from triskele.engine.protocol import Engine
    from triskele.graph.relations import RelationEdge
    from triskele.replies import Regrouped


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
                *graph_view.concept(
                    details, engine.shorten(ids | {edge.evidence for edge in details.edges}), superseded, where
                ),
                *graph_view.unread(waiting),
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
            lambda: [*graph_view.path(path, engine.shorten(ids), superseded, where), *graph_view.unread(waiting)],
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
        emit(invocation, document, lambda: graph_view.overview(overview), project=engine.project)


@graph.subcommand("triskele graph rebuild", "triskele graph rebuild --json")
def rebuild(invocation: Invocation) -> None:
    """Extract all names again; manual merges and splits stay."""
    with invocation.stores.open_local_existing() as engine:
        started = time.perf_counter()
        with progress_bar("Reading names", total=engine.stats().versions) as progress:
            rebuilt = engine.upkeep.rebuild_graph(progress)
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        document = {**shown(rebuilt.names), "read": rebuilt.read, "took_ms": took_ms}
        emit(invocation, document, lambda: graph_view.rebuilt(rebuilt, took_ms), project=engine.project)


@graph.subcommand("triskele graph merge k8s Kubernetes      (undo: triskele graph split k8s)")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
def merge(invocation: Invocation, one: str, other: str) -> None:
    """Make A another name for B, in all projects."""
    with invocation.open_existing() as engine:
        merged = engine.concepts.merge(one, other)
        emit(invocation, _regrouped(engine, "merged", merged), lambda: graph_view.merged(merged, one))


@graph.subcommand("triskele graph split k8s      (undo: triskele graph merge k8s Kubernetes)")
@click.argument("name")
def split(invocation: Invocation, name: str) -> None:
    """Make a name a separate concept again, in all projects."""
    with invocation.open_existing() as engine:
        split = engine.concepts.split(name)
        emit(invocation, _regrouped(engine, "split", split), lambda: graph_view.split(split))


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
            emit(invocation, estimate, lambda: graph_view.estimate(estimate), dry_run=True)
            return 0
        total = min(estimate.memories, limit or estimate.memories)
        with progress_bar("Reading relations", total=total) as progress:
            extracted = engine.upkeep.extract_relations(limit=limit, progress=progress)
        emit(invocation, extracted, lambda: graph_view.extracted(extracted))
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
            lambda: graph_view.relations(edges, engine.shorten(edge.evidence.id for edge in edges)),
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
