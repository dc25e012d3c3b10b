"""Measure arms on the user's judged questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triskele.bench import guards, results
from triskele.bench.arms import Arm, arm
from triskele.bench.harness import OWN_DEPTH, OwnHarness, measure_arm
from triskele.bench.measure import Measured, Progress, quiet
from triskele.bench.own.questions import FROM_LINKS, FROM_WORDS, JudgedSet, judged_set
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.recall import plan as plans
from triskele.store.values import Document
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.index.local import ModelIndexes

RUN = "run"
MAX_RUNS = 10
MAX_MRR_DROP = 0.02
# Fewer judged questions decide nothing about a plan or a model.
MIN_QUESTIONS = 50
NOW = "now"
DEFAULT_ARMS = ("fts", "lexical", "dense", "rrf", "default")
KEPT_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")


def run(
    engine: LocalEngine,
    *,
    arms: Sequence[str] | None = None,
    baseline: str = "fts",
    seed: int = 7,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """Measure arms on judged questions, compare them and keep the result."""
    names = arms or (*DEFAULT_ARMS, *((NOW,) if engine.adopted() else ()))
    chosen = [own_arm(name, engine) for name in dict.fromkeys((baseline, *names))]
    with OwnHarness(engine, progress) as harness:
        judged = judgeable(judged_set(harness), chosen)
        measured = measure_own(harness, chosen, judged, progress)
        report = _report(harness, judged, chosen, measured, seed)
    key = f"{timestamps.to_micros(timestamps.now()):017d}"
    scores = {name: {kept: one.scores[kept].tolist() for kept in KEPT_METRICS} for name, one in measured.items()}
    value = {"report": report, "questions": judged.ids, "scores": scores}
    engine.store.documents.put(RUN, {key: Document(value)}, most=MAX_RUNS)
    return report


def reports(engine: LocalEngine) -> dict[str, dict[str, Any]]:
    """The kept reports by their key, newest first."""
    return {key: value["report"] for key, value in reversed(engine.store.documents.all(RUN).items())}


def own_arm(name: str, engine: LocalEngine, model: ModelIndexes | None = None) -> Arm:
    """An arm of the benchmark, or `now`, the plan in force."""
    if name != NOW:
        return arm(name)
    plan = engine.plan_in_force(model=model)
    return Arm(name=NOW, about="what recall does now, adopted weights included", plan=plan)


def measure_own(
    harness: OwnHarness, arms: Sequence[Arm], judged: JudgedSet, progress: Progress = quiet
) -> dict[str, Measured]:
    """Ask every arm every question; questions are encoded once."""
    if not judged.questions:
        waiting = judged.left_out.get("not judged yet", 0)
        step = "judge them with `triskele eval judge`" if waiting else "start with `triskele eval build`"
        raise BadInput(f"no judged questions yet, {waiting} {'waits' if waiting == 1 else 'wait'}: {step}")
    queries = judged.queries()
    harness.precompute([query.text for query in queries])
    return {one.name: measure_arm(harness, one, queries, judged.qrels, progress=progress) for one in arms}


def judgeable(judged: JudgedSet, arms: Sequence[Arm]) -> JudgedSet:
    """Questions that may judge these arms: links do not judge the graph."""
    if not any(one.plan is not None and "graph" in one.plan.legs for one in arms):
        return judged
    return judged.only(lambda question: FROM_LINKS not in question.circular, "made from links: may not judge the graph")


def _report(
    harness: OwnHarness, judged: JudgedSet, arms: Sequence[Arm], measured: Mapping[str, Measured], seed: int
) -> dict[str, Any]:
    queries = judged.queries()
    adopted = harness.engine.adopted()
    runs = {name: one.run for name, one in measured.items()}
    return {
        "dataset": "your own questions",
        "manifest": _manifest(harness, judged, arms, seed),
        "arms": {name: results.summarise(one, queries) for name, one in measured.items()},
        "comparisons": results.comparisons(measured, queries, arms[0].name, seed=seed),
        "coverage": guards.label_coverage(runs, queries, judged.qrels),
        "made_of_words": sum(FROM_WORDS in question.circular for question in judged.questions),
        "adopted": None if adopted is None else {"since": adopted.since, "plan": plans.values_of(adopted.plan)},
    }


def _manifest(harness: OwnHarness, judged: JudgedSet, arms: Sequence[Arm], seed: int) -> dict[str, Any]:
    """Everything that is needed to repeat the run."""
    store = harness.engine.store
    return results.environment(arms, seed=seed) | {
        "at": timestamps.to_text(timestamps.now()),
        "model": harness.fingerprint,
        "labels_sha256": judged.sha256(),
        "counts": {
            "memories": len(harness.memories),
            "measured": len(judged.questions),
            "labels": sum(len(judged.qrels[question.id]) for question in judged.questions),
            "left_out": judged.left_out,
        },
        "store": {"lineage": store.epoch(), "changes": store.position()},
        "run_depth": OWN_DEPTH,
    }
