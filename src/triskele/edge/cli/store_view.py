"""The state of a store for people: counts, pending work, damage and repairs, and what was sent elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from triskele.edge.cli.view import (
    BAD,
    GOOD,
    ID,
    MATCH,
    QUIET,
    WARNING,
    ShortIds,
    bars,
    minute,
    more,
    note,
    number,
    one_line,
    pairs,
    plan_label,
    plural,
    size,
    table,
)
from triskele.edge.wording import shown_content
from triskele.text.folders import REMOTE

if TYPE_CHECKING:
    from triskele.edge.cli.layout import Part, Text
    from triskele.engine.health import Health
    from triskele.engine.upkeep import SyncedServer
    from triskele.engine.workplace import ProjectSummary
    from triskele.recall.hosted.egress_log import Day
    from triskele.replies import DayCount, JobCounts, Statistics
    from triskele.types import UseCount

_SHOWN_PROBLEMS = 10
_USES = ("recalled", "injected", "tokens")
_NO_MODEL = "✓ No hosted model is configured"


def stats_view(counts: Statistics, short: ShortIds, address: str, project: str) -> Iterator[Part]:
    """Counts of the store, its curation and its use."""
    names, jobs = counts.names, counts.jobs
    graph = f"{plural(names.concepts, 'concept')}, {plural(names.mentions, 'mention')}"
    rows = {
        "store": address,
        "project": project,
        "memories": f"{counts.memories:,}",
        "superseded": f"{counts.superseded:,}",
        "forgotten": f"{counts.forgotten:,}",
        "links": f"{counts.links:,}",
        "changes": f"{counts.journal:,}",
        "to embed": f"{jobs.embed:,}",
        "graph": f"{graph}, {plural(names.waiting, 'memory')} to read",
        "size": size(counts.bytes),
    }
    yield pairs((name, note(value)) for name, value in rows.items())
    yield from _failed_jobs(jobs)
    for title, groups in (("By category", counts.by_category), ("By project", counts.by_project)):
        if groups:
            yield from (note(""), note(title, MATCH), bars(groups))
    if counts.proposals or counts.today:
        yield _curation(counts)
    if counts.days:
        yield from _uses(counts, short)
    if (plan := counts.adopted) is not None:
        origin = f"since {plan.since[:10]}, learned on {plural(plan.questions, 'question')}"
        yield note(f"Adopted weights are in force {origin}: {plan_label(plan.values)}.", ID)
    if (agreement := counts.agreement) is not None:
        queries = f"Queries that the cross-encoder reranked in time: {agreement.answered:,} of {agreement.asked:,}"
        same = f"{agreement.kept * 100:.0f} % of the top five stayed (mean tau {agreement.tau:.2f})"
        yield note(f"{queries}; {same}.", QUIET)


def _curation(counts: Statistics) -> Text:
    """What curation did today, and what waits for a review."""
    today = counts.today
    parts = [f"{plural(counts.proposals, 'proposal')} for `triskele review`"]
    if changed := today.get("changed", 0):
        parts.append(f"{plural(changed, 'memory')} changed without a review today")
    if calls := today.get("calls", 0):
        tokens = f" ({plural(today['tokens'], 'token')})" if today.get("tokens") else ""
        parts.append(f"{calls} of {counts.llm_calls} calls of the language model today{tokens}")
    return note(f"Curation: {', '.join(parts)}")


def _uses(counts: Statistics, short: ShortIds) -> Iterator[Part]:
    """Usage by memory and by day."""
    texts = {memory.id: one_line(shown_content(memory, False)) for memory in counts.used}
    if counts.most_used:
        by_memory = table("id", *_USES, "memory", last_takes_rest=True)
        for count in counts.most_used:
            by_memory.add_row(note(short[count.id], ID), *_numbers(count), note(texts.get(count.id, "(forgotten)")))
        yield from (note(""), note("Most used", MATCH), by_memory)
    by_day = table("day (UTC)", *_USES)
    for day in counts.days:
        by_day.add_row(note(day.day, QUIET), *_numbers(day))
    yield from (note(""), note("Used by day", MATCH), by_day)


def _numbers(count: UseCount | DayCount) -> Iterator[Text]:
    return map(number, (count.recalled, count.injected, count.tokens))


def projects_view(projects: Sequence[ProjectSummary], current: str) -> Iterator[Part]:
    """The projects with their memories, folders and repositories."""
    if not projects:
        yield note("No projects yet: a folder becomes a project with its first memory.")
        return
    rows = table("", "project", "memories", "folders and repositories", last_takes_rest=True)
    for project in projects:
        # A remote is more informative than the folders of its clones.
        keys = [key for key in project.places if key.startswith(REMOTE)] or project.places
        folders = ", ".join(key.partition(":")[2] for key in keys)
        sign = "*" if project.name == current else ""
        rows.add_row(note(sign), note(project.name, ID), note(f"{project.memories:,}"), note(folders, QUIET))
    yield rows
    yield note(f"* current project: {current}", QUIET)


def health_view(
    health: Health,
    *,
    deep: bool,
    synced: Sequence[SyncedServer] = (),
    server: str = "",
    without_token: Sequence[str] = (),
) -> Iterator[Text]:
    """The findings and repairs of `doctor`; `server` is that of the settings."""
    yield from (note(f"✗ {finding.subject}: {finding.problem}", BAD) for finding in health.findings)
    if health.findings:
        yield note("This cannot be repaired: restore a backup with `triskele restore FILE`.")
    else:
        checked = "all checksums match" if deep else "integrity check passed"
        yield note(f"✓ Database OK ({checked}).", GOOD)
    yield from _lost_writes(health)
    for path in health.leftovers:
        yield note(f"· A killed backup or restore left {path}: it holds memories", WARNING)
    yield from (note(f"✓ Repaired: {what}.", GOOD) for what in health.repaired)
    if health.repair_problem is not None:
        sign, style = ("✗", BAD) if health.is_unrepaired else ("·", WARNING)
        yield note(f"{sign} Nothing more could be repaired: {health.repair_problem}", style)
    if health.model_problem is not None:
        yield note(f"✗ The model cannot be loaded, recall uses words only: {health.model_problem}", BAD)
    yield from (note(f"· {line}.", WARNING) for line in health.corpus_notes)
    if health.vault_problem is not None:
        yield note(f"✗ Secrets cannot be read: {health.vault_problem}", BAD)
    for id in health.exposed[:_SHOWN_PROBLEMS]:
        yield note(f"· {id} looks like a secret and is not sealed: triskele secrets seal {id}", WARNING)
    yield from more(len(health.exposed) - _SHOWN_PROBLEMS, style=WARNING)
    yield from _index(health)
    yield from (_same_name(name, others) for name, others in health.mixed.items())
    yield from _pending_jobs(health.jobs)
    yield from _egress(health, synced, server)
    if not deep:
        yield note("`triskele doctor --deep` also checks every checksum and every index entry.", QUIET)
    for name in without_token:
        command = f"run `triskele install {name}` again"
        yield note(f"· private_to names {name}, but its entry has no token: {command}", WARNING)


def _index(health: Health) -> Iterator[Text]:
    """The state of the indexes where nothing was repaired."""
    if health.findings or health.repaired or health.repair_problem is not None:
        return
    if health.is_unrepaired:
        faults = ("index fault", health.index_faults), ("damaged vector", health.vectors_damaged)
        counts = (*faults, ("erased vector", health.vectors_orphaned))
        parts = ", ".join(plural(count, noun) for noun, count in counts if count)
        yield note(f"✗ Not repaired: {parts}. `triskele doctor --deep` repairs this.", BAD)
    elif not health.repairs and health.index_behind != 0:
        yield note("· The index is not up to date: the next recall brings it there.", WARNING)
    else:
        yield note("✓ Index up to date.", GOOD)


def _lost_writes(health: Health) -> Iterator[Text]:
    """Acknowledged writes that were lost, and what is still known of them."""
    for loss in health.lost:
        lost = f"{plural(len(loss.entries), 'acknowledged write')} lost, the last of {minute(loss.entries[-1].at)}"
        yield note(f"✗ {lost}: the database is older than what was reported as stored.", BAD)
        for entry in loss.entries[-_SHOWN_PROBLEMS:]:
            text = f": {one_line(loss.texts[entry.id])}" if entry.id in loss.texts else ""
            yield note(f"  {minute(entry.at)} {entry.action} {entry.id}{text}", BAD)
        if loss.kept is not None:
            advice = "delete it when you no longer need it."
            yield note(f"  What is left of them is kept in {loss.kept}; {advice}", WARNING)
    for path, count in health.index_ahead.items():
        yield note(f"✗ An older index has {plural(count, 'version')} that the database lacks: writes were lost.", BAD)
        yield note(f"  The index is kept in {path}", WARNING)
    if health.lost or health.index_ahead:
        yield note("  Restore a newer backup with `triskele restore FILE`, or write them again.")


def _same_name(name: str, others: Sequence[str]) -> Text:
    """Memories that may be in the wrong project, and what to do."""
    problem = f"· Older memories of {name} may belong to {' or '.join(others)}, a folder of the same name:"
    advice = f"see `triskele list --project {name}`, move one with `triskele edit ID --project {others[0]}`"
    return note(f"{problem} {advice}", WARNING)


def _pending_jobs(jobs: JobCounts) -> Iterator[Text]:
    """Pending work, and what failed last."""
    if jobs.embed or jobs.names:
        parts = [f"{plural(jobs.embed, 'text')} to embed"] * bool(jobs.embed)
        parts += [f"{plural(jobs.names, 'memory')} to read names from"] * bool(jobs.names)
        yield note(f"· {', '.join(parts)}: the background does it, or `triskele reindex` now", WARNING)
    yield from _failed_jobs(jobs)


def _failed_jobs(jobs: JobCounts) -> Iterator[Text]:
    if jobs.last_error:
        given_up = f"{plural(jobs.given_up, 'text')} given up after several tries; " if jobs.given_up else ""
        yield note(f"✗ {given_up}the last error was: {jobs.last_error} (`triskele reindex` tries again)", BAD)


def _egress(health: Health, synced: Sequence[SyncedServer], server: str) -> Iterator[Text]:
    """The configured hosts and servers, and what was sent, by day."""
    yield from (note(f"· {problem}", WARNING) for problem in health.outside_problems)
    if health.outside:
        hosts = ", ".join(f"{host} ({name})" for name, host in health.outside.items())
        yield note(f"· Open memories and queries may be sent to {hosts}.", WARNING)
    elif not health.outside_problems:
        stays_here = not server and not any(state.is_set for state in synced)
        yield note(f"{_NO_MODEL}; nothing leaves this machine." if stays_here else f"{_NO_MODEL}.", GOOD)
    yield from (_synced(state) for state in synced)
    if server:
        yield note(f"· Commands without --store use the memory on {server}.", WARNING)
    if not health.left:
        where = "to a hosted model" if synced or server else "from this machine"
        yield note(f"✓ Nothing was sent {where}.", GOOD)
    yield from map(_day, health.left)


def _synced(server: SyncedServer) -> Text:
    """A server that this store was synced with, and when."""
    verb = "are" if server.is_set else "were"
    user = f" as {server.user}" if server.user else ""
    last = f"last sync {minute(server.at)}" if server.at else "no sync has finished yet"
    pushed = "" if server.sent is None else f"{plural(server.sent, 'change')} pushed, "
    return note(f"· Open memories {verb} synced with {server.url}{user}: {pushed}{last}.", WARNING)


def _day(day: Day) -> Text:
    """What was sent to a host on one day."""
    billed = f", {plural(day.tokens, 'token')}" if day.tokens else ""
    billed += f", about {day.cost:,.4f} in your currency" if day.cost else ""
    requests = f"{plural(day.requests, 'request')} (failed ones included)"
    texts = f"{plural(day.texts, 'text')}, {plural(day.characters, 'character')} to {day.host} ({day.endpoint})"
    return note(f"· {day.day}: {texts}, {requests}{billed}", WARNING)
