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
    Table,
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
)
from triskele.edge.wording import FITS, SECRET_PREFIX, mark, one_line, passed_over_lines, shown_content
from triskele.text.folders import REMOTE
from triskele.types import (
    CURATION,
    IMPORT,
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
    from triskele.types import Erasure, History, MemoryDetails, MemoryView, RegisteredFolder, UseCount, WhyNot

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
    "known_at": "As recorded on {}.",
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
    time_notes = []
    for title, period in (("Time in the question", answer.period), ("Only memories from this time", answer.within)):
        if period:
            # Imported here: its patterns take time to compile, and few answers name a time.
            from triskele.text import periods

            time_notes.append(note(f"{title}: {periods.label(period)}", QUIET))
    # The answer itself shows since and until.
    time_notes += time_lines({name: time for name, time in (times or {}).items() if name not in ("since", "until")})
    if not answer.hits:
        wider = "" if answer.project is None else ", --all-projects"
        yield note(f"Nothing found in {project_label(answer.project)}.")
        yield from time_notes
        yield note(f"Try other words{wider}, or look at `triskele list`.", QUIET)
        return
    if doubt := FITS[answer.fit]:
        yield note(doubt, WARNING if answer.fit == "none" else QUIET)
    yield numbered_rows(
        (Styled(str(rank), QUIET, is_right=True), note(short[hit.memory.id], ID), _hit(hit, short, explain))
        for rank, hit in enumerate(answer.hits, start=1)
    )
    if answer.resolutions:
        rows = []
        for memory in answer.resolutions:
            lines = stacked(note(shown_content(memory, False)), _details(memory), note(""))
            rows.append((Styled("→", GOOD, is_right=True), note(short[memory.id], ID), lines))
        yield from (note("Resolved by", MATCH), numbered_rows(rows))
    yield from time_notes
    summary = (plural(len(answer.hits), "memory"), project_label(answer.project), f"confidence {answer.confidence:.2f}")
    yield note(" · ".join((*summary, f"recall took {answer.took_ms:.0f} ms")), QUIET)
    yield from _reservations(answer, embeds_here)


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
        for term in (term for leg in hit.legs.values() for term in leg.terms if term.start >= 0):
            content.spans.append((term.start, term.end, f"{MATCH} {GOOD}"))
    content = note(mark(hit.memory, hit.superseded), OLD) + content
    reason = hit.reason
    if hit.stands_for is not None:
        reason = reason.replace(hit.stands_for, short.get(hit.stands_for, hit.stands_for), 1)
    score = _score(hit, short) if explain else ()
    return stacked(content, _details(hit.memory), note(reason, QUIET), *score, note(""))


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
    uses = ""
    if (count := memory.used) is not None:
        uses = f"recalled {plural(count.recalled, 'time')}, injected {plural(count.injected, 'time')}"
        uses += f", about {plural(count.tokens, 'token')}, last on {day(count.last)}"
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
        "used": uses,
        "conflict": f"changed here and on the server: {SETTLE}" if memory.in_conflict else "",
    }
    rows = [(name, note(detail)) for name, detail in details.items() if detail]
    for link in memory.links:
        linked = memory.linked.get(link.target if link.source == memory.id else link.source)
        text = "(forgotten)" if linked is None else one_line(shown_content(linked, False))
        rows.append(("link", note(_link_text(link, memory.id, short)) + note(f"  {text}", QUIET)))
    yield Indented(pairs(rows), 2, 2)


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


