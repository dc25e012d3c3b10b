"""What a benchmark leaves behind: a manifest, runs in TREC form and every metric of every query."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele import __version__
from triskele.errors import BadInput
from triskele.evaluation import compare, metrics
from triskele.evaluation.arms import Arm
from triskele.evaluation.datasets import BenchQuery, half
from triskele.evaluation.measured import RUN_DEPTH
from triskele.evaluation.report.page import page
from triskele.evaluation.windows import MAX_CHARACTERS
from triskele.models.bundled import bundled

if TYPE_CHECKING:
    from triskele.evaluation.measured import Course, Measured

_PACKAGES = ("tantivy", "apsw", "PyStemmer", "numpy", "scipy", "ranx", "onnxruntime")


def manifest(course: Course, arms: Sequence[Arm], *, seed: int) -> dict[str, Any]:
    """Everything that a second run needs to be the same run."""
    data = course.data
    known = {query.id for query in data.queries}
    return {
        "versions": {"triskele": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
        "model": bundled().fingerprint if any(arm.plan and arm.plan.asks_meaning for arm in arms) else None,
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "seed": seed,
        "arms": {arm.name: arm.to_json() for arm in arms},
        "data_sha256": data.sha256,
        "counts": {
            "documents": len(data.documents),
            "windows": len(course.rows),
            "queries": len(data.queries),
            "ranked": len(data.ranked()),
            "measured": len(course.queries),
            "unanswerable": len(course.unanswerable),
            "left_out": data.left_out(),
            "labels_skipped": dict(data.skipped),
            "labels_of_unknown_queries": sum(len(labels) for id, labels in data.qrels.items() if id not in known),
        },
        "window_characters": MAX_CHARACTERS,
        "run_depth": RUN_DEPTH,
        "leg_depth": course.depth,
        "latency": "ranking alone, one question at a time; encoding the question and serving the answer are not in it",
        "ndcg": metrics.NDCG,
        "resamples": compare.RESAMPLES,
        "split": "sha256 of the scope, or of the query id where there is none: even tune, odd test",
        "family": "Holm over all arms and strata of one metric",
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
    """Write results.json and report.html and, unless the run is public, runs/ARM.trec and queries.tsv."""
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
    """An arm's name as every file system takes it."""
    return arm.replace(":", "_")


def _trec(name: str, queries: Sequence[BenchQuery], one: Measured) -> str:
    lines = [
        f"{_word(query.id)} Q0 {_word(document)} {rank} {score!r} {name}\n"
        for query in queries
        for rank, (document, score) in enumerate(one.run[query.id], start=1)
    ]
    return "".join(lines)


def _per_query(queries: Sequence[BenchQuery], measured: Mapping[str, Measured]) -> str:
    lines = ["\t".join(("arm", "query", "type", "half", *metrics.METRICS))]
    for name, one in measured.items():
        for place, query in enumerate(queries):
            values = (repr(float(one.scores[metric][place])) for metric in metrics.METRICS)
            lines.append("\t".join((name, _word(query.id), _word(query.type), half(query), *values)))
    return "\n".join(lines) + "\n"


def _word(id: str) -> str:
    """An id as one column: TREC's columns end at white space."""
    return re.sub(r"\s", lambda match: f"%{ord(match.group()):02X}", id)
