"""Commands that read memories: recall, why-not, show, list, history, stats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from triskele.config import RerankSettings
from triskele.errors import BadInput
from triskele.exchange import CONFLICTS
from triskele.recall.plan import CROSS
from triskele.serving import shapes
from triskele.serving.cli import code_commands
from triskele.serving.cli.help_screens import EverydayCommand
from triskele.serving.cli.invocation import Invocation, common, examples
from triskele.serving.cli.options import (
    MAX_LISTED,
    asking_options,
    category_option,
    id_argument,
    only_one,
    period_filter,
    reading_place,
    tag_filter,
)
from triskele.types import OF_A_TAG, Action, JournalEntry, LinkKind, Memory, Sort

if TYPE_CHECKING:
    from triskele.engine import Engine

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
        if invocation.remote is None:
            _check_rerank(engine.settings.rerank, options["rerank"])
        found = engine.recall(
            query,
            project=project,
            all_projects=all_projects,
            sort=Sort(sort),
            show_superseded=superseded,
            **options,
        )
        times = shapes.times(options)
        if invocation.as_json:
            invocation.write_json({**shapes.answer(found), "times": times})
        elif not query.strip():
            invocation.echo("The question is empty: nothing was searched. `triskele list` shows the memories.")
        else:
            from triskele.serving.cli import render

            short = engine.store.shorten(render.ids_in(found))
            is_remote = invocation.remote is not None
            invocation.write(render.answer(found, short, explain=explain, times=times, is_remote=is_remote))
            if project and not found.hits and project not in engine.census().by_project:
                said = f"No memory belongs to a project called {project}; `triskele projects list` shows the projects."
                invocation.write(render.note(render.visible(said)))

        from triskele.curation import usage

        engine.after_answer.put(partial(usage.note_recall, engine.store, found))


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
        if invocation.remote is None:
            _check_rerank(engine.settings.rerank, options["rerank"])
        found = engine.why_not(id, query, project=project, all_projects=all_projects, **options)
        shape, times = shapes.why_not(found), shapes.times(options)
        if invocation.as_json:
            return invocation.write_json({**shape, "project": engine.project, "times": times})
        from triskele.serving.cli import render, reports

        return invocation.write(reports.why_not(found, shape["smallest_change"]), *render.time_lines(times))


def _check_rerank(settings: RerankSettings, chosen: str) -> None:
    """Refuse a cross-encoder that is not set, with the command that sets it."""
    if chosen == CROSS and not (settings.model or settings.service):
        raise BadInput("no cross-encoder is set: `triskele config set rerank.model bundled` sets the bundled one")


@click.command(
    epilog=examples("triskele show 1kpn46", "triskele show 1kpn46 --json"),
)
@id_argument()
@common
def show(invocation: Invocation, id: str) -> None:
    """Show one memory with all its details and links."""
    with invocation.open_existing() as engine:
        memory = engine.get(id)
        links = engine.links(memory.id)
        others = engine.store.memories({end for link in links for end in (link.source, link.target)} - {memory.id})
        successors = [each.source for each in links if each.kind is LinkKind.SUPERSEDES and each.source in others]
        superseded = memory.id in engine.superseded([memory.id])
        used = engine.store.usage.counts([memory.id]).get(memory.id)
        named = code_commands.named_code(invocation, memory)
        conflicts = _in_conflict(invocation, engine, [memory.id])
        if invocation.as_json:
            details = shapes.memory(memory, superseded=superseded)
            connected = [shapes.link(link) for link in links]
            details |= {"superseded_by": successors, "links": connected, "uses": shapes.use_count(used), "code": named}
            return invocation.write_json({**details, "in_conflict": bool(conflicts)})
        from triskele.serving.cli import render

        short = engine.store.shorten([memory.id, *others])
        shown = render.memory(
            memory, links, others, short, superseded=superseded, used=used, in_conflict=bool(conflicts)
        )
        return invocation.write(
            shown, *(f"code  {each['path']}:{each['start_line']}  {each['symbol']}" for each in named)
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
        return _list_conflicts(invocation)
    with invocation.open_existing() as engine:
        filters |= {"project": project, "all_projects": all_projects}
        memories = engine.browse(sort=Sort(sort), limit=limit, offset=offset, **filters)
        ids = [memory.id for memory in memories]
        superseded, disputed, times = (
            engine.superseded(ids),
            _in_conflict(invocation, engine, ids),
            shapes.times(filters),
        )
        place = None if all_projects else engine.project if project is None else project
        if invocation.as_json:
            listed = [
                {**shapes.memory(memory, superseded=memory.id in superseded), "in_conflict": memory.id in disputed}
                for memory in memories
            ]
            page = {"project": place, "limit": limit, "offset": offset, "times": times}
            return invocation.write_json({"memories": listed, **page})
        from triskele.serving.cli import render

        short = engine.store.shorten(memory.id for memory in memories)
        shown = render.listing(memories, short, superseded, place, offset=offset, limit=limit, disputed=disputed)
        return invocation.write(shown, *render.time_lines(times), is_list=True)


def _in_conflict(invocation: Invocation, engine: Engine, ids: Sequence[str]) -> frozenset[str]:
    """Those of these memories that were changed here and on the sync server; a server has no such conflicts."""
    return frozenset() if invocation.remote else frozenset(engine.store.documents.some(CONFLICTS, ids))


def _list_conflicts(invocation: Invocation) -> None:
    """Both versions of every memory in conflict, of all projects."""
    invocation.refuse_server()
    with invocation.open_existing() as engine:
        from triskele.exchange import sync_notes

        found = sync_notes.conflicts(engine.store)
        if invocation.as_json:
            pairs = [
                {"id": each.id, "mine": each.mine and shapes.memory(each.mine), "theirs": shapes.memory(each.theirs)}
                for each in found
            ]
            return invocation.write_json({"conflicts": pairs, "project": engine.project})
        from triskele.serving.cli import render

        return invocation.write(render.conflicts(found, engine.store.shorten(each.id for each in found)))


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
        entries = engine.store.newest_entries(limit=limit)[::-1] if id is None else engine.history(id)
        ids = {id for entry in entries for id in _named(entry)}
        versions = {(memory.id, memory.version): memory for _, memory in engine.store.versions(sorted(ids))}
        if invocation.as_json:
            lines = [_entry(entry, versions) for entry in entries]
            own = [] if id is None else engine.versions(id)
            about = {} if id is None else {"id": own[-1].id, "versions": [shapes.version(each) for each in own]}
            return invocation.write_json({**about, "entries": lines, "project": engine.project})
        from triskele.serving.cli import reports

        shown = reports.history(entries, versions, engine.store.places(), engine.store.shorten(ids))
        return invocation.write(shown, is_list=True)


def _named(entry: JournalEntry) -> tuple[str, ...]:
    """The memories that an entry names: an entry of a share also names its reader, and may be about a tag."""
    if entry.action in (Action.SHARED, Action.UNSHARED):
        return () if entry.id.startswith(OF_A_TAG) else (entry.id,)
    return entry.ends


def _entry(entry: JournalEntry, versions: Mapping[tuple[str, int], Memory]) -> dict[str, Any]:
    """A journal entry with the text of the version that it made, or that it ended."""
    named = (versions.get((entry.id, number)) for number in (entry.version, entry.previous) if number is not None)
    memory = next((memory for memory in named if memory is not None), None)
    about = {"content": memory and shapes.shown_content(memory, False), "project": memory and memory.project}
    return {**shapes.journal_entry(entry), **about}


@click.command(
    epilog=examples("triskele stats", "triskele stats --json"),
)
@common
def stats(invocation: Invocation) -> None:
    """Count memories, links and usage."""
    from triskele.config import shown_url
    from triskele.serving.statistics import more_statistics

    with invocation.open_existing() as engine:
        remote = invocation.remote
        census, more = (engine.census(), more_statistics(engine)) if remote is None else remote.statistics()
        address = shown_url(invocation.settings().store.url) if remote is None else remote.url
        if invocation.as_json:
            counts = {
                **shapes.plain(census),
                "waiting": more.jobs.embed,
                "jobs": shapes.plain(more.jobs),
                "graph": shapes.plain(more.names),
                "adopted": shapes.plain(more.adopted),
                "uses": shapes.uses(more.most_used, more.days),
                "agreement": shapes.plain(more.agreement),
                "curation": {"proposals": more.proposals, "today": more.today},
            }
            return invocation.write_json({**counts, "store": address, "project": engine.project})
        from triskele.serving.cli import reports

        invocation.write(reports.stats(census, more.jobs, more.names, address, engine.project))
        if more.proposals or more.today:
            from triskele.serving.cli import curation_report

            invocation.write(curation_report.day_counts(more.proposals, more.today, more.llm_calls))
        if more.days:
            short = engine.store.shorten(each.id for each in more.most_used)
            used = {each.id: each for each in more.used}
            invocation.write(reports.uses(list(more.most_used), list(more.days), used, short))
        if more.adopted is not None:
            from triskele.serving.cli import eval_report

            invocation.write(eval_report.adopted(more.adopted))
        if more.agreement is not None:
            invocation.write(reports.agreement(more.agreement))
        return None
