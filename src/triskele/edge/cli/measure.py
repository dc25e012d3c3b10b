"""Commands that measure retrieval, on data sets (bench) and on the user's own memories (eval)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triskele.bench import curation_pairs
from triskele.bench.bench import available_arms, run_bench
from triskele.bench.code_suite import DEFAULT, is_suite, load_suite, run_suite
from triskele.bench.comparison import UNDERPOWERED_BELOW, Decision, decision
from triskele.bench.harness import OwnHarness
from triskele.bench.own import build, gate, judge, run, tune
from triskele.bench.own.questions import OwnQuestion, judging_state, questions_of
from triskele.bench.report.summary import detectable
from triskele.edge.cli import curation
from triskele.edge.cli.commands import command, command_group
from triskele.edge.cli.documents import Document, picked
from triskele.edge.cli.invocation import Invocation, staged_progress
from triskele.edge.cli.options import Decorator, listed
from triskele.edge.cli.view import BAD, GOOD, ID, MATCH, QUIET, WARNING, Table, more, note, number, plan_label, plural
from triskele.errors import BadInput
from triskele.models.local import local_embedder

if TYPE_CHECKING:
    from triskele.bench.curation_pairs import CaptureReport, PairReport, VerdictScore
    from triskele.bench.own.build import BuildResult
    from triskele.bench.own.gate import Gate
    from triskele.bench.own.judge import JudgeAgreement
    from triskele.bench.own.tune import TuningResult
    from triskele.edge.cli.view import Renderable, Row, Styled
    from triskele.engine.local import LocalEngine

BUNDLED = "team"
_PATH = click.Path(path_type=Path)
_SEED = click.option("--seed", type=int, default=7, show_default=True, help="Makes random choices repeatable.")
_BASELINE = click.option("--baseline", metavar="ARM", default="fts", show_default=True, help="The arm to compare with.")

_SHOWN_BROKEN = 10
_SHOWN_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")
_SHOWN_TIMES = ("p50", "p95")
_ALARM = "bold red"
_HINTS = {
    "paraphrase": "set recall.log = true to use your own recalls, or import questions with --import",
    "multi-hop": "link memories that belong together, or import questions with --import",
    "exact": "there are too few open memories",
}


def _arms_option(help: str) -> Decorator:
    def arms(_: click.Context, __: click.Parameter, value: str | None) -> list[str] | None:
        return None if value is None else listed(value)

    return click.option("--arms", metavar="A,B", callback=arms, help=help)


@command("triskele bench team", "triskele bench locomo --arms fts,rrf:k=10,default --out results --seed 7")
@click.argument("dataset", metavar="DATASET_DIR")
@_arms_option("The arms to measure; default: all.")
@_BASELINE
@click.option("--out", type=_PATH, help="Keep runs and values per query in this folder.")
@click.option("--max-queries", type=int, help="Ask only this many queries, chosen by the seed.")
@click.option("--seed", type=int, default=7, show_default=True, help="Makes a run repeatable.")
@click.option("--trees", type=_PATH, help="The folder of the trees that a suite of code questions is about.")
@click.option("--public", is_flag=True, help="Report aggregates only: no text and no id of the data set.")
def bench(
    invocation: Invocation, dataset: str, arms: list[str] | None, seed: int, trees: Path | None, **options: Any
) -> None:
    """Measure retrieval on a data set.

    DATASET_DIR is a folder with corpus.jsonl, queries.jsonl and qrels.tsv, the name of one under TRISKELE_BENCH_DATA,
    or `team` for the bundled sample. An arm's name can set its values: rrf:k=10, cc:alpha=0.6, default:rescored=50.
    It can also be the JSON file of a suite of code questions; its arms are bm25, words, lexical and default.
    """
    if is_suite(Path(dataset)):
        return _bench_code(invocation, Path(dataset), trees, arms, seed)
    if arms is None:
        arms = available_arms()
    with staged_progress("Preparing") as progress:
        report = run_bench(_folder(dataset), arms=arms, seed=seed, progress=progress, **options)
    return invocation.emit(report, lambda: _bench_view(report, options["out"], public=options["public"]))


def _bench_code(invocation: Invocation, path: Path, trees: Path | None, arms: Sequence[str] | None, seed: int) -> None:
    """Measure code search on a suite and its trees."""
    settings = invocation.stores.settings()
    names = arms or ("bm25", "words", "lexical")
    # Embedding whole trees takes minutes: only if the arm is requested.
    needs_model = any(name == DEFAULT or name.startswith("fusion:") for name in names)
    with staged_progress("Preparing") as progress:
        report = run_suite(
            load_suite(path),
            trees or path.parent / "trees",
            settings.home,
            names=names,
            embedder=local_embedder(settings.recall.model) if needs_model else None,
            seed=seed,
            progress=progress,
        )
    invocation.emit(report, lambda: _code_bench_view(report))


def _folder(name: str) -> Path:
    """The folder of a data set."""
    if name == BUNDLED:
        return Path(str(resources.files("triskele.samples") / BUNDLED))
    parent = os.environ.get("TRISKELE_BENCH_DATA")
    if parent and not Path(name).is_dir() and (Path(parent) / name).is_dir():
        return Path(parent) / name
    return Path(name)


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
@click.option("--import", "source", type=_PATH, metavar="FILE", help="Import your own questions instead (JSONL).")
def build_questions(invocation: Invocation, size: int, seed: int, source: Path | None) -> None:
    """Make questions from memories and past recalls, or import your own."""
    with invocation.stores.open_local(creates=True) as engine:
        if source is not None:
            added = judge.import_questions(engine, source)
            questions = questions_of(engine)
            answered = sum(question.judged is not None for question in added)
            line = f"{plural(len(added), 'question')} imported, {answered:,} with answers; {len(questions):,} in total."
            document = {"added": len(added), "questions": _rows(questions), "project": engine.project}
            return invocation.emit(document, lambda: [note(line), _next("triskele eval judge")])
        built = build.build(engine, size=size, seed=seed)
        document = {"added": len(built.added), **picked(built, "dropped refused"), "missing": built.missing()}
        document["questions"] = _rows(built.questions)
        return invocation.emit(document, lambda: _built_view(built), project=engine.project)


@eval_.subcommand(
    "triskele eval judge",
    'triskele eval judge --scripted grades.jsonl      ({"question": "…", "memory": "1kpn46", "grade": 3})',
    "triskele eval judge --export pairs.jsonl",
    "triskele eval judge --from labels.jsonl --by some-model",
    "triskele eval judge --json      (progress)",
    name="judge",
)
@click.option("--scripted", type=_PATH, metavar="FILE", help="Import your grades from a file (JSONL).")
@click.option(
    "--from", "source", type=_PATH, metavar="FILE", help="Import another judge's labels if they agree enough."
)
@click.option("--by", metavar="NAME", help="The judge of the labels of --from.")
@click.option("--export", "target", type=_PATH, metavar="FILE", help="Write open pairs for an external judge (JSONL).")
@_SEED
def judge_questions(invocation: Invocation, by: str | None, seed: int, **files: Path | None) -> int:
    """Grade which memories answer each question: keys 0 to 3, blind, stop any time.

    0 unrelated, 1 related but no answer, 2 answers in part, 3 answers it. Labels of another judge count only with
    Cohen's kappa of at least 0.6 against yours, over at least 15 % of the pairs.
    """
    if sum(file is not None for file in files.values()) > 1:
        raise click.UsageError("--scripted, --from and --export exclude each other: give one of them")
    scripted, source, target = files["scripted"], files["source"], files["target"]
    if (source is None) != (by is None):
        raise click.UsageError("--from FILE and --by NAME go together: name the judge of these labels")
    with invocation.stores.open_local() as engine:
        if source is not None and by is not None:
            agreement = judge.import_labels(engine, source, by)
            accepted = agreement.is_accepted
            invocation.emit(agreement, lambda: _agreement_view(agreement), accepted=accepted, project=engine.project)
            return 0 if accepted else 1
        if target is not None:
            _export(invocation, engine, target, seed)
            return 0
        if scripted is not None:
            judge.import_grades(engine, scripted)
        elif not invocation.as_json:
            _judge_by_hand(engine, seed)
        state = judging_state(engine)
        by_judge = ", ".join(f"{count:,} by {name}" for name, count in state.labels.items()) or "no labels yet"
        judged = f"{state.judged:,} of {state.questions:,} questions judged"
        line = note(f"{judged}, {state.waiting:,} waiting ({by_judge}).")
        following = _next("triskele eval run" if state.judged else "triskele eval judge")
        invocation.emit(state, lambda: [line, following], project=engine.project)
    return 0


@eval_.subcommand(
    "triskele eval run",
    "triskele eval run --arms default,now,cc:alpha=0.6 --baseline rrf --json",
    "triskele eval run curation",
    name="run",
)
@click.argument("suite", type=click.Choice(["recall", "curation"]), default="recall", metavar="[SUITE]")
@_arms_option("The arms to measure: those of bench, and `now` for what recall does now.")
@_BASELINE
@_SEED
def measure_questions(invocation: Invocation, suite: str, arms: list[str] | None, baseline: str, seed: int) -> None:
    """Measure arms on the judged questions.

    The suite `curation` measures the rules that merge, supersede and learn, on labelled samples.
    """
    if suite == "curation":
        return _run_curation(invocation)
    with invocation.stores.open_local() as engine, staged_progress("Preparing") as progress:
        report = run.run(engine, arms=arms, baseline=baseline, seed=seed, progress=progress)
    return invocation.emit(report, lambda: [*_bench_view(report, None), *_run_notes_view(report)])


def _run_curation(invocation: Invocation) -> None:
    pairs = curation_pairs.load_pairs()
    reports = [curation_pairs.measure(pairs, part) for part in (*curation_pairs.HALVES, curation_pairs.SPOKEN)]
    captured = [curation_pairs.measure_capture(half) for half in curation_pairs.HALVES]
    halves = []
    for report in reports:
        verdicts = {
            each.verdict.value: {**picked(each, "labelled judged right"), **_rates(each)} for each in report.scores
        }
        rate = round(report.false_merge_rate, 4)
        halves.append({**picked(report, "half pairs"), "verdicts": verdicts, "false_merge_rate": rate})
    capture = [{**picked(report, "half dial conversations"), **_rates(report)} for report in captured]
    invocation.emit({"halves": halves, "capture": capture}, lambda: _curation_view(reports, captured))


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
        raise click.UsageError("--accept keeps the present state without a check: give it alone")
    with invocation.stores.open_local() as engine:
        if accepting:
            with staged_progress("Preparing") as progress:
                baseline = gate.accept(engine, progress)
            values, questions = baseline["overall"], plural(baseline["overall"]["n"], "question")
            figures = f"MRR {values['mrr']:.4f}, recall@10 {values['recall@10']:.4f}, nDCG@10 {values['ndcg@10']:.4f}"
            line = f"Accepted as the baseline: {figures} on {questions} ({plan_label(baseline['plan'])})."
            invocation.emit(baseline, lambda: [note(line)], accepted=True, project=engine.project)
            return 0
        with staged_progress("Preparing") as progress:
            result = gate.gate(engine, improve=improve, progress=progress)
        reverts = rollback_on_failure and not result.passed and result.adopted
        if reverts:
            tune.roll_back(engine)
        invocation.emit(
            result,
            lambda: _gate_view(result, questions_of(engine), reverts),
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
    with invocation.stores.open_local() as engine:
        with staged_progress("Preparing") as progress:
            result = tune.tune(engine, budget=budget, seed=seed, progress=progress)
        invocation.emit(result, lambda: _tuning_view(result), project=engine.project)
    return 0 if result.adopted else 1


@eval_.subcommand("triskele eval rollback", "triskele eval rollback --json")
def rollback(invocation: Invocation) -> None:
    """Revert the adopted plan to the one before."""
    with invocation.stores.open_local() as engine:
        reverted, present = tune.roll_back(engine)
        invocation.emit(
            {"taken": reverted, "in_force": present, "project": engine.project},
            lambda: [note(f"Rolled back: {plan_label(reverted)}. In force now: {plan_label(present or {})}.")],
        )


def _judge_by_hand(engine: LocalEngine, seed: int) -> None:
    questions = questions_of(engine)
    if not questions:
        raise BadInput("no questions yet: start with `triskele eval build`")
    with staged_progress("Preparing") as progress:
        harness = OwnHarness(engine, progress)
        harness.precompute([question.text for question in questions.values() if question.is_waiting])
    with harness:
        curation.judge(judge.JudgingSession(harness, seed))


def _export(invocation: Invocation, engine: LocalEngine, target: Path, seed: int) -> None:
    with staged_progress("Preparing") as progress, OwnHarness(engine, progress) as harness:
        rows = list(judge.export_pairs(harness, seed))
    judge.write_lines(target, rows)
    advice = "give each a grade from 0 to 3 and import them with --from."
    line = f"{plural(len(rows), 'pair')} written to {target}: {advice}"
    document = {"pairs": len(rows), "path": str(target.absolute()), "project": engine.project}
    invocation.emit(document, lambda: [note(line)])


def _rows(questions: Mapping[str, OwnQuestion]) -> list[dict[str, Any]]:
    return [question.to_json() for question in questions.values()]


def _built_view(result: BuildResult) -> Iterator[Renderable]:
    """The questions after a build."""
    questions = result.questions
    if not questions:
        yield note("No questions can be made yet: there are no open memories. Start with `triskele add`.")
        return
    judged = sum(question.judged is not None for question in questions.values())
    total = f"{len(questions):,} in total, {judged:,} of them judged"
    yield note(f"{plural(len(result.added), 'question')} added, {total}.")
    counts = Counter((question.type, question.generator) for question in questions.values())
    rows = ((note(type), note(generator), number(count)) for (type, generator), count in sorted(counts.items()))
    yield Table(("type", "made from", "questions"), rows)
    if result.dropped:
        yield note(f"{result.dropped:,} dropped: their memories are gone and they were not judged.", QUIET)
    yield from (note(f"{count:,} refused: {reason}", QUIET) for reason, count in sorted(result.refused.items()))
    for type, count in result.missing().items():
        yield note(f"{count:,} {type} missing: {_HINTS[type]}", WARNING)
    yield _next("triskele eval judge")


def _agreement_view(agreement: JudgeAgreement) -> Iterator[Renderable]:
    """Whether another judge's labels count, and why."""
    labels = f"{plural(agreement.labels, 'label')} by {agreement.by}"
    yield note(f"{labels}; pairs also judged by hand: {agreement.by_hand:,}.")
    kappas = (agreement.kappa, agreement.kappa_binary)
    kappa, kappa_binary = ("undefined" if value is None else f"{value:.2f}" for value in kappas)
    yield note(f"Cohen's kappa: {kappa} over the four grades, which decides;")
    yield note(f"               {kappa_binary} over answers (2, 3) or not (0, 1).")
    if agreement.left_to_hand:
        ignored = plural(agreement.left_to_hand, "label")
        yield note(f"{ignored} of multi-hop questions ignored: judge these by hand.", QUIET)
    if agreement.reason is not None:
        yield note(f"✗ Refused, nothing was imported: {agreement.reason}.", BAD)
    else:
        yield note("✓ Imported where there is no label by hand.", GOOD)
        yield _next("triskele eval run")


