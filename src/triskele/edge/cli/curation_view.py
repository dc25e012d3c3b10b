"""Proposals, reasons and scores of curation as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from triskele.edge import shapes
from triskele.edge.cli.render import ID, MATCH, QUIET, WARNING, counted, day, memories, note, one_line, table
from triskele.replies import Rationale, Verdict
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.agents.learning import Learned
    from triskele.bench.curation_pairs import CaptureReport, PairReport
    from triskele.curation.whole_store import ReviewResult, UpkeepFinding
    from triskele.replies import Proposal, Statistics
    from triskele.types import Memory

VERBS = {
    Verdict.ADD: "keep",
    Verdict.UPDATE: "extends",
    Verdict.SUPERSEDE: "replaces",
    Verdict.NOOP: "repeats",
    Verdict.FORGET: "forget",
}
_REASONS = {
    "same words": "the same words",
    "nearly the same words": "nearly the same words, with equal numbers and names",
    "same words in another order": "the same words in another order",
    "similar words": "most of the words are the same ({before}), and all numbers and names",
    "more words": "the same words and more: {after}",
    "the same and more": "says the same and adds: {after}",
    "denied": "one denies what the other says",
    "ended": "says that it ended ({after})",
    "changed value": "{before} became {after}",
    "other name": "{before} and {after} are names of one thing",
    "moved on": "it moved on to {after}",
    "other amount": "another number for the same thing: {before} and {after}",
    "other speaker": "another person says it",
    "part of a conversation": "a turn of a conversation",
    "language model": "the language model says: {after}",
    "ended on": "no longer valid since {before}",
    "part of a forgotten memory": "it is part of a memory that was forgotten",
    "holds for a time of its own": "one of them has its own validity period",
}
_SHOWN_CHARACTERS = 60


def reason_text(reason: Rationale) -> str:
    """One reason as a phrase."""
    form = _REASONS.get(reason.rule, reason.rule)
    return form.format(before=_shortened(reason.before), after=_shortened(reason.after))


def reasons_text(reasons: Sequence[Rationale]) -> str:
    """All reasons in one line."""
    return "; ".join(map(reason_text, reasons))


def _shortened(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


def proposal_shape(proposal: Proposal) -> dict[str, Any]:
    """A proposal as JSON."""
    return {
        "id": proposal.id,
        "kind": proposal.kind.value,
        "confidence": proposal.confidence,
        "created": timestamps.to_text(proposal.created),
        "new": _memory_shape(proposal.new, is_stored=proposal.is_stored),
        "old": _memory_shape(proposal.old) if proposal.old else None,
        "reasons": [reason_text(reason) for reason in proposal.reasons],
    }


def _memory_shape(memory: Memory, *, is_stored: bool = True) -> dict[str, Any]:
    content = shapes.shown_content(memory, False)
    return {"id": memory.id if is_stored else None, "content": content, "category": memory.category}


def proposals(waiting: Sequence[Proposal], short: Mapping[str, str]) -> RenderableType:
    """The review queue line by line."""
    if not waiting:
        return note("Nothing waits for a review.")
    made = table("id", "conf.", "memories and reasons", last_takes_rest=True)
    for each in waiting:
        made.add_row(Text(each.id, style=ID), note(f"{each.confidence:.2f}", style=QUIET), Group(*_lines(each, short)))
    return Group(made, note(f"{counted(len(waiting), 'proposal')} · review them with `triskele review`", style=QUIET))


def _lines(proposal: Proposal, short: Mapping[str, str]) -> Iterator[Text]:
    yield _said(proposal.new, short, "")
    if proposal.old is not None:
        yield _said(proposal.old, short, f"{VERBS[proposal.kind]} ")
    yield note(reasons_text(proposal.reasons), style=QUIET)


def _said(memory: Memory, short: Mapping[str, str], verb: str) -> Text:
    shown = Text(short.get(memory.id, ""), style=ID)
    return Text(verb, style=MATCH) + shown + Text(" " if shown.plain else "") + Text(one_line(memory.content))


def one_proposal(proposal: Proposal, place: str) -> RenderableType:
    """One proposal on the screen of the review."""
    heads = {Verdict.ADD: "Keep this?", Verdict.FORGET: "Forget this?"}
    head = heads.get(proposal.kind, f"The newer memory {VERBS[proposal.kind]} the older one?")
    parts = [note(place, style=QUIET), Text(head, style=MATCH), _dated("new", proposal.new)]
    parts += [_dated("old", proposal.old)] if proposal.old else []
    parts += [note(f"because {reasons_text(proposal.reasons)} (confidence {proposal.confidence:.2f})", style=QUIET)]
    return Group(*parts)


def accepted(ids: Sequence[str], skipped: Sequence[str], batch: str) -> Iterator[RenderableType]:
    """What was carried out, how to take it back, and what was skipped."""
    yield from (note(f"{id} accepted") for id in ids)
    if ids:
        yield note(f"{counted(len(ids), 'proposal')} accepted (undo: triskele undo --batch {batch})")
    if skipped:
        why = "outdated by one accepted before, or by a change meanwhile"
        yield note(f"{counted(len(skipped), 'proposal')} skipped, {why}: {', '.join(skipped)}")
    if not ids and not skipped:
        yield note("Nothing to accept.")


def _dated(side: str, memory: Memory) -> Text:
    return note(f"  {side}  {day(memory.created_at)}  ", style=QUIET) + Text(one_line(memory.content))


def review_shape(result: ReviewResult) -> dict[str, Any]:
    """The findings of a review as JSON."""
    return {
        "read": result.read,
        "batch": result.batch or None,
        "applied": [_found_shape(found) for found in result.applied],
        "proposals": [_found_shape(found) for found in result.findings],
        "new": result.proposed,
    }


def _found_shape(found: UpkeepFinding) -> dict[str, Any]:
    decision = found.decision
    sides = [side for side in (decision.new, decision.old) if side is not None]
    return {
        "action": decision.verdict.value,
        "finding": found.finding.value,
        "ids": [side.id for side in sides],
        "content": shapes.shown_content(decision.new, False),
        "other": shapes.shown_content(decision.old, False) if decision.old else None,
        "confidence": decision.confidence,
        "reason": reasons_text(decision.reasons),
    }


def review(
    result: ReviewResult, shorten: Callable[[Iterable[str]], Mapping[str, str]], waiting: int, *, is_dry: bool
) -> Iterator[RenderableType]:
    """The findings of a review as a table, and what became of them."""
    shown = [*result.applied, *result.findings]
    sides = [side for found in shown for side in (found.decision.new, found.decision.old) if side is not None]
    short = shorten({side.id for side in sides}) if sides else {}
    if shown:
        made = table("finding", "conf.", "memories and reasons", last_takes_rest=True)
        for found in shown:
            made.add_row(
                note(found.finding.value), note(f"{found.decision.confidence:.2f}", style=QUIET), _found(found, short)
            )
        yield made
    yield note(f"{memories(result.read)} read, {counted(len(shown), 'finding')}.")
    if result.applied:
        yield note(f"{counted(len(result.applied), 'change')} applied; undo: triskele undo --batch {result.batch}")
    if not is_dry and result.findings:
        wait = f", {waiting:,} in all: review with `triskele review`" if waiting else ""
        yield note(f"{counted(result.proposed, 'new proposal')}{wait}.")


def _found(found: UpkeepFinding, short: Mapping[str, str]) -> RenderableType:
    decision = found.decision
    lines = [_said(decision.new, short, "")]
    lines += [_said(decision.old, short, f"{VERBS[decision.verdict]} ")] if decision.old else []
    return Group(*lines, note(reasons_text(decision.reasons), style=QUIET))


def day_counts(counts: Statistics) -> RenderableType:
    """What curation did today, and what waits."""
    today = counts.today
    parts = [f"{counted(counts.proposals, 'proposal')} for `triskele review`"]
    if changed := today.get("changed", 0):
        parts.append(f"{memories(changed)} changed without a review today")
    if calls := today.get("calls", 0):
        tokens = f" ({counted(today['tokens'], 'token')})" if today.get("tokens") else ""
        parts.append(f"{calls} of {counts.llm_calls} calls of the language model today{tokens}")
    return note(f"Curation: {', '.join(parts)}")


def learned_shape(result: Learned) -> dict[str, Any]:
    """What was learned as JSON."""
    return {
        "kept": [_learned_shape(result, memory, is_stored=bool(result.batch)) for memory in result.kept],
        "proposed": [_learned_shape(result, memory, is_stored=False) for memory in result.proposed],
        "skipped": result.skipped,
        "turns": result.turns,
        "withheld": result.withheld,
        "invented": result.invented,
        "problem": result.problem or None,
        "batch": result.batch or None,
    }


def _learned_shape(result: Learned, memory: Memory, *, is_stored: bool) -> dict[str, Any]:
    return {**_memory_shape(memory, is_stored=is_stored), "found_by": result.rules[memory.id].rule}


def learned(result: Learned, *, is_dry: bool) -> Iterator[RenderableType]:
    """What was learned, line by line."""
    made = table("what", "found by", "text", last_takes_rest=True)
    for what, found in (("keep" if is_dry else "kept", result.kept), ("for review", result.proposed)):
        for memory in found:
            found_by = note(result.rules[memory.id].rule, style=QUIET)
            made.add_row(what, found_by, one_line(shapes.shown_content(memory, False)))
    if result.kept or result.proposed:
        yield made
    said = f"{counted(result.turns, 'turn')} read, {len(result.kept)} kept, {len(result.proposed)} for review"
    yield note(f"{said}, {result.skipped} known or unfit.")
    if result.invented:
        yield note(f"{counted(result.invented, 'fact')} of the language model dropped: not stated in the turns.")
    if result.withheld:
        yield note(f"{counted(result.withheld, 'turn')} of private sessions not sent to the language model.")
    if result.problem:
        yield note(
            f"The language model has not read every turn: {result.problem}. The next run reads the others.", WARNING
        )
    if result.batch:
        yield note(f"Undo: triskele undo --batch {result.batch}", style=QUIET)


def pair_shape(report: PairReport) -> dict[str, Any]:
    """The scores of one half as JSON."""
    scores = {
        each.verdict.value: {
            "labelled": each.labelled,
            "judged": each.judged,
            "right": each.right,
            "precision": round(each.precision, 4),
            "recall": round(each.recall, 4),
        }
        for each in report.scores
    }
    rate = round(report.false_merge_rate, 4)
    return {"half": report.half, "pairs": report.pairs, "verdicts": scores, "false_merge_rate": rate}


def pair_scores(reports: Sequence[PairReport]) -> Iterator[RenderableType]:
    """Precision and recall of each verdict."""
    made = table("half", "verdict", "pairs", "judged so", "precision", "recall")
    for report in reports:
        for each in report.scores:
            figures = (f"{each.precision:.3f}", f"{each.recall:.3f}")
            made.add_row(report.half, each.verdict.value, str(each.labelled), str(each.judged), *figures)
    yield made
    for report in reports:
        said = f"{report.false_merges} of {report.different} pairs about different things"
        yield note(f"False merges in {report.half}: {said} ({report.false_merge_rate:.1%})")
    yield note("The rules were written with the half `tune` in view; only what they are sure of counts.", style=QUIET)
    yield note("The pairs called `spoken` are sentences as people talk, written after the rules.", style=QUIET)


def capture_shape(report: CaptureReport) -> dict[str, Any]:
    """The scores of capture as JSON."""
    figures = {"precision": round(report.precision, 4), "recall": round(report.recall, 4)}
    return {"half": report.half, "dial": report.dial, "conversations": report.conversations, **figures}


def capture_scores(reports: Sequence[CaptureReport]) -> Iterator[RenderableType]:
    """What the rules keep of the labelled conversations."""
    for report in reports:
        kept = f"{report.right} of {report.kept} kept texts are right ({report.precision:.3f})"
        found = f"{report.found} of {report.labelled} found ({report.recall:.3f})"
        yield note(f"Capture, half {report.half}, {report.conversations} conversations: {kept}, {found}")
