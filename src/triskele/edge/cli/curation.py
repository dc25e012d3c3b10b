"""The commands that keep a store clean: review, curate, learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from triskele.edge.cli import curation_view, judging
from triskele.edge.cli.commands import command, command_group
from triskele.edge.cli.emit import emit
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.options import writing_place, written_project
from triskele.errors import BadInput
from triskele.text.ids import new_batch
from triskele.types import Verdict

if TYPE_CHECKING:
    from triskele.engine.protocol import Engine
    from triskele.engine.upkeep import CurationPlan
    from triskele.replies import Proposal

_KEYS = (("a", "accept"), ("r", "reject"), ("s", "skip"), ("q", "stop"))
_ACCEPT, _REJECT, _SKIP = "a", "r", "s"
_STOP = frozenset({"q", "", "\x04", "\x1b"})


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
    with invocation.open_existing() as engine:
        pending = _pending(engine)
        emit(
            invocation,
            {"proposals": list(map(curation_view.proposal_document, pending))},
            lambda: curation_view.proposals(pending, _short(engine, pending)),
        )


@review.subcommand("triskele review accept 5b86e0 1f20c3", "triskele review accept --above 0.9")
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--above", type=click.FloatRange(0, 1), help="Every proposal with at least this confidence.")
def accept(invocation: Invocation, ids: tuple[str, ...], above: float | None) -> None:
    """Apply proposals in one batch, which `triskele undo` takes back.

    A proposal is skipped if one accepted before it replaced or forgot one of its memories.
    """
    if bool(ids) == (above is not None):
        raise click.UsageError("give the ids of proposals, or --above")
    with invocation.open_existing() as engine:
        reviewed = engine.curation.accept(*ids, above=above)
        emit(
            invocation,
            {"accepted": dict.fromkeys(reviewed.accepted, reviewed.batch), "skipped": reviewed.skipped},
            lambda: curation_view.accepted(reviewed.accepted, reviewed.skipped, reviewed.batch),
        )


@review.subcommand("triskele review reject 5b86e0")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def reject(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Drop proposals; the same ones are not made again."""
    with invocation.open_existing() as engine:
        rejected = engine.curation.reject(*ids).rejected
        emit(invocation, {"rejected": rejected}, lambda: "\n".join(f"{id} rejected" for id in rejected))


def _pending(engine: Engine) -> list[Proposal]:
    """List pending proposals without conflicts, which `triskele list --conflicts` shows."""
    return [proposal for proposal in engine.curation.proposals() if proposal.kind is not Verdict.CONFLICT]


def _short(engine: Engine, pending: list[Proposal]) -> dict[str, str]:
    stored = (proposal for proposal in pending if proposal.is_stored)
    ids = {memory.id for proposal in stored for memory in (proposal.new, proposal.old) if memory is not None}
    return engine.shorten(ids) if ids else {}


def _walk(invocation: Invocation) -> None:
    """Show each proposal, and do what the pressed key means."""
    with invocation.stores.open_local_existing() as engine:
        pending = _pending(engine)
        if not pending:
            return invocation.echo("No proposals to review.")
        if invocation.as_json or not judging.has_keys():
            commands = "`triskele review list`, then `triskele review accept ID`"
            raise BadInput(f"review needs a terminal; without one use {commands}")
        batch, accepted, skipped, rejected = new_batch(), list[str](), list[str](), 0
        for number, proposal in enumerate(pending, start=1):
            if proposal.id not in {other.id for other in _pending(engine)}:
                skipped.append(proposal.id)
                continue
            invocation.write(*curation_view.one_proposal(proposal, f"{number} of {len(pending)}"))
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
            invocation.write(*curation_view.accepted(accepted, skipped, batch))
        left = len(_pending(engine))
        return invocation.echo(f"{len(accepted)} accepted, {rejected} rejected, {left} left.")


def _key() -> str:
    """Wait for a key that has a meaning."""
    legend = "   ".join(f"{key} {meaning}" for key, meaning in _KEYS)
    while True:
        click.echo(f"{legend}  ", nl=False)
        try:
            key = click.getchar().lower()
        except EOFError:
            key = ""
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
    with invocation.stores.open_local_existing() as engine:
        if engine.settings.curation.llm_calls:
            for problem in engine.upkeep.model_problems():
                click.echo(problem, err=True)
        if threshold is not None and not yes:
            _confirm(invocation, engine.upkeep.plan_curation(threshold))
        with progress_bar("Reviewing") as progress:
            result = engine.upkeep.curate(threshold=threshold, is_dry=dry_run, limit=limit, progress=progress)
        pending = 0 if dry_run else engine.stats().proposals
        emit(
            invocation,
            curation_view.review_document(result),
            lambda: curation_view.review(result, engine.shorten, pending, is_dry=dry_run),
        )


def _confirm(invocation: Invocation, plan: CurationPlan) -> None:
    """Ask before a change of more than the daily share."""
    if not plan.needs_consent:
        return
    change = f"this would change about {plan.changes:,} of {plan.memories:,} memories"
    if not invocation.can_ask():
        raise BadInput(f"{change}, more than {plan.most_a_day:,} a day: confirm it with --yes")
    if not click.confirm(f"{change[0].upper()}{change[1:]}. Go on?", err=True):
        raise BadInput("not confirmed: nothing was changed")


@command("triskele learn ~/.claude/projects/shop/3f9c.jsonl --dry-run", "triskele learn talk.jsonl --dial strict")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Show what would be kept of the whole file; store nothing.")
@click.option(
    "--dial", type=click.Choice(["strict", "normal", "all"]), help="The required confidence; normal unless configured."
)
@writing_place
def learn(
    invocation: Invocation, file: Path, dry_run: bool, dial: str | None, project: str | None, everywhere: bool
) -> None:
    """Keep what you said in the transcript of an agent.

    It reads transcripts of Claude Code, Codex and Gemini, by rules on your own words: what you asked to remember,
    standing rules, corrections, decisions, preferences, who people are. What is less sure waits in `triskele review`.
    A later run continues where the last one ended. A conversation with #no-memory in it is left out.

    With curation.llm_calls set the language model of [llm] reads the conversation too, except private ones; what it
    finds waits in `triskele review`, and --dry-run asks it as well.
    """
    with invocation.stores.open_local() as engine:
        usual = engine.settings.curation.learn
        chosen = dial or (usual if usual != "off" else "normal")
        target = written_project(project, everywhere)
        learned = engine.upkeep.learn(file, dial=chosen, project=target, is_dry=dry_run)
        emit(
            invocation, curation_view.learned_document(learned), lambda: curation_view.learned(learned, is_dry=dry_run)
        )
