"""Commands that read memories: recall, why-not, show, list, history, stats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from triskele.edge import shapes
from triskele.edge.cli import code, views
from triskele.edge.cli.help import EverydayCommand
from triskele.edge.cli.invocation import Invocation, common, examples
from triskele.edge.cli.options import (
    EVERY,
    MAX_LISTED,
    asking_options,
    category_option,
    id_argument,
    only_one,
    period_filter,
    reading_place,
    tag_filter,
)
from triskele.replies import History, Verdict
from triskele.types import JournalEntry, LinkKind, Sort

if TYPE_CHECKING:
    from rich.console import RenderableType

    from triskele.engine.protocol import Engine
    from triskele.replies import Statistics

_BOTH_PLACES = "--project and --all-projects"


@click.command(
    cls=EverydayCommand,
    everyday=("limit", "tags", "all_projects", "since", "explain"),
    epilog=examples(
        'triskele recall "how do releases reach the cluster?"',
        'triskele recall "database version" --as-of 2025-05-01 --explain',
        'triskele recall "what did we decide?" --since "last month"',
        'triskele recall "sms provider" --all-projects --category decisions --json',
    ),
)
@click.argument("query")
@asking_options
@click.option(
    "--sort",
    type=click.Choice([sort.value for sort in Sort]),
    default=Sort.RELEVANCE.value,
    show_default=True,
    help="The order of the hits.",
)
@click.option("--superseded", is_flag=True, help="Show superseded memories, not their successors.")
@click.option("--budget", type=int, metavar="TOKENS", help="Only hits that fit, without near-duplicates.")
@click.option("--explain", is_flag=True, help="Show the rank and score of each leg.")
@common
def recall(
    invocation: Invocation,
    query: str,
    project: str | None,
    all_projects: bool,
    sort: str,
    superseded: bool,
    explain: bool,
    **options: Any,
) -> None:
    """Find the memories that answer a question."""
    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        answer = engine.recall(
            query,
            project=project,
            all_projects=all_projects,
            sort=Sort(sort),
            show_superseded=superseded,
            **options,
        )
        times = shapes.times(options)
        if invocation.as_json:
            return invocation.write_json({**shapes.answer(answer), "times": times})
        if not query.strip():
            return invocation.echo("The question is empty: nothing was searched. `triskele list` shows the memories.")
        short = engine.shorten(views.render.ids_in(answer))
        embeds_here = not invocation.uses_server()
        invocation.write(views.render.answer(answer, short, explain=explain, times=times, embeds_here=embeds_here))
        if project and not answer.hits and project not in engine.stats().by_project:
            note = f"No memory belongs to a project called {project}; `triskele projects list` shows the projects."
            invocation.write(views.render.note(views.render.visible(note)))
        return None


@click.command(
    "why-not",
    epilog=examples(
        'triskele why-not 1kpn46 "how do releases reach the cluster?"',
        'triskele why-not 1kpn46 "database" --category facts --json',
    ),
)
@id_argument()
@click.argument("query")
@asking_options
@common
def why_not(
    invocation: Invocation, id: str, query: str, project: str | None, all_projects: bool, **options: Any
) -> None:
    """Explain why a memory was not found, and what finds it."""
    only_one(project is not None, all_projects, _BOTH_PLACES)
    with invocation.open_existing() as engine:
        explained = engine.why_not(id, query, project=project, all_projects=all_projects, **options)
        shape, times = shapes.why_not(explained), shapes.times(options)
        invocation.emit(
            {**shape, "project": engine.project, "times": times},
            lambda: [
                views.reports.why_not(explained, shape["smallest_change"]),
                *views.render.time_lines(times),
            ],
        )


@click.command(
    epilog=examples("triskele show 1kpn46", "triskele show 1kpn46 --json"),
)
@id_argument()
@common
def show(invocation: Invocation, id: str) -> None:
    """Show one memory with all its details and links."""
    with invocation.open_existing() as engine:
        memory = engine.get(id)
        named = code.named_code(invocation, memory)
        successors = [each.source for each in memory.links if each.kind is LinkKind.SUPERSEDES]
        invocation.emit(
            {
                **shapes.memory(memory),
                "superseded_by": [id for id in successors if id in memory.linked],
                "links": [shapes.link(link) for link in memory.links],
                "uses": shapes.use_count(memory.used),
                "code": named,
                "in_conflict": memory.in_conflict,
            },
            lambda: [
                views.render.memory(memory, engine.shorten([memory.id, *memory.linked])),
                *(f"code  {each['path']}:{each['start_line']}  {each['symbol']}" for each in named),
            ],
        )


@click.command(
    "list",
    epilog=examples("triskele list", "triskele list --all-projects --category decisions --sort importance --limit 50"),
)
@category_option("Only this category.")
@tag_filter
@reading_place
@period_filter
@click.option(
    "--sort",
    type=click.Choice([Sort.RECENCY.value, Sort.IMPORTANCE.value]),
    default=Sort.RECENCY.value,
    show_default=True,
    help="The order of the list.",
)
@click.option(
    "--limit", type=click.IntRange(1, MAX_LISTED), default=20, show_default=True, help="The maximum number of memories."
)
@click.option("--offset", type=click.IntRange(0, 2**31), default=0, help="Skip this many memories.")
@click.option("--conflicts", is_flag=True, help="Only memories that were changed here and on the sync server.")
@common
def list_memories(
    invocation: Invocation,
    project: str | None,
    all_projects: bool,
    sort: str,
    limit: int,
    offset: int,
    conflicts: bool,
    **filters: Any,
) -> None:
    """List memories, newest or most important first."""
    only_one(project is not None, all_projects, _BOTH_PLACES)
    if conflicts:
        _list_conflicts(invocation)
        return
    with invocation.open_existing() as engine:
        filters |= {"project": project, "all_projects": all_projects}
        listed = engine.browse(sort=Sort(sort), limit=limit, offset=offset, **filters).memories
        times = shapes.times(filters)
        place = None if all_projects else engine.project if project is None else project
        invocation.emit(
            {
                "memories": [{**shapes.memory(each), "in_conflict": each.in_conflict} for each in listed],
                "project": place,
                "limit": limit,
                "offset": offset,
                "times": times,
            },
            lambda: [
                views.render.listing(
                    listed, engine.shorten(each.id for each in listed), place, offset=offset, limit=limit
                ),
                *views.render.time_lines(times),
            ],
            is_list=True,
        )


def _list_conflicts(invocation: Invocation) -> None:
    """Both versions of every memory in conflict, of all projects."""
    with invocation.open_local_existing() as engine:
        conflicts = engine.curation.proposals(kind=Verdict.CONFLICT)
        pairs = [
            {"id": each.id, "mine": each.old and shapes.memory(each.old), "theirs": shapes.memory(each.new)}
            for each in conflicts
        ]
        invocation.emit(
            {"conflicts": pairs, "project": engine.project},
            lambda: [views.render.conflicts(conflicts, engine.shorten(each.id for each in conflicts))],
        )


@click.command(
    epilog=examples("triskele history 1kpn46", "triskele history --limit 50      (the whole store)"),
)
@id_argument(required=False)
@click.option(
    "--limit", type=click.IntRange(1, MAX_LISTED), default=20, show_default=True, help="The number of newest changes."
)
@common
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show the changes of a memory, or the latest ones of the store."""
    with invocation.open_existing() as engine:
        own = None if id is None else engine.get(id).id
        changes = engine.journal(limit=limit) if own is None else engine.journal(id=own, limit=EVERY)
        entries, versions = changes.entries[::-1], shapes.numbered(changes.versions)
        document: dict[str, Any] = {} if own is None else {"id": own, "versions": _versions(own, changes)}
        document |= {"entries": [_entry(entry, versions) for entry in entries], "project": engine.project}
        ids = {id for entry in entries for id in entry.memories}
        invocation.emit(
            document,
            lambda: [views.reports.history(entries, versions, changes.folders, engine.shorten(ids))],
            is_list=True,
        )


