"""The `models` commands: show the models in use, switch the local one, roll back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from triskele.bench.own.gate import ModelComparison, compare_models
from triskele.bench.own.run import MIN_QUESTIONS
from triskele.edge.cli.commands import command_group
from triskele.edge.cli.invocation import Invocation, staged_progress
from triskele.edge.cli.view import GOOD, MATCH, QUIET, WARNING, note, plural
from triskele.errors import Unavailable

if TYPE_CHECKING:
    from triskele.edge.cli.view import Styled
    from triskele.engine.local import LocalEngine
    from triskele.engine.model_choice import HostedModelUse, LocalModel, ModelsInUse, ModelSwitch, ModelUpdate
    from triskele.index.local import ModelIndexes


@command_group("triskele models list", "triskele models switch ~/models/bge-small-en-v1.5-onnx")
def models() -> None:
    """Show and change the models that embed your memories."""


@models.subcommand("triskele models list", "triskele models list --json", name="list")
def list_models(invocation: Invocation) -> None:
    """Show the models in use and how much each has embedded."""
    with invocation.stores.open_local() as engine:
        used = engine.upkeep.models()
        invocation.emit(used, lambda: _models_view(used), project=engine.project)


def _models_view(used: ModelsInUse) -> Iterator[Styled]:
    """The models in use, and those whose vectors are kept."""
    local = used.local
    yield note(f"Local: {local.name}", MATCH)
    if local.fingerprint is None:
        yield note("  not available: recall uses words only", WARNING)
    else:
        yield from _progress(local)
    if used.update is not None:
        yield note("In use once everything is embedded:", MATCH)
        yield from _progress(used.update)
    if used.hosted is not None:
        yield note(f"Hosted: {used.hosted.host}", MATCH)
        yield from _progress(used.hosted)
        if used.hosted.waiting:
            yield note("  `triskele reindex` embeds what waits", QUIET)
    if used.rerank is not None:
        yield note(f"Cross-encoder: {used.rerank}", MATCH)
    if used.kept:
        yield note("Vectors kept of other models:", MATCH)
        yield from (note(f"  {name} · {plural(count, 'text')}", QUIET) for name, count in used.kept.items())
    if local.before is not None:
        yield note(f"The model before was {local.before}: `triskele models rollback` restores it.", QUIET)


def _progress(model: LocalModel | ModelUpdate | HostedModelUse) -> Iterator[Styled]:
    waiting = f", {model.waiting:,} waiting" if model.waiting else ""
    yield note(f"  {model.fingerprint}", QUIET)
    yield note(f"  {plural(model.read, 'text')} embedded{waiting}", QUIET)


@models.subcommand(
    "triskele models switch ~/models/bge-small-en-v1.5-onnx",
    "triskele models switch BAAI/bge-small-en-v1.5      (fetched from the hub, needs the extra hub)",
    "triskele models switch bundled --untested",
)
@click.argument("name", metavar="NAME")
@click.option("--untested", is_flag=True, help="Switch even if your questions do not show that it is not worse.")
def switch(invocation: Invocation, name: str, untested: bool) -> int:
    """Use another local model if it is not worse on your own questions.

    Everything is embedded with it first. NAME is bundled, the path of a folder with an ONNX model, or owner/name of
    the hub. The vectors of the old model are kept, so that `triskele models rollback` is immediate. After an
    interruption, run the same command to continue.
    """

    def compared(engine: LocalEngine, rival: ModelIndexes) -> ModelComparison | None:
        try:
            with staged_progress("Comparing") as progress:
                return compare_models(engine, rival, progress)
        except Unavailable:
            # --untested needs no comparison, and so no extra packages.
            if untested:
                return None
            raise

    with invocation.stores.open_local(creates=True) as engine:
        with staged_progress("Embedding") as progress:
            outcome = engine.upkeep.switch_model(name, compared, untested=untested, progress=progress)
        document = {
            "switched": outcome.is_switched,
            "model": outcome.name if outcome.is_switched else outcome.before,
            "before": outcome.before,
            "evidence": outcome.comparison.evidence() if outcome.comparison else None,
        }
        invocation.emit(document, lambda: _switch_view(outcome), project=engine.project)
    return 0 if outcome.is_switched else 1


def _switch_view(switch: ModelSwitch[ModelComparison]) -> Iterator[Styled]:
    """The result of the comparison, and the model in use."""
    comparison = switch.comparison
    gate = comparison.gate if comparison is not None else None
    if comparison is not None and comparison.shared is not None:
        same = f"{comparison.shared * 100:.0f} % of the top ten hits are the same for both models"
        yield note(f"On {plural(comparison.past, 'past question')} {same}.")
    if gate is not None:
        for check in gate.checks:
            yield note(
                f"{'✓' if check.passed else '✗'} {check.name}: {check.detail}", GOOD if check.passed else WARNING
            )
    elif comparison is not None:
        yield note(f"Only {plural(comparison.questions, 'judged question')}: too few to compare.", WARNING)
    if switch.is_switched:
        yield note(f"{switch.name} is in use; `triskele models rollback` returns to {switch.before}.", GOOD)
        return
    advice = f"judge at least {MIN_QUESTIONS} questions (`triskele eval build`, `judge`), or give --untested"
    reason = "the other model is worse on your questions" if gate is not None else advice
    yield note(f"{switch.before} stays in use: {reason}.")


@models.subcommand("triskele models rollback")
def rollback(invocation: Invocation) -> None:
    """Return to the model before the last switch or update; its vectors are kept."""
    with invocation.stores.open_local() as engine:
        rollback = engine.upkeep.rollback_model()

        def view() -> Iterator[Styled]:
            yield note(f"{rollback.model} is in use again; the vectors of {rollback.before} are kept.", GOOD)
            if rollback.waiting:
                yield note(f"{plural(rollback.waiting, 'text')} to embed: run `triskele reindex`.", QUIET)

        invocation.emit(rollback, view, project=engine.project)
