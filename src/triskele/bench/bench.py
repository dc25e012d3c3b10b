"""Run arms over one data set, measured alike and compared in pairs."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from importlib.metadata import version
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from triskele import config
from triskele.bench import metrics, results
from triskele.bench.arms import ARMS, Arm, arm
from triskele.bench.datasets import MAX_CHARACTERS, BenchQuery, Dataset, Window, windows
from triskele.bench.harness import RUN_DEPTH, BenchHarness, cache_folder, depth_of, measure_arm
from triskele.bench.loaders import load_dataset
from triskele.bench.measure import LegRank, Measured, Progress, quiet, score
from triskele.errors import BadInput
from triskele.recall.plan import CROSS

_PACKAGES = ("numpy", "tantivy", "onnxruntime", "apsw")


def available_arms() -> list[str]:
    """Names of arms that can be measured with these settings."""
    named = config.load().rerank
    return [name for name in ARMS if name != CROSS or named.model or named.service]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A data set with the queries of every arm, in order."""

    data: Dataset
    queries: Sequence[BenchQuery]
    unanswerable: Sequence[BenchQuery]
    windows: Sequence[Window]

    @property
    def depth(self) -> int:
        """Candidates per leg."""
        return depth_of(self.windows)

    def texts(self) -> list[str]:
        """The text of every query."""
        return [query.text for query in (*self.queries, *self.unanswerable)]


def load_benchmark(dataset: Path, *, max_queries: int | None = None, seed: int = 7) -> Benchmark:
    """Load a data set with all queries, or a seeded sample."""
    data = load_dataset(dataset)
    queries = _sampled(data.ranked(), max_queries, seed)
    if not queries:
        raise BadInput(f"no query of {data.name} has a relevant document: there is nothing to rank")
    return Benchmark(data, queries, _sampled(data.unranked(), max_queries, seed), windows(data.documents))


def run_bench(
    dataset: Path,
    *,
    arms: Sequence[str],
    baseline: str = "fts",
    out: Path | None = None,
    max_queries: int | None = None,
    seed: int = 7,
    progress: Progress = quiet,
    public: bool = False,
) -> dict[str, Any]:
    """Measure arms and compare each with the baseline; `out` keeps results.

    A public run reports and keeps aggregates only: no text and no id of the data set.
    """
    chosen = [arm(name) for name in dict.fromkeys((baseline, *arms))]
    if out is not None:
        results.make_folder(out, public=public)
    benchmark = load_benchmark(dataset, max_queries=max_queries, seed=seed)
    checkpoint = Checkpoint(cache_folder(), benchmark)
    with BenchHarness(benchmark.windows, progress) as harness:
        measured = _measured(benchmark, harness, chosen, checkpoint, progress)
        model = harness.fingerprint if any(one.plan and one.plan.needs_model for one in chosen) else None
    progress("comparing", 0, 1)
    report = _report(benchmark, chosen, measured, model=model, seed=seed, public=public)
    progress("comparing", 1, 1)
    if out is not None:
        results.write(out, report, benchmark.queries, measured, public=public)
    checkpoint.remove()
    return report


def _measured(
    benchmark: Benchmark, harness: BenchHarness, arms: Sequence[Arm], checkpoint: Checkpoint, progress: Progress
) -> dict[str, Measured]:
    """Measure every arm over one harness; finished ones come from the checkpoint."""
    measured: dict[str, Measured] = {}
    queries, qrels = benchmark.queries, benchmark.data.qrels
    for one in arms:
        scored = checkpoint.load(one)
        if scored is None:
            if one.plan is not None and one.plan.needs_model:
                harness.precompute(benchmark.texts())
            scored = measure_arm(harness, one, queries, qrels, unanswerable=benchmark.unanswerable, progress=progress)
            checkpoint.save(one, scored)
        measured[one.name] = scored
    return measured


def _report(
    benchmark: Benchmark,
    arms: Sequence[Arm],
    measured: Mapping[str, Measured],
    *,
    model: str | None,
    seed: int,
    public: bool,
) -> dict[str, Any]:
    data, queries, depth = benchmark.data, benchmark.queries, benchmark.depth
    halves = results.halves(queries)
    summaries = {
        name: results.summarise(one, queries)
        | {"halves": {half: metrics.summary(one.scores, places) for half, places in halves.items()}}
        for name, one in measured.items()
    }
    more = {f"half:{name}": places for name, places in halves.items()}
    report = {
        "dataset": data.name,
        "manifest": _manifest(benchmark, arms, model=model, seed=seed),
        "guards": results.inspect(data, queries, arms, measured, summaries, depth=depth, public=public),
        "arms": summaries,
        "comparisons": results.comparisons(measured, queries, arms[0].name, seed=seed, more=more),
    }
    abstention = {name: _abstention(one, benchmark) for name, one in measured.items() if one.confidence}
    return report | ({"abstention": abstention} if abstention else {})


