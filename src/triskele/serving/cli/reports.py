"""What was done and how the store stands, in words for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from triskele.exchange.records import ExportReport, ImportReport
from triskele.health import Health
from triskele.serving.cli.render import (
    ID,
    QUIET,
    WARNING,
    Short,
    memories,
    minute,
    note,
    one_line,
    pairs,
    place,
    size,
    table,
)
from triskele.stores.protocol import Census
from triskele.types import Action, JournalEntry, Memory, Outcome
from triskele.whynot import WhyNot

_SAID = {
    Action.ADDED: "Remembered",
    Action.DUPLICATE: "Already known as",
    Action.EDITED: "Edited",
    Action.UNCHANGED: "Nothing to change:",
    Action.RESTORED: "Brought back",
    Action.FORGOTTEN: "Forgot",
    Action.LINKED: "Linked",
    Action.UNLINKED: "Unlinked",
    Action.ERASED: "Erased for good:",
}
_BAR_CHARACTERS = 24
_SHOWN_PROBLEMS = 10
_SHOWN_OUTCOMES = 10
_SHOWN_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")


def added(outcomes: Sequence[Outcome], short: Short, project: str) -> RenderableType:
    """What became of new memories, and where they are."""
    lines = [_outcome(each, short, f" ({place(project)}).") for each in outcomes[:_SHOWN_OUTCOMES]]
    more = len(outcomes) - len(lines)
    return Group(*lines, *([note(f"… and {more:,} more", style=QUIET)] if more else []))


def changes(
    outcomes: Sequence[Outcome], entries: Mapping[int, JournalEntry], short: Short, *, copies: Sequence[Path] = ()
) -> RenderableType:
    """What became of each change, with what the journal says about it."""
    lines: list[RenderableType] = []
    for each in outcomes:
        entry = entries.get(each.seq or 0)
        lines.append(_outcome(each, short, f" {_detail(entry, {}, short)}." if entry and entry.link_kind else "."))
    forgotten = [entry for entry in entries.values() if entry.action is Action.FORGOTTEN]
    if forgotten:
        lines.append(note(f"Bring back with `triskele undo --batch {forgotten[0].batch}`.", style=QUIET))
    if any(each.action is Action.ERASED for each in outcomes):
        lines.append(note("Backups made before, if any, still hold the text.", style=WARNING))
        lines += [note(f"  {path}", style=WARNING) for path in copies]
    return Group(*lines)


def _outcome(outcome: Outcome, short: Short, closing: str) -> Text:
    return Text(f"{_SAID[outcome.action]} ") + Text(short.get(outcome.id, outcome.id), style=ID) + note(closing)


def history(entries: Sequence[JournalEntry], versions: Sequence[Memory], short: Short) -> RenderableType:
    """Journal lines, oldest first, with the text that each version had."""
    if not entries:
        return note("Nothing has happened yet.")
    texts = {each.version: one_line(each.content) for each in versions}
    made = table("when (UTC)", "what", "id", "batch", "detail", last_takes_rest=True)
    for entry in entries:
        made.add_row(
            note(minute(entry.at), style=QUIET),
            note(f"{entry.action}" + (" (undo)" if entry.undoes is not None else "")),
            Text(short[entry.id], style=ID),
            note(entry.batch, style=QUIET),
            note(_detail(entry, texts, short)),
        )
    return Group(made, note("Take a batch back with `triskele undo --batch B`.", style=QUIET))


def _detail(entry: JournalEntry, texts: Mapping[int, str], short: Short) -> str:
    if entry.link_kind is not None and entry.other is not None:
        return f"{entry.link_kind} {short.get(entry.other, entry.other)}"
    version = f"version {entry.version}" if entry.version is not None else ""
    said = texts.get(entry.version, "") if entry.version is not None else ""
    return f"{version}: {said}" if said else version


def why_not(found: WhyNot) -> RenderableType:
    """The stages on the way to the answer, and what would help."""
    lines: list[RenderableType] = [note(found.verdict[0].upper() + found.verdict[1:] + ".", style="bold")]
    for stage in found.stages:
        lines.append(note(f"{'✓' if stage.passed else '✗'} {stage.name}: {stage.detail}"))
    if found.smallest_change is not None:
        lines.append(note(f"It is found with: {found.smallest_change}", style=QUIET))
    return Group(*lines)


def stats(census: Census, waiting: int, address: str, project: str) -> RenderableType:
    """Counts of what is stored."""
    counts = pairs(
        [
            ("store", note(address)),
            ("project", note(project)),
            ("memories", note(f"{census.memories:,}")),
            ("superseded", note(f"{census.superseded:,}")),
            ("forgotten", note(f"{census.forgotten:,}")),
            ("links", note(f"{census.links:,}")),
            ("changes", note(f"{census.journal:,}")),
            ("to embed", note(f"{waiting:,}")),
            ("size", note(size(census.bytes))),
        ]
    )
    parts: list[RenderableType] = [counts]
    for title, groups in (("By category", census.by_category), ("By project", census.by_project)):
        if groups:
            parts += [Text(), note(title, style="bold"), _bars(groups)]
    return Group(*parts)


def _bars(groups: Mapping[str, int]) -> RenderableType:
    most = max(groups.values())
    made = table("", "", "")
    made.show_header = False
    for name, count in groups.items():
        bar = "▪" * max(1, round(_BAR_CHARACTERS * count / most))
        made.add_row(note(name or "everywhere"), Text(f"{count:,}", justify="right"), Text(bar, style=ID))
    return made


def health(found: Health, *, deep: bool) -> RenderableType:
    """What an inspection found and mended."""
    lines: list[RenderableType] = [note(f"✗ {each.subject}: {each.problem}", style="red") for each in found.findings]
    if found.findings:
        lines.append(note("This cannot be mended from within: restore a backup with `triskele restore FILE`."))
    else:
        checked = "every hash holds" if deep else "the database is sound"
        lines.append(note(f"✓ The memories are well: {checked}.", style="green"))
    lines += [note(f"✓ Repaired: {what}.", style="green") for what in found.repaired]
    if found.model_problem is not None:
        lines.append(note(f"✗ The model cannot be asked, words alone answer: {found.model_problem}", style="red"))
    if not found.findings and not found.repaired:
        lines.append(note("✓ The index is up to date.", style="green"))
    if not deep:
        lines.append(note("`triskele doctor --deep` also checks every hash and every index entry.", style=QUIET))
    return Group(*lines)


def settings(values: Mapping[str, Mapping[str, Any]], file: Path) -> RenderableType:
    """Every setting with its value and where that came from."""
    made = table("setting", "value", "from")
    for column in made.columns[1:]:
        column.no_wrap, column.overflow = False, "fold"
    for name, each in values.items():
        is_default = each["origin"] == "default"
        value = each["value"]
        said = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        made.add_row(note(name), note(said), note(each["origin"], style=QUIET if is_default else ID))
    state = "" if file.exists() else " (not there; create it to change a setting)"
    return Group(made, note(f"Settings file: {file}{state}", style=QUIET))


def imported(report: ImportReport, *, dry_run: bool) -> RenderableType:
    """What came in, or would come in."""
    would = "would be " if dry_run else ""
    lines: list[RenderableType] = [
        note(f"{report.added:,} of {memories(report.read)} {would}added ({report.format}), {report.links:,} links."),
    ]
    if report.duplicates:
        lines.append(note(f"{report.duplicates:,} known already.", style=QUIET))
    lines += [note(f"left out: {each.place}: {each.reason}", style=QUIET) for each in report.skipped[:_SHOWN_PROBLEMS]]
    if len(report.skipped) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(report.skipped) - _SHOWN_PROBLEMS:,} more left out", style=QUIET))
    lines += [note(f"✗ {each.place}: {each.reason}", style="red") for each in report.problems[:_SHOWN_PROBLEMS]]
    if len(report.problems) > _SHOWN_PROBLEMS:
        lines.append(note(f"… and {len(report.problems) - _SHOWN_PROBLEMS:,} more problems", style="red"))
    if report.added and not dry_run:
        lines.append(note(f"Take it back with `triskele undo --batch {report.batch}`.", style=QUIET))
    return Group(*lines)


def exported(report: ExportReport, target: Path | None) -> RenderableType:
    """What went out, and what stayed."""
    where = f" to {target}" if target else ""
    lines: list[RenderableType] = [note(f"{memories(report.written)} written{where}.")]
    if report.left_out_private:
        said = f"{memories(report.left_out_private, 'private ')} left out (--include-private writes them too)."
        lines.append(note(said, style=QUIET))
    return Group(*lines)


def demo_opening(count: int, took_s: float) -> RenderableType:
    """What the demonstration works on."""
    said = f"{count} memories of a small software team, loaded into a throw-away store in {took_s:.1f} s."
    return Group(note(said), note("The people and the company are invented.", style=QUIET))


def demo_scene(number: int, shows: str, command: str) -> RenderableType:
    """The heading above one answer."""
    return Group(Text(), note(f"{number}. {shows}", style="bold"), note(f"$ {command}", style=ID), Text())


def demo_closing() -> RenderableType:
    """Where to go from here."""
    return Group(
        Text(),
        note("Now with your own:", style="bold"),
        note('$ triskele add "We deploy with Argo CD, not Helm hooks" --category decisions', style=ID),
        note('$ triskele recall "how do we deploy?"', style=ID),
    )


def bench(report: Mapping[str, Any], out: Path | None) -> RenderableType:
    """Every arm's quality and speed, by kind of question, and how sure the differences are."""
    made = table("arm", *_SHOWN_METRICS, "p50 ms", "p95 ms", "bytes")
    by_type = table("ndcg@10", *report["arms"])
    for name, arm in report["arms"].items():
        times = (f"{arm['latency_ms'][key]:.2f}" for key in ("p50", "p95"))
        values = (_value(arm["overall"][metric]) for metric in _SHOWN_METRICS)
        made.add_row(note(name, style=ID), *values, *times, f"{arm['bytes_per_memory']:.0f}")
    strata = next(iter(report["arms"].values()))["strata"]
    for kind in strata:
        means = (_value(arm["strata"][kind]["ndcg@10"]) for arm in report["arms"].values())
        by_type.add_row(note(f"{kind} ({strata[kind]['n']})"), *means)
    parts: list[RenderableType] = [note(report["dataset"], style="bold"), made, Text(), by_type, Text()]
    parts += [note(_comparison(each), style=QUIET) for each in report["comparisons"] if _is_headline(each)]
    if out is not None:
        parts.append(note(f"Runs and values per query are in {out}", style=QUIET))
    return Group(*parts)


def _value(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}"


def _is_headline(comparison: Mapping[str, Any]) -> bool:
    return comparison["stratum"] == "overall" and comparison["metric"] in _SHOWN_METRICS


def _comparison(each: Mapping[str, Any]) -> str:
    low, high = each["ci95"]
    between = f"{each['a']} − {each['b']}, {each['metric']}"
    return f"{between}: {each['delta']:+.3f} (95 % {low:+.3f} to {high:+.3f}, p {each['p_holm']:.3f})"
