"""The commands that keep a store clean: review, curate, learn; and the screen for judging by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triskele.edge.cli.commands import command, command_group
from triskele.edge.cli.documents import picked
from triskele.edge.cli.invocation import Invocation, has_keys, progress_bar, read_key, show_parts
from triskele.edge.cli.options import writing_place
from triskele.edge.cli.view import ID, MATCH, QUIET, WARNING, Indented, Table, day, note, plural, screen_width, stacked
from triskele.edge.wording import VERBS, one_line, reason_text, reasons_text, shown_content, visible
from triskele.errors import BadInput
from triskele.replies.rooms import Reviewed
from triskele.text.ids import new_batch
from triskele.types import Verdict

if TYPE_CHECKING:
    from triskele.agents.learning import Learned
    from triskele.bench.own.judge import JudgingItem, JudgingSession
    from triskele.curation.whole_store import ReviewResult, UpkeepFinding
    from triskele.edge.cli.documents import Document
    from triskele.edge.cli.view import Renderable, ShortIds, Styled
    from triskele.engine.protocol import Engine
    from triskele.replies.rooms import Proposal, Rationale
    from triskele.types import Memory

_KEYS = (("a", "accept"), ("r", "reject"), ("s", "skip"), ("q", "stop"))
_ACCEPT, _REJECT, _SKIP = "a", "r", "s"
_STOP = frozenset({"q", "", "\x04", "\x1b"})
_GRADES = (("0", "unrelated"), ("1", "related, no answer"), ("2", "answers in part"), ("3", "answers it"))
_OTHER_KEYS = (("u", "undo"), ("s", "skip the question"), ("q", "stop; grades are kept"))
_LEAVING = frozenset({"q", "Q", "", "\x04"})


@command_group(
    "triskele review",
    "triskele review list",
    "triskele review accept 5b86e0",
    "triskele review reject 5b86e0",
    alone=lambda invocation: _walk(invocation),
)
def review() -> None:
    """Go through the proposals of curation, with one key for each.

    A proposal changes nothing until you accept it; what you accept is one batch that `triskele undo` takes back.
    """


@review.subcommand("triskele review list --json", name="list")
def list_proposals(invocation: Invocation) -> None:
    """List the proposals that wait."""
    with invocation.open() as engine:
        pending = _pending(engine)
        invocation.emit({"proposals": list(map(_proposal_document, pending))}, lambda: _proposals_view(pending, engine))


@review.subcommand("triskele review accept 5b86e0 1f20c3", "triskele review accept --above 0.9")
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--above", type=click.FloatRange(0, 1), help="Every proposal with at least this confidence.")
def accept(invocation: Invocation, ids: tuple[str, ...], above: float | None) -> None:
    """Apply proposals in one batch, which `triskele undo` takes back.

    A proposal is skipped if one accepted before it replaced or forgot one of its memories.
    """
    if bool(ids) == (above is not None):
        raise click.UsageError("give the ids of proposals, or --above")
    with invocation.open() as engine:
        reviewed = engine.curation.accept(*ids, above=above)
        invocation.emit(
            {"accepted": dict.fromkeys(reviewed.accepted, reviewed.batch), "skipped": reviewed.skipped},
            lambda: _accepted_view(reviewed),
        )


@review.subcommand("triskele review reject 5b86e0")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def reject(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Drop proposals; the same ones are not made again."""
    with invocation.open() as engine:
        rejected = engine.curation.reject(*ids).rejected
        invocation.emit({"rejected": rejected}, lambda: "\n".join(f"{id} rejected" for id in rejected))


def _pending(engine: Engine) -> list[Proposal]:
    """List pending proposals without conflicts, which `triskele list --conflicts` shows."""
    return [proposal for proposal in engine.curation.proposals() if proposal.kind is not Verdict.CONFLICT]


