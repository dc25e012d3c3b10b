"""Commands that read memories: recall, why-not, show, list, history, stats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from triskele.edge.cli.commands import command
from triskele.edge.cli.documents import Document, entry_document, memory_document, shown, statistics_document, times
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.memory_view import (
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
    asking_options,
    choice_option,
    filter_options,
    limit_option,
    memory_id,
    shown_project,
)
from triskele.edge.cli.view import note
from triskele.edge.hook import client as hook_client
from triskele.types import LinkKind, Sort, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.edge.cli.memory_view import Versions
    from triskele.edge.cli.view import Renderable
    from triskele.types import JournalEntry

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
@choice_option("--sort", Sort, Sort.RELEVANCE, "The order of the hits.")
@click.option("--superseded", "show_superseded", is_flag=True, help="Show superseded memories, not their successors.")
@click.option("--budget", type=int, metavar="TOKENS", help="Only hits that fit, without near-duplicates.")
@click.option("--explain", is_flag=True, help="Show the rank and score of each leg.")
def recall(invocation: Invocation, query: str, sort: str, explain: bool, **options: Any) -> None:
    """Find the memories that answer a question."""
    with invocation.open() as engine:
        answer = engine.recall(query, sort=Sort(sort), **options)
        moments = times(options)
        if not (query.strip() or invocation.as_json):
            return click.echo("The question is empty: nothing was searched. `triskele list` shows the memories.")

        def view() -> Iterator[Renderable]:
            short = engine.shorten(ids_in(answer))
            yield from answer_view(answer, short, explain=explain, times=moments, embeds_here=invocation.embeds_here())
            project = options["project"]
            if project and not answer.hits and project not in engine.stats().by_project:
                advice = "`triskele projects list` shows the projects"
                yield note(f"No memory belongs to a project called {project}; {advice}.")

        return invocation.emit(answer, view, times=moments)


@command(
    'triskele why-not 1kpn46 "how do releases reach the cluster?"',
    'triskele why-not 1kpn46 "database" --category facts --json',
    name="why-not",
    everyday=("limit", "category", "tags", "project", "all_projects", "since", "until", "as_of", "known_at"),
)
@memory_id()
@click.argument("query")
@asking_options
def why_not(invocation: Invocation, id: str, query: str, **options: Any) -> None:
    """Explain why a memory was not found, and what finds it."""
    with invocation.open() as engine:
        explained, moments = engine.why_not(id, query, **options), times(options)
        invocation.emit(
            explained,
            lambda: [*why_not_view(explained, shown(explained)["smallest_change"]), *time_lines(moments)],
            project=engine.project,
            times=moments,
        )


@command("triskele show 1kpn46", "triskele show 1kpn46 --json")
@memory_id()
def show(invocation: Invocation, id: str) -> None:
    """Show one memory with all its details and links."""
    with invocation.open() as engine:
        memory = engine.get(id)
        definitions: list[Document] = []
        code_indexes = os.path.join(hook_client.Address(invocation.environ()).home, "code")
        if not is_secret(memory) and os.path.isdir(code_indexes):
            from triskele.edge.cli.code import named_code

            definitions = named_code(invocation, memory)
        successors = [link.source for link in memory.links if link.kind is LinkKind.SUPERSEDES]
        invocation.emit(
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


@command("triskele list", "triskele list --all-projects --category decisions --sort importance --limit 50", name="list")
@filter_options
@choice_option("--sort", [Sort.RECENCY, Sort.IMPORTANCE], Sort.RECENCY, "The order of the list.")
@limit_option(20, "The maximum number of memories.")
@click.option("--offset", type=click.IntRange(0, 2**31), default=0, help="Skip this many memories.")
@click.option("--conflicts", is_flag=True, help="Only memories that were changed here and on the sync server.")
def list_(invocation: Invocation, sort: str, limit: int, offset: int, conflicts: bool, **filters: Any) -> None:
    """List memories, newest or most important first."""
    if conflicts:
        return _list_conflicts(invocation)
    with invocation.open() as engine:
        memories = engine.browse(sort=Sort(sort), limit=limit, offset=offset, **filters).memories
        moments, where = times(filters), shown_project(engine, filters)
        return invocation.emit(
            {"memories": [{**shown(memory), "in_conflict": memory.in_conflict} for memory in memories]},
            lambda: [
                *listing(memories, engine.shorten(each.id for each in memories), where, offset=offset, limit=limit),
                *time_lines(moments),
            ],
            is_list=True,
            project=where,
            limit=limit,
            offset=offset,
            times=moments,
        )


def _list_conflicts(invocation: Invocation) -> None:
    """List both versions of every memory in conflict, of all projects."""
    with invocation.stores.open_local() as engine:
        conflicts = engine.curation.proposals(kind=Verdict.CONFLICT)
        versions = ((each.id, each.old and memory_document(each.old), memory_document(each.new)) for each in conflicts)
        invocation.emit(
            {"conflicts": [{"id": id, "mine": mine, "theirs": theirs} for id, mine, theirs in versions]},
            lambda: conflicts_view(conflicts, engine.shorten(conflict.id for conflict in conflicts)),
            project=engine.project,
        )


@command("triskele history 1kpn46", "triskele history --limit 50      (the whole store)")
@memory_id(required=False)
@limit_option(20, "The number of newest changes.")
def history(invocation: Invocation, id: str | None, limit: int) -> None:
    """Show the changes of a memory, or the latest ones of the store."""
    with invocation.open() as engine:
        own = None if id is None else engine.get(id).id
        changes = engine.journal(limit=limit) if own is None else engine.journal(id=own, limit=EVERY)
        entries, versions = changes.entries[::-1], numbered(changes.versions)
        oldest_first = sorted((each for each in changes.versions if each.id == own), key=lambda each: each.version)
        document: Document = {} if own is None else {"id": own, "versions": oldest_first}
        invocation.emit(
            {**document, "entries": [_entry(entry, versions) for entry in entries], "project": engine.project},
            lambda: history_view(
                entries, versions, changes.folders, engine.shorten({id for entry in entries for id in entry.memories})
            ),
            is_list=True,
        )


def _entry(entry: JournalEntry, versions: Versions) -> Document:
    """A journal entry with the text that it made or ended."""
    numbers = (number for number in (entry.version, entry.previous) if number is not None)
    memories = (versions[entry.id, number] for number in numbers if (entry.id, number) in versions)
    return entry_document(entry, next(memories, None))


@command("triskele stats", "triskele stats --json")
def stats(invocation: Invocation) -> None:
    """Count memories, links and usage."""
    with invocation.open() as engine:
        counts, address = engine.stats(), invocation.address()
        invocation.emit(
            statistics_document(counts),
            lambda: stats_view(counts, engine.shorten(count.id for count in counts.most_used), address, engine.project),
            store=address,
            project=engine.project,
        )
