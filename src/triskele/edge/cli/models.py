"""The `models` commands: show the models in use, switch the local one, roll back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from triskele.edge.cli import views
from triskele.edge.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.edge.cli.options import OrderedGroup
from triskele.edge.http.codec import to_json
from triskele.errors import Unavailable

if TYPE_CHECKING:
    from triskele.bench.own.gate import ModelComparison
    from triskele.engine.local import LocalEngine
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
    with invocation.open_local_existing() as engine:
        used = engine.upkeep.models()
        invocation.emit({**to_json(used), "project": engine.project}, lambda: views.model_report.models(used))


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
    with invocation.open_local() as engine:

        def compared(engine: LocalEngine, rival: SemanticIndex) -> ModelComparison | None:
            return _compared(engine, rival, untested)

        with progress_bar("Embedding") as advance:
            done = engine.upkeep.switch_model(
                name, compared, untested=untested, progress=lambda what, count, total: advance(count, total, what)
            )
        document = {
            "switched": done.is_switched,
            "model": done.name if done.is_switched else done.before,
            "before": done.before,
            "evidence": to_json(done.comparison.evidence()) if done.comparison else None,
        }
        invocation.emit({**document, "project": engine.project}, lambda: views.model_report.switched(done))
    context.exit(0 if done.is_switched else 1)


@models.command(epilog=examples("triskele models rollback"))
@common
def rollback(invocation: Invocation) -> None:
    """Return to the model before the last switch or update; its vectors are kept."""
    with invocation.open_local_existing() as engine:
        back = engine.upkeep.rollback_model()
        invocation.emit({**to_json(back), "project": engine.project}, lambda: views.model_report.rolled_back(back))


def _compared(engine: LocalEngine, rival: SemanticIndex, untested: bool) -> ModelComparison | None:
    from triskele.bench.own.gate import compare_models

    try:
        with progress_bar("Comparing") as progress:
            return compare_models(engine, rival, lambda what, done, total: progress(done, total, what))
    except Unavailable:
        # --untested needs no comparison, and so no extra packages.
        if untested:
            return None
        raise