def _link_text(link: Link, id: str, short: ShortIds) -> str:
    if link.source == id:
        return f"{str(link.kind).replace('-', ' ')} {short.get(link.target, link.target)}"
    return f"{_SEEN_FROM_TARGET[link.kind]} {short.get(link.source, link.source)}"


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
    rows = []
    for memory in memories:
        details = [day(memory.updated_at), memory.category]
        details += [memory.project or "everywhere"] * has_projects + [memory.shared_by or ""] * is_shared
        prefix = note(_CONFLICT_PREFIX * memory.in_conflict + mark(memory, memory.superseded), OLD)
        cells = (note(detail, QUIET) for detail in details)
        rows.append((note(short[memory.id], ID), *cells, prefix + note(one_line(memory.content))))
    yield Table(("id", "updated", "category", *columns, "memory"), rows, last_takes_rest=True)
    following = f" · more with --offset {offset + limit}" if len(memories) == limit else ""
    yield note(f"{offset + 1} to {offset + len(memories)} · {project_label(project)}{following}", QUIET)
    if any(memory.in_conflict for memory in memories):
        yield note(f"{SETTLE}.", QUIET)


def conflicts_view(conflicts: Sequence[Proposal], short: ShortIds) -> Iterator[Renderable]:
    """Both versions of every memory in conflict."""
    if not conflicts:
        yield note("No conflicts.")
        return
    rows = []
    for conflict in conflicts:
        for side, memory in (("mine", conflict.old), ("theirs", conflict.new)):
            text = "(erased)"
            if memory is not None:
                text = f"{'(forgotten) ' if memory.known_to else ''}{one_line(shown_content(memory, False))}"
            rows.append((note(short[conflict.id], ID), note(side, QUIET), note(text)))
    yield Table(("id", "version", "memory"), rows, last_takes_rest=True)
    yield note(f"{plural(len(conflicts), 'conflict')} · {SETTLE}", QUIET)


# Changes


def added_view(outcomes: Sequence[Outcome], short: ShortIds) -> Iterator[Renderable]:
    """The results of an add, with their project."""
    for outcome in outcomes[:SHOWN_OUTCOMES]:
        raised = f" Its origin is {outcome.origin} now." if outcome.origin else ""
        yield _changed(_ACTIONS[outcome.action], outcome.id, short, f" ({project_label(outcome.project)}).{raised}")
    yield from more(len(outcomes) - SHOWN_OUTCOMES)


def secrets_view(detected: Sequence[Memory], memories: Iterable[Memory], short: ShortIds) -> Iterator[Styled]:
    """What detection sealed and how to open it, and example keys of manuals, which are stored open."""
    for memory in detected[:SHOWN_OUTCOMES]:
        yield note(f"Detected as a secret and sealed: {SECRET_PREFIX}{memory.content}", WARNING)
    if detected:
        id = short.get(detected[0].id, detected[0].id)
        yield note(f"Read it with `triskele secrets reveal {id}`; `triskele edit {id} --not-secret` opens it.", QUIET)
    texts = [memory.content for memory in memories if memory.sensitivity is Sensitivity.OPEN]
    keys = dict.fromkeys(key for text in texts for key in _EXAMPLE_KEY.findall(text))
    for key in list(keys)[:SHOWN_OUTCOMES]:
        yield note(f"{key} looks like the example key of a manual and is stored open; `--secret` seals it.", QUIET)


def changes_view(erasure: Erasure, entries: Sequence[JournalEntry], short: ShortIds) -> Iterator[Renderable]:
    """The result of each change, with its journal entry; copies of erased texts, and who received them."""
    outcomes, by_number = erasure.outcomes, {entry.seq: entry for entry in entries}
    for outcome in outcomes:
        entry = by_number.get(outcome.seq or 0)
        link = f" {_detail(entry, {}, short)}" if entry and entry.link_kind else ""
        yield _changed(_ACTIONS[outcome.action], outcome.id, short, f"{link}.")
    forgotten = [outcome for outcome in outcomes if outcome.action is Action.FORGOTTEN]
    if forgotten:
        yield note(f"Undo with `triskele undo --batch {forgotten[0].batch}`.", QUIET)
    if any(outcome.action in (Action.ERASED, Action.SEALED) for outcome in outcomes):
        yield from (note(f"Also erased from {path}", QUIET) for path in erasure.erased_copies)
        yield note("Backups and exports made before may still hold the text: delete them yourself.", WARNING)
        yield from (note(f"  {path}", WARNING) for path in (*erasure.remaining_copies, *erasure.out_of_reach))
    for text in erasure.sent:
        yield note(f"The text was sent to {text.host}: first {text.first}, last {text.last}.", WARNING)
    if erasure.sent:
        yield note("It cannot be taken back: change the secret it holds, or ask the host to delete it.", WARNING)


