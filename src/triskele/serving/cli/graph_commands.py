"""The `graph` commands: show, path, stats, rebuild, merge, split, extract, relations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.serving.cli.options import MAX_LISTED, OrderedGroup, only_one, reading_place
from triskele.serving.graph_view import graph_view, mentions_of

if TYPE_CHECKING:
    from triskele.curation.relations import RelationEdge
    from triskele.engine import Engine
    from triskele.recall.concepts.grouping import Regrouped
    from triskele.recall.concepts.lookup import About, Way

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
    from triskele.recall.concepts.lookup import about

    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        place = None if all_projects else engine.project if project is None else project
        view = graph_view(engine, project=project, all_projects=all_projects)
        found = about(view, concept, limit=limit, closed=closed)
        shown = {memory.id for memory in (*found.subject_of, *found.mentioned_in)}
        superseded = engine.superseded(sorted(shown))
        if invocation.as_json:
            return invocation.write_json({**_about(found, superseded), "project": place, **_waiting(engine)})
        from triskele.serving.cli import graph_report

        short = engine.store.shorten(shown | {tie.edge.evidence for tie in found.ties})
        invocation.write(graph_report.about(found, short, superseded, place))
        return _report_waiting(invocation, engine)


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
    from triskele.recall.concepts.lookup import path

    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        place = None if all_projects else engine.project if project is None else project
        way = path(graph_view(engine, project=project, all_projects=all_projects), one, other)
        superseded = engine.superseded([hop.memory.id for hop in way.hops or ()])
        if invocation.as_json:
            invocation.write_json({**_way(way, superseded), "project": place, **_waiting(engine)})
        else:
            from triskele.serving.cli import graph_report

            short = engine.store.shorten(hop.memory.id for hop in way.hops or ())
            invocation.write(graph_report.way(way, short, superseded, place))
            _report_waiting(invocation, engine)
    context.exit(1 if way.hops is None else 0)


@graph.command(epilog=examples("triskele graph stats", "triskele graph stats --json"))
@common
def stats(invocation: Invocation) -> None:
    """Count names, concepts and connected memories of all projects."""
    from triskele.recall.concepts.lookup import stats

    with invocation.open_existing() as engine:
        found = stats(graph_view(engine, any_time=True, all_projects=True), mentions_of(engine))
        if invocation.as_json:
            details = {"memories": found.memories, "connected": found.connected, "connected_share": found.share}
            hubs = [
                {"name": hub.concept.name, "memories": hub.memories, "connects": hub.connects} for hub in found.hubs
            ]
            counts = {**shapes.plain(found.counts), **details, "hubs": hubs, "bytes": found.bytes}
            return invocation.write_json({**counts, "project": engine.project})
        from triskele.serving.cli import graph_report

        return invocation.write(graph_report.stats(found))


@graph.command(epilog=examples("triskele graph rebuild", "triskele graph rebuild --json"))
@common
def rebuild(invocation: Invocation) -> None:
    """Extract all names again; manual merges and splits stay."""
    from triskele.recall.concepts import grouping

    with invocation.open_existing() as engine:
        started = time.perf_counter()
        with progress_bar("Reading names", total=engine.census().versions) as progress:
            read = grouping.rebuild(engine.store, engine.lexical, mentions_of(engine), progress=progress)
        took_ms = round((time.perf_counter() - started) * 1000, 3)
        counts = engine.store.entities.counts()
        if invocation.as_json:
            done = {**shapes.plain(counts), "read": read, "took_ms": took_ms}
            return invocation.write_json({**done, "project": engine.project})
        from triskele.serving.cli import graph_report

        return invocation.write(graph_report.rebuilt(read, counts, took_ms))


@graph.command(
    epilog=examples("triskele graph merge k8s Kubernetes      (undo: triskele graph split k8s)"),
)
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@common
def merge(invocation: Invocation, one: str, other: str) -> None:
    """Make A another name for B, in all projects."""
    from triskele.recall.concepts import grouping

    with invocation.open_existing() as engine:
        done = grouping.merge(graph_view(engine, all_projects=True), one, other)
        if invocation.as_json:
            return invocation.write_json(_regrouped(engine, "merged", done))
        from triskele.serving.cli import graph_report

        return invocation.write(graph_report.merged(done, one))


@graph.command(
    epilog=examples("triskele graph split k8s      (undo: triskele graph merge k8s Kubernetes)"),
)
@click.argument("name")
@common
def split(invocation: Invocation, name: str) -> None:
    """Make a name a separate concept again, in all projects."""
    from triskele.recall.concepts import grouping

    with invocation.open_existing() as engine:
        done = grouping.split(graph_view(engine, all_projects=True), name)
        if invocation.as_json:
            return invocation.write_json(_regrouped(engine, "split", done))
        from triskele.serving.cli import graph_report

        return invocation.write(graph_report.split(done))


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

    Needs a model under [llm] and curation.llm = true. Only open memories are sent, 25 to a request, each content once.
    After a run that ends early, the next one continues there.
    """
    from triskele.curation.curator import Curator
    from triskele.curation.relations import RelationReader
    from triskele.serving.cli import graph_report

    with invocation.open_existing() as engine:
        reader = RelationReader(engine, Curator(engine).may_call)
        estimate = reader.estimate()
        if dry_run and invocation.as_json:
            invocation.write_json({"dry_run": True, **shapes.plain(estimate)})
        elif dry_run:
            invocation.write(*graph_report.estimate(estimate))
        else:
            total = min(estimate.memories, limit or estimate.memories)
            with progress_bar("Reading relations", total=total) as progress:
                done = reader.extract(limit=limit, progress=progress)
            if invocation.as_json:
                invocation.write_json(shapes.plain(done))
            else:
                invocation.write(*graph_report.extracted(done))
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
    from triskele.curation.relations import relations

    with invocation.open_existing() as engine:
        edges = relations(engine, about=name, closed=closed)
        if invocation.as_json:
            return invocation.write_json({"relations": [_edge(each) for each in edges]})
        from triskele.serving.cli import graph_report

        short = engine.store.shorten(each.evidence.id for each in edges)
        return invocation.write(*graph_report.relations(edges, short))