def _walk(invocation: Invocation) -> None:
    """Show each proposal, and do what the pressed key means."""
    with invocation.stores.open_local() as engine:
        pending = _pending(engine)
        if not pending:
            return click.echo("No proposals to review.")
        if invocation.as_json or not has_keys():
            commands = "`triskele review list`, then `triskele review accept ID`"
            raise BadInput(f"review needs a terminal; without one use {commands}")
        batch, accepted, skipped, rejected = new_batch(), list[str](), list[str](), 0
        for number, proposal in enumerate(pending, start=1):
            if proposal.id not in {other.id for other in _pending(engine)}:
                skipped.append(proposal.id)
                continue
            show_parts(_one_proposal_view(proposal, f"{number} of {len(pending)}"))
            key = _key()
            if key in _STOP:
                break
            if key == _ACCEPT:
                reviewed = engine.curation.accept(proposal.id, batch=batch)
                accepted += reviewed.accepted
                skipped += reviewed.skipped
            elif key == _REJECT:
                engine.curation.reject(proposal.id)
                rejected += 1
        if accepted or skipped:
            show_parts(_accepted_view(Reviewed(tuple(accepted), skipped=tuple(skipped), batch=batch)))
        left = len(_pending(engine))
        return click.echo(f"{len(accepted)} accepted, {rejected} rejected, {left} left.")


def _key() -> str:
    """Wait for a key that has a meaning."""
    legend = "   ".join(f"{key} {meaning}" for key, meaning in _KEYS)
    while True:
        click.echo(f"{legend}  ", nl=False)
        key = read_key().lower()
        click.echo()
        if key in _STOP or key in (_ACCEPT, _REJECT, _SKIP):
            return key


@command("triskele curate --dry-run", "triskele curate", "triskele curate --apply 0.95 --yes")
@click.option("--dry-run", is_flag=True, help="Show what it finds and change nothing.")
@click.option("--apply", "threshold", type=click.FloatRange(0.9, 1), help="Apply from this confidence on (0.9 to 1).")
@click.option("--limit", type=click.IntRange(1), help="Read at most this many memories; the next run continues there.")
@click.option("--yes", is_flag=True, help="Apply also more than the daily share of the store, without asking.")
def curate(invocation: Invocation, dry_run: bool, threshold: float | None, limit: int | None, yes: bool) -> None:
    """Find copies and contradictions in the whole store.

    Also what is outdated, says too little, or belongs to a forgotten memory.

    What it finds waits in `triskele review`. With --apply it carries out what is sure, in one batch that
    `triskele undo --batch` takes back.
    """
    if dry_run and threshold is not None:
        raise click.UsageError("--dry-run and --apply exclude each other")
    with invocation.stores.open_local() as engine:
        if engine.settings.curation.llm_calls:
            for problem in engine.upkeep.model_problems():
                click.echo(problem, err=True)
        # More than the daily share needs consent.
        if threshold is not None and not yes and (plan := engine.upkeep.plan_curation(threshold)).needs_consent:
            change = f"this would change about {plan.changes:,} of {plan.memories:,} memories"
            if not invocation.can_ask():
                raise BadInput(f"{change}, more than {plan.most_a_day:,} a day: confirm it with --yes")
            if not click.confirm(f"{change[0].upper()}{change[1:]}. Go on?", err=True):
                raise BadInput("not confirmed: nothing was changed")
        with progress_bar("Reviewing") as progress:
            result = engine.upkeep.curate(threshold=threshold, is_dry=dry_run, limit=limit, progress=progress)
        pending = 0 if dry_run else engine.stats().proposals
        invocation.emit(
            {
                "read": result.read,
                "batch": result.batch or None,
                "applied": list(map(_finding_document, result.applied)),
                "proposals": list(map(_finding_document, result.findings)),
                "new": result.proposed,
            },
            lambda: _review_view(result, engine, pending, is_dry=dry_run),
        )


