"""What `triskele models` found and did, told to a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from triskele.serving.cli.render import GOOD, MATCH, QUIET, WARNING, note

if TYPE_CHECKING:
    from triskele.evaluation.own.gate import ModelComparison
    from triskele.recall.model_choice import Switched


def standing(found: Mapping[str, Any]) -> RenderableType:
    """The models in use, and those whose vectors are kept."""
    local, hosted = found["local"], found["hosted"]
    lines: list[RenderableType] = [note(f"Local: {local['name']}", MATCH)]
    if local["fingerprint"] is None:
        lines.append(note("  not to be had: words alone answer", WARNING))
    else:
        lines += _read(local)
    if hosted is not None:
        lines += [note(f"Hosted: {hosted['host']}", MATCH), *_read(hosted)]
        if hosted["waiting"]:
            lines.append(note("  `triskele reindex` lets it read what waits", QUIET))
    if found["rerank"] is not None:
        lines.append(note(f"Cross-encoder: {found['rerank']}", MATCH))
    if found["kept"]:
        lines.append(note("Vectors kept of others:", MATCH))
        lines += [note(f"  {name} · {count:,} texts", QUIET) for name, count in found["kept"].items()]
    if local["before"] is not None:
        lines.append(note(f"Before it was {local['before']}: `triskele models rollback` returns to it.", QUIET))
    return Group(*lines)


def _read(model: Mapping[str, Any]) -> list[RenderableType]:
    waiting = f", {model['waiting']:,} wait" if model["waiting"] else ""
    return [note(f"  {model['fingerprint']}", QUIET), note(f"  has read {model['read']:,} texts{waiting}", QUIET)]


def switched(name: str, before: str, found: ModelComparison | None, *, is_switched: bool) -> RenderableType:
    """What the comparison said, and what followed from it."""
    lines: list[RenderableType] = []
    if found is not None and found.shared is not None:
        same = f"{found.shared * 100:.0f} % of the first ten hits are the same for both"
        lines.append(note(f"On {found.past:,} of your past questions {same}."))
    if found is not None and found.gate is not None:
        for check in found.gate.checks:
            sign, style = ("✓", GOOD) if check.passed else ("✗", WARNING)
            lines.append(note(f"{sign} {check.name}: {check.detail}", style))
    elif found is not None:
        lines.append(note(f"Only {found.questions} judged questions: too few to tell which one is better.", WARNING))
    if is_switched:
        done = note(f"{name} is in use now; `triskele models rollback` returns to {before}.", GOOD)
        return Group(*lines, done)
    from triskele.evaluation.own.gate import MIN_QUESTIONS

    advice = f"judge at least {MIN_QUESTIONS} questions (`triskele eval build`, `judge`), or give --untested"
    worse = found is not None and found.gate is not None
    kept = f"{before} stays in use: " + ("the other one is worse on your questions." if worse else f"{advice}.")
    return Group(*lines, note(kept))


def rolled_back(back: Switched, waiting: int) -> RenderableType:
    """That the old model is back."""
    said = note(f"{back.name} is in use again; {back.before} is kept beside it.", GOOD)
    if not waiting:
        return said
    return Group(said, note(f"{waiting:,} texts were written meanwhile and wait for it: `triskele reindex`.", QUIET))