def _abstention(one: Measured, benchmark: Benchmark) -> dict[str, Any]:
    """How well an arm's confidence separates queries without an answer."""
    by_type: dict[str, list[float]] = {}
    for query in sorted(benchmark.unanswerable, key=lambda query: query.type):
        by_type.setdefault(query.type, []).append(one.confidence[query.id])
    return metrics.abstention([one.confidence[query.id] for query in benchmark.queries], by_type)


def _manifest(benchmark: Benchmark, arms: Sequence[Arm], *, model: str | None, seed: int) -> dict[str, Any]:
    """Everything that is needed to repeat the run."""
    data = benchmark.data
    query_ids = {query.id for query in data.queries}
    return results.environment(arms, seed=seed) | {
        "model": model,
        "data_sha256": data.sha256,
        "counts": {
            "documents": len(data.documents),
            "windows": len(benchmark.windows),
            "queries": len(data.queries),
            "ranked": len(data.ranked()),
            "measured": len(benchmark.queries),
            "unanswerable": len(benchmark.unanswerable),
            "left_out": data.left_out(),
            "labels_skipped": dict(data.skipped),
            "labels_of_unknown_queries": sum(len(labels) for id, labels in data.qrels.items() if id not in query_ids),
        },
        "window_characters": MAX_CHARACTERS,
        "run_depth": RUN_DEPTH,
        "leg_depth": benchmark.depth,
        "split": "sha256 of the scope, or of the query id without one: even tune, odd test",
    }


def _sampled(queries: Sequence[BenchQuery], most: int | None, seed: int) -> list[BenchQuery]:
    """Queries in the order of ids, or a seeded sample of them."""
    if most is not None and most < 1:
        raise BadInput(f"max-queries must be at least 1, not {most}")
    ordered = sorted(queries, key=lambda query: query.id)
    if most is None or most >= len(ordered):
        return ordered
    return sorted(random.Random(seed).sample(ordered, most), key=lambda query: query.id)


class Checkpoint:
    """Finished arms of an interrupted run, valid while nothing changes."""

    def __init__(self, cache: Path, benchmark: Benchmark) -> None:
        parent = cache / "unfinished" / benchmark.data.sha256[:16]
        query_ids = [query.id for query in (*benchmark.queries, *benchmark.unanswerable)]
        self._benchmark = benchmark
        self._folder = parent / _digest([_program(), repr(benchmark.windows), repr(query_ids), str(benchmark.depth)])
        for other in parent.glob("*"):
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)

    def load(self, arm: Arm) -> Measured | None:
        """Results of an arm before the interruption; None if there are none."""
        try:
            values = json.loads(self._file(arm).read_bytes())
        except (OSError, ValueError):
            return None
        values["run"] = {query: [(document, score) for document, score in v] for query, v in values["run"].items()}
        values["relevant"] = {
            query: {document: {leg: LegRank(*rank) for leg, rank in legs.items()} for document, legs in v.items()}
            for query, v in values["relevant"].items()
        }
        return Measured(scores=score(self._benchmark.queries, self._benchmark.data.qrels, values["run"]), **values)

    def save(self, arm: Arm, one: Measured) -> None:
        """Keep the results of an arm, if the cache can be written."""
        values = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "scores"}
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            part = self._file(arm).with_suffix(".part")
            part.write_text(json.dumps(values), encoding="utf-8")
            part.replace(self._file(arm))

    def remove(self) -> None:
        """The run is complete: the next run measures every arm again."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _file(self, arm: Arm) -> Path:
        return self._folder / f"{_digest([arm.name, json.dumps(arm.to_json())])}.json"


@cache
def _program() -> str:
    """Digest of everything that can change a ranking."""
    return _digest([*_sources(resources.files("triskele")), *(version(name) for name in _PACKAGES)])


def _sources(folder: Traversable) -> list[str]:
    texts = []
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            texts += _sources(path)
        elif path.name.endswith(".py"):
            texts.append(path.read_text(encoding="utf-8"))
    return texts


def _digest(parts: Sequence[str]) -> str:
    joined = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:16]
