"""The commands that measure recall on one's own memories: eval build, judge, run, gate, tune, rollback."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.serving.cli.invocation import Invocation, common, examples, global_options, progress_bar
from triskele.serving.cli.options import listed

if TYPE_CHECKING:
    from triskele.engine import Engine

_FILE = click.Path(path_type=Path)
_SEED = click.option("--seed", type=int, default=7, show_default=True, help="Makes what is left to chance repeatable.")

Step = Callable[[str, int, int], None]


class Steps(click.Group):
    """Commands in the order in which one takes them."""

    def list_commands(self, _: click.Context) -> list[str]:
        """The steps as they were written down."""
        return list(self.commands)


@click.group(
    "eval",
    cls=Steps,
    invoke_without_command=True,
    epilog=examples("triskele eval build", "triskele eval judge", "triskele eval run", "triskele eval gate --accept"),
)
@global_options
@click.pass_context
def eval_(context: click.Context) -> None:
    """Measure recall on your own memories, guard it, and tune it.

    In this order: build makes questions from your memories and past recalls, judge asks you which memories answer
    them, run measures every way to rank, gate guards what you have reached, tune looks for better weights and adopts
    them only on proof, rollback takes them back. All of it stays in your store.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@eval_.command(
    epilog=examples(
        "triskele eval build",
        "triskele eval build --size 300 --seed 8",
        'triskele eval build --import mine.jsonl      ({"text": "who owns billing?", "ids": ["1kpn46"]})',
    ),
)
@click.option("--size", type=int, default=150, show_default=True, help="How many questions to have, a third of a kind.")
@_SEED
@click.option("--import", "source", type=_FILE, metavar="FILE", help="Take in questions of your own instead (JSONL).")
@common
def build(invocation: Invocation, size: int, seed: int, source: Path | None) -> None:
    """Make questions from memories and past recalls, or bring your own."""
    from triskele.evaluation.own import building, questions, taking

    with invocation.open() as engine:
        if source is not None:
            fresh = taking.import_questions(engine, source)
            standing = questions.load(engine.store)
            if invocation.as_json:
                return _answer(invocation, engine, added=len(fresh), questions=_listed(standing))
            from triskele.serving.cli import proofs

            return invocation.write(proofs.imported(fresh, len(standing)))
        found = building.build(engine, size=size, seed=seed)
        if invocation.as_json:
            counts = {"added": len(found.added), "dropped": found.dropped}
            details = {"refused": dict(found.refused), "missing": found.missing()}
            return _answer(invocation, engine, **counts, **details, questions=_listed(found.standing))
        from triskele.serving.cli import proofs

        return invocation.write(proofs.built(found))


@eval_.command(
    epilog=examples(
        "triskele eval judge",
        'triskele eval judge --scripted grades.jsonl      ({"question": "…", "memory": "1kpn46", "grade": 3})',
        "triskele eval judge --export pairs.jsonl",
        "triskele eval judge --from labels.jsonl --by some-model",
        "triskele eval judge --json      (how far it has come)",
    ),
)
@click.option("--scripted", type=_FILE, metavar="FILE", help="Take your grades from a file (JSONL).")
@click.option("--from", "source", type=_FILE, metavar="FILE", help="Take another judge's labels, if they agree enough.")
@click.option("--by", metavar="NAME", help="Who gave the labels of --from.")
@click.option("--export", "target", type=_FILE, metavar="FILE", help="Write open pairs for an outside judge (JSONL).")
@_SEED
@common
@click.pass_context
def judge(
    context: click.Context,
    invocation: Invocation,
    scripted: Path | None,
    source: Path | None,
    by: str | None,
    target: Path | None,
    seed: int,
) -> None:
    """Say which memories answer each question: keys 0 to 3, blind, any time to stop.

    0 nothing to do with it, 1 related but no answer, 2 answers in part, 3 answers it. Labels of another judge count
    only with Cohen's kappa of at least 0.6 against yours, over at least 15 % of the pairs.
    """
    if sum(given is not None for given in (scripted, source, target)) > 1:
        raise click.UsageError("--scripted, --from and --export exclude each other: give one of them", context)
    if (source is None) != (by is None):
        raise click.UsageError("--from FILE and --by NAME go together: who gave these labels?", context)
    from triskele.evaluation.own import taking

    with invocation.open_existing() as engine:
        if source is not None and by is not None:
            verdict = taking.take_from(engine, source, by)
            if invocation.as_json:
                _answer(invocation, engine, accepted=verdict.is_accepted, **asdict(verdict))
            else:
                from triskele.serving.cli import proofs

                invocation.write(proofs.verdict(verdict))
            context.exit(0 if verdict.is_accepted else 1)
        if target is not None:
            return _export(invocation, engine, target, seed)
        if scripted is not None:
            taking.take_scripted(engine, scripted)
        elif not invocation.as_json:
            _sit(engine, seed)
        return _tell_state(invocation, engine)


