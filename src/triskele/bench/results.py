"""Results of a run as plain values, and their files."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from triskele import __version__
from triskele.bench import comparison, guards, metrics
from triskele.bench.arms import Arm
from triskele.bench.datasets import BenchQuery, Dataset, half, strata
from triskele.bench.measure import LATENCY, Measured
from triskele.bench.report.page import page
from triskele.errors import BadInput

OVERALL = "overall"
_PACKAGES = ("tantivy", "apsw", "PyStemmer", "numpy", "onnxruntime")


def environment(arms: Sequence[Arm], *, seed: int) -> dict[str, Any]:
    """Manifest of every run: versions, machine, arms, computation of figures."""
    return {
        "versions": {"triskele": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "seed": seed,
        "arms": {arm.name: arm.to_json() for arm in arms},
        "ndcg": metrics.NDCG,
        "latency": LATENCY,
        "resamples": comparison.RESAMPLES,
        "family": "Holm over all arms and strata of one metric",
    }


def summarise(measured: Measured, queries: Sequence[BenchQuery]) -> dict[str, Any]:
    """Figures of one arm: metrics by type, latency and size."""
    times = np.array(measured.latencies_ms)
    return {
        "overall": metrics.summary(measured.scores, range(len(queries))),
        "strata": {
            name: metrics.summary(measured.scores, places)
            | {"underpowered": len(places) < comparison.UNDERPOWERED_BELOW}
            for name, places in strata(queries).items()
        },
        "latency_ms": {
            "p50": float(np.percentile(times, 50)),
            "p95": float(np.percentile(times, 95)),
            "mean": float(times.mean()),
            "max": float(times.max()),
        },
        "bytes_per_memory": measured.bytes_per_memory,
        "legs": measured.legs,
    }


def halves(queries: Sequence[BenchQuery]) -> dict[str, list[int]]:
    """The positions of the queries in each half of the fixed split."""
    return {name: [at for at, query in enumerate(queries) if half(query) == name] for name in ("tune", "test")}


def comparisons(
    measured: Mapping[str, Measured],
    queries: Sequence[BenchQuery],
    baseline: str,
    *,
    seed: int,
    more: Mapping[str, Sequence[int]] | None = None,
) -> list[dict[str, Any]]:
    """Every arm against the baseline, overall and by group."""
    types = strata(queries)
    groups = {OVERALL: range(len(queries)), **(types if len(types) > 1 else {}), **(more or {})}
    scores = {name: one.scores for name, one in measured.items()}
    return [found.to_json() for found in comparison.compare(scores, baseline, groups, seed=seed)]


def inspect(
    data: Dataset,
    queries: Sequence[BenchQuery],
    arms: Sequence[Arm],
    measured: Mapping[str, Measured],
    summaries: Mapping[str, Mapping[str, Any]],
    *,
    depth: int,
    public: bool,
) -> dict[str, Any]:
    """What the guards measured and found, alarms first."""
    reached = {arm.name: guards.reaches(arm, depth) for arm in arms}
    runs = {name: one.run for name, one in measured.items()}
    coverage = guards.label_coverage(runs, queries, data.qrels)
    findings = [
        *(
            finding
            for name, one in measured.items()
            for finding in guards.idle_legs(name, reached[name], one.legs, len(queries))
        ),
        *guards.identical_arms(runs),
        *guards.pooling(coverage),
        *guards.leaks(data.documents, queries, data.qrels),
        *guards.circularity(data.about, queries, summaries),
    ]
    return {
        "findings": [finding.to_json(public=public) for finding in guards.alarms_first(findings)],
        "structure": {name: {leg: str(reach) for leg, reach in legs.items()} for name, legs in reached.items() if legs},
        "pooling": coverage,
    }


def make_folder(folder: Path, *, public: bool) -> None:
    """Make the folder for results before the work starts."""
    try:
        (folder if public else folder / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write results to {folder}: {error.strerror}") from error


def write(
    folder: Path,
    report: Mapping[str, Any],
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    public: bool,
) -> None:
    """Write results.json and report.html; private runs add runs and queries.tsv."""
    try:
        if not public:
            for name, one in measured.items():
                (folder / "runs" / f"{file_name(name)}.trec").write_text(_trec(name, queries, one), encoding="utf-8")
            (folder / "queries.tsv").write_text(_per_query(queries, measured), encoding="utf-8")
        text = json.dumps(report, ensure_ascii=False, indent=2)
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        (folder / "report.html").write_text(page(report, queries, measured, public=public), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write results to {folder}: {error.strerror}") from error


def file_name(arm: str) -> str:
    """An arm's name as a portable file name."""
    return arm.replace(":", "_")


def _trec(name: str, queries: Sequence[BenchQuery], one: Measured) -> str:
    lines = [
        f"{_column(query.id)} Q0 {_column(document)} {rank} {score!r} {name}\n"
        for query in queries
        for rank, (document, score) in enumerate(one.run[query.id], start=1)
    ]
    return "".join(lines)


def _per_query(queries: Sequence[BenchQuery], measured: Mapping[str, Measured]) -> str:
    lines = ["\t".join(("arm", "query", "type", "half", *metrics.METRICS))]
    for name, one in measured.items():
        for at, query in enumerate(queries):
            values = (repr(float(one.scores[metric][at])) for metric in metrics.METRICS)
            lines.append("\t".join((name, _column(query.id), _column(query.type), half(query), *values)))
    return "\n".join(lines) + "\n"


def _column(id: str) -> str:
    """An id as one TREC column, with white space escaped."""
    return re.sub(r"\s", lambda match: f"%{ord(match.group()):02X}", id)
