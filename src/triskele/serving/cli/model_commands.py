"""The `models` commands: show the models in use, switch the local one, roll back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from triskele.base.files import expanded
from triskele.config import BUNDLED
from triskele.errors import Unavailable
from triskele.recall import model_switch
from triskele.recall.model_switch import Switched, switched
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.serving.cli.options import OrderedGroup

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from triskele.engine import Engine
    from triskele.evaluation.own.gate import ModelComparison
    from triskele.index.local import SemanticIndex


@click.group(
    cls=OrderedGroup,
    invoke_without_command=True,
    epilog=examples("triskele models list", "triskele models switch ~/models/bge-small-en-v1.5-onnx"),
)
@global_options
@click.pass_context
def models(context: click.Context) -> None:
    """Show and change the models that embed your memories."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@models.command("list", epilog=examples("triskele models list", "triskele models list --json"))
@common
def list_models(invocation: Invocation) -> None:
    """Show the models in use and how much each has embedded."""
    with invocation.open_existing() as engine:
        found = _models(engine)
        if invocation.as_json:
            return invocation.write_json({**found, "project": engine.project})

        return invocation.write(_models_report(found))


@models.command(
    epilog=examples(
        "triskele models switch ~/models/bge-small-en-v1.5-onnx",
        "triskele models switch BAAI/bge-small-en-v1.5      (fetched from the hub, needs the extra hub)",
        "triskele models switch bundled --untested",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--untested", is_flag=True, help="Switch even if your questions do not show that it is not worse.")
@common
@click.pass_context
def switch(context: click.Context, invocation: Invocation, name: str, untested: bool) -> None:
    """Use another local model if it is not worse on your own questions.

    Everything is embedded with it first. NAME is bundled, the path of a folder with an ONNX model, or owner/name of
    the hub. The vectors of the old model are kept, so that `triskele models rollback` is immediate. After an
    interruption, run the same command to continue.
    """
    with invocation.open() as engine:
        model_switch.refuse_if_set(engine.settings)
        before = engine.runtime.model
        # Stored as an absolute path: other processes run in other folders.
        name = str(expanded(name)) if expanded(name).is_dir() else name
        if name == before:
            raise click.UsageError(f"{name} is already in use", context)
        if name == BUNDLED and engine.runtime.update() is not None:
            raise click.UsageError("an update is bringing it into use: see `triskele models list`", context)
        rival = engine.runtime.rival(name)
        _read_everything(engine, rival)
        found = _compared(engine, rival, untested)
        is_switched = untested or (found is not None and found.is_not_worse)
        if is_switched:
            model_switch.put_in_force(engine.store, name, before, found.evidence() if found else {})
            engine.store.vectors.queue_for(rival.embedder.fingerprint)
        rival.close()
        if invocation.as_json:
            evidence = shapes.plain(found.evidence()) if found else None
            told = {"switched": is_switched, "model": name if is_switched else before, "before": before}
            invocation.write_json({**told, "evidence": evidence, "project": engine.project})
        else:
            invocation.write(_switch_report(name, before, found, is_switched=is_switched))
    context.exit(0 if is_switched else 1)


@models.command(epilog=examples("triskele models rollback"))
@common
def rollback(invocation: Invocation) -> None:
    """Return to the model before the last switch or update; its vectors are kept."""
    with invocation.open_existing() as engine:
        model_switch.refuse_if_set(engine.settings)
        back = model_switch.roll_back(engine.store, engine.settings.home)
        semantic = engine.semantic()
        waiting = engine.store.models.count_lacking(semantic.embedder.fingerprint) if semantic is not None else 0
        if invocation.as_json:
            told = {"model": back.name, "before": back.before, "waiting": waiting}
            return invocation.write_json({**told, "project": engine.project})

        return invocation.write(_rollback_report(back, waiting))


def _read_everything(engine: Engine, rival: SemanticIndex) -> None:
    from triskele.index.worker import embed_beside

    total = engine.store.models.count_lacking(rival.embedder.fingerprint)
    with progress_bar(f"{rival.embedder.fingerprint.split('@')[0]} reads", total=total) as progress:
        embed_beside(engine.store, rival, set(), progress=progress)


def _compared(engine: Engine, rival: SemanticIndex, untested: bool) -> ModelComparison | None:
    from triskele.evaluation.own.gate import compare_models

    try:
        with progress_bar("Comparing") as progress:
            return compare_models(engine, rival, lambda what, done, total: progress(done, total, what))
    except Unavailable:
        # --untested needs no comparison, and so no extra packages.
        if untested:
            return None
        raise


def _models(engine: Engine) -> dict[str, Any]:
    """The models with their progress, and hosted ones with their hosts."""
    last, semantic, outside = switched(engine.store), engine.semantic(), engine.runtime.services()
    update = engine.runtime.update()
    seen = engine.store.models.seen()
    mark = semantic.embedder.fingerprint if semantic is not None else None
    hosted = outside.hosted if outside is not None else None
    elsewhere = hosted.texts.fingerprint if hosted is not None else None
    shown = {mark, elsewhere, update[0] if update else None}
    return {
        "local": {
            "name": engine.runtime.model,
            "fingerprint": mark,
            "read": seen.get(mark or "", 0),
            "waiting": engine.store.models.count_lacking(mark) if mark else 0,
            "before": last.before if last else None,
        },
        "update": {"fingerprint": update[0], "read": seen.get(update[0], 0), "waiting": update[1]} if update else None,
        "hosted": None
        if elsewhere is None
        else {
            "fingerprint": elsewhere,
            "host": engine.runtime.hosts()["hosted"],
            "read": seen.get(elsewhere, 0),
            "waiting": engine.store.models.count_clear_for(elsewhere),
        },
        "rerank": outside.reranker.name if outside is not None and outside.reranker is not None else None,
        "kept": {name: count for name, count in seen.items() if name not in shown},
    }


def _models_report(found: Mapping[str, Any]) -> RenderableType:
    """The models in use, and those whose vectors are kept."""
    from triskele.serving.cli.render import MATCH, QUIET, WARNING, counted, note

    local, hosted = found["local"], found["hosted"]
    lines = [note(f"Local: {local['name']}", MATCH)]
    if local["fingerprint"] is None:
        lines.append(note("  not available: recall uses words only", WARNING))
    else:
        lines += _progress_lines(local)
    if found["update"] is not None:
        lines += [note("Takes its place once it has read everything:", MATCH), *_progress_lines(found["update"])]
    if hosted is not None:
        lines += [note(f"Hosted: {hosted['host']}", MATCH), *_progress_lines(hosted)]
        if hosted["waiting"]:
            lines.append(note("  `triskele reindex` embeds what waits", QUIET))
    if found["rerank"] is not None:
        lines.append(note(f"Cross-encoder: {found['rerank']}", MATCH))
    if found["kept"]:
        lines.append(note("Vectors kept of other models:", MATCH))
        lines += [note(f"  {name} · {counted(count, 'text')}", QUIET) for name, count in found["kept"].items()]
    if local["before"] is not None:
        lines.append(note(f"The model before was {local['before']}: `triskele models rollback` restores it.", QUIET))
    return _lines(lines)


def _progress_lines(model: Mapping[str, Any]) -> list[Text]:
    from triskele.serving.cli.render import QUIET, counted, note

    waiting = f", {model['waiting']:,} waiting" if model["waiting"] else ""
    embedded = f"  {counted(model['read'], 'text')} embedded{waiting}"
    return [note(f"  {model['fingerprint']}", QUIET), note(embedded, QUIET)]


def _check_line(name: str, passed: bool, detail: str) -> Text:
    from triskele.serving.cli.render import GOOD, WARNING, note

    sign, style = ("✓", GOOD) if passed else ("✗", WARNING)
    return note(f"{sign} {name}: {detail}", style)


def _switch_report(name: str, before: str, found: ModelComparison | None, *, is_switched: bool) -> RenderableType:
    """The result of the comparison, and the model in use."""
    from triskele.evaluation.own.gate import MIN_QUESTIONS
    from triskele.serving.cli.render import GOOD, WARNING, counted, note

    lines: list[Text] = []
    if found is not None and found.shared is not None:
        same = f"{found.shared * 100:.0f} % of the top ten hits are the same for both models"
        lines.append(note(f"On {counted(found.past, 'past question')} {same}."))
    if found is not None and found.gate is not None:
        lines += [_check_line(check.name, check.passed, check.detail) for check in found.gate.checks]
    elif found is not None:
        lines.append(note(f"Only {counted(found.questions, 'judged question')}: too few to compare.", WARNING))
    if is_switched:
        return _lines([*lines, note(f"{name} is in use; `triskele models rollback` returns to {before}.", GOOD)])
    advice = f"judge at least {MIN_QUESTIONS} questions (`triskele eval build`, `judge`), or give --untested"
    is_worse = found is not None and found.gate is not None
    reason = "the other model is worse on your questions" if is_worse else advice
    return _lines([*lines, note(f"{before} stays in use: {reason}.")])


def _rollback_report(back: Switched, waiting: int) -> RenderableType:
    """The model in use after a rollback."""
    from triskele.serving.cli.render import GOOD, QUIET, counted, note

    lines = [note(f"{back.name} is in use again; the vectors of {back.before} are kept.", GOOD)]
    if waiting:
        lines.append(note(f"{counted(waiting, 'text')} to embed: run `triskele reindex`.", QUIET))
    return _lines(lines)


def _lines(lines: list[Text]) -> RenderableType:
    from rich.console import Group

    return Group(*lines)
