"""Results of `triskele eval` and `triskele bench` for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.bench.comparison import UNDERPOWERED_BELOW, Decision, decision
from triskele.bench.report.summary import detectable
from triskele.edge.cli.view import BAD, GOOD, ID, MATCH, QUIET, WARNING, note, number, plan_label, plural, table

if TYPE_CHECKING:
    from triskele.bench.own.build import BuildResult
    from triskele.bench.own.gate import Gate
    from triskele.bench.own.judge import JudgeAgreement
    from triskele.bench.own.questions import JudgingState, OwnQuestion
    from triskele.bench.own.tune import TuningResult
    from triskele.edge.cli.layout import Part, Text

_SHOWN_BROKEN = 10
_SHOWN_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")
_SHOWN_TIMES = ("p50", "p95")
_ALARM = "bold red"
_HINTS = {
    "paraphrase": "set recall.log = true to use your own recalls, or import questions with --import",
    "multi-hop": "link memories that belong together, or import questions with --import",
    "exact": "there are too few open memories",
}


def built(result: BuildResult) -> Iterator[Part]:
    """The questions after a build."""
    questions = result.questions
    if not questions:
        yield note("No questions can be made yet: there are no open memories. Start with `triskele add`.")
        return
    judged = sum(question.judged is not None for question in questions.values())
    total = f"{len(questions):,} in total, {judged:,} of them judged"
    yield note(f"{plural(len(result.added), 'question')} added, {total}.")
    rows = table("type", "made from", "questions")
    counts = Counter((question.type, question.generator) for question in questions.values())
    for (type, generator), count in sorted(counts.items()):
        rows.add_row(note(type), note(generator), number(count))
    yield rows
    if result.dropped:
        yield note(f"{result.dropped:,} dropped: their memories are gone and they were not judged.", QUIET)
    yield from (note(f"{count:,} refused: {reason}", QUIET) for reason, count in sorted(result.refused.items()))
    for type, count in result.missing().items():
        yield note(f"{count:,} {type} missing: {_HINTS[type]}", WARNING)
    yield _next("triskele eval judge")


def imported(questions: list[OwnQuestion], total: int) -> Iterator[Part]:
    """The number of imported questions."""
    judged = sum(question.judged is not None for question in questions)
    yield note(f"{plural(len(questions), 'question')} imported, {judged:,} with answers; {total:,} in total.")
    yield _next("triskele eval judge")


def state(state: JudgingState) -> Iterator[Part]:
    """How many questions are judged, and by whom."""
    by = ", ".join(f"{count:,} by {name}" for name, count in state.labels.items()) or "no labels yet"
    judged = f"{state.judged:,} of {state.questions:,} questions judged"
    yield note(f"{judged}, {state.waiting:,} waiting ({by}).")
    yield _next("triskele eval run" if state.judged else "triskele eval judge")


def agreement(agreement: JudgeAgreement) -> Iterator[Part]:
    """Whether another judge's labels count, and why."""
    labels = f"{plural(agreement.labels, 'label')} by {agreement.by}"
    yield note(f"{labels}; pairs also judged by hand: {agreement.by_hand:,}.")
    yield note(f"Cohen's kappa: {_kappa(agreement.kappa)} over the four grades, which decides;")
    yield note(f"               {_kappa(agreement.kappa_binary)} over answers (2, 3) or not (0, 1).")
    if agreement.left_to_hand:
        ignored = plural(agreement.left_to_hand, "label")
        yield note(f"{ignored} of multi-hop questions ignored: judge these by hand.", QUIET)
    if agreement.reason is not None:
        yield note(f"✗ Refused, nothing was imported: {agreement.reason}.", BAD)
    else:
        yield note("✓ Imported where there is no label by hand.", GOOD)
        yield _next("triskele eval run")


def run_notes(report: Mapping[str, Any]) -> Iterator[Text]:
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


def _left_out(counts: Mapping[str, int]) -> Iterator[Text]:
    return (note(f"{count:,} left out: {reason}.", QUIET) for reason, count in counts.items())


