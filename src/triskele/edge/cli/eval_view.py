"""The results of `triskele eval` and `triskele bench` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from triskele.bench.comparison import UNDERPOWERED_BELOW, Decision, decision
from triskele.bench.report.formatting import detectable
from triskele.edge.cli.render import GOOD, ID, MATCH, QUIET, WARNING, counted, note, table

if TYPE_CHECKING:
    from triskele.bench.own.build import BuildResult
    from triskele.bench.own.gate import Gate
    from triskele.bench.own.judge import JudgeAgreement
    from triskele.bench.own.questions import Question
    from triskele.bench.own.tune import TuningResult
    from triskele.replies import AdoptedPlan

BAD = "red"
_SHOWN_BROKEN = 10
_SHOWN_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")
_SHOWN_TIMES = ("p50", "p95")
_ALARM = "bold red"
_HINTS = {
    "paraphrase": "set recall.log = true to use your own recalls, or import questions with --import",
    "multi-hop": "link memories that belong together, or import questions with --import",
    "exact": "there are too few open memories",
}


def built(found: BuildResult) -> RenderableType:
    """The questions after a build."""
    if not found.questions:
        return note("No questions can be made yet: there are no open memories. Start with `triskele add`.")
    judged = sum(question.judged is not None for question in found.questions.values())
    lines: list[RenderableType] = [
        note(f"{questions(len(found.added))} added, {len(found.questions):,} in total, {judged:,} of them judged.")
    ]
    made = table("type", "made from", "questions")
    counts: dict[tuple[str, str], int] = {}
    for question in found.questions.values():
        key = (question.type, question.generator)
        counts[key] = counts.get(key, 0) + 1
    for (type, generator), count in sorted(counts.items()):
        made.add_row(note(type), note(generator), Text(f"{count:,}", justify="right"))
    lines.append(made)
    if found.dropped:
        lines.append(note(f"{found.dropped:,} dropped: their memories are gone and they were not judged.", QUIET))
    lines += [note(f"{count:,} refused: {reason}", QUIET) for reason, count in sorted(found.refused.items())]
    lines += [note(f"{count:,} {type} missing: {_HINTS[type]}", WARNING) for type, count in found.missing().items()]
    return Group(*lines, _next("triskele eval judge"))


def imported(fresh: list[Question], total: int) -> RenderableType:
    """How many questions were imported."""
    judged = sum(question.judged is not None for question in fresh)
    message = f"{questions(len(fresh))} imported, {judged:,} with answers; {total:,} in total."
    return Group(note(message), _next("triskele eval judge"))


def state(found: Mapping[str, Any]) -> RenderableType:
    """How many questions are judged."""
    by = ", ".join(f"{count:,} by {name}" for name, count in found["labels"].items()) or "no labels yet"
    message = f"{found['judged']:,} of {found['questions']:,} questions judged, {found['waiting']:,} waiting ({by})."
    return Group(note(message), _next("triskele eval run" if found["judged"] else "triskele eval judge"))


def agreement(found: JudgeAgreement) -> RenderableType:
    """Whether another judge's labels count, and why."""
    lines: list[RenderableType] = [
        note(f"{counted(found.labels, 'label')} by {found.by}; pairs also judged by hand: {found.by_hand:,}."),
        note(f"Cohen's kappa: {_kappa(found.kappa)} over the four grades, which decides;"),
        note(f"               {_kappa(found.kappa_binary)} over answers (2, 3) or not (0, 1)."),
    ]
    if found.left_to_hand:
        ignored = f"{counted(found.left_to_hand, 'label')} of multi-hop questions ignored: judge these by hand."
        lines.append(note(ignored, QUIET))
    if found.reason is not None:
        return Group(*lines, note(f"✗ Refused, nothing was imported: {found.reason}.", BAD))
    return Group(*lines, note("✓ Imported where there is no label by hand.", GOOD), _next("triskele eval run"))


