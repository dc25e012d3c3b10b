"""The `graph` commands: show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from triskele.edge import shapes
from triskele.edge.cli import views
from triskele.edge.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.edge.cli.options import MAX_LISTED, OrderedGroup, only_one, reading_place
from triskele.edge.http.codec import to_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triskele.engine.protocol import Engine
    from triskele.graph.relations import RelationEdge
    from triskele.replies import Regrouped

_BOTH_PLACES = "--project and --all-projects"


@click.group(
    cls=OrderedGroup,
    invoke_without_command=True,
    epilog=examples(
        'triskele graph show "Argo CD"', 'triskele graph path "Argo CD" billing', "triskele graph stats --json"
    ),
)
@global_options
@click.pass_context
def graph(context: click.Context) -> None:
    """Show and correct the concepts that connect memories.

    Names, identifiers, tags and titles that several memories mention connect them. Different spellings of one name are
    one concept; merge and split correct the grouping by hand.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@graph.command(
    epilog=examples(
        'triskele graph show "Argo CD"',
        "triskele graph show billing --all-projects --closed --limit 30",
        "triskele graph show billing --json",
    ),
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
@common
def show(
    invocation: Invocation, concept: str, project: str | None, all_projects: bool, limit: int, closed: bool
) -> None:
    """Show a concept: its names, memories, neighbours and edges."""
    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        place = None if all_projects else engine.project if project is None else project
        details = engine.concepts.show(concept, limit=limit, closed=closed, project=project, all_projects=all_projects)
        shown = {memory.id for memory in (*details.subject_of, *details.mentioned_in)}
        superseded, waiting = _superseded(engine, shown), engine.stats().names.waiting

        def lines() -> Iterator[RenderableType]:
            short = engine.shorten(shown | {edge.evidence for edge in details.edges})
            yield views.graph_view.concept(details, short, superseded, place)
            if waiting:
                yield views.graph_view.waiting(waiting)

        document = to_json(details)
        for name, memories in (("subject_of", details.subject_of), ("mentioned_in", details.mentioned_in)):
            document[name] = [shapes.memory(each, superseded=each.id in superseded) for each in memories]
        invocation.emit({**document, "project": place, "waiting": waiting}, lines)


@graph.command(
    epilog=examples('triskele graph path "Argo CD" billing', "triskele graph path redis on-call --all-projects --json"),
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@reading_place
@common
@click.pass_context
def path(
    context: click.Context, invocation: Invocation, one: str, other: str, project: str | None, all_projects: bool
) -> None:
    """Show the shortest chain of memories between two concepts."""
    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        place = None if all_projects else engine.project if project is None else project
        found = engine.concepts.path(one, other, project=project, all_projects=all_projects)
        ids = {hop.memory.id for hop in found.hops or ()}
        superseded, waiting = _superseded(engine, ids), engine.stats().names.waiting

        def lines() -> Iterator[RenderableType]:
            yield views.graph_view.path(found, engine.shorten(ids), superseded, place)
            if waiting:
                yield views.graph_view.waiting(waiting)

        hops = [
            {
                "id": hop.memory.id,
                "content": shapes.shown_content(hop.memory, hop.memory.id in superseded),
                "concept": hop.concept,
            }
            for hop in found.hops or ()
        ]
        document = {"found": found.hops is not None, "from": found.start, "to": found.end, "hops": hops}
        invocation.emit({**document, "project": place, "waiting": waiting}, lines)
    context.exit(1 if found.hops is None else 0)


@graph.command(epilog=examples("triskele graph stats", "triskele graph stats --json"))
@common
def stats(invocation: Invocation) -> None:
    """Count names, concepts and connected memories of all projects."""
    with invocation.open_existing() as engine:
        found = engine.concepts.overview()
        hubs = [{"name": each.concept, "memories": each.memories, "connects": each.connects} for each in found.common]
        details = {
            "memories": found.memories,
            "connected": found.connected,
            "connected_share": found.connected_share,
            "hubs": hubs,
            "bytes": found.bytes,
        }
        invocation.emit(
            {**to_json(found.names), **details, "project": engine.project},
            lambda: [views.graph_view.overview(found)],
        )


@graph.command(epilog=examples("triskele graph rebuild", "triskele graph rebuild --json"))
@common
def rebuild(invocation: Invocation) -> None:
    """Extract all names again; manual merges and splits stay."""
    with invocation.open_local_existing() as engine:
        started = time.perf_counter()
        with progress_bar("Reading names", total=engine.stats().versions) as progress:
            rebuilt = engine.upkeep.rebuild_graph(progress)
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        done = {**to_json(rebuilt.names), "read": rebuilt.read, "took_ms": took_ms}
        invocation.emit({**done, "project": engine.project}, lambda: [views.graph_view.rebuilt(rebuilt, took_ms)])


@graph.command(
    epilog=examples("triskele graph merge k8s Kubernetes      (undo: triskele graph split k8s)"),
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@common
def merge(invocation: Invocation, one: str, other: str) -> None:
    """Make A another name for B, in all projects."""
    with invocation.open_existing() as engine:
        done = engine.concepts.merge(one, other)
        invocation.emit(_regrouped(engine, "merged", done), lambda: [views.graph_view.merged(done, one)])


@graph.command(
    epilog=examples("triskele graph split k8s      (undo: triskele graph merge k8s Kubernetes)"),
)
@click.argument("name")
@common
def split(invocation: Invocation, name: str) -> None:
    """Make a name a separate concept again, in all projects."""
    with invocation.open_existing() as engine:
        done = engine.concepts.split(name)
        invocation.emit(_regrouped(engine, "split", done), lambda: [views.graph_view.split(done)])


@graph.command(
    epilog=examples(
        "triskele graph extract --dry-run", "triskele graph extract --limit 500", "triskele graph extract --json"
    ),
)
@click.option("--dry-run", is_flag=True, help="Show how much is left to read and what it would cost; send nothing.")
@click.option("--limit", type=click.IntRange(1), default=None, help="Read at most this many memories.")
@common
@click.pass_context
def extract(context: click.Context, invocation: Invocation, dry_run: bool, limit: int | None) -> None:
    """Let the language model read relations between names.

    Needs a model under [llm] and curation.llm_calls. Only open memories are sent, 25 to a request, each content once.
    After a run that ends early, the next one continues there.
    """
    with invocation.open_local_existing() as engine:
        estimate = engine.upkeep.estimate_relations()
        if dry_run:
            document = {"dry_run": True, **to_json(estimate)}
            invocation.emit(document, lambda: views.graph_view.estimate(estimate))
            return
        total = min(estimate.memories, limit or estimate.memories)
        with progress_bar("Reading relations", total=total) as progress:
            done = engine.upkeep.extract_relations(limit=limit, progress=progress)
        invocation.emit(to_json(done), lambda: views.graph_view.extracted(done))
    context.exit(1 if done.problem else 0)


@graph.command(
    epilog=examples(
        "triskele graph relations", "triskele graph relations payroll --closed", "triskele graph relations --json"
    ),
)
@click.argument("name", required=False)
@click.option("--closed", is_flag=True, help="Also show relations that no longer hold.")
@common
def relations(invocation: Invocation, name: str | None, closed: bool) -> None:
    """Show the relations that the language model read, of all or of one name."""
    with invocation.open_local_existing() as engine:
        edges = engine.upkeep.relations(name, closed=closed)
        invocation.emit(
            {"relations": [_edge(each) for each in edges]},
            lambda: views.graph_view.relations(edges, engine.shorten(each.evidence.id for each in edges)),
        )


def _superseded(engine: Engine, ids: Iterable[str]) -> set[str]:
    """The ids of those memories that another one replaces."""
    return {memory.id for memory in engine.lookup(ids).values() if memory.superseded}


def _edge(edge: RelationEdge) -> dict[str, Any]:
    ends = {"subject": edge.subject, "relation": edge.relation, "object": edge.object}
    times = {"valid_from": to_json(edge.valid_from), "valid_to": to_json(edge.valid_to)}
    return {**ends, "evidence": edge.evidence.id, **times}


def _regrouped(engine: Engine, action: str, done: Regrouped) -> dict[str, Any]:
    names = {"names": list(done.names), "concept": done.concept}
    return {"action": action if done.names else "unchanged", **names, "project": engine.project}