@eval_.command(
    epilog=examples("triskele eval run", "triskele eval run --arms default,now,cc:alpha=0.6 --baseline rrf --json"),
)
@click.option("--arms", metavar="A,B", help="What to measure: arms of bench, and now for what recall does now.")
@click.option("--baseline", metavar="ARM", default="fts", show_default=True, help="What to compare with.")
@_SEED
@common
def run(invocation: Invocation, arms: str | None, baseline: str, seed: int) -> None:
    """Measure ways to rank on the judged questions."""
    from triskele.evaluation.own import measuring

    with invocation.open_existing() as engine, _steps() as step:
        chosen = listed(arms) if arms is not None else None
        report = measuring.run(engine, arms=chosen, baseline=baseline, seed=seed, step=step)
    if invocation.as_json:
        return invocation.write_json(report)
    from triskele.serving.cli import proofs, reports

    return invocation.write(reports.bench(report, None), proofs.run_notes(report))


@eval_.command(
    epilog=examples(
        "triskele eval gate --accept",
        "triskele eval gate",
        "triskele eval gate --improve",
        "triskele eval gate --rollback-on-failure --json",
    ),
)
@click.option("--accept", "accepting", is_flag=True, help="Make what recall does now the baseline.")
@click.option("--improve", is_flag=True, help="Also ask for one metric that gains at least 3 %.")
@click.option("--rollback-on-failure", is_flag=True, help="Take an adopted plan back where the gate fails.")
@common
@click.pass_context
def gate(
    context: click.Context, invocation: Invocation, accepting: bool, improve: bool, rollback_on_failure: bool
) -> None:
    """Compare what recall does now with the accepted baseline.

    Passed when MRR falls by at most 2 %, recall@10 by at most 0.02, and no case fails that passed before: one with a
    memory of grade 2 or 3 among its first five. Exits 0 where passed, 1 where not, 2 without a baseline.
    """
    if accepting and (improve or rollback_on_failure):
        raise click.UsageError("--accept takes the present state as it is: give it alone", context)
    from triskele.evaluation.own import gates, questions

    if accepting:
        _accept(invocation)
        return
    with invocation.open_existing() as engine:
        with _steps() as step:
            found = gates.gate(engine, improve=improve, step=step)
        takes_back = rollback_on_failure and not found.passed and found.adopted
        if takes_back:
            _roll_back(engine)
        if invocation.as_json:
            _answer(invocation, engine, passed=found.passed, **asdict(found), rolled_back=takes_back)
        else:
            from triskele.serving.cli import proofs

            invocation.write(proofs.gate(found, questions.load(engine.store), takes_back))
    context.exit(0 if found.passed else 1)


