"""Measuring arms on the judged questions, with the metrics and the comparisons of the benchmark."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from triskele import __version__
from triskele.base import timestamps
from triskele.curation import adoption
from triskele.engine import Engine
from triskele.errors import BadInput, Unavailable
from triskele.evaluation import compare, metrics
from triskele.evaluation.arms import Arm, arm
from triskele.evaluation.guards import pooling
from triskele.evaluation.own.ground import DEPTH, OwnGround, Step, quietly
from triskele.evaluation.own.judged import JudgedSet, judged_set
from triskele.evaluation.own.questions import FROM_LINKS, FROM_WORDS
from triskele.stores.protocols import Document

if TYPE_CHECKING:
    from triskele.recall.fusion import Scores

KIND = "run"
MOST_RUNS = 10
NOW = "now"
DEFAULT_ARMS = ("fts", "lexical", "dense", "rrf", "default")
KEPT_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr")
_PACKAGES = ("tantivy", "apsw", "PyStemmer", "onnxruntime", "numpy", "scipy", "ranx")
_PROGRESS_EVERY = 10


@dataclass(frozen=True, slots=True)
class Measured:
    """What one arm found for every question, how good that was and how long it took."""

    ranked: Mapping[str, list[str]]
    scores: Scores
    latencies_ms: Sequence[float]


def run(
    engine: Engine,
    *,
    arms: Sequence[str] | None = None,
    baseline: str = "fts",
    seed: int = 7,
    step: Step = quietly,
) -> dict[str, Any]:
    """Measure arms on one's own judged questions, compare each with the baseline, and keep the result."""
    require_extra()
    asked = arms or (*DEFAULT_ARMS, *((NOW,) if engine.adopted() else ()))
    chosen = [own_arm(name, engine) for name in dict.fromkeys((baseline, *asked))]
    ground = OwnGround(engine, step)
    try:
        judged = may_judge(judged_set(ground), chosen)
        refuse_empty(judged)
        ground.recite(judged.questions, step)
        measured = {one.name: measure(ground, one, judged, step) for one in chosen}
        report = _report(ground, judged, chosen, measured, baseline, seed)
    finally:
        ground.close()
    key = f"{timestamps.to_micros(timestamps.now()):017d}"
    scores = {name: {kept: one.scores[kept].tolist() for kept in KEPT_METRICS} for name, one in measured.items()}
    value = {"report": report, "questions": judged.ids, "scores": scores}
    engine.store.documents.put(KIND, {key: Document(value)}, most=MOST_RUNS)
    return report


def own_arm(name: str, engine: Engine) -> Arm:
    """An arm of the benchmark, or what recall does now."""
    if name != NOW:
        return arm(name)
    return Arm(name=NOW, about="what recall does now, adopted weights included", plan=engine.plan_in_force())


def measure(ground: OwnGround, one: Arm, judged: JudgedSet, step: Step = quietly) -> Measured:
    """Ask every question once."""
    ranked: dict[str, list[str]] = {}
    latencies_ms: list[float] = []
    for done, question in enumerate(judged.questions, start=1):
        started = time.perf_counter()
        ranked[question.id] = ground.ranked(one, question)
        latencies_ms.append((time.perf_counter() - started) * 1000)
        if done % _PROGRESS_EVERY == 0 or done == len(judged.questions):
            step(one.name, done, len(judged.questions))
    return Measured(ranked, metrics.evaluate(judged.ids, judged.qrels, ranked), latencies_ms)


def may_judge(judged: JudgedSet, arms: Sequence[Arm]) -> JudgedSet:
    """Without questions made from links where an arm asks the graph, which is made of them too."""
    if not any(one.plan is not None and "graph" in one.plan.legs for one in arms):
        return judged
    return judged.only(lambda question: FROM_LINKS not in question.circular, "made from links: may not judge the graph")


def require_extra() -> None:
    """Refuse to measure without what measures."""
    missing = [name for name in ("numpy", "scipy", "ranx") if find_spec(name) is None]
    if missing:
        raise Unavailable(f"measuring needs {', '.join(missing)}: pip install 'triskele[eval]'")


def refuse_empty(judged: JudgedSet) -> None:
    """Say what to do where nothing has been judged."""
    if not judged.questions:
        waiting = judged.left_out.get("not judged yet", 0)
        step = "judge them with `triskele eval judge`" if waiting else "begin with `triskele eval build`"
        raise BadInput(f"no judged questions yet, {waiting} wait: {step}")


def _report(
    ground: OwnGround,
    judged: JudgedSet,
    arms: Sequence[Arm],
    measured: Mapping[str, Measured],
    baseline: str,
    seed: int,
) -> dict[str, Any]:
    strata = judged.strata()
    groups = {"overall": list(range(len(judged.questions))), **(strata if len(strata) > 1 else {})}
    scores = {name: one.scores for name, one in measured.items()}
    adopted = ground.engine.adopted()
    return {
        "dataset": "your own questions",
        "manifest": _manifest(ground, judged, arms, seed),
        "arms": {one.name: _summary(ground, one, measured[one.name], strata) for one in arms},
        "comparisons": [found.to_json() for found in compare.compare(scores, baseline, groups, seed=seed)],
        "coverage": _coverage(judged, measured),
        "made_of_words": sum(FROM_WORDS in question.circular for question in judged.questions),
        "adopted": None if adopted is None else {"since": adopted.since, "plan": adoption.values_of(adopted.plan)},
    }


def _summary(ground: OwnGround, one: Arm, measured: Measured, strata: Mapping[str, list[int]]) -> dict[str, Any]:
    import numpy as np

    times = np.array(measured.latencies_ms)
    return {
        "overall": metrics.summary(measured.scores, range(len(times))),
        "strata": {name: metrics.summary(measured.scores, places) for name, places in strata.items()},
        "latency_ms": {
            "p50": float(np.percentile(times, 50)),
            "p95": float(np.percentile(times, 95)),
            "mean": float(times.mean()),
            "max": float(times.max()),
        },
        "bytes_per_memory": ground.bytes_per_memory(one),
    }


def _coverage(judged: JudgedSet, measured: Mapping[str, Measured]) -> dict[str, Any]:
    """How much of each arm's first ten anybody has judged."""
    runs = {
        name: {id: [(memory, 0.0) for memory in found] for id, found in one.ranked.items()}
        for name, one in measured.items()
    }
    return pooling.coverage(runs, judged.queries(), judged.qrels)


def _manifest(ground: OwnGround, judged: JudgedSet, arms: Sequence[Arm], seed: int) -> dict[str, Any]:
    """Everything that a second run needs to be the same run."""
    return {
        "at": timestamps.to_text(timestamps.now()),
        "versions": {"triskele": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "seed": seed,
        "model": ground.fingerprint,
        "labels_sha256": judged.sha256(),
        "counts": {
            "memories": len(ground.memories),
            "measured": len(judged.questions),
            "labels": sum(len(judged.qrels[question.id]) for question in judged.questions),
            "left_out": judged.left_out,
        },
        "store": {"epoch": ground.engine.store.epoch(), "position": ground.engine.store.position()},
        "run_depth": DEPTH,
        "ndcg": metrics.NDCG,
        "resamples": compare.RESAMPLES,
        "family": "Holm over all arms and strata of one metric",
        "latency": "without the encoding of the question",
        "arms": {one.name: one.to_json() for one in arms},
    }
