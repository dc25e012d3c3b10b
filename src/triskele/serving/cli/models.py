"""`triskele models`: which models read the memories, and changing the local one only where it is not worse."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.errors import Unavailable
from triskele.serving import shapes
from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.evaluation.own.gate import ModelComparison
    from triskele.index.semantic import SemanticIndex


@click.group(
    invoke_without_command=True,
    epilog=examples("triskele models list", "triskele models switch ~/models/bge-small-en-v1.5-onnx"),
)
@global_options
@click.pass_context
def models(context: click.Context) -> None:
    """See and change the models that read your memories."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@models.command("list", epilog=examples("triskele models list", "triskele models list --json"))
@common
def list_models(invocation: Invocation) -> None:
    """Show the models in use and how far each has read."""
    with invocation.open_existing() as engine:
        found = _standing(engine)
        if invocation.as_json:
            return invocation.write_json({**found, "project": engine.project})
        from triskele.serving.cli import model_reports

        return invocation.write(model_reports.standing(found))


@models.command(
    epilog=examples(
        "triskele models switch ~/models/bge-small-en-v1.5-onnx",
        "triskele models switch BAAI/bge-small-en-v1.5      (fetched from the hub, needs the extra hub)",
        "triskele models switch bundled --untested",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--untested", is_flag=True, help="Switch also where your questions do not show that it is not worse.")
@common
@click.pass_context
def switch(context: click.Context, invocation: Invocation, name: str, untested: bool) -> None:
    """Let another local model read everything, and use it if your own questions say that it is not worse.

    NAME is bundled, the path of a folder with an ONNX model, or owner/name of the hub. The vectors of the old model
    stay, so that `triskele models rollback` returns at once; cut short, the same command goes on where it was.
    """
    from triskele.recall import model_choice as switching

    with invocation.open() as engine:
        switching.refuse_if_set(engine.settings)
        before = engine.mind.model
        # Written down whole: the next one who reads it works in another folder.
        name = str(Path(name).expanduser().absolute()) if Path(name).expanduser().is_dir() else name
        if name == before:
            raise click.UsageError(f"{name} is in use already", context)
        rival = engine.mind.rival(name)
        _read_everything(engine, rival)
        found = _compared(engine, rival, untested)
        is_switched = untested or (found is not None and found.is_not_worse)
        if is_switched:
            switching.put_in_force(engine.store, name, before, found.evidence() if found else {})
            engine.store.queue_for(rival.embedder.fingerprint)
        rival.close()
        if invocation.as_json:
            evidence = shapes.plain(found.evidence()) if found else None
            told = {"switched": is_switched, "model": name if is_switched else before, "before": before}
            invocation.write_json({**told, "evidence": evidence, "project": engine.project})
        else:
            from triskele.serving.cli import model_reports

            invocation.write(model_reports.switched(name, before, found, is_switched=is_switched))
    context.exit(0 if is_switched else 1)


@models.command(epilog=examples("triskele models rollback"))
@common
def rollback(invocation: Invocation) -> None:
    """Return to the model before the last switch; its vectors are still there."""
    from triskele.recall import model_choice as switching

    with invocation.open_existing() as engine:
        switching.refuse_if_set(engine.settings)
        back = switching.roll_back(engine.store)
        meaning = engine.meaning()
        waiting = engine.store.models.count_lacking(meaning.embedder.fingerprint) if meaning is not None else 0
        if invocation.as_json:
            told = {"model": back.name, "before": back.before, "waiting": waiting}
            return invocation.write_json({**told, "project": engine.project})
        from triskele.serving.cli import model_reports

        return invocation.write(model_reports.rolled_back(back, waiting))


def _read_everything(engine: Engine, rival: SemanticIndex) -> None:
    from triskele.index.worker import embed_beside

    total = engine.store.models.count_lacking(rival.embedder.fingerprint)
    with progress_bar(f"{rival.embedder.fingerprint.split('@')[0]} reads", total=total) as progress:
        embed_beside(engine.store, rival, progress)


def _compared(engine: Engine, rival: SemanticIndex, untested: bool) -> ModelComparison | None:
    from triskele.evaluation.own.gate import compare_models

    try:
        with progress_bar("Comparing") as progress:
            return compare_models(engine, rival, lambda what, done, total: progress(done, total, what))
    except Unavailable:
        # Whoever wants no proof needs no tools to make one.
        if untested:
            return None
        raise


def _standing(engine: Engine) -> dict[str, Any]:
    """The models with what they have read, those elsewhere with their machines."""
    from triskele.recall.model_choice import switched

    last, meaning, outside = switched(engine.store), engine.meaning(), engine.mind.outside()
    seen = engine.store.models.seen()
    mark = meaning.embedder.fingerprint if meaning is not None else None
    hosted = outside.hosted if outside is not None else None
    elsewhere = hosted.texts.fingerprint if hosted is not None else None
    return {
        "local": {
            "name": engine.mind.model,
            "fingerprint": mark,
            "read": seen.get(mark or "", 0),
            "waiting": engine.store.models.count_lacking(mark) if mark else 0,
            "before": last.before if last else None,
        },
        "hosted": None
        if elsewhere is None
        else {
            "fingerprint": elsewhere,
            "host": engine.mind.hosts()["hosted"],
            "read": seen.get(elsewhere, 0),
            "waiting": engine.store.models.count_clear_for(elsewhere),
        },
        "rerank": outside.reviewer.name if outside is not None and outside.reviewer is not None else None,
        "kept": {name: count for name, count in seen.items() if name not in (mark, elsewhere)},
    }