def _run_notes_view(report: Mapping[str, Any]) -> Iterator[Styled]:
    """Notes on the figures of a run."""
    counts = report["manifest"]["counts"]
    yield note(f"{plural(counts['measured'], 'question')}, {counts['labels']:,} labels.", QUIET)
    yield from _left_out(counts["left_out"])
    if report["made_of_words"]:
        favour = "questions are made of the memories' own words and favour the lexical leg."
        yield note(f"{report['made_of_words']:,} {favour}", WARNING)
    shares = ", ".join(f"{name} {share * 100:.0f} %" for name, share in report["coverage"]["arms"].items())
    yield note(f"Judged among the first ten: {shares}; results without a label count as wrong.", QUIET)
    if report["adopted"] is not None:
        yield note(f"Adopted weights are in force: {plan_label(report['adopted']['plan'])}.", ID)


def _left_out(counts: Mapping[str, int]) -> Iterator[Styled]:
    return (note(f"{count:,} left out: {reason}.", QUIET) for reason, count in counts.items())


def _gate_view(gate: Gate, questions: Mapping[str, OwnQuestion], rolled_back: bool) -> Iterator[Styled]:
    """Each condition with its figures, and what to do if one fails."""
    for check in gate.checks:
        sign, style = ("✓", GOOD) if check.passed else ("✗", BAD)
        yield note(f"{sign} {check.name}: {check.detail}", style)
    for id in gate.broken[:_SHOWN_BROKEN]:
        yield note(f"    {questions[id].text}  ({id})", QUIET)
    yield from more(len(gate.broken) - _SHOWN_BROKEN, indent="    ")
    baseline = f"the baseline of {gate.accepted[:16].replace('T', ' ')}"
    later = f"; {gate.not_shared:,} judged since then do not count" if gate.not_shared else ""
    yield note(f"{plural(gate.questions, 'question')} against {baseline}{later}.", QUIET)
    if gate.passed:
        yield note("The gate passed.", GOOD)
        return
    yield note("The gate failed.", BAD)
    if rolled_back:
        yield note("The adopted plan was rolled back: check again with `triskele eval gate`.", WARNING)
    elif gate.adopted:
        yield note("An adopted plan is in force: revert it with `triskele eval rollback`.", WARNING)