@command("triskele learn ~/.claude/projects/shop/3f9c.jsonl --dry-run", "triskele learn talk.jsonl --dial strict")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show what would be kept of the whole file; store nothing.")
@click.option(
    "--dial", type=click.Choice(["strict", "normal", "all"]), help="The required confidence; normal unless configured."
)
@writing_place
def learn(invocation: Invocation, file: Path, dry_run: bool, dial: str | None, project: str | None) -> None:
    """Keep what you said in the transcript of an agent.

    It reads transcripts of Claude Code, Codex and Gemini, by rules on your own words: what you asked to remember,
    standing rules, corrections, decisions, preferences, who people are. What is less sure waits in `triskele review`.
    A later run continues where the last one ended. A conversation with #no-memory in it is left out.

    With curation.llm_calls set the language model of [llm] reads the conversation too, except private ones; what it
    finds waits in `triskele review`, and --dry-run asks it as well.
    """
    with invocation.stores.open_local(creates=True) as engine:
        usual = engine.settings.curation.learn
        chosen = dial or (usual if usual != "off" else "normal")
        learned = engine.upkeep.learn(file, dial=chosen, project=project, is_dry=dry_run)
        invocation.emit(learned_document(learned), lambda: _learned_view(learned, is_dry=dry_run))


def _proposal_document(proposal: Proposal) -> Document:
    """A proposal as JSON."""
    return {
        **picked(proposal, "id kind confidence created"),
        "new": _memory_document(proposal.new, is_stored=proposal.is_stored),
        "old": _memory_document(proposal.old) if proposal.old else None,
        "reasons": list(map(reason_text, proposal.reasons)),
    }


def _memory_document(memory: Memory, *, is_stored: bool = True) -> Document:
    content = shown_content(memory, False)
    return {"id": memory.id if is_stored else None, "content": content, "category": memory.category}


def _proposals_view(pending: Sequence[Proposal], engine: Engine) -> Iterator[Renderable]:
    """The review queue line by line."""
    if not pending:
        yield note("No proposals to review.")
        return
    stored = [memory.id for each in pending if each.is_stored for memory in (each.new, each.old) if memory is not None]
    short = engine.shorten(stored) if stored else {}
    rows = []
    for proposal in pending:
        lines = _sides(proposal.new, proposal.old, proposal.kind, proposal.reasons, short)
        rows.append((note(proposal.id, ID), note(f"{proposal.confidence:.2f}", QUIET), lines))
    yield Table(("id", "conf.", "memories and reasons"), rows, last_takes_rest=True)
    yield note(f"{plural(len(pending), 'proposal')} · review them with `triskele review`", QUIET)


def _sides(new: Memory, old: Memory | None, verdict: Verdict, reasons: Sequence[Rationale], short: ShortIds) -> Styled:
    """The newer memory, what it is to the older one, and why."""
    lines = []
    for verb, memory in (("", new), (f"{VERBS[verdict]} ", old)):
        if memory is not None:
            id = short.get(memory.id, "")
            lines.append(note(verb, MATCH) + note(id, ID) + note(" " if id else "") + note(one_line(memory.content)))
    return stacked(*lines, note(reasons_text(reasons), QUIET))


def _one_proposal_view(proposal: Proposal, heading: str) -> Iterator[Styled]:
    """One proposal on the screen of the review."""
    questions = {Verdict.ADD: "Keep this?", Verdict.FORGET: "Forget this?"}
    yield note(heading, QUIET)
    default = f"The newer memory {VERBS[proposal.kind]} the older one?"
    yield note(questions.get(proposal.kind, default), MATCH)
    for side, memory in (("new", proposal.new), ("old", proposal.old)):
        if memory is not None:
            yield note(f"  {side}  {day(memory.created_at)}  ", QUIET) + note(one_line(memory.content))
    yield note(f"because {reasons_text(proposal.reasons)} (confidence {proposal.confidence:.2f})", QUIET)


def _accepted_view(reviewed: Reviewed) -> Iterator[Renderable]:
    """The accepted proposals, how to undo them, and the skipped ones."""
    ids, skipped = reviewed.accepted, reviewed.skipped
    yield from (note(f"{id} accepted") for id in ids)
    if ids:
        yield note(f"{plural(len(ids), 'proposal')} accepted (undo: triskele undo --batch {reviewed.batch})")
    if skipped:
        why = "outdated by one accepted before, or by a change meanwhile"
        yield note(f"{plural(len(skipped), 'proposal')} skipped, {why}: {', '.join(skipped)}")
    if not ids and not skipped:
        yield note("Nothing to accept.")


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


