"""The models in use, the result of a switch, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from triskele.edge.cli.render import GOOD, MATCH, QUIET, WARNING, counted, note

if TYPE_CHECKING:
    from triskele.bench.own.gate import ModelComparison
    from triskele.engine.model_choice import (
        HostedModelUse,
        LocalModel,
        ModelsInUse,
        ModelSwitch,
        ModelUpdate,
        Rollback,
    )


def models(used: ModelsInUse) -> Iterator[Text]:
    """The models in use, and those whose vectors are kept."""
    local = used.local
    yield note(f"Local: {local.name}", MATCH)
    if local.fingerprint is None:
        yield note("  not available: recall uses words only", WARNING)
    else:
        yield from _progress(local)
    if used.update is not None:
        yield note("Takes its place once it has read everything:", MATCH)
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
        yield from (note(f"  {name} · {counted(count, 'text')}", QUIET) for name, count in used.kept.items())
    if local.before is not None:
        yield note(f"The model before was {local.before}: `triskele models rollback` restores it.", QUIET)


def _progress(model: LocalModel | ModelUpdate | HostedModelUse) -> Iterator[Text]:
    waiting = f", {model.waiting:,} waiting" if model.waiting else ""
    yield note(f"  {model.fingerprint}", QUIET)
    yield note(f"  {counted(model.read, 'text')} embedded{waiting}", QUIET)


def _least() -> int:
    from triskele.bench.own.gate import MIN_QUESTIONS

    return MIN_QUESTIONS


def _check(name: str, passed: bool, detail: str) -> Text:
    sign, style = ("✓", GOOD) if passed else ("✗", WARNING)
    return note(f"{sign} {name}: {detail}", style)


def switched(done: ModelSwitch[ModelComparison]) -> Iterator[Text]:
    """The result of the comparison, and the model in use."""
    comparison = done.comparison
    gate = comparison.gate if comparison is not None else None
    if comparison is not None and comparison.shared is not None:
        same = f"{comparison.shared * 100:.0f} % of the top ten hits are the same for both models"
        yield note(f"On {counted(comparison.past, 'past question')} {same}.")
    if gate is not None:
        yield from (_check(check.name, check.passed, check.detail) for check in gate.checks)
    elif comparison is not None:
        yield note(f"Only {counted(comparison.questions, 'judged question')}: too few to compare.", WARNING)
    if done.is_switched:
        yield note(f"{done.name} is in use; `triskele models rollback` returns to {done.before}.", GOOD)
        return
    advice = f"judge at least {_least()} questions (`triskele eval build`, `judge`), or give --untested"
    reason = "the other model is worse on your questions" if gate is not None else advice
    yield note(f"{done.before} stays in use: {reason}.")


def rolled_back(back: Rollback) -> Iterator[Text]:
    """The model in use after a rollback."""
    yield note(f"{back.model} is in use again; the vectors of {back.before} are kept.", GOOD)
    if back.waiting:
        yield note(f"{counted(back.waiting, 'text')} to embed: run `triskele reindex`.", QUIET)