def _tuning_view(result: TuningResult) -> Iterator[Styled]:
    """The configurations tried, the gain on held-out questions, and the decision."""
    if result.plan is not None and result.delta is not None and result.ci95 is not None and result.mrr is not None:
        low, high = result.ci95
        yield note(f"{result.configurations} configurations, {result.questions} questions, {result.folds} folds.")
        yield note(f"Best: {plan_label(result.plan)}; now: {plan_label(result.present or {})}.")
        yield note(f"nDCG@10 on held-out questions: {result.delta:+.4f} (95 % {low:+.4f} to {high:+.4f})")
        yield note(f"MRR on held-out questions: {result.mrr[0]:.4f} → {result.mrr[1]:.4f}")
        yield from (note(f"    {type}: {gain:+.4f}", QUIET) for type, gain in (result.by_type or {}).items())
    yield from _left_out(result.left_out)
    if result.adopted:
        yield note(f"✓ Adopted: {result.reason}.", GOOD)
        yield note("Recall ranks by it from now on; `triskele eval rollback` reverts it.", QUIET)
    else:
        yield note(f"✗ Nothing is adopted: {result.reason}.", WARNING)


def _next(command: str) -> Styled:
    return note("Next: ", QUIET) + note(command, MATCH)


def _bench_view(report: Mapping[str, Any], out: Path | None, *, public: bool = False) -> Iterator[Renderable]:
    """Findings, quality and speed of each arm, and significance of differences."""
    yield note(report["dataset"], MATCH)
    for finding in report.get("guards", {}).get("findings", ()):
        is_alarm = finding["severity"] == "alarm"
        examples = f" ({', '.join(finding['examples'])})" if finding.get("examples") else ""
        yield note(f"{'✗' if is_alarm else '·'} {finding['said']}{examples}", _ALARM if is_alarm else QUIET)
    strata = next(iter(report["arms"].values()))["strata"]
    quality: list[Row] = []
    by_kind: list[Row] = []
    for name, arm in report["arms"].items():
        values = (_value(arm["overall"][metric]) for metric in _SHOWN_METRICS)
        times = (f"{arm['latency_ms'][key]:.2f}" for key in _SHOWN_TIMES)
        quality.append((note(name, ID), *values, *times, f"{arm['bytes_per_memory']:.0f}"))
        by_kind.append((note(name, ID), *(_value(arm["strata"][kind]["ndcg@10"]) for kind in strata)))
    yield Table(("arm", *_SHOWN_METRICS, *(f"{name} ms" for name in _SHOWN_TIMES), "bytes"), quality)
    kinds = [
        f"{name} ({values['n']}{', underpowered' if values['n'] < UNDERPOWERED_BELOW else ''})"
        for name, values in strata.items()
    ]
    yield from (note(""), Table(("ndcg@10", *kinds), by_kind), note(""))
    for comparison in report["comparisons"]:
        if comparison["stratum"] == "overall" and comparison["metric"] in _SHOWN_METRICS:
            yield note(_comparison(comparison), QUIET)
    yield from (note(line, QUIET) for line in _abstention(report))
    if out is not None:
        yield note(f"{'Aggregates' if public else 'Runs and values per query'} are in {out}", QUIET)