def run_notes(report: Mapping[str, Any]) -> RenderableType:
    """Notes on the figures of a run."""
    counts = report["manifest"]["counts"]
    lines = [note(f"{questions(counts['measured'])}, {counts['labels']:,} labels.", QUIET)]
    lines += [note(f"{count:,} left out: {reason}.", QUIET) for reason, count in counts["left_out"].items()]
    if report["made_of_words"]:
        message = (
            f"{report['made_of_words']:,} questions are made of the memories' own words and favour the lexical leg."
        )
        lines.append(note(message, WARNING))
    shares = ", ".join(f"{name} {share * 100:.0f} %" for name, share in report["coverage"]["arms"].items())
    lines.append(note(f"Judged among the first ten: {shares}; results without a label count as wrong.", QUIET))
    if report["adopted"] is not None:
        lines.append(note(f"Adopted weights are in force: {plan(report['adopted']['plan'])}.", ID))
    return Group(*lines)


def accepted(found: Mapping[str, Any]) -> RenderableType:
    """The figures of the new baseline."""
    values = found["overall"]
    figures = f"MRR {values['mrr']:.4f}, recall@10 {values['recall@10']:.4f}, nDCG@10 {values['ndcg@10']:.4f}"
    return note(f"Accepted as the baseline: {figures} on {questions(values['n'])} ({plan(found['plan'])}).")


def gate(found: Gate, asked: Mapping[str, Question], rolled_back: bool) -> RenderableType:
    """Each condition with its figures, and what to do if one fails."""
    lines: list[RenderableType] = [
        note(f"{'✓' if check.passed else '✗'} {check.name}: {check.detail}", GOOD if check.passed else BAD)
        for check in found.checks
    ]
    lines += [note(f"    {asked[id].text}  ({id})", QUIET) for id in found.broken[:_SHOWN_BROKEN]]
    if len(found.broken) > _SHOWN_BROKEN:
        lines.append(note(f"    … and {len(found.broken) - _SHOWN_BROKEN:,} more", QUIET))
    compared = f"{questions(found.questions)} against the baseline of {found.accepted[:16].replace('T', ' ')}"
    more = f"; {found.not_shared:,} judged since then do not count" if found.not_shared else ""
    lines.append(note(f"{compared}{more}.", QUIET))
    if found.passed:
        return Group(*lines, note("The gate passed.", GOOD))
    lines.append(note("The gate failed.", BAD))
    if rolled_back:
        lines.append(note("The adopted plan was rolled back: check again with `triskele eval gate`.", WARNING))
    elif found.adopted:
        lines.append(note("An adopted plan is in force: revert it with `triskele eval rollback`.", WARNING))
    return Group(*lines)


def tuning(found: TuningResult) -> RenderableType:
    """The configurations tried, the gain on held-out questions, and the decision."""
    lines: list[RenderableType] = []
    if found.plan is not None and found.delta is not None and found.ci95 is not None and found.mrr is not None:
        made = f"{found.configurations} configurations, {found.questions} questions, {found.folds} folds"
        low, high = found.ci95
        lines = [
            note(f"{made}."),
            note(f"Best: {plan(found.plan)}; now: {plan(found.present or {})}."),
            note(f"nDCG@10 on held-out questions: {found.delta:+.4f} (95 % {low:+.4f} to {high:+.4f})"),
            note(f"MRR on held-out questions: {found.mrr[0]:.4f} → {found.mrr[1]:.4f}"),
        ]
        lines += [note(f"    {type}: {gain:+.4f}", QUIET) for type, gain in (found.by_type or {}).items()]
    lines += [note(f"{count:,} left out: {reason}.", QUIET) for reason, count in found.left_out.items()]
    if not found.adopted:
        return Group(*lines, note(f"✗ Nothing is adopted: {found.reason}.", WARNING))
    lines.append(note(f"✓ Adopted: {found.reason}.", GOOD))
    return Group(*lines, note("Recall ranks by it from now on; `triskele eval rollback` reverts it.", QUIET))


def rolled_back(taken: Mapping[str, Any], present: Mapping[str, Any] | None) -> RenderableType:
    """Which plan was reverted and which is in force."""
    return note(f"Rolled back: {plan(taken)}. In force now: {plan(present or {})}.")


def adopted(found: AdoptedPlan) -> RenderableType:
    """That recall ranks by an adopted plan."""
    learned = f"since {found.since[:10]}, learned on {questions(found.questions)}"
    return note(f"Adopted weights are in force {learned}: {plan(found.values)}.", ID)


def questions(count: int) -> str:
    """A number of questions, with the right plural."""
    return f"{count:,} {'question' if count == 1 else 'questions'}"