def _waiting(engine: Engine) -> dict[str, Any]:
    return {"waiting": engine.store.entities.count_unread()}


def _report_waiting(invocation: Invocation, engine: Engine) -> None:
    from triskele.serving.cli import graph_report

    if waiting := engine.store.entities.count_unread():
        invocation.write(graph_report.waiting(waiting))


def _about(found: About, superseded: set[str]) -> dict[str, Any]:
    return {
        "concept": found.concept.name,
        "other_names": shapes.plain(found.other_names),
        "memories": found.memories,
        "subjects": found.subjects,
        "subject_of": [shapes.memory(each, superseded=each.id in superseded) for each in found.subject_of],
        "mentioned_in": [shapes.memory(each, superseded=each.id in superseded) for each in found.mentioned_in],
        "neighbours": [
            {"concept": each.concept.name, "together": each.together, "memories": each.memories}
            for each in found.neighbours
        ],
        "edges": [
            {**shapes.plain(tie.edge._asdict()), "source": tie.source.name, "target": tie.target.name}
            for tie in found.ties
        ],
    }


def _way(way: Way, superseded: set[str]) -> dict[str, Any]:
    hops = [
        {
            "id": hop.memory.id,
            "content": shapes.shown_content(hop.memory, hop.memory.id in superseded),
            "concept": hop.concept.name,
        }
        for hop in way.hops or ()
    ]
    return {"found": way.hops is not None, "from": way.start.name, "to": way.end.name, "hops": hops}


def _edge(edge: RelationEdge) -> dict[str, Any]:
    ends = {"subject": edge.subject, "relation": edge.relation, "object": edge.object}
    times = {"valid_from": shapes.plain(edge.valid_from), "valid_to": shapes.plain(edge.valid_to)}
    return {**ends, "evidence": edge.evidence.id, **times}


def _regrouped(engine: Engine, action: str, done: Regrouped) -> dict[str, Any]:
    names = {"names": list(done.names), "concept": done.concept.name}
    return {"action": action if done.names else "unchanged", **names, "project": engine.project}
