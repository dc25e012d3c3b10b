"""Proposals, reasons and scores of curation as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from triskele.base import timestamps
from triskele.curation.compare import Rationale, Verdict
from triskele.serving import shapes
from triskele.serving.cli.render import ID, MATCH, QUIET, counted, day, note, one_line, table

if TYPE_CHECKING:
    from triskele.curation.decide import PairDecision
    from triskele.curation.proposals import Proposal
    from triskele.evaluation.curation_pairs import PairReport
    from triskele.types import Memory

VERBS = {
    Verdict.ADD: "keep",
    Verdict.UPDATE: "extends",
    Verdict.SUPERSEDE: "replaces",
    Verdict.NOOP: "repeats",
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
    "moved on": "it moved on to {after}",
    "other speaker": "another person says it",
    "part of a conversation": "a turn of a conversation",
    "holds for a time of its own": "one of them holds for a time of its own",
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
    return Group(made, note(f"{counted(len(waiting), 'proposal')} · `triskele review` walks them", style=QUIET))


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
    head = "Keep this?" if proposal.old is None else f"The newer memory {VERBS[proposal.kind]} the older one?"
    parts = [note(place, style=QUIET), Text(head, style=MATCH), _dated("new", proposal.new)]
    parts += [_dated("old", proposal.old)] if proposal.old else []
    parts += [note(f"because {reasons_text(proposal.reasons)} (confidence {proposal.confidence:.2f})", style=QUIET)]
    return Group(*parts)


def _dated(side: str, memory: Memory) -> Text:
    return note(f"  {side}  {day(memory.created_at)}  ", style=QUIET) + Text(one_line(memory.content))


def hints(decisions: Sequence[PairDecision], short: Mapping[str, str]) -> list[str]:
    """What a new memory repeats or contradicts, a line for each."""
    lines = []
    for each in decisions:
        assert each.old is not None
        verb = {Verdict.NOOP: "repeats", Verdict.UPDATE: "extends"}.get(each.verdict, "may replace")
        lines.append(f"{verb} {short.get(each.old.id, each.old.id)}  {_shortened(each.old.content)}")
    return lines


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
        yield note(f"False merges in the half {report.half}: {said} ({report.false_merge_rate:.1%})")
    yield note("The rules were written with the half `tune` in view; only what they are sure of counts.", style=QUIET)