def _review_view(result: ReviewResult, engine: Engine, waiting: int, *, is_dry: bool) -> Iterator[Renderable]:
    """The findings of a review, and how many were applied or proposed."""
    findings = [*result.applied, *result.findings]
    if findings:
        short, rows = engine.shorten({memory.id for finding in findings for memory in _memories(finding)}), []
        for kind, decision in findings:
            lines = _sides(decision.new, decision.old, decision.verdict, decision.reasons, short)
            rows.append((note(kind.value), note(f"{decision.confidence:.2f}", QUIET), lines))
        yield Table(("finding", "conf.", "memories and reasons"), rows, last_takes_rest=True)
    yield note(f"{plural(result.read, 'memory')} read, {plural(len(findings), 'finding')}.")
    if result.applied:
        yield note(f"{plural(len(result.applied), 'change')} applied; undo: triskele undo --batch {result.batch}")
    if not is_dry and result.findings:
        wait = f", {waiting:,} in all: review with `triskele review`" if waiting else ""
        yield note(f"{plural(result.proposed, 'new proposal')}{wait}.")


def learned_document(learned: Learned) -> Document:
    """What was learned from a transcript as JSON."""
    return {
        "kept": [_learned_memory(learned, memory, is_stored=bool(learned.batch)) for memory in learned.kept],
        "proposed": [_learned_memory(learned, memory, is_stored=False) for memory in learned.proposed],
        **picked(learned, "skipped turns withheld invented"),
        "problem": learned.problem or None,
        "batch": learned.batch or None,
    }


def _learned_memory(learned: Learned, memory: Memory, *, is_stored: bool) -> Document:
    return {**_memory_document(memory, is_stored=is_stored), "found_by": learned.rules[memory.id].rule}


def _learned_view(learned: Learned, *, is_dry: bool) -> Iterator[Renderable]:
    """What was learned from a transcript, line by line."""
    rows = []
    for label, memories in (("keep" if is_dry else "kept", learned.kept), ("for review", learned.proposed)):
        for memory in memories:
            rule = note(learned.rules[memory.id].rule, QUIET)
            rows.append((label, rule, one_line(shown_content(memory, False))))
    if rows:
        yield Table(("what", "found by", "text"), rows, last_takes_rest=True)
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


def judge(session: JudgingSession) -> None:
    """Show pair after pair until none is left or the judge stops."""
    if not has_keys():
        raise BadInput("judging needs a terminal: import grades from a file with --scripted FILE")
    message = ""
    while (item := session.item()) is not None:
        click.clear()
        show_parts(_judging_view(item, message))
        key = read_key()
        message = ""
        if key in _LEAVING:
            return
        if key in dict(_GRADES):
            session.grade(int(key))
        elif key in ("u", "U"):
            message = "" if session.undo() else "Nothing to undo in this session."
        elif key in ("s", "S"):
            session.skip()
        else:
            message = f"No key {visible(key)!r}: press one of those above."


def _judging_view(item: JudgingItem, message: str) -> Iterator[Renderable]:
    memory = item.memory
    details = [memory.category, day(memory.created_at), *memory.tags]
    yield note(f"{plural(item.questions_left, 'question')} left · memory {item.number} of {item.total}", QUIET)
    rule = note("─" * screen_width(), QUIET)
    yield from (note(""), note(item.question.text, MATCH), rule)
    yield Indented(note(memory.content), 2, 2)
    yield Indented(note(" · ".join(details), QUIET), 2, 2)
    yield from (rule, _key_line(_GRADES), _key_line(_OTHER_KEYS))
    if message:
        yield note(message, WARNING)


def _key_line(keys: tuple[tuple[str, str], ...]) -> Styled:
    line = note("")
    for key, meaning in keys:
        line = line + note(f"{key} ", ID) + note(f"{meaning}   ")
    return line
