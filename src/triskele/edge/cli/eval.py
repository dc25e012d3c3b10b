"""The `eval` commands: measure recall on the user's own memories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.bench import curation_pairs
from triskele.bench.harness import OwnHarness
from triskele.bench.own import build, gate, run, tune
from triskele.bench.own.judge import (
    JudgingSession,
    export_pairs,
    import_grades,
    import_labels,
    import_questions,
    write_lines,
)
from triskele.bench.own.questions import OwnQuestion, judging_state, questions_of
from triskele.edge.cli import curation_view, eval_view
from triskele.edge.cli.commands import command_group
from triskele.edge.cli.emit import emit
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.judging import show
from triskele.edge.cli.options import listed
from triskele.edge.cli.view import note, plural
from triskele.errors import BadInput

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine

_FILE = click.Path(path_type=Path)
_SEED = click.option("--seed", type=int, default=7, show_default=True, help="Makes random choices repeatable.")

Progress = Callable[[str, int, int], None]


@command_group(
    "triskele eval build", "triskele eval judge", "triskele eval run", "triskele eval gate --accept", name="eval"
)
def eval_() -> None:
    """Measure, guard and tune recall on your own memories.

    In this order: build makes questions from your memories and past recalls, judge asks you which memories answer
    them, run measures every arm, gate fails if recall got worse, tune searches for better weights and adopts them only
    if they are proven better, rollback reverts them. Everything stays in your store.
    """


@eval_.subcommand(
    "triskele eval build",
    "triskele eval build --size 300 --seed 8",
    'triskele eval build --import mine.jsonl      ({"text": "who owns billing?", "ids": ["1kpn46"]})',
    name="build",
)
@click.option("--size", type=int, default=150, show_default=True, help="Number of questions, a third of each type.")
@_SEED
@click.option("--import", "source", type=_FILE, metavar="FILE", help="Import your own questions instead (JSONL).")
def build_questions(invocation: Invocation, size: int, seed: int, source: Path | None) -> None:
    """Make questions from memories and past recalls, or import your own."""
    with invocation.stores.open_local() as engine:
        if source is not None:
            added = import_questions(engine, source)
            questions = questions_of(engine)
            return emit(
                invocation,
                {"added": len(added), "questions": _rows(questions), "project": engine.project},
                lambda: eval_view.imported(added, len(questions)),
            )
        built = build.build(engine, size=size, seed=seed)
        document = {
            "added": len(built.added),
            "dropped": built.dropped,
            "refused": built.refused,
            "missing": built.missing(),
            "questions": _rows(built.questions),
        }
        return emit(invocation, document, lambda: eval_view.built(built), project=engine.project)


@eval_.subcommand(
    "triskele eval judge",
    'triskele eval judge --scripted grades.jsonl      ({"question": "…", "memory": "1kpn46", "grade": 3})',
    "triskele eval judge --export pairs.jsonl",
    "triskele eval judge --from labels.jsonl --by some-model",
    "triskele eval judge --json      (progress)",
    name="judge",
)
@click.option("--scripted", type=_FILE, metavar="FILE", help="Import your grades from a file (JSONL).")
@click.option(
    "--from", "source", type=_FILE, metavar="FILE", help="Import another judge's labels if they agree enough."
)
@click.option("--by", metavar="NAME", help="The judge of the labels of --from.")
@click.option("--export", "target", type=_FILE, metavar="FILE", help="Write open pairs for an external judge (JSONL).")
@_SEED
def judge_questions(
    invocation: Invocation,
    scripted: Path | None,
    source: Path | None,
    by: str | None,
    target: Path | None,
    seed: int,
) -> int:
    """Grade which memories answer each question: keys 0 to 3, blind, stop any time.

    0 unrelated, 1 related but no answer, 2 answers in part, 3 answers it. Labels of another judge count only with
    Cohen's kappa of at least 0.6 against yours, over at least 15 % of the pairs.
    """
    if sum(option is not None for option in (scripted, source, target)) > 1:
        raise click.UsageError(
            "--scripted, --from and --export exclude each other: give one of them", click.get_current_context()
        )
    if (source is None) != (by is None):
        raise click.UsageError(
            "--from FILE and --by NAME go together: name the judge of these labels", click.get_current_context()
        )

    with invocation.stores.open_local_existing() as engine:
        if source is not None and by is not None:
            agreement = import_labels(engine, source, by)
            emit(
                invocation,
                agreement,
                lambda: eval_view.agreement(agreement),
                accepted=agreement.is_accepted,
                project=engine.project,
            )
            return 0 if agreement.is_accepted else 1
        if target is not None:
            _export(invocation, engine, target, seed)
            return 0
        if scripted is not None:
            import_grades(engine, scripted)
        elif not invocation.as_json:
            _judge_by_hand(engine, seed)
        state = judging_state(engine)
        emit(invocation, state, lambda: eval_view.state(state), project=engine.project)
    return 0


@eval_.subcommand(
    "triskele eval run",
    "triskele eval run --arms default,now,cc:alpha=0.6 --baseline rrf --json",
    "triskele eval run curation",
    name="run",
)
@click.argument("suite", type=click.Choice(["recall", "curation"]), default="recall", metavar="[SUITE]")
@click.option("--arms", metavar="A,B", help="The arms to measure: those of bench, and `now` for what recall does now.")
@click.option("--baseline", metavar="ARM", default="fts", show_default=True, help="The arm to compare with.")
@_SEED
def run_suite(invocation: Invocation, suite: str, arms: str | None, baseline: str, seed: int) -> None:
    """Measure arms on the judged questions.

    The suite `curation` measures the rules that merge, supersede and learn, on labelled samples.
    """
    if suite == "curation":
        return _run_curation(invocation)

    with invocation.stores.open_local_existing() as engine, _progress() as progress:
        chosen = listed(arms) if arms is not None else None
        report = run.run(engine, arms=chosen, baseline=baseline, seed=seed, progress=progress)
    return emit(invocation, report, lambda: [*eval_view.bench(report, None), *eval_view.run_notes(report)])


def _run_curation(invocation: Invocation) -> None:
    pairs = curation_pairs.load_pairs()
    parts = (*curation_pairs.HALVES, curation_pairs.SPOKEN)
    reports = [curation_pairs.measure(pairs, part) for part in parts]
    captured = [curation_pairs.measure_capture(half) for half in curation_pairs.HALVES]
    emit(
        invocation,
        {
            "halves": list(map(curation_view.pair_document, reports)),
            "capture": list(map(curation_view.capture_document, captured)),
        },
        lambda: [*curation_view.pair_scores(reports), *curation_view.capture_scores(captured)],
    )


@eval_.subcommand(
    "triskele eval gate --accept",
    "triskele eval gate",
    "triskele eval gate --improve",
    "triskele eval gate --rollback-on-failure --json",
    name="gate",
)
@click.option("--accept", "accepting", is_flag=True, help="Make what recall does now the baseline.")
@click.option("--improve", is_flag=True, help="Also require that one metric gains at least 3 %.")
@click.option("--rollback-on-failure", is_flag=True, help="Revert an adopted plan if the gate fails.")
def check_gate(invocation: Invocation, accepting: bool, improve: bool, rollback_on_failure: bool) -> int:
    """Compare what recall does now with the accepted baseline.

    Passes if MRR falls by at most 2 %, recall@10 by at most 0.02, and every question that passed before still passes:
    a memory of grade 2 or 3 is among its first five. Exits 0 if it passes, 1 if it fails, 2 without a baseline.
    """
    if accepting and (improve or rollback_on_failure):
        raise click.UsageError(
            "--accept keeps the present state without a check: give it alone", click.get_current_context()
        )

    if accepting:
        _accept(invocation)
        return 0
    with invocation.stores.open_local_existing() as engine:
        with _progress() as progress:
            result = gate.gate(engine, improve=improve, progress=progress)
        reverts = rollback_on_failure and not result.passed and result.adopted
        if reverts:
            tune.roll_back(engine)
        emit(
            invocation,
            result,
            lambda: eval_view.gate(result, questions_of(engine), reverts),
            passed=result.passed,
            rolled_back=reverts,
            project=engine.project,
        )
    return 0 if result.passed else 1


@eval_.subcommand("triskele eval tune", "triskele eval tune --budget 8 --json", name="tune")
@click.option("--budget", type=int, metavar="N", default=16, show_default=True, help="Number of configurations to try.")
@_SEED
def tune_weights(invocation: Invocation, budget: int, seed: int) -> int:
    """Search for better weights; adopt them only if a loss is excluded.

    Nested cross-validation over at least 50 judged questions that were not made of the memories' own words. A plan is
    adopted if the 95 % interval of its gain in nDCG@10 on held-out questions is above zero and MRR falls by at most
    2 %. Exits 0 if a plan is adopted, else 1.
    """
    with invocation.stores.open_local_existing() as engine:
        with _progress() as progress:
            result = tune.tune(engine, budget=budget, seed=seed, progress=progress)
        emit(invocation, result, lambda: eval_view.tuning(result), project=engine.project)
    return 0 if result.adopted else 1


@eval_.subcommand("triskele eval rollback", "triskele eval rollback --json")
def rollback(invocation: Invocation) -> None:
    """Revert the adopted plan to the one before."""
    with invocation.stores.open_local_existing() as engine:
        reverted, present = tune.roll_back(engine)
        emit(
            invocation,
            {"taken": reverted, "in_force": present, "project": engine.project},
            lambda: eval_view.rolled_back(reverted, present),
        )


def _judge_by_hand(engine: LocalEngine, seed: int) -> None:
    questions = questions_of(engine)
    if not questions:
        raise BadInput("no questions yet: start with `triskele eval build`")
    with _progress() as progress:
        harness = OwnHarness(engine, progress)
        harness.precompute([question.text for question in questions.values() if question.is_waiting])
    with harness:
        show(JudgingSession(harness, seed))


def _export(invocation: Invocation, engine: LocalEngine, target: Path, seed: int) -> None:
    with _progress() as progress, OwnHarness(engine, progress) as harness:
        rows = list(export_pairs(harness, seed))
    write_lines(target, rows)
    advice = "give each a grade from 0 to 3 and import them with --from."
    line = f"{plural(len(rows), 'pair')} written to {target}: {advice}"
    document = {"pairs": len(rows), "path": str(target.absolute()), "project": engine.project}
    emit(invocation, document, lambda: [note(line)])


def _accept(invocation: Invocation) -> None:
    with invocation.stores.open_local_existing() as engine:
        with _progress() as progress:
            baseline = gate.accept(engine, progress)
        emit(invocation, baseline, lambda: eval_view.accepted(baseline), accepted=True, project=engine.project)


def _rows(questions: Mapping[str, OwnQuestion]) -> list[dict[str, Any]]:
    return [question.to_json() for question in questions.values()]


@contextmanager
def _progress() -> Iterator[Progress]:
    with progress_bar("Preparing") as advance:
        yield lambda stage, done, total: advance(done, total, stage)
