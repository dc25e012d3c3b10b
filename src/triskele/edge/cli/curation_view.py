"""Proposals, findings and what was learned, for people and as JSON; the reasons of both are sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from triskele.edge.cli.layout import stacked
from triskele.edge.cli.view import (
    ID,
    MATCH,
    QUIET,
    WARNING,
    ShortIds,
    day,
    excerpt,
    note,
    one_line,
    plural,
    table,
)
from triskele.edge.wording import shown_content
from triskele.replies import Rationale
from triskele.text import timestamps
from triskele.types import Verdict

if TYPE_CHECKING:
    from triskele.agents.learning import Learned
    from triskele.bench.curation_pairs import CaptureReport, PairReport
    from triskele.curation.whole_store import ReviewResult, UpkeepFinding
    from triskele.edge.cli.emit import Document
    from triskele.edge.cli.layout import Part, Text
    from triskele.replies import Proposal
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
    before, after = (excerpt(text, _SHOWN_CHARACTERS) for text in (reason.before, reason.after))
    return form.format(before=before, after=after)


def reasons_text(reasons: Sequence[Rationale]) -> str:
    """All reasons in one line."""
    return "; ".join(map(reason_text, reasons))


# Proposals


def proposal_document(proposal: Proposal) -> Document:
    """A proposal as JSON."""
    return {
        "id": proposal.id,
        "kind": proposal.kind.value,
        "confidence": proposal.confidence,
        "created": timestamps.to_text(proposal.created),
        "new": _memory_document(proposal.new, is_stored=proposal.is_stored),
        "old": _memory_document(proposal.old) if proposal.old else None,
        "reasons": list(map(reason_text, proposal.reasons)),
    }


def _memory_document(memory: Memory, *, is_stored: bool = True) -> Document:
    content = shown_content(memory, False)
    return {"id": memory.id if is_stored else None, "content": content, "category": memory.category}


def proposals(pending: Sequence[Proposal], short: ShortIds) -> Iterator[Part]:
    """The review queue line by line."""
    if not pending:
        yield note("No proposals to review.")
        return
    rows = table("id", "conf.", "memories and reasons", last_takes_rest=True)
    for proposal in pending:
        lines = _sides(proposal.new, proposal.old, proposal.kind, proposal.reasons, short)
        rows.add_row(note(proposal.id, ID), note(f"{proposal.confidence:.2f}", QUIET), lines)
    yield rows
    yield note(f"{plural(len(pending), 'proposal')} · review them with `triskele review`", QUIET)


def _sides(new: Memory, old: Memory | None, verdict: Verdict, reasons: Sequence[Rationale], short: ShortIds) -> Text:
    """The newer memory, what it is to the older one, and why."""
    lines = [_side(new, short, "")]
    if old is not None:
        lines.append(_side(old, short, f"{VERBS[verdict]} "))
    return stacked(*lines, note(reasons_text(reasons), QUIET))


def _side(memory: Memory, short: ShortIds, verb: str) -> Text:
    id = short.get(memory.id, "")
    return note(verb, MATCH) + note(id, ID) + note(" " if id else "") + note(one_line(memory.content))


def one_proposal(proposal: Proposal, heading: str) -> Iterator[Text]:
    """One proposal on the screen of the review."""
    questions = {Verdict.ADD: "Keep this?", Verdict.FORGET: "Forget this?"}
    yield note(heading, QUIET)
    default = f"The newer memory {VERBS[proposal.kind]} the older one?"
    yield note(questions.get(proposal.kind, default), MATCH)
    yield _dated("new", proposal.new)
    if proposal.old:
        yield _dated("old", proposal.old)
    yield note(f"because {reasons_text(proposal.reasons)} (confidence {proposal.confidence:.2f})", QUIET)


def _dated(side: str, memory: Memory) -> Text:
    return note(f"  {side}  {day(memory.created_at)}  ", QUIET) + note(one_line(memory.content))


def accepted(ids: Sequence[str], skipped: Sequence[str], batch: str) -> Iterator[Part]:
    """The accepted proposals, how to undo them, and the skipped ones."""
    yield from (note(f"{id} accepted") for id in ids)
    if ids:
        yield note(f"{plural(len(ids), 'proposal')} accepted (undo: triskele undo --batch {batch})")
    if skipped:
        why = "outdated by one accepted before, or by a change meanwhile"
        yield note(f"{plural(len(skipped), 'proposal')} skipped, {why}: {', '.join(skipped)}")
    if not ids and not skipped:
        yield note("Nothing to accept.")


# Findings of a review of the whole store


def review_document(result: ReviewResult) -> Document:
    """The findings of a review as JSON."""
    return {
        "read": result.read,
        "batch": result.batch or None,
        "applied": list(map(_finding_document, result.applied)),
        "proposals": list(map(_finding_document, result.findings)),
        "new": result.proposed,
    }


def _finding_document(finding: UpkeepFinding) -> Document:
    decision = finding.decision
    return {
        "action": decision.verdict.value,
        "finding": finding.finding.value,
        "ids": [memory.id for memory in _memories(finding)],
        "content": shown_content(decision.new, False),
        "other": shown_content(decision.old, False) if decision.old else None,
        "confidence": decision.confidence,
        "reason": reasons_text(decision.reasons),
    }


def _memories(finding: UpkeepFinding) -> list[Memory]:
    return [memory for memory in (finding.decision.new, finding.decision.old) if memory is not None]


def review(
    result: ReviewResult, shorten: Callable[[Iterable[str]], Mapping[str, str]], waiting: int, *, is_dry: bool
) -> Iterator[Part]:
    """The findings of a review, and how many were applied or proposed."""
    findings = [*result.applied, *result.findings]
    if findings:
        short = shorten({memory.id for finding in findings for memory in _memories(finding)})
        rows = table("finding", "conf.", "memories and reasons", last_takes_rest=True)
        for finding in findings:
            decision = finding.decision
            lines = _sides(decision.new, decision.old, decision.verdict, decision.reasons, short)
            rows.add_row(note(finding.finding.value), note(f"{decision.confidence:.2f}", QUIET), lines)
        yield rows
    yield note(f"{plural(result.read, 'memory')} read, {plural(len(findings), 'finding')}.")
    if result.applied:
        yield note(f"{plural(len(result.applied), 'change')} applied; undo: triskele undo --batch {result.batch}")
    if not is_dry and result.findings:
        wait = f", {waiting:,} in all: review with `triskele review`" if waiting else ""
        yield note(f"{plural(result.proposed, 'new proposal')}{wait}.")


# What was learned from a transcript


def learned_document(learned: Learned) -> Document:
    """What was learned from a transcript as JSON."""
    return {
        "kept": [_learned_memory(learned, memory, is_stored=bool(learned.batch)) for memory in learned.kept],
        "proposed": [_learned_memory(learned, memory, is_stored=False) for memory in learned.proposed],
        "skipped": learned.skipped,
        "turns": learned.turns,
        "withheld": learned.withheld,
        "invented": learned.invented,
        "problem": learned.problem or None,
        "batch": learned.batch or None,
    }


def _learned_memory(learned: Learned, memory: Memory, *, is_stored: bool) -> Document:
    return {**_memory_document(memory, is_stored=is_stored), "found_by": learned.rules[memory.id].rule}


def learned(learned: Learned, *, is_dry: bool) -> Iterator[Part]:
    """What was learned from a transcript, line by line."""
    rows = table("what", "found by", "text", last_takes_rest=True)
    for label, memories in (("keep" if is_dry else "kept", learned.kept), ("for review", learned.proposed)):
        for memory in memories:
            rule = note(learned.rules[memory.id].rule, QUIET)
            rows.add_row(label, rule, one_line(shown_content(memory, False)))
    if learned.kept or learned.proposed:
        yield rows
    counts = f"{plural(learned.turns, 'turn')} read, {len(learned.kept)} kept, {len(learned.proposed)} for review"
    yield note(f"{counts}, {learned.skipped} known or unfit.")
    if learned.invented:
        yield note(f"{plural(learned.invented, 'fact')} of the language model dropped: not stated in the turns.")
    if learned.withheld:
        yield note(f"{plural(learned.withheld, 'turn')} of private sessions not sent to the language model.")
    if learned.problem:
        problem = f"The language model has not read every turn: {learned.problem}."
        yield note(f"{problem} The next run reads the others.", WARNING)
    if learned.batch:
        yield note(f"Undo: triskele undo --batch {learned.batch}", QUIET)


# Scores on labelled samples


def pair_document(report: PairReport) -> Document:
    """The scores of one half as JSON."""
    scores = {
        score.verdict.value: {
            "labelled": score.labelled,
            "judged": score.judged,
            "right": score.right,
            "precision": round(score.precision, 4),
            "recall": round(score.recall, 4),
        }
        for score in report.scores
    }
    rate = round(report.false_merge_rate, 4)
    return {"half": report.half, "pairs": report.pairs, "verdicts": scores, "false_merge_rate": rate}


def pair_scores(reports: Sequence[PairReport]) -> Iterator[Part]:
    """Precision and recall of each verdict."""
    rows = table("half", "verdict", "pairs", "judged so", "precision", "recall")
    for report in reports:
        for score in report.scores:
            figures = (f"{score.precision:.3f}", f"{score.recall:.3f}")
            rows.add_row(report.half, score.verdict.value, str(score.labelled), str(score.judged), *figures)
    yield rows
    for report in reports:
        pairs = f"{report.false_merges} of {report.different} pairs about different things"
        yield note(f"False merges in {report.half}: {pairs} ({report.false_merge_rate:.1%})")
    yield note("The rules were written with the half `tune` in view; only what they are sure of counts.", QUIET)
    yield note("The pairs called `spoken` are sentences as people talk, written after the rules.", QUIET)


def capture_document(report: CaptureReport) -> Document:
    """The scores of capture as JSON."""
    figures = {"precision": round(report.precision, 4), "recall": round(report.recall, 4)}
    return {"half": report.half, "dial": report.dial, "conversations": report.conversations, **figures}


def capture_scores(reports: Sequence[CaptureReport]) -> Iterator[Part]:
    """What the rules keep of the labelled conversations."""
    for report in reports:
        precision = f"{report.right} of {report.captured} kept texts are right ({report.precision:.3f})"
        recall = f"{report.matched} of {report.labelled} found ({report.recall:.3f})"
        yield note(f"Capture, half {report.half}, {report.conversations} conversations: {precision}, {recall}")