@eval_.command(
    epilog=examples("triskele eval tune", "triskele eval tune --budget 8 --json"),
)
@click.option("--budget", type=int, metavar="N", default=16, show_default=True, help="How many configurations to try.")
@_SEED
@common
@click.pass_context
def tune(context: click.Context, invocation: Invocation, budget: int, seed: int) -> None:
    """Look for better weights; adopt them only if a loss is excluded.

    Nested cross-validation over at least 50 judged questions that were not made of the memories' own words. A plan is
    adopted when the 95 % interval of its gain in nDCG@10 on held-out questions lies above zero and MRR falls by no
    more than 2 %. Exits 0 where a plan was adopted, else 1.
    """
    from triskele.evaluation.own import tuning

    with invocation.open_existing() as engine:
        with _steps() as step:
            found = tuning.tune(engine, budget=budget, seed=seed, step=step)
        if invocation.as_json:
            _answer(invocation, engine, **asdict(found))
        else:
            from triskele.serving.cli import proofs

            invocation.write(proofs.tuning(found))
    context.exit(0 if found.adopted else 1)


@eval_.command(
    epilog=examples("triskele eval rollback", "triskele eval rollback --json"),
)
@common
def rollback(invocation: Invocation) -> None:
    """Take the adopted plan back and rank by the one before."""
    with invocation.open_existing() as engine:
        taken, present = _roll_back(engine)
        if invocation.as_json:
            return _answer(invocation, engine, taken=taken, in_force=present)
        from triskele.serving.cli import proofs

        return invocation.write(proofs.rolled_back(taken, present))


def _roll_back(engine: Engine) -> tuple[dict[str, Any], dict[str, Any] | None]:
    from triskele.curation import adoption

    taken, present = adoption.roll_back(engine.store)
    return adoption.values_of(taken.plan), adoption.values_of(present.plan) if present else None


def _sit(engine: Engine, seed: int) -> None:
    from triskele.errors import BadInput
    from triskele.evaluation.own import questions
    from triskele.evaluation.own.ground import OwnGround
    from triskele.evaluation.own.judging import Sitting
    from triskele.serving.cli.judging_screen import sit

    if not questions.load(engine.store):
        raise BadInput("no questions yet: begin with `triskele eval build`")
    with _steps() as step:
        ground = OwnGround(engine, step)
    sit(Sitting(ground, seed))
    ground.close()


def _export(invocation: Invocation, engine: Engine, target: Path, seed: int) -> None:
    from triskele.evaluation.own import judging, lines
    from triskele.evaluation.own.ground import OwnGround

    with _steps() as step:
        rows = list(judging.to_export(OwnGround(engine, step), seed))
    lines.write(target, rows)
    if invocation.as_json:
        return _answer(invocation, engine, pairs=len(rows), path=str(target.absolute()))
    from triskele.serving.cli import render

    said = f"{len(rows):,} pairs written to {target}: give each a grade from 0 to 3 and take them in with --from."
    return invocation.write(render.note(said))


def _tell_state(invocation: Invocation, engine: Engine) -> None:
    from triskele.evaluation.own import judging, labels, questions

    standing = questions.load(engine.store).values()
    state = {
        "questions": len(standing),
        "judged": sum(question.judged is not None for question in standing),
        "waiting": sum(map(judging.is_waiting, standing)),
        "labels": dict(Counter(label.by for label in labels.load(engine.store).values())),
    }
    if invocation.as_json:
        return _answer(invocation, engine, **state)
    from triskele.serving.cli import proofs

    return invocation.write(proofs.state(state))


def _accept(invocation: Invocation) -> None:
    from triskele.evaluation.own import gates

    with invocation.open_existing() as engine:
        with _steps() as step:
            baseline = gates.accept(engine, step)
        if invocation.as_json:
            return _answer(invocation, engine, accepted=True, **baseline)
        from triskele.serving.cli import proofs

        return invocation.write(proofs.accepted(baseline))


def _answer(invocation: Invocation, engine: Engine, **values: Any) -> None:
    invocation.write_json({**values, "project": engine.project})


def _listed(standing: Any) -> list[dict[str, Any]]:
    from triskele.evaluation.own import questions

    return [questions.to_json(question) for question in standing.values()]


@contextmanager
def _steps() -> Iterator[Step]:
    with progress_bar("Preparing") as advance:
        yield lambda stage, done, total: advance(done, total, stage)