def plan(values: Mapping[str, Any]) -> str:
    """The differences from the shipped plan."""
    return ", ".join(f"{name} {_setting(value)}" for name, value in values.items()) or "as shipped"


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {number:g}" for name, number in value.items()) + ")"
    return str(value)


def _kappa(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


def _next(command: str) -> Text:
    return Text.assemble(("Next: ", QUIET), (command, MATCH))


def bench(report: Mapping[str, Any], out: Path | None, *, public: bool = False) -> RenderableType:
    """Findings against the numbers, quality and speed of each arm, and the significance of differences."""
    parts: list[RenderableType] = [note(report["dataset"], style="bold"), *_findings(report)]
    parts += [_bench_arms(report), Text(), _kinds(report), Text()]
    parts += [note(_comparison(each), style=QUIET) for each in report["comparisons"] if _is_headline(each)]
    parts += [note(said, style=QUIET) for said in _abstention(report)]
    if out is not None:
        kept = "Aggregates" if public else "Runs and values per query"
        parts.append(note(f"{kept} are in {out}", style=QUIET))
    return Group(*parts)


def code_bench(report: Mapping[str, Any]) -> RenderableType:
    """Quality of code search by arm, and the differences to the baseline."""
    groups = list(next(iter(report["arms"].values()))["ndcg@10 by group"])
    made = table("ndcg@10", *groups, f"passed of {report['cases']}")
    for name, arm in report["arms"].items():
        values = (_value(arm["ndcg@10 by group"][group]) for group in groups)
        made.add_row(note(name, style=ID), *values, f"{arm['passed']}")
    compared = [each for each in report["comparisons"] if each["stratum"] == "all"]
    return Group(
        note(report["suite"], style="bold"), made, *(note(_comparison(each), style=QUIET) for each in compared)
    )


def _findings(report: Mapping[str, Any]) -> Iterator[RenderableType]:
    for found in report.get("guards", {}).get("findings", ()):
        is_alarm = found["severity"] == "alarm"
        examples = f" ({', '.join(found['examples'])})" if found.get("examples") else ""
        yield note(f"{'✗' if is_alarm else '·'} {found['said']}{examples}", style=_ALARM if is_alarm else QUIET)


def _bench_arms(report: Mapping[str, Any]) -> RenderableType:
    made = table("arm", *_SHOWN_METRICS, *(f"{name} ms" for name in _SHOWN_TIMES), "bytes")
    for name, arm in report["arms"].items():
        times = (f"{arm['latency_ms'][key]:.2f}" for key in _SHOWN_TIMES)
        values = (_value(arm["overall"][metric]) for metric in _SHOWN_METRICS)
        made.add_row(note(name, style=ID), *values, *times, f"{arm['bytes_per_memory']:.0f}")
    return made


def _kinds(report: Mapping[str, Any]) -> RenderableType:
    strata = next(iter(report["arms"].values()))["strata"]
    made = table("ndcg@10", *(_kind(name, values) for name, values in strata.items()))
    for name, arm in report["arms"].items():
        made.add_row(note(name, style=ID), *(_value(arm["strata"][kind]["ndcg@10"]) for kind in strata))
    return made


def _kind(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} ({values['n']}{', underpowered' if values['n'] < UNDERPOWERED_BELOW else ''})"


def _value(number: float | None) -> str:
    return "–" if number is None else f"{number:.3f}"


def _is_headline(comparison: Mapping[str, Any]) -> bool:
    return comparison["stratum"] == "overall" and comparison["metric"] in _SHOWN_METRICS


def _comparison(each: Mapping[str, Any]) -> str:
    low, high = each["ci95"]
    between = f"{each['a']} − {each['b']}, {each['metric']}"
    said = f"{between}: {each['delta']:+.3f} (95 % {low:+.3f} to {high:+.3f}, p {each['p_holm']:.3f})"
    if decision(each) is Decision.UNDECIDED:
        said += f", no difference found: {detectable(each)}"
    return said + (", underpowered" if each["underpowered"] else "")


def _abstention(report: Mapping[str, Any]) -> Iterator[str]:
    for name, told in report.get("abstention", {}).items():
        for kind, found in told["kinds"].items():
            yield (
                f"{name}, confidence against {kind} ({found['n']}): AUROC {found['auroc']:.3f}, precision"
                f" {_value(found['precision'])} at {told['threshold']}, answerable kept {found['coverage']:.2f}"
            )
