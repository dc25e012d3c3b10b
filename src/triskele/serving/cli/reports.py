"""Reports for people: changes, history, statistics, health, settings, transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from triskele.serving.cli.render import (
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
from triskele.serving.shapes import SECRET_PREFIX, shown_content
from triskele.types import Action, JournalEntry, Memory, Outcome

if TYPE_CHECKING:
    from triskele.curation.agreement import AgreementStats
    from triskele.curation.health import Health
    from triskele.exchange.records import ExportReport, ImportReport
    from triskele.recall.hosted.egress_log import Day, Sent
    from triskele.recall.why_not import WhyNot
    from triskele.stores.derived import JobCounts, NameCounts
    from triskele.stores.protocols import Census, DayCount, UseCount

_ACTIONS = {
    Action.ADDED: "Added",
    Action.DUPLICATE: "Already stored as",
    Action.EDITED: "Edited",
    Action.UNCHANGED: "Nothing to change:",
    Action.RESTORED: "Restored",
    Action.FORGOTTEN: "Forgot",
    Action.LINKED: "Linked",
    Action.UNLINKED: "Unlinked",
    Action.ERASED: "Erased:",
    Action.REVEALED: "Revealed",
    Action.SEALED: "Sealed in the vault, in all its versions:",
}
_BAR_CHARACTERS = 24
_SHOWN_PROBLEMS = 10
_SHOWN_OUTCOMES = 10
_LOCAL = "✓ No hosted model is configured; nothing leaves this machine."
# How often it was recalled, how often injected, and the tokens of both.
_USES = ("recalled", "injected", "tokens")


def added(outcomes: Sequence[Outcome], short: Short) -> RenderableType:
    """The results of an add, with their project."""
    lines = [_outcome(each, short, f" ({place(each.project)}).") for each in outcomes[:_SHOWN_OUTCOMES]]
    more = len(outcomes) - len(lines)
    return Group(*lines, *([note(f"… and {more:,} more", style=QUIET)] if more else []))


def detected_secrets(found: Sequence[Memory], short: Short) -> list[RenderableType]:
    """What detection sealed, and how to open it."""
    lines: list[RenderableType] = [
        note(f"Detected as a secret and sealed: {SECRET_PREFIX}{each.content}", style=WARNING)
        for each in found[:_SHOWN_OUTCOMES]
    ]
    if found:
        first = short.get(found[0].id, found[0].id)
        said = f"Read it with `triskele secrets reveal {first}`; `triskele edit {first} --not-secret` opens it."
        lines.append(note(said, style=QUIET))
    return lines


def changes(
    outcomes: Sequence[Outcome],
    entries: Mapping[int, JournalEntry],
    short: Short,
    *,
    copies: Sequence[Path] = (),
    sent: Sequence[Sent] = (),
) -> RenderableType:
    """The result of each change, with its journal entry."""
    lines: list[RenderableType] = []
    for each in outcomes:
        entry = entries.get(each.seq or 0)
        lines.append(_outcome(each, short, f" {_detail(entry, {}, short)}." if entry and entry.link_kind else "."))
    forgotten = [each for each in outcomes if each.action is Action.FORGOTTEN]
    if forgotten:
        lines.append(note(f"Undo with `triskele undo --batch {forgotten[0].batch}`.", style=QUIET))
    if any(each.action in (Action.ERASED, Action.SEALED) for each in outcomes):
        lines.append(note("Earlier backups, if any, still hold the text.", style=WARNING))
        lines += [note(f"  {path}", style=WARNING) for path in copies]
    return Group(*lines, *_sent(sent))


def _outcome(outcome: Outcome, short: Short, closing: str) -> Text:
    return Text(f"{_ACTIONS[outcome.action]} ") + Text(short.get(outcome.id, outcome.id), style=ID) + note(closing)


def history(entries: Sequence[JournalEntry], versions: Sequence[Memory], short: Short) -> RenderableType:
    """Journal entries, oldest first, with the text of each version."""
    if not entries:
        return note("No changes yet.")
    texts = {each.version: one_line(shown_content(each, False)) for each in versions}
    made = table("when (UTC)", "what", "id", "batch", "detail", last_takes_rest=True)
    for entry in entries:
        made.add_row(
            note(minute(entry.at), style=QUIET),
            note(f"{entry.action}" + (" (undo)" if entry.undoes is not None else "")),
            Text(short[entry.id], style=ID),
            note(entry.batch, style=QUIET),
            note(_detail(entry, texts, short)),
        )
    return Group(made, note("Undo a batch with `triskele undo --batch B`.", style=QUIET))


def _detail(entry: JournalEntry, texts: Mapping[int, str], short: Short) -> str:
    if entry.link_kind is not None and entry.other is not None:
        return f"{entry.link_kind} {short.get(entry.other, entry.other)}"
    version = f"version {entry.version}" if entry.version is not None else ""
    said = texts.get(entry.version, "") if entry.version is not None else ""
    return f"{version}: {said}" if said else version


def why_not(found: WhyNot, change: str | None) -> RenderableType:
    """The stages of a recall, and the change that finds the memory."""
    lines: list[RenderableType] = [note(found.verdict[0].upper() + found.verdict[1:] + ".", style="bold")]
    for stage in found.stages:
        lines.append(note(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}"))
    if change is not None:
        lines.append(note(f"Found with: {change}", style=QUIET))
    return Group(*lines)


def stats(census: Census, jobs: JobCounts, names: NameCounts, address: str, project: str) -> RenderableType:
    """Counts of the store."""
    graph = f"{counted(names.concepts, 'concept')}, {counted(names.mentions, 'mention')}"
    graph += f", {memories(names.waiting)} to read"
    counts = pairs(
        [
            ("store", note(address)),
            ("project", note(project)),
            ("memories", note(f"{census.memories:,}")),
            ("superseded", note(f"{census.superseded:,}")),
            ("forgotten", note(f"{census.forgotten:,}")),
            ("links", note(f"{census.links:,}")),
            ("changes", note(f"{census.journal:,}")),
            ("to embed", note(f"{jobs.embed:,}")),
            ("graph", note(graph)),
            ("size", note(size(census.bytes))),
        ]
    )
    parts: list[RenderableType] = [counts, *_failed_jobs(jobs)]
    for title, groups in (("By category", census.by_category), ("By project", census.by_project)):
        if groups:
            parts += [Text(), note(title, style="bold"), _bars(groups)]
    return Group(*parts)


def _waiting_jobs(jobs: JobCounts) -> list[RenderableType]:
    """Work that is not done yet, and what failed last."""
    lines: list[RenderableType] = []
    if jobs.embed or jobs.names:
        said = f"{counted(jobs.embed, 'text')} to embed, {memories(jobs.names)} to read names from"
        lines.append(note(f"· {said}: the background does it, or `triskele reindex` now", style=WARNING))
    return lines + _failed_jobs(jobs)


def _failed_jobs(jobs: JobCounts) -> list[RenderableType]:
    if not jobs.last_error:
        return []
    given_up = f"{counted(jobs.given_up, 'text')} given up after several tries; " if jobs.given_up else ""
    said = f"✗ {given_up}the last error was: {jobs.last_error} (`triskele reindex` tries again)"
    return [note(said, style="red")]


def uses(
    most: Sequence[UseCount], days: Sequence[DayCount], texts: Mapping[str, Memory], short: Short
) -> RenderableType:
    """Usage by memory and by day."""
    parts: list[RenderableType] = []
    if most:
        of_each = table("id", *_USES, "memory", last_takes_rest=True)
        for count in most:
            said = one_line(shown_content(texts[count.id], False)) if count.id in texts else "(forgotten)"
            of_each.add_row(Text(short[count.id], style=ID), *_numbers(count), note(said))
        parts += [Text(), note("Most used", style="bold"), of_each]
    of_days = table("day (UTC)", *_USES)
    for day in days:
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


def health(found: Health, *, deep: bool) -> RenderableType:
    """The findings and repairs of `doctor`."""
    lines: list[RenderableType] = [note(f"✗ {each.subject}: {each.problem}", style="red") for each in found.findings]
    if found.findings:
        lines.append(note("This cannot be repaired: restore a backup with `triskele restore FILE`."))
    else:
        checked = "all checksums match" if deep else "integrity check passed"
        lines.append(note(f"✓ Database OK ({checked}).", style="green"))
    lines += [note(f"✓ Repaired: {what}.", style="green") for what in found.repaired]
    if found.model_problem is not None:
        lines.append(note(f"✗ The model cannot be loaded, recall uses words only: {found.model_problem}", style="red"))
    if found.vault_problem is not None:
        lines.append(note(f"✗ Secrets cannot be read: {found.vault_problem}", style="red"))
    for id in found.exposed[:_SHOWN_PROBLEMS]:
        lines.append(note(f"· {id} looks like a secret and is not sealed: triskele secrets seal {id}", style=WARNING))
    if len(found.exposed) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(found.exposed) - _SHOWN_PROBLEMS:,} more", style=WARNING))
    if not found.findings and not found.repaired:
        lines.append(note("✓ Index up to date.", style="green"))
    lines += _waiting_jobs(found.jobs)
    lines += _egress(found.left, found.outside, found.outside_problems)
    if not deep:
        lines.append(note("`triskele doctor --deep` also checks every checksum and every index entry.", style=QUIET))
    return Group(*lines)


def clients_without_token(names: Sequence[str]) -> list[RenderableType]:
    """Clients that cannot see the private memories that the settings grant them."""
    return [
        note(f"· private_to names {name}, but its entry has no token: run `triskele install {name}` again", WARNING)
        for name in names
    ]


def settings(values: Mapping[str, Mapping[str, Any]], file: Path) -> RenderableType:
    """All settings with value and source."""
    made = table("setting", "value", "from")
    for column in made.columns[1:]:
        column.no_wrap, column.overflow = False, "fold"
    for name, each in values.items():
        is_default = each["origin"] == "default"
        value = each["value"]
        said = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        made.add_row(note(name), note(said), note(each["origin"], style=QUIET if is_default else ID))
    state = "" if file.exists() else " (does not exist; create it to change a setting)"
    return Group(made, note(f"Settings file: {file}{state}", style=QUIET))


def imported(report: ImportReport, *, dry_run: bool) -> RenderableType:
    """The result of an import or a dry run."""
    would = "would be " if dry_run else ""
    added = f"{report.added:,} of {memories(report.read)} {would}added"
    lines: list[RenderableType] = [note(f"{added} ({report.format}), {counted(report.links, 'link')}.")]
    if report.secrets:
        lines.append(note(f"{memories(report.secrets)} {would}sealed as secrets.", style=WARNING))
    if report.duplicates:
        lines.append(note(f"{report.duplicates:,} already stored.", style=QUIET))
    lines += [note(f"skipped: {each.place}: {each.reason}", style=QUIET) for each in report.skipped[:_SHOWN_PROBLEMS]]
    if len(report.skipped) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(report.skipped) - _SHOWN_PROBLEMS:,} more skipped", style=QUIET))
    lines += [note(f"✗ {each.place}: {each.reason}", style="red") for each in report.problems[:_SHOWN_PROBLEMS]]
    if len(report.problems) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(report.problems) - _SHOWN_PROBLEMS:,} more problems", style="red"))
    if report.added and not dry_run:
        lines.append(note(f"Undo with `triskele undo --batch {report.batch}`.", style=QUIET))
    return Group(*lines)


def exported(report: ExportReport, target: Path | None) -> RenderableType:
    """The result of an export."""
    where = f" to {target}" if target else ""
    lines: list[RenderableType] = [note(f"{memories(report.written)} written{where}.")]
    if report.left_out_private:
        said = f"{memories(report.left_out_private, 'private ')} left out (--private includes them)."
        lines.append(note(said, style=QUIET))
    if report.left_out_secret:
        said = f"{memories(report.left_out_secret, 'secret ')} left out (--with-secrets includes them in clear)."
        lines.append(note(said, style=QUIET))
    if report.left_out_versions:
        versions = f"{report.left_out_versions:,} earlier version{'' if report.left_out_versions == 1 else 's'}"
        said = f"{versions} left out, private or secret (--private and --with-secrets write them too)."
        lines.append(note(said, style=QUIET))
    if report.revealed:
        said = f"The file holds {memories(report.revealed, 'secret ')} in clear; only you may read it."
        lines.append(note(said, style=WARNING))
    return Group(*lines)


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


def _egress(days: Sequence[Day], outside: Mapping[str, str], problems: Sequence[str]) -> list[RenderableType]:
    """The configured hosts, and what was sent, by day."""
    named = ", ".join(f"{host} ({name})" for name, host in outside.items())
    said = f"· Open memories and queries may be sent to {named}." if named else _LOCAL
    lines: list[RenderableType] = [note(f"✗ {problem}", style="red") for problem in problems]
    if named or not problems:
        lines.append(note(said, style=WARNING if named else GOOD))
    if not days:
        return [*lines, note("✓ Nothing was sent from this machine.", style=GOOD)]
    return [*lines, *(note(_day(day), style=WARNING) for day in days)]


def _day(day: Day) -> str:
    billed = f", {counted(day.tokens, 'token')}" if day.tokens else ""
    billed += f", about {day.cost:,.4f} in your currency" if day.cost else ""
    requests = f"{counted(day.requests, 'request')} (failed ones included)"
    texts = f"{counted(day.texts, 'text')}, {counted(day.characters, 'character')} to {day.host} ({day.endpoint})"
    return f"· {day.day}: {texts}, {requests}{billed}"


def _sent(found: Sequence[Sent]) -> list[RenderableType]:
    """The hosts that already received the text of a memory."""
    lines = [f"The text was sent to {each.host}: first {each.first}, last {each.last}." for each in found]
    advice = ["It cannot be taken back: change the secret it holds, or ask the host to delete it."] if found else []
    return [note(line, style=WARNING) for line in [*lines, *advice]]