def _code_bench_view(report: Mapping[str, Any]) -> Iterator[Renderable]:
    """Quality of code search by arm, and the differences to the baseline."""
    groups = list(next(iter(report["arms"].values()))["ndcg@10 by group"])
    rows: list[Row] = []
    for name, arm in report["arms"].items():
        values = (_value(arm["ndcg@10 by group"][group]) for group in groups)
        rows.append((note(name, ID), *values, f"{arm['passed']}"))
    yield from (note(report["suite"], MATCH), Table(("ndcg@10", *groups, f"passed of {report['cases']}"), rows))
    for comparison in report["comparisons"]:
        if comparison["stratum"] == "all":
            yield note(_comparison(comparison), QUIET)


def _value(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}"


def _comparison(comparison: Mapping[str, Any]) -> str:
    low, high = comparison["ci95"]
    interval = f"{comparison['delta']:+.3f} (95 % {low:+.3f} to {high:+.3f}, p {comparison['p_holm']:.3f})"
    line = f"{comparison['a']} − {comparison['b']}, {comparison['metric']}: {interval}"
    if decision(comparison) is Decision.UNDECIDED:
        line += f", no difference found: {detectable(comparison)}"
    return line + (", underpowered" if comparison["underpowered"] else "")


def _abstention(report: Mapping[str, Any]) -> Iterator[str]:
    for name, arm in report.get("abstention", {}).items():
        for kind, values in arm["kinds"].items():
            yield (
                f"{name}, confidence against {kind} ({values['n']}): AUROC {values['auroc']:.3f}, precision"
                f" {_value(values['precision'])} at {arm['threshold']}, answerable kept {values['coverage']:.2f}"
            )