def _changed(action: str, id: str, short: ShortIds, closing: str) -> Styled:
    return note(f"{action} ") + note(short.get(id, id), ID) + note(closing)


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
            yield _changed(f"  {entry.action}", entry.id, short, f"  {_detail(entry, versions, short)}")
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
        entry = entries.get(outcome.seq or 0)
        versions = [memory for memory in changes.versions if memory.id == outcome.id]
        action, text = _ACTIONS[outcome.action], f": {one_line(shown_content(versions[-1], False))}" if versions else ""
        if entry is not None and entry.link_kind is not None:
            text = f" {_detail(entry, {}, short)}."
        elif outcome.action is Action.EDITED and len(versions) > 1:
            what = "text" if versions[-1].content != versions[-2].content else "details"
            action = f"Restored the earlier {what} of"
            text += f" (now {versions[-1].sensitivity})" if entry is not None and entry.other else ""
        yield _changed(action, outcome.id, short, text)
    yield from more(len(outcomes) - SHOWN_OUTCOMES)
    if batch := next((outcome.batch for outcome in outcomes if outcome.batch), ""):
        yield note(f"Take the undo back with `triskele undo --batch {batch}`.", QUIET)


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
    names, jobs, today = counts.names, counts.jobs, counts.today
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
    if counts.proposals or today:
        parts = [f"{plural(counts.proposals, 'proposal')} for `triskele review`"]
        if changed := today.get("changed", 0):
            parts.append(f"{plural(changed, 'memory')} changed without a review today")
        if calls := today.get("calls", 0):
            tokens = f" ({plural(today['tokens'], 'token')})" if today.get("tokens") else ""
            parts.append(f"{calls} of {counts.llm_calls} calls of the language model today{tokens}")
        yield note(f"Curation: {', '.join(parts)}")
    if counts.days:
        yield from _uses(counts, short)
    if (plan := counts.adopted) is not None:
        origin = f"since {plan.since[:10]}, learned on {plural(plan.questions, 'question')}"
        yield note(f"Adopted weights are in force {origin}: {plan_label(plan.values)}.", ID)
    if (agreement := counts.agreement) is not None:
        queries = f"Queries that the cross-encoder reranked in time: {agreement.answered:,} of {agreement.asked:,}"
        same = f"{agreement.kept * 100:.0f} % of the top five stayed (mean tau {agreement.tau:.2f})"
        yield note(f"{queries}; {same}.", QUIET)


def _uses(counts: Statistics, short: ShortIds) -> Iterator[Renderable]:
    """Usage by memory and by day."""
    texts = {memory.id: note(one_line(shown_content(memory, False))) for memory in counts.used}
    uses = [
        (note(short[use.id], ID), *_numbers(use), texts.get(use.id, note("(forgotten)"))) for use in counts.most_used
    ]
    if uses:
        yield from (note(""), note("Most used", MATCH), Table(("id", *_USES, "memory"), uses, last_takes_rest=True))
    by_day = Table(("day (UTC)", *_USES), ((note(date.day, QUIET), *_numbers(date)) for date in counts.days))
    yield from (note(""), note("Used by day", MATCH), by_day)


def _numbers(count: UseCount | DayCount) -> Iterator[Styled]:
    return (number(getattr(count, name)) for name in _USES)


def failed_jobs_view(jobs: JobCounts) -> Iterator[Styled]:
    """What could not be embedded, and why."""
    if jobs.last_error:
        given_up = f"{plural(jobs.given_up, 'text')} given up after several tries; " if jobs.given_up else ""
        yield note(f"✗ {given_up}the last error was: {jobs.last_error} (`triskele reindex` tries again)", BAD)
