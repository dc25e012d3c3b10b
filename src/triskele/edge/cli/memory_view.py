"""Memories, answers, changes, the journal and counts for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triskele.edge.cli.view import (
    BAD,
    GOOD,
    ID,
    MATCH,
    OLD,
    QUIET,
    WARNING,
    Framed,
    Indented,
    ShortIds,
    Styled,
    bars,
    day,
    minute,
    more,
    note,
    number,
    numbered_rows,
    pairs,
    plan_label,
    plural,
    project_label,
    size,
    stacked,
    table,
)
from triskele.edge.wording import SECRET_PREFIX, mark, one_line, passed_over_lines, shown_content
from triskele.text.folders import REMOTE
from triskele.types import (
    CURATION,
    IMPORT,
    LEAST_CONFIDENCE,
    SPOKEN,
    USER,
    Action,
    Answer,
    Hit,
    JournalEntry,
    Link,
    LinkKind,
    Memory,
    Outcome,
    Sensitivity,
    client_actor,
)

if TYPE_CHECKING:
    from triskele.edge.cli.view import Renderable
    from triskele.replies import DayCount, JobCounts, Statistics, Undone
    from triskele.replies.rooms import Proposal
    from triskele.types import History, MemoryDetails, MemoryView, RegisteredFolder, Sent, UseCount, WhyNot

SETTLE = "`triskele list --conflicts` shows both versions, `triskele sync --resolve ID --keep mine|theirs` settles one"
SHOWN_OUTCOMES = 10
_SHOWN_PROJECTS = 3
_USES = ("recalled", "injected", "tokens")
_DEFAULT_IMPORTANCE = 0.5
_CONFLICT_PREFIX = "[in conflict] "
_EXAMPLE_KEY = re.compile(r"\b(?:A[KS]IA[A-Z0-9]{9}EXAMPLE|[A-Za-z0-9/+]{20,33}EXAMPLEKEY)\b")
_SEEN_FROM_TARGET = {
    LinkKind.SUPERSEDES: "superseded by",
    LinkKind.RESOLVED_BY: "resolves",
    LinkKind.PART_OF: "has the part",
    LinkKind.SEE_ALSO: "see also",
}
_TIME_LINES = {
    "as_of": "As of {}, as known now.",
    "known_at": "As known on {}.",
    "since": "Since {}.",
    "until": "Until {}, included.",
    "valid_from": "Valid from {}.",
    "valid_to": "No longer valid from {}.",
}
_ACTIONS = {
    Action.ADDED: "Added",
    Action.DUPLICATE: "Already stored as",
    Action.EDITED: "Edited",
    Action.BOUND: "Moved",
    Action.UNCHANGED: "Nothing to change:",
    Action.RESTORED: "Restored",
    Action.FORGOTTEN: "Forgot",
    Action.LINKED: "Linked",
    Action.UNLINKED: "Unlinked",
    Action.ERASED: "Erased:",
    Action.REVEALED: "Revealed",
    Action.SEALED: "Sealed in the vault, in all its versions:",
    Action.SHARED: "Shared",
    Action.UNSHARED: "No longer shared:",
}
_ACTORS = {USER: "you", IMPORT: "an import", CURATION: "curation"}

Versions = Mapping[tuple[str, int], Memory]
"""versions of memories by their id and number"""


def numbered(versions: Iterable[Memory]) -> Versions:
    """Versions by their id and number."""
    return {(memory.id, memory.version): memory for memory in versions}


# Answers


def ids_in(answer: Answer) -> set[str]:
    """All ids that the view of an answer shows."""
    ids = {hit.memory.id for hit in answer.hits} | {memory.id for memory in answer.resolutions}
    ids |= {hit.stands_for for hit in answer.hits if hit.stands_for}
    return ids | {end for hit in answer.hits for link in hit.links for end in (link.source, link.target)}


def answer_view(
    answer: Answer,
    short: ShortIds,
    *,
    explain: bool = False,
    times: Mapping[str, Any] | None = None,
    embeds_here: bool = True,
) -> Iterator[Renderable]:
    """The hits of a recall, best first; `embeds_here` is false for servers."""
    # The answer itself shows since and until.
    options = {name: time for name, time in (times or {}).items() if name not in ("since", "until")}
    time_notes = [*_times(answer), *time_lines(options)]
    if not answer.hits:
        wider = "" if answer.project is None else ", --all-projects"
        yield note(f"Nothing found in {project_label(answer.project)}.")
        yield from time_notes
        yield note(f"Try other words{wider}, or look at `triskele list`.", QUIET)
        return
    if answer.confidence < LEAST_CONFIDENCE:
        yield note("No good match. Closest:", WARNING)
    hits = numbered_rows()
    for rank, hit in enumerate(answer.hits, start=1):
        hits.add_row(Styled(str(rank), QUIET, is_right=True), note(short[hit.memory.id], ID), _hit(hit, short, explain))
    yield hits
    if answer.resolutions:
        resolutions = numbered_rows()
        for memory in answer.resolutions:
            lines = stacked(note(shown_content(memory, False)), _details(memory), note(""))
            resolutions.add_row(Styled("→", GOOD, is_right=True), note(short[memory.id], ID), lines)
        yield note("Resolved by", MATCH)
        yield resolutions
    yield from time_notes
    summary = (plural(len(answer.hits), "memory"), project_label(answer.project), f"confidence {answer.confidence:.2f}")
    yield note(" · ".join((*summary, f"recall took {answer.took_ms:.0f} ms")), QUIET)
    yield from _reservations(answer, embeds_here)


def _times(answer: Answer) -> Iterator[Styled]:
    """The times that the question names and the options allow."""
    # Imported here: its patterns take time to compile, and few answers name a time.
    if answer.period or answer.within:
        from triskele.text import periods
    if answer.period:
        yield note(f"Time in the question: {periods.label(answer.period)}", QUIET)
    if answer.within:
        yield note(f"Only memories from this time: {periods.label(answer.within)}", QUIET)


def _reservations(answer: Answer, embeds_here: bool) -> Iterator[Styled]:
    """What the answer lacks, and what it was reranked by."""
    for reason in answer.missing:
        yield note(f"{reason[:1].upper()}{reason[1:]}.", WARNING)
    if answer.wordings:
        yield note("Also searched for: " + " · ".join(answer.wordings), QUIET)
    if (agreement := answer.agreement) is not None:
        share = f"{agreement.kept * 100:.0f} % of the top five are the same (tau {agreement.tau:.2f})"
        yield note(f"Reranked by the cross-encoder: {share}.", QUIET)
    if answer.waiting:
        advice = "; `triskele reindex` embeds everything" if embeds_here else ""
        are, them = ("is", "it") if answer.waiting == 1 else ("are", "them")
        count = f"{plural(answer.waiting, 'memory')} {are} not embedded yet"
        yield note(f"{count}, so only keywords find {them}{advice}.", QUIET)


def time_lines(times: Mapping[str, Any]) -> list[Styled]:
    """The time options of a call, each as it was understood."""
    return [note(_TIME_LINES[name].format(time["day"]), QUIET) for name, time in times.items()]


def _hit(hit: Hit, short: ShortIds, explain: bool) -> Styled:
    content = note(hit.memory.content)
    if hit.stands_for is None:
        for leg in hit.legs.values():
            for term in leg.terms:
                if term.start >= 0:
                    content.stylize(f"{MATCH} {GOOD}", term.start, term.end)
    content = note(mark(hit.memory, hit.superseded), OLD) + content
    score = _score(hit, short) if explain else ()
    return stacked(content, _details(hit.memory), note(_reason(hit, short), QUIET), *score, note(""))


def _score(hit: Hit, short: ShortIds) -> Iterator[Styled]:
    """The parts of a score, and the links of the memory."""
    legs = (
        f"{name} rank {leg.rank}, score {leg.score:.2f}"
        + (f", adds {leg.contribution:.2f}" if leg.contribution != leg.score else "")
        for name, leg in hit.legs.items()
    )
    yield note(" · ".join((*legs, f"importance ×{hit.prior:.2f}", f"total {hit.score:.2f}")), QUIET)
    labels = dict.fromkeys(term.text for leg in hit.legs.values() for term in leg.terms if term.start < 0)
    if labels:
        yield note("matched in tags, keywords or category: " + ", ".join(labels), QUIET)
    if hit.links:
        yield note(" · ".join(dict.fromkeys(_link_text(link, hit.memory.id, short) for link in hit.links)), QUIET)


def _reason(hit: Hit, short: ShortIds) -> str:
    successor_of = hit.stands_for
    return (
        hit.reason
        if successor_of is None
        else hit.reason.replace(successor_of, short.get(successor_of, successor_of), 1)
    )


def why_not_view(explained: WhyNot, change: str | None) -> Iterator[Styled]:
    """The stages of a recall, and the change that finds the memory."""
    yield note(explained.verdict[0].upper() + explained.verdict[1:] + ".", MATCH)
    for stage in explained.stages:
        yield note(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}")
    if change is not None:
        yield note(f"Found with: {change}", QUIET)


# Memories


def memory_view(memory: MemoryDetails, short: ShortIds) -> Iterator[Renderable]:
    """One memory with all details."""
    content = note(mark(memory, memory.superseded), OLD) + note(memory.content)
    yield Framed(content, note(short[memory.id], ID) + note(f" {memory.category}"))
    details = {
        "id": memory.id,
        "project": memory.project or "everywhere",
        "tags": ", ".join(memory.tags),
        "keywords": memory.keywords,
        "importance": f"{memory.importance:g}",
        "sensitivity": str(memory.sensitivity),
        "origin": str(memory.origin),
        "shared by": memory.shared_by or "",
        "said by": " · ".join(_said_by(memory)),
        "from": " at ".join(str(part) for part in (memory.session, memory.position) if part is not None),
        "valid": " ".join(_validity(memory)).removeprefix("valid "),
        "created": minute(memory.created_at),
        "updated": minute(memory.updated_at) if memory.version > 1 else "",
        "forgotten": minute(memory.known_to) if memory.known_to else "",
        "version": str(memory.version),
        "used": _use(memory.used) if memory.used else "",
        "conflict": f"changed here and on the server: {SETTLE}" if memory.in_conflict else "",
    }
    rows = pairs((name, note(detail)) for name, detail in details.items() if detail)
    for link in memory.links:
        rows.add_row(note("link", QUIET), _linked(link, memory, short))
    yield Indented(rows, 2, 2)


def _details(memory: Memory) -> Styled:
    parts = [memory.category, *(f"#{tag}" for tag in memory.tags), memory.project or "everywhere"]
    parts += [f"shared by {memory.shared_by}"] if memory.shared_by else []
    parts += [*_said_by(memory), day(memory.created_at)]
    if memory.importance != _DEFAULT_IMPORTANCE:
        parts.append(f"importance {memory.importance:g}")
    if memory.sensitivity != "open":
        parts.append(str(memory.sensitivity))
    return note(" · ".join([*parts, *_validity(memory)]), QUIET)


def _said_by(memory: Memory) -> list[str]:
    return [part for name in SPOKEN if (part := getattr(memory, name))]


def _validity(memory: Memory) -> list[str]:
    start = f"from {day(memory.valid_from)}" if memory.valid_from else ""
    end = f"until {day(memory.valid_to)}" if memory.valid_to else ""
    return [" ".join(part for part in ("valid", start, end) if part)] if start or end else []


def _use(count: UseCount) -> str:
    uses = f"recalled {plural(count.recalled, 'time')}, injected {plural(count.injected, 'time')}"
    return f"{uses}, about {plural(count.tokens, 'token')}, last on {day(count.last)}"


def _linked(link: Link, memory: MemoryDetails, short: ShortIds) -> Styled:
    other = link.target if link.source == memory.id else link.source
    names = {**short, other: short.get(other, other)}
    text = shown_content(memory.linked[other], False) if other in memory.linked else "(forgotten)"
    return note(_link_text(link, memory.id, names)) + note("  " + one_line(text), QUIET)


def _link_text(link: Link, id: str, short: ShortIds) -> str:
    if link.source == id:
        return f"{str(link.kind).replace('-', ' ')} {short[link.target]}"
    return f"{_SEEN_FROM_TARGET[link.kind]} {short[link.source]}"


def listing(
    memories: Sequence[MemoryView], short: ShortIds, project: str | None, *, offset: int = 0, limit: int
) -> Iterator[Renderable]:
    """Memories line by line; those in conflict are marked."""
    if not memories:
        advice = f'{"" if project is None else "Try --all-projects, or "}add one: triskele add "…"'
        yield note(f"No {'more ' if offset else ''}memories in {project_label(project)}.")
        yield note(advice[0].upper() + advice[1:], QUIET)
        return
    # Inside one project its name is redundant.
    has_projects, is_shared = project is None, any(memory.shared_by for memory in memories)
    columns = (*["project"] * has_projects, *["shared by"] * is_shared)
    rows = table("id", "updated", "category", *columns, "memory", last_takes_rest=True)
    for memory in memories:
        details = [day(memory.updated_at), memory.category]
        details += [memory.project or "everywhere"] * has_projects + [memory.shared_by or ""] * is_shared
        prefix = note(_CONFLICT_PREFIX * memory.in_conflict + mark(memory, memory.superseded), OLD)
        cells = (note(detail, QUIET) for detail in details)
        rows.add_row(note(short[memory.id], ID), *cells, prefix + note(one_line(memory.content)))
    yield rows
    following = f" · more with --offset {offset + limit}" if len(memories) == limit else ""
    yield note(f"{offset + 1} to {offset + len(memories)} · {project_label(project)}{following}", QUIET)
    if any(memory.in_conflict for memory in memories):
        yield note(f"{SETTLE}.", QUIET)


def conflicts_view(conflicts: Sequence[Proposal], short: ShortIds) -> Iterator[Renderable]:
    """Both versions of every memory in conflict."""
    if not conflicts:
        yield note("No conflicts.")
        return
    rows = table("id", "version", "memory", last_takes_rest=True)
    for conflict in conflicts:
        for side, memory in (("mine", conflict.old), ("theirs", conflict.new)):
            rows.add_row(note(short[conflict.id], ID), note(side, QUIET), note(_version_text(memory)))
    yield rows
    yield note(f"{plural(len(conflicts), 'conflict')} · {SETTLE}", QUIET)


def _version_text(memory: Memory | None) -> str:
    if memory is None:
        return "(erased)"
    return f"{'(forgotten) ' if memory.known_to else ''}{one_line(shown_content(memory, False))}"


# Changes


def added_view(outcomes: Sequence[Outcome], short: ShortIds) -> Iterator[Renderable]:
    """The results of an add, with their project."""
    for outcome in outcomes[:SHOWN_OUTCOMES]:
        raised = f" Its origin is {outcome.origin} now." if outcome.origin else ""
        yield _outcome(outcome, short, f" ({project_label(outcome.project)}).{raised}")
    yield from more(len(outcomes) - SHOWN_OUTCOMES)


def detected_secrets_view(memories: Sequence[Memory], short: ShortIds) -> Iterator[Styled]:
    """What detection sealed, and how to open it."""
    for memory in memories[:SHOWN_OUTCOMES]:
        yield note(f"Detected as a secret and sealed: {SECRET_PREFIX}{memory.content}", WARNING)
    if memories:
        id = short.get(memories[0].id, memories[0].id)
        yield note(f"Read it with `triskele secrets reveal {id}`; `triskele edit {id} --not-secret` opens it.", QUIET)


def example_keys_view(memories: Iterable[Memory]) -> Iterator[Styled]:
    """Example keys of manuals, which are stored open."""
    texts = [memory.content for memory in memories if memory.sensitivity is Sensitivity.OPEN]
    keys = dict.fromkeys(key for text in texts for key in _EXAMPLE_KEY.findall(text))
    for key in list(keys)[:SHOWN_OUTCOMES]:
        yield note(f"{key} looks like the example key of a manual and is stored open; `--secret` seals it.", QUIET)


def changes_view(
    outcomes: Sequence[Outcome],
    entries: Sequence[JournalEntry],
    short: ShortIds,
    *,
    remaining_copies: Sequence[str] = (),
    erased_copies: Sequence[str] = (),
    sent: Sequence[Sent] = (),
) -> Iterator[Renderable]:
    """The result of each change, with its journal entry."""
    by_number = {entry.seq: entry for entry in entries}
    for outcome in outcomes:
        entry = by_number.get(outcome.seq or 0)
        yield _outcome(outcome, short, f" {_detail(entry, {}, short)}." if entry and entry.link_kind else ".")
    forgotten = [outcome for outcome in outcomes if outcome.action is Action.FORGOTTEN]
    if forgotten:
        yield note(f"Undo with `triskele undo --batch {forgotten[0].batch}`.", QUIET)
    if any(outcome.action in (Action.ERASED, Action.SEALED) for outcome in outcomes):
        yield from (note(f"Also erased from {path}", QUIET) for path in erased_copies)
        yield note("Backups and exports made before may still hold the text: delete them yourself.", WARNING)
        yield from (note(f"  {path}", WARNING) for path in remaining_copies)
    for text in sent:
        yield note(f"The text was sent to {text.host}: first {text.first}, last {text.last}.", WARNING)
    if sent:
        yield note("It cannot be taken back: change the secret it holds, or ask the host to delete it.", WARNING)


def _outcome(outcome: Outcome, short: ShortIds, closing: str) -> Styled:
    return note(f"{_ACTIONS[outcome.action]} ") + note(short.get(outcome.id, outcome.id), ID) + note(closing)


def undo_summary(undone: Undone) -> str:
    """A batch in a few words: size, actor, projects and time."""
    return f"{plural(len(undone.entries), 'change')} {_made_by(undone)}"


def undo_plan_view(planned: Undone, short: ShortIds) -> Iterator[Renderable]:
    """What an undo takes back: each change with its text."""
    what = undo_summary(planned) if len(planned.entries) > 1 else f"a change {_made_by(planned)}"
    yield note(f"Undoing {what}:")
    versions = numbered(planned.versions)
    for entry in planned.entries[:SHOWN_OUTCOMES]:
        if entry.action is Action.BOUND:
            yield note(f"  moved {_moved_folder(entry, planned.folders)}")
        else:
            yield note(f"  {entry.action} ") + note(short[entry.id], ID) + note(f"  {_detail(entry, versions, short)}")
    yield from more(len(planned.entries) - SHOWN_OUTCOMES)
    yield from (note(line, QUIET) for line in passed_over_lines(planned)[:SHOWN_OUTCOMES])


def undone_view(outcomes: Sequence[Outcome], changes: History, short: ShortIds) -> Iterator[Renderable]:
    """The state after an undo: each memory with its current text."""
    entries = {entry.seq: entry for entry in changes.entries}
    for outcome in outcomes[:SHOWN_OUTCOMES]:
        if outcome.action is Action.BOUND:
            folder = _folder_name(outcome.id, changes.folders)
            yield note(f"Moved {folder} back to project {outcome.project}.")
            continue
        versions = [memory for memory in changes.versions if memory.id == outcome.id]
        action, text = _undone(outcome, entries.get(outcome.seq or 0), versions, short)
        yield note(f"{action} ") + note(short.get(outcome.id, outcome.id), ID) + note(text)
    yield from more(len(outcomes) - SHOWN_OUTCOMES)
    if batch := next((outcome.batch for outcome in outcomes if outcome.batch), ""):
        yield note(f"Take the undo back with `triskele undo --batch {batch}`.", QUIET)


def _undone(
    outcome: Outcome, entry: JournalEntry | None, versions: Sequence[Memory], short: ShortIds
) -> tuple[str, str]:
    """An undone change in words, before and after its id."""
    if entry is not None and entry.link_kind is not None:
        return _ACTIONS[outcome.action], f" {_detail(entry, {}, short)}."
    text = f": {one_line(shown_content(versions[-1], False))}" if versions else ""
    if outcome.action is not Action.EDITED or len(versions) < 2:
        return _ACTIONS[outcome.action], text
    what = "text" if versions[-1].content != versions[-2].content else "details"
    now = f" (now {versions[-1].sensitivity})" if entry is not None and entry.other else ""
    return f"Restored the earlier {what} of", text + now


def _made_by(undone: Undone) -> str:
    """Who made a batch of changes, where and when."""
    names = [f"project {project}" for project in undone.projects if project]
    rest = " and others" if len(names) > _SHOWN_PROJECTS else ""
    where = f"in {', '.join(names[:_SHOWN_PROJECTS])}{rest}" if names else "everywhere"
    return f"by {_actor(undone.entries[0].actor)} {where} on {minute(undone.entries[0].at)}"


def _actor(actor: str) -> str:
    """Who made a change, in words."""
    return _ACTORS.get(actor, actor.removeprefix(client_actor("").removesuffix("unknown")))


# The journal


def history_view(
    entries: Sequence[JournalEntry], versions: Versions, folders: Sequence[RegisteredFolder], short: ShortIds
) -> Iterator[Renderable]:
    """Journal entries, oldest first, each with the whole text of its version."""
    if not entries:
        yield note("No changes yet.")
        return
    for entry in entries:
        is_folder = entry.action is Action.BOUND
        project = next((memory.project for memory in _versions_of(entry, versions)), None)
        where = "" if is_folder or project is None else f" · {project_label(project)}"
        undo = " (undo)" if entry.undoes is not None else ""
        subject = note("moved") if is_folder else note(f"{entry.action} ") + note(short.get(entry.id, entry.id), ID)
        details = note(f"{undo} · by {_actor(entry.actor)}{where} · batch {entry.batch}", QUIET)
        text = _moved_folder(entry, folders) if is_folder else _detail(entry, versions, short)
        yield note(f"{minute(entry.at)}  ", QUIET) + subject + details
        yield Indented(note(text), 4)
    yield note("Undo a batch with `triskele undo --batch B`.", QUIET)


def _folder_name(id: str, folders: Sequence[RegisteredFolder]) -> str:
    """The folder or repository that the journal names by a number."""
    key = next((folder.key for folder in folders if f"place {folder.number}" == id), "")
    kind = "repository" if key.startswith(REMOTE) else "folder"
    return f"the {kind} {key.partition(':')[2]}" if key else "a folder"


def _moved_folder(entry: JournalEntry, folders: Sequence[RegisteredFolder]) -> str:
    return f"{_folder_name(entry.id, folders)} (before: project {entry.other})"


def _versions_of(entry: JournalEntry, versions: Versions) -> list[Memory]:
    """Versions after and before an entry; of a link the newest source."""
    numbers = [number for number in (entry.version, entry.previous) if number is not None]
    if entry.link_kind is not None:
        numbers = [max((number for id, number in versions if id == entry.id), default=0)]
    return [versions[entry.id, number] for number in numbers if (entry.id, number) in versions]


def _detail(entry: JournalEntry, versions: Versions, short: ShortIds) -> str:
    """The text of an entry; of a link its kind and target."""
    if entry.link_kind is not None and entry.other is not None:
        return f"{entry.link_kind} {short.get(entry.other, entry.other)}"
    if entry.action in (Action.SHARED, Action.UNSHARED) and entry.other is not None:
        return f"with {entry.other}"
    own = _versions_of(entry, versions)
    if not own:
        return "(its owner ended the share)" if entry.action is Action.UNSHARED else "(erased)"
    version = f"version {entry.version}: " if entry.version is not None and entry.version > 1 else ""
    before = f" (before: {entry.other})" if entry.action is Action.EDITED and entry.other else ""
    return f"{version}{one_line(shown_content(own[0], False))}{before}"


# Counts


def stats_view(counts: Statistics, short: ShortIds, address: str, project: str) -> Iterator[Renderable]:
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
    yield from failed_jobs_view(jobs)
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


def _curation(counts: Statistics) -> Styled:
    """What curation did today, and what waits for a review."""
    today = counts.today
    parts = [f"{plural(counts.proposals, 'proposal')} for `triskele review`"]
    if changed := today.get("changed", 0):
        parts.append(f"{plural(changed, 'memory')} changed without a review today")
    if calls := today.get("calls", 0):
        tokens = f" ({plural(today['tokens'], 'token')})" if today.get("tokens") else ""
        parts.append(f"{calls} of {counts.llm_calls} calls of the language model today{tokens}")
    return note(f"Curation: {', '.join(parts)}")


def _uses(counts: Statistics, short: ShortIds) -> Iterator[Renderable]:
    """Usage by memory and by day."""
    texts = {memory.id: one_line(shown_content(memory, False)) for memory in counts.used}
    if counts.most_used:
        by_memory = table("id", *_USES, "memory", last_takes_rest=True)
        for count in counts.most_used:
            by_memory.add_row(note(short[count.id], ID), *_numbers(count), note(texts.get(count.id, "(forgotten)")))
        yield from (note(""), note("Most used", MATCH), by_memory)
    by_day = table("day (UTC)", *_USES)
    for date in counts.days:
        by_day.add_row(note(date.day, QUIET), *_numbers(date))
    yield from (note(""), note("Used by day", MATCH), by_day)


def _numbers(count: UseCount | DayCount) -> Iterator[Styled]:
    return map(number, (count.recalled, count.injected, count.tokens))


def failed_jobs_view(jobs: JobCounts) -> Iterator[Styled]:
    """What could not be embedded, and why."""
    if jobs.last_error:
        given_up = f"{plural(jobs.given_up, 'text')} given up after several tries; " if jobs.given_up else ""
        yield note(f"✗ {given_up}the last error was: {jobs.last_error} (`triskele reindex` tries again)", BAD)