def _rates(score: VerdictScore | CaptureReport) -> Document:
    return {"precision": round(score.precision, 4), "recall": round(score.recall, 4)}


def _curation_view(reports: Sequence[PairReport], captured: Sequence[CaptureReport]) -> Iterator[Renderable]:
    """Precision and recall of each verdict, and what the rules keep of the labelled conversations."""
    rows = []
    for report in reports:
        for score in report.scores:
            figures = (f"{score.precision:.3f}", f"{score.recall:.3f}")
            rows.append((report.half, score.verdict.value, str(score.labelled), str(score.judged), *figures))
    yield Table(("half", "verdict", "pairs", "judged so", "precision", "recall"), rows)
    for report in reports:
        pairs = f"{report.false_merges} of {report.different} pairs about different things"
        yield note(f"False merges in {report.half}: {pairs} ({report.false_merge_rate:.1%})")
    yield note("The rules were written with the half `tune` in view; only what they are sure of counts.", QUIET)
    yield note("The pairs called `spoken` are sentences as people talk, written after the rules.", QUIET)
    for capture in captured:
        precision = f"{capture.right} of {capture.captured} kept texts are right ({capture.precision:.3f})"
        recall = f"{capture.matched} of {capture.labelled} found ({capture.recall:.3f})"
        yield note(f"Capture, half {capture.half}, {capture.conversations} conversations: {precision}, {recall}")