def _versions(id: str, changes: History) -> list[shapes.Shape]:
    """All versions of a memory, oldest first."""
    own = [memory for memory in changes.versions if memory.id == id]
    return [shapes.version(memory) for memory in sorted(own, key=lambda memory: memory.version)]


def _entry(entry: JournalEntry, versions: shapes.Versions) -> shapes.Shape:
    """A journal entry with the text of the version that it made, or that it ended."""
    named = (versions.get((entry.id, number)) for number in (entry.version, entry.previous) if number is not None)
    memory = next((memory for memory in named if memory is not None), None)
    details = {"content": memory and shapes.shown_content(memory, False), "project": memory and memory.project}
    return {**shapes.journal_entry(entry), **details}


@click.command(
    epilog=examples("triskele stats", "triskele stats --json"),
)
@common
def stats(invocation: Invocation) -> None:
    """Count memories, links and usage."""
    with invocation.open_existing() as engine:
        counts, address = engine.stats(), invocation.address()
        invocation.emit(
            {**shapes.statistics(counts), "store": address, "project": engine.project},
            lambda: _stats_view(engine, counts, address),
        )


def _stats_view(engine: Engine, counts: Statistics, address: str) -> Iterator[RenderableType]:
    yield views.reports.stats(counts, address, engine.project)
    if counts.proposals or counts.today:
        yield views.curation_view.day_counts(counts)
    if counts.days:
        yield views.reports.uses(counts, engine.shorten(each.id for each in counts.most_used))
    if counts.adopted is not None:
        yield views.eval_view.adopted(counts.adopted)
    if counts.agreement is not None:
        yield views.reports.agreement(counts.agreement)
