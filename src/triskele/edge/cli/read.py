"""Commands that read memories: recall, why-not, show, list, history, stats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command
from triskele.edge.cli.emit import Document, change_in_options, emit, memory_document, shown, statistics_document, times
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.memory_view import (
    Versions,
    answer_view,
    conflicts_view,
    history_view,
    ids_in,
    listing,
    memory_view,
    numbered,
    stats_view,
    time_lines,
    why_not_view,
)
from triskele.edge.cli.options import (
    EVERY,
    MAX_LISTED,
    asking_options,
    category_option,
    id_argument,
    one_project_or_all,
    period_filter,
    reading_place,
    shown_project,
    tag_filter,
)
from triskele.edge.cli.view import note
from triskele.edge.hook import client as hook_client
from triskele.edge.wording import shown_content
from triskele.types import JournalEntry, LinkKind, Sort, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable
    from triskele.types import MemoryDetails

_NEVER_USED = {"recalled": 0, "injected": 0, "tokens": 0, "last": None}


@command(
    'triskele recall "how do releases reach the cluster?"',
    'triskele recall "database version" --as-of 2025-05-01 --explain',
    'triskele recall "what did we decide?" --since "last month"',
    'triskele recall "sms provider" --all-projects --category decisions --json',
    everyday=("limit", "tags", "all_projects", "since", "explain"),
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
    one_project_or_all(project, all_projects)
    with invocation.open_existing() as engine:
        answer = engine.recall(
            query, project=project, all_projects=all_projects, sort=Sort(sort), show_superseded=superseded, **options
        )
        moments = times(options)
        if not (query.strip() or invocation.as_json):
            return click.echo("The question is empty: nothing was searched. `triskele list` shows the memories.")

        def view() -> Iterator[Renderable]:
            short = engine.shorten(ids_in(answer))
            yield from answer_view(answer, short, explain=explain, times=moments, embeds_here=invocation.embeds_here())
            if project and not answer.hits and project not in engine.stats().by_project:
                advice = "`triskele projects list` shows the projects"
                yield note(f"No memory belongs to a project called {project}; {advice}.")

        return emit(invocation, answer, view, times=moments)


@command(
    'triskele why-not 1kpn46 "how do releases reach the cluster?"',
    'triskele why-not 1kpn46 "database" --category facts --json',
    name="why-not",
    everyday=("limit", "category", "tags", "project", "all_projects", "since", "until", "as_of", "known_at"),
)
@id_argument()
@click.argument("query")
@asking_options
def why_not(
    invocation: Invocation, id: str, query: str, project: str | None, all_projects: bool, **options: Any
) -> None:
    """Explain why a memory was not found, and what finds it."""
    one_project_or_all(project, all_projects)
    with invocation.open_existing() as engine:
        explained = engine.why_not(id, query, project=project, all_projects=all_projects, **options)
        moments = times(options)
        emit(
            invocation,
            explained,
            lambda: [*why_not_view(explained, change_in_options(explained)), *time_lines(moments)],
            project=engine.project,
            times=moments,
        )


@command("triskele show 1kpn46", "triskele show 1kpn46 --json")
@id_argument()
def show(invocation: Invocation, id: str) -> None:
    """Show one memory with all its details and links."""
    with invocation.open_existing() as engine:
        memory = engine.get(id)
        definitions = _named_code(invocation, memory)
        successors = [link.source for link in memory.links if link.kind is LinkKind.SUPERSEDES]
        emit(
            invocation,
            memory,
            lambda: [
                *memory_view(memory, engine.shorten([memory.id, *memory.linked])),
                *(note(f"code  {each['path']}:{each['start_line']}  {each['symbol']}") for each in definitions),
            ],
            superseded_by=[id for id in successors if id in memory.linked],
            links=memory.links,
            uses=memory.used or _NEVER_USED,
            code=definitions,
            in_conflict=memory.in_conflict,
        )


def _named_code(invocation: Invocation, memory: MemoryDetails) -> list[Document]:
    """Definitions that a memory names, if there are indexes of source code."""
    home = hook_client.Address(invocation.environ()).home
    if is_secret(memory) or not os.path.isdir(os.path.join(home, "code")):
        return []
    from triskele.edge.cli.code import named_code

    return named_code(invocation, memory)


@command(
    "triskele list",
    "triskele list --all-projects --category decisions --sort importance --limit 50",
    name="list",
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
    one_project_or_all(project, all_projects)
    if conflicts:
        _list_conflicts(invocation)
        return
    with invocation.open_existing() as engine:
        filters |= {"project": project, "all_projects": all_projects}
        memories = engine.browse(sort=Sort(sort), limit=limit, offset=offset, **filters).memories
        moments = times(filters)
        where = shown_project(engine, project, all_projects)
        details = {"project": where, "limit": limit, "offset": offset, "times": moments}
        emit(
            invocation,
            {"memories": [{**shown(memory), "in_conflict": memory.in_conflict} for memory in memories], **details},
            lambda: [
                *listing(memories, engine.shorten(each.id for each in memories), where, offset=offset, limit=limit),
                *time_lines(moments),
            ],
            is_list=True,
        )


def _list_conflicts(invocation: Invocation) -> None:
    """List both versions of every memory in conflict, of all projects."""
    with invocation.stores.open_local_existing() as engine:
        conflicts = engine.curation.proposals(kind=Verdict.CONFLICT)
        pairs_of_versions = [
            {
                "id": conflict.id,
                "mine": conflict.old and memory_document(conflict.old),
                "theirs": memory_document(conflict.new),
            }
            for conflict in conflicts
        ]
        emit(
            invocation,
            {"conflicts": pairs_of_versions, "project": engine.project},
            lambda: conflicts_view(conflicts, engine.shorten(conflict.id for conflict in conflicts)),
        )


@command("triskele history 1kpn46", "triskele history --limit 50      (the whole store)")
@id_argument(required=False)
@click.option(
    "--limit", type=click.IntRange(1, MAX_LISTED), default=20, show_default=True, help="The number of newest changes."
)
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show the changes of a memory, or the latest ones of the store."""
    with invocation.open_existing() as engine:
        own = None if id is None else engine.get(id).id
        changes = engine.journal(limit=limit) if own is None else engine.journal(id=own, limit=EVERY)
        entries, versions = changes.entries[::-1], numbered(changes.versions)
        oldest_first = sorted((each for each in changes.versions if each.id == own), key=lambda each: each.version)
        document: Document = {} if own is None else {"id": own, "versions": oldest_first}
        ids = {id for entry in entries for id in entry.memories}
        emit(
            invocation,
            {**document, "entries": [_entry(entry, versions) for entry in entries], "project": engine.project},
            lambda: history_view(entries, versions, changes.folders, engine.shorten(ids)),
            is_list=True,
        )


def _entry(entry: JournalEntry, versions: Versions) -> Document:
    """A journal entry with the text that it made or ended."""
    numbers = (number for number in (entry.version, entry.previous) if number is not None)
    memory = next((versions[entry.id, number] for number in numbers if (entry.id, number) in versions), None)
    text = {"content": memory and shown_content(memory, False), "project": memory and memory.project}
    return {**shown(entry), **text}


@command("triskele stats", "triskele stats --json")
def stats(invocation: Invocation) -> None:
    """Count memories, links and usage."""
    with invocation.open_existing() as engine:
        counts, address = engine.stats(), invocation.address()
        emit(
            invocation,
            statistics_document(counts),
            lambda: stats_view(counts, engine.shorten(count.id for count in counts.most_used), address, engine.project),
            store=address,
            project=engine.project,
        )