def accepted(baseline: Mapping[str, Any]) -> Iterator[Text]:
    """The figures of the new baseline."""
    values = baseline["overall"]
    figures = f"MRR {values['mrr']:.4f}, recall@10 {values['recall@10']:.4f}, nDCG@10 {values['ndcg@10']:.4f}"
    questions = plural(values["n"], "question")
    yield note(f"Accepted as the baseline: {figures} on {questions} ({plan_label(baseline['plan'])}).")


def gate(gate: Gate, questions: Mapping[str, OwnQuestion], rolled_back: bool) -> Iterator[Text]:
    """Each condition with its figures, and what to do if one fails."""
    for check in gate.checks:
        sign, style = ("✓", GOOD) if check.passed else ("✗", BAD)
        yield note(f"{sign} {check.name}: {check.detail}", style)
    for id in gate.broken[:_SHOWN_BROKEN]:
        yield note(f"    {questions[id].text}  ({id})", QUIET)
    if len(gate.broken) > _SHOWN_BROKEN:
        yield note(f"    … and {len(gate.broken) - _SHOWN_BROKEN:,} more", QUIET)
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


def tuning(result: TuningResult) -> Iterator[Text]:
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


def rolled_back(reverted: Mapping[str, Any], present: Mapping[str, Any] | None) -> Iterator[Text]:
    """The plan that was reverted and the one in force."""
    yield note(f"Rolled back: {plan_label(reverted)}. In force now: {plan_label(present or {})}.")


def _kappa(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _next(command: str) -> Text:
    return note("Next: ", QUIET) + note(command, MATCH)


def bench(report: Mapping[str, Any], out: Path | None, *, public: bool = False) -> Iterator[Part]:
    """Findings, quality and speed of each arm, and significance of differences."""
    yield note(report["dataset"], MATCH)
    yield from _findings(report)
    yield from (_arms(report), note(""), _kinds(report), note(""))
    for comparison in report["comparisons"]:
        if comparison["stratum"] == "overall" and comparison["metric"] in _SHOWN_METRICS:
            yield note(_comparison(comparison), QUIET)
    yield from (note(line, QUIET) for line in _abstention(report))
    if out is not None:
        yield note(f"{'Aggregates' if public else 'Runs and values per query'} are in {out}", QUIET)


def code_bench(report: Mapping[str, Any]) -> Iterator[Part]:
    """Quality of code search by arm, and the differences to the baseline."""
    groups = list(next(iter(report["arms"].values()))["ndcg@10 by group"])
    rows = table("ndcg@10", *groups, f"passed of {report['cases']}")
    for name, arm in report["arms"].items():
        values = (_value(arm["ndcg@10 by group"][group]) for group in groups)
        rows.add_row(note(name, ID), *values, f"{arm['passed']}")
    yield from (note(report["suite"], MATCH), rows)
    for comparison in report["comparisons"]:
        if comparison["stratum"] == "all":
            yield note(_comparison(comparison), QUIET)


def _findings(report: Mapping[str, Any]) -> Iterator[Text]:
    for finding in report.get("guards", {}).get("findings", ()):
        is_alarm = finding["severity"] == "alarm"
        examples = f" ({', '.join(finding['examples'])})" if finding.get("examples") else ""
        yield note(f"{'✗' if is_alarm else '·'} {finding['said']}{examples}", _ALARM if is_alarm else QUIET)


def _arms(report: Mapping[str, Any]) -> Part:
    rows = table("arm", *_SHOWN_METRICS, *(f"{name} ms" for name in _SHOWN_TIMES), "bytes")
    for name, arm in report["arms"].items():
        times = (f"{arm['latency_ms'][key]:.2f}" for key in _SHOWN_TIMES)
        values = (_value(arm["overall"][metric]) for metric in _SHOWN_METRICS)
        rows.add_row(note(name, ID), *values, *times, f"{arm['bytes_per_memory']:.0f}")
    return rows


def _kinds(report: Mapping[str, Any]) -> Part:
    strata = next(iter(report["arms"].values()))["strata"]
    rows = table("ndcg@10", *(_kind(name, values) for name, values in strata.items()))
    for name, arm in report["arms"].items():
        rows.add_row(note(name, ID), *(_value(arm["strata"][kind]["ndcg@10"]) for kind in strata))
    return rows


def _kind(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} ({values['n']}{', underpowered' if values['n'] < UNDERPOWERED_BELOW else ''})"


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
