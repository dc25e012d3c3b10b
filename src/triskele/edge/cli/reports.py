"""Reports for people: changes, history, statistics, settings, transfers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from triskele.edge.cli.render import (
    GOOD,
    ID,
    QUIET,
    WARNING,
    Short,
    counted,
    memories,
    minute,
    note,
    one_line,
    pairs,
    place,
    size,
    table,
)
from triskele.edge.shapes import SECRET_PREFIX, Versions, numbered, shown_content
from triskele.text import periods
from triskele.text.folders import REMOTE
from triskele.types import CURATION, IMPORT, USER, Action, JournalEntry, Memory, Outcome, Sensitivity, client_actor

if TYPE_CHECKING:
    from triskele.curation.projects import ProjectSummary
    from triskele.edge.hook.explain import Explanation
    from triskele.exchange.archive import ArchiveReport
    from triskele.replies import (
        AgreementStats,
        DayCount,
        ExportReport,
        History,
        ImportReport,
        JobCounts,
        Preview,
        RegisteredFolder,
        Sent,
        Statistics,
        Undone,
        UseCount,
    )
    from triskele.types import WhyNot

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
EXAMPLE_KEY = re.compile(r"\b(?:A[KS]IA[A-Z0-9]{9}EXAMPLE|[A-Za-z0-9/+]{20,33}EXAMPLEKEY)\b")
_ACTORS = {USER: "you", IMPORT: "an import", CURATION: "curation"}
_SHOWN_PROJECTS = 3
_BAR_CHARACTERS = 24
_SHOWN_PROBLEMS = 10
SHOWN_OUTCOMES = 10
_SHOWN_PREVIEWS = 40
_PREVIEW_CHARACTERS = 200
# How often it was recalled, how often injected, and the tokens of both.
_USES = ("recalled", "injected", "tokens")


def added(outcomes: Sequence[Outcome], short: Short) -> RenderableType:
    """The results of an add, with their project."""
    lines = [_outcome(each, short, f" ({place(each.project)}).") for each in outcomes[:SHOWN_OUTCOMES]]
    more = len(outcomes) - len(lines)
    return Group(*lines, *([note(f"… and {more:,} more", style=QUIET)] if more else []))


def dated(found: Sequence[Memory], short: Short) -> list[RenderableType]:
    """The validity that memories got from their own words, and how to remove it."""
    lines: list[RenderableType] = []
    for each in found[:SHOWN_OUTCOMES]:
        period = periods.held(each)
        if period is not None:
            option = "--valid-from" if each.valid_from else "--valid-to"
            said = f"Valid {periods.describe(period)}, by its own words; `triskele edit {short[each.id]} {option} none`"
            lines.append(note(f"{said} removes that.", style=QUIET))
    return lines


def detected_secrets(found: Sequence[Memory], short: Short) -> list[RenderableType]:
    """What detection sealed, and how to open it."""
    lines: list[RenderableType] = [
        note(f"Detected as a secret and sealed: {SECRET_PREFIX}{each.content}", style=WARNING)
        for each in found[:SHOWN_OUTCOMES]
    ]
    if found:
        first = short.get(found[0].id, found[0].id)
        said = f"Read it with `triskele secrets reveal {first}`; `triskele edit {first} --not-secret` opens it."
        lines.append(note(said, style=QUIET))
    return lines


def example_keys(stored: Iterable[Memory]) -> list[RenderableType]:
    """Example keys of manuals, which are stored open: users should know why they were not sealed."""
    opened = [each.content for each in stored if each.sensitivity is Sensitivity.OPEN]
    found = dict.fromkeys(key for text in opened for key in EXAMPLE_KEY.findall(text))
    said = "{} looks like the example key of a manual and is stored open; `--secret` seals it."
    return [note(said.format(key), style=QUIET) for key in list(found)[:SHOWN_OUTCOMES]]


def changes(
    outcomes: Sequence[Outcome],
    entries: Sequence[JournalEntry],
    short: Short,
    *,
    copies: Sequence[object] = (),
    erased: Sequence[str] = (),
    sent: Sequence[Sent] = (),
) -> RenderableType:
    """The result of each change, with its journal entry."""
    lines: list[RenderableType] = []
    written = {entry.seq: entry for entry in entries}
    for each in outcomes:
        entry = written.get(each.seq or 0)
        lines.append(_outcome(each, short, f" {_detail(entry, {}, short)}." if entry and entry.link_kind else "."))
    forgotten = [each for each in outcomes if each.action is Action.FORGOTTEN]
    if forgotten:
        lines.append(note(f"Undo with `triskele undo --batch {forgotten[0].batch}`.", style=QUIET))
    if any(each.action in (Action.ERASED, Action.SEALED) for each in outcomes):
        lines += [note(f"Also erased from {path}", style=QUIET) for path in erased]
        said = "Backups and exports made before may still hold the text: delete them yourself."
        lines.append(note(said, style=WARNING))
        lines += [note(f"  {path}", style=WARNING) for path in copies]
    return Group(*lines, *_sent(sent))


def _outcome(outcome: Outcome, short: Short, closing: str) -> Text:
    return Text(f"{_ACTIONS[outcome.action]} ") + Text(short.get(outcome.id, outcome.id), style=ID) + note(closing)


def undo_summary(planned: Undone) -> str:
    """A batch in a few words: how much, by whom, where and when."""
    many, first = counted(len(planned.entries), "change"), planned.entries[0]
    return f"{many} by {_actor(first.actor)} {_places(planned.projects)} on {minute(first.at)}"


def undo_plan(planned: Undone, short: Short) -> RenderableType:
    """What an undo takes back: each change with its text."""
    first = planned.entries[0]
    heading = f"Undoing a change by {_actor(first.actor)} {_places(planned.projects)} on {minute(first.at)}:"
    if len(planned.entries) > 1:
        heading = f"Undoing {undo_summary(planned)}:"
    lines: list[RenderableType] = [note(heading)]
    for entry in planned.entries[:SHOWN_OUTCOMES]:
        if entry.action is Action.BOUND:
            lines.append(note(f"  moved {_moved_folder(entry, planned.folders)}"))
            continue
        said = _detail(entry, numbered(planned.versions), short)
        lines.append(note(f"  {entry.action} ") + Text(short[entry.id], style=ID) + note(f"  {said}"))
    return Group(*lines, *_more(len(planned.entries) - SHOWN_OUTCOMES))


def undone(outcomes: Sequence[Outcome], changed: History, short: Short) -> RenderableType:
    """The state after an undo: each memory with its current text."""
    lines: list[RenderableType] = []
    entries = {entry.seq: entry for entry in changed.entries}
    for each in outcomes[:SHOWN_OUTCOMES]:
        if each.action is Action.BOUND:
            lines.append(note(f"Moved {_folder_name(each.id, changed.folders)} back to project {each.project}."))
            continue
        entry, history = entries.get(each.seq or 0), [memory for memory in changed.versions if memory.id == each.id]
        said = f": {one_line(shown_content(history[-1], False))}" if history else ""
        if entry is not None and entry.link_kind is not None:
            said = f" {_detail(entry, {}, short)}."
        done = _ACTIONS[each.action]
        if each.action is Action.EDITED and len(history) > 1:
            what = "text" if history[-1].content != history[-2].content else "details"
            done = f"Restored the earlier {what} of"
            said += f" (now {history[-1].sensitivity})" if entry is not None and entry.other else ""
        lines.append(Text(f"{done} ") + Text(short.get(each.id, each.id), style=ID) + note(said))
    lines += _more(len(outcomes) - SHOWN_OUTCOMES)
    if batch := next((each.batch for each in outcomes if each.batch), ""):
        lines.append(note(f"Take the undo back with `triskele undo --batch {batch}`.", style=QUIET))
    return Group(*lines)


def _more(count: int) -> list[RenderableType]:
    return [note(f"… and {count:,} more", style=QUIET)] if count > 0 else []


def _actor(actor: str) -> str:
    """Who made a change, in words."""
    return _ACTORS.get(actor, actor.removeprefix(client_actor("").removesuffix("unknown")))


def _places(projects: Sequence[str]) -> str:
    named = [f"project {project}" for project in projects if project]
    said = ", ".join(named[:_SHOWN_PROJECTS]) + (" and others" if len(named) > _SHOWN_PROJECTS else "")
    return f"in {said}" if said else "everywhere"


def history(
    entries: Sequence[JournalEntry], versions: Versions, folders: Sequence[RegisteredFolder], short: Short
) -> RenderableType:
    """Journal entries, oldest first, each with the whole text of its version."""
    if not entries:
        return note("No changes yet.")
    lines: list[RenderableType] = []
    for entry in entries:
        is_folder = entry.action is Action.BOUND
        project = next((memory.project for memory in _versions_of(entry, versions)), None)
        where = "" if is_folder or project is None else f" · {place(project)}"
        undo = " (undo)" if entry.undoes is not None else ""
        named = Text("moved") if is_folder else Text(f"{entry.action} ") + Text(short.get(entry.id, entry.id), style=ID)
        details = note(f"{undo} · by {_actor(entry.actor)}{where} · batch {entry.batch}", style=QUIET)
        said = _moved_folder(entry, folders) if is_folder else _detail(entry, versions, short)
        lines += [note(f"{minute(entry.at)}  ", style=QUIET) + named + details, Padding(note(said), (0, 0, 0, 4))]
    return Group(*lines, note("Undo a batch with `triskele undo --batch B`.", style=QUIET))


def _folder_name(id: str, folders: Sequence[RegisteredFolder]) -> str:
    """What the journal names by a number, in words: a folder or a repository."""
    key = next((each.key for each in folders if f"place {each.number}" == id), "")
    kind = "repository" if key.startswith(REMOTE) else "folder"
    return f"the {kind} {key.partition(':')[2]}" if key else "a folder"


def _moved_folder(entry: JournalEntry, folders: Sequence[RegisteredFolder]) -> str:
    return f"{_folder_name(entry.id, folders)} (before: project {entry.other})"


def _versions_of(entry: JournalEntry, versions: Versions) -> list[Memory]:
    """The versions after and before an entry; of a link the newest of its source."""
    numbers = [number for number in (entry.version, entry.previous) if number is not None]
    if entry.link_kind is not None:
        numbers = [max((number for id, number in versions if id == entry.id), default=0)]
    return [versions[entry.id, number] for number in numbers if (entry.id, number) in versions]


def _detail(entry: JournalEntry, versions: Versions, short: Short) -> str:
    """The text that an entry is about; of a link its kind and the other memory."""
    if entry.link_kind is not None and entry.other is not None:
        return f"{entry.link_kind} {short.get(entry.other, entry.other)}"
    if entry.action in (Action.SHARED, Action.UNSHARED) and entry.other is not None:
        return f"with {entry.other}"
    found = _versions_of(entry, versions)
    version = f"version {entry.version}: " if entry.version is not None and entry.version > 1 else ""
    gone = "(its owner ended the share)" if entry.action is Action.UNSHARED else "(nothing is left of it)"
    before = f" (before: {entry.other})" if entry.action is Action.EDITED and entry.other else ""
    return version + one_line(shown_content(found[0], False)) + before if found else gone


def why_not(found: WhyNot, change: str | None) -> RenderableType:
    """The stages of a recall, and the change that finds the memory."""
    lines: list[RenderableType] = [note(found.verdict[0].upper() + found.verdict[1:] + ".", style="bold")]
    for stage in found.stages:
        lines.append(note(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}"))
    if change is not None:
        lines.append(note(f"Found with: {change}", style=QUIET))
    return Group(*lines)


def stats(counts: Statistics, address: str, project: str) -> RenderableType:
    """Counts of the store."""
    names, jobs = counts.names, counts.jobs
    graph = f"{counted(names.concepts, 'concept')}, {counted(names.mentions, 'mention')}"
    graph += f", {memories(names.waiting)} to read"
    rows = pairs(
        [
            ("store", note(address)),
            ("project", note(project)),
            ("memories", note(f"{counts.memories:,}")),
            ("superseded", note(f"{counts.superseded:,}")),
            ("forgotten", note(f"{counts.forgotten:,}")),
            ("links", note(f"{counts.links:,}")),
            ("changes", note(f"{counts.journal:,}")),
            ("to embed", note(f"{jobs.embed:,}")),
            ("graph", note(graph)),
            ("size", note(size(counts.bytes))),
        ]
    )
    parts: list[RenderableType] = [rows, *_failed_jobs(jobs)]
    for title, groups in (("By category", counts.by_category), ("By project", counts.by_project)):
        if groups:
            parts += [Text(), note(title, style="bold"), _bars(groups)]
    return Group(*parts)


def waiting_jobs(jobs: JobCounts) -> list[RenderableType]:
    """Work that is not done yet, and what failed last."""
    lines: list[RenderableType] = []
    if jobs.embed or jobs.names:
        embed = [f"{counted(jobs.embed, 'text')} to embed"] if jobs.embed else []
        said = ", ".join([*embed, *([f"{memories(jobs.names)} to read names from"] if jobs.names else [])])
        lines.append(note(f"· {said}: the background does it, or `triskele reindex` now", style=WARNING))
    return lines + _failed_jobs(jobs)


def _failed_jobs(jobs: JobCounts) -> list[RenderableType]:
    if not jobs.last_error:
        return []
    given_up = f"{counted(jobs.given_up, 'text')} given up after several tries; " if jobs.given_up else ""
    said = f"✗ {given_up}the last error was: {jobs.last_error} (`triskele reindex` tries again)"
    return [note(said, style="red")]


def uses(counts: Statistics, short: Short) -> RenderableType:
    """Usage by memory and by day."""
    parts: list[RenderableType] = []
    texts = {memory.id: memory for memory in counts.used}
    if counts.most_used:
        of_each = table("id", *_USES, "memory", last_takes_rest=True)
        for count in counts.most_used:
            said = one_line(shown_content(texts[count.id], False)) if count.id in texts else "(forgotten)"
            of_each.add_row(Text(short[count.id], style=ID), *_numbers(count), note(said))
        parts += [Text(), note("Most used", style="bold"), of_each]
    of_days = table("day (UTC)", *_USES)
    for day in counts.days:
        of_days.add_row(note(day.day, style=QUIET), *_numbers(day))
    return Group(*parts, Text(), note("Used by day", style="bold"), of_days)


def agreement(found: AgreementStats) -> RenderableType:
    """Agreement of the cross-encoder with the ranking."""
    said = f"Queries that the cross-encoder reranked in time: {found.answered:,} of {found.asked:,}"
    return note(f"{said}; {found.kept * 100:.0f} % of the top five stayed (mean tau {found.tau:.2f}).", style=QUIET)


def _numbers(count: UseCount | DayCount) -> list[Text]:
    return [Text(f"{number:,}", justify="right") for number in (count.recalled, count.injected, count.tokens)]


def _bars(groups: Mapping[str, int]) -> RenderableType:
    most = max(groups.values())
    made = table("", "", "")
    made.show_header = False
    for name, count in groups.items():
        bar = "▪" * max(1, round(_BAR_CHARACTERS * count / most))
        made.add_row(note(name or "everywhere"), Text(f"{count:,}", justify="right"), Text(bar, style=ID))
    return made


def hook_explanation(found: Explanation, short: Short) -> RenderableType:
    """What the hook does with an event, and why."""
    where = f" ({place(found.project)})" if found.has_looked else ""
    lines: list[RenderableType] = [note(f"The hook {_said(found.verdict)}{where}.", style="bold")]
    lines += [note(found.place, style=QUIET)] if found.has_looked else []
    for each in found.considered:
        left_out = f" ({each.left_out})" if each.left_out else ""
        sign = note("✗ ", style=WARNING) if each.left_out else note("✓ ", style=GOOD)
        text = note(f"  {one_line(shown_content(each.memory, False))}{left_out}")
        lines.append(sign + Text(short[each.memory.id], style=ID) + text)
    return Group(*lines)


def _said(verdict: str) -> str:
    return f"is {verdict}" if verdict.startswith("silent") else verdict


def projects(found: Sequence[ProjectSummary], current: str) -> RenderableType:
    """The projects with their memories and what they are known by."""
    if not found:
        return note("No projects yet: a folder becomes a project with its first memory.")
    made = table("", "project", "memories", "known by", last_takes_rest=True)
    for each in found:
        # A remote is more informative than the folders of its clones.
        keys = [key for key in each.places if key.startswith(REMOTE)] or each.places
        places = ", ".join(key.partition(":")[2] for key in keys)
        mark = "*" if each.name == current else ""
        made.add_row(note(mark), note(each.name, style=ID), note(f"{each.memories:,}"), note(places, style=QUIET))
    return Group(made, note(f"* {place(current)}, where you are", style=QUIET))


def settings(values: Mapping[str, tuple[str, str]], file: Path) -> RenderableType:
    """All settings with value and source."""
    made = table("setting", "value", "from")
    for column in made.columns[1:]:
        column.no_wrap, column.overflow = False, "fold"
    for name, (said, origin) in values.items():
        made.add_row(note(name), note(said), note(origin, style=QUIET if origin == "default" else ID))
    state = "" if file.exists() else " (does not exist yet)"
    change = "Change a setting with `triskele config set KEY VALUE`."
    return Group(made, note(f"Settings file: {file}{state}", style=QUIET), note(change, style=QUIET))


def imported(report: ImportReport, *, dry_run: bool) -> RenderableType:
    """The result of an import or a dry run."""
    would = "would be " if dry_run else ""
    added = f"{report.added:,} of {memories(report.read)} {would}added"
    links = f", {counted(report.links, 'link')}" if report.links else ""
    lines: list[RenderableType] = [note(f"{added} ({report.format}){links}.")]
    if report.secrets:
        lines.append(
            note(
                f"{memories(report.secrets)} {would}sealed as {'a secret' if report.secrets == 1 else 'secrets'}.",
                style=WARNING,
            )
        )
    repeated = sum(not each.id for each in report.memories)
    counts = {"already stored": report.duplicates - repeated, "twice in this file": repeated}
    lines += [note(f"{count:,} {what}.", style=QUIET) for what, count in counts.items() if count]
    if dry_run:
        lines += _previews(report.memories)
    lines += [note(f"skipped: {each.place}: {each.reason}", style=QUIET) for each in report.skipped[:_SHOWN_PROBLEMS]]
    if len(report.skipped) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(report.skipped) - _SHOWN_PROBLEMS:,} more skipped", style=QUIET))
    lines += [note(f"✗ {each.place}: {each.reason}", style="red") for each in report.problems[:_SHOWN_PROBLEMS]]
    if len(report.problems) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {counted(len(report.problems) - _SHOWN_PROBLEMS, 'more problem')}", style="red"))
    if report.added and not dry_run:
        lines.append(note(f"Undo with `triskele undo --batch {report.batch}`.", style=QUIET))
    return Group(*lines)


def _previews(found: Sequence[Preview]) -> list[RenderableType]:
    """The texts that an import would write, with their categories and tags."""
    lines: list[RenderableType] = []
    for each in found[:_SHOWN_PREVIEWS]:
        marks = [each.category, *(f"#{tag}" for tag in each.tags)]
        twice_or = f" (already stored as {each.id})" if each.id else " (twice in this file)"
        known = twice_or if each.action == Action.DUPLICATE else ""
        where = f"{each.place}: " if each.place else ""
        said = f"{where}{SECRET_PREFIX if each.secret else ''}{one_line(each.content)[:_PREVIEW_CHARACTERS]}{known}"
        lines.append(note(f"  {said}"))
        marks += ["would be sealed"] if each.secret and not known else []
        lines.append(note(f"    {' · '.join(marks)}", style=QUIET))
    if len(found) > _SHOWN_PREVIEWS:
        lines.append(note(f"  … and {len(found) - _SHOWN_PREVIEWS:,} more (--json shows all)", style=QUIET))
    return lines


def exported(report: ExportReport, target: Path | None) -> RenderableType:
    """The result of an export."""
    where = f" to {target}" if target else ""
    lines: list[RenderableType] = [note(f"{memories(report.written)} written{where}.")]
    if report.forgotten:
        said = f"{memories(report.forgotten, 'forgotten ')} among them (left out with --current-only)."
        lines.append(note(said, style=QUIET))
    if report.left_out_private:
        said = f"{memories(report.left_out_private, 'private ')} left out (included with --private)."
        lines.append(note(said, style=QUIET))
    if report.left_out_secret:
        said = f"{memories(report.left_out_secret, 'secret ')} left out (included in clear with --with-secrets)."
        lines.append(note(said, style=QUIET))
    if report.left_out_versions:
        versions = counted(report.left_out_versions, "earlier version")
        said = f"{versions} left out, private or secret (included with --private and --with-secrets)."
        lines.append(note(said, style=QUIET))
    if report.revealed:
        said = f"The file holds {memories(report.revealed, 'secret ')} in clear; only you may read it."
        lines.append(note(said, style=WARNING))
    return Group(*lines)


def archived(report: ArchiveReport, done: str) -> RenderableType:
    """The result of an export or import of an archive."""
    of = f" of {counted(report.owners, 'owner')}" if report.owners != 1 else ""
    said = f"{memories(report.memories)}{of} {done} ({report.rows:,} rows, {counted(report.vectors, 'vector')})."
    waits = f"{counted(report.to_embed, 'text')} to embed: the vectors of the archive are of another model."
    return Group(note(said), *([note(waits, style=QUIET)] if report.to_embed else []))


def demo_opening(count: int, took_s: float) -> RenderableType:
    """The sample data of the demo."""
    said = f"{count} memories of a small software team, loaded into a temporary store in {took_s:.1f} s."
    return Group(note(said), note("The people and the company are fictional.", style=QUIET))


def demo_scene(number: int, shows: str, command: str) -> RenderableType:
    """The heading above one answer."""
    return Group(Text(), note(f"{number}. {shows}", style="bold"), note(f"$ {command}", style=ID), Text())


def demo_closing() -> RenderableType:
    """What to try next."""
    return Group(
        Text(),
        note("Now with your own memories:", style="bold"),
        note('$ triskele add "We deploy with Argo CD, not Helm hooks" --category decisions', style=ID),
        note('$ triskele recall "how do we deploy?"', style=ID),
    )


def _sent(found: Sequence[Sent]) -> list[RenderableType]:
    """The hosts that already received the text of a memory."""
    lines = [f"The text was sent to {each.host}: first {each.first}, last {each.last}." for each in found]
    advice = ["It cannot be taken back: change the secret it holds, or ask the host to delete it."] if found else []
    return [note(line, style=WARNING) for line in [*lines, *advice]]
