"""The benchmark: arms over one data set, measured the same way and compared in pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triskele import config
from triskele.errors import BadInput, Unavailable
from triskele.evaluation import compare, metrics, results
from triskele.evaluation.abstention import abstention
from triskele.evaluation.arms import ARMS, Arm, arm
from triskele.evaluation.datasets import BenchQuery, half, load_dataset
from triskele.evaluation.ground import Ground, cache_folder
from triskele.evaluation.guards.inspection import inspect
from triskele.evaluation.measured import Course, Measured, Progress, depth_of
from triskele.evaluation.resuming import Unfinished
from triskele.evaluation.windows import windows
from triskele.recall.plan import CROSS


def available_arms() -> list[str]:
    """The names of the arms that can be measured; a cross-encoder only where the settings name one."""
    named = config.load().rerank
    return [name for name in ARMS if name != CROSS or named.model or named.service]


def run_bench(
    dataset: Path,
    *,
    arms: Sequence[str],
    baseline: str = "fts",
    out: Path | None = None,
    max_queries: int | None = None,
    seed: int = 7,
    progress: Progress | None = None,
    public: bool = False,
) -> dict[str, Any]:
    """Measure arms on a data set folder and compare each with the baseline; `out` keeps runs and values per query.

    A public run says and keeps aggregates only: no text and no id of the data set.
    """
    chosen = [arm(name) for name in dict.fromkeys((baseline, *arms))]
    _require_extra()
    if out is not None:
        results.make_folder(out, public=public)
    tell = progress or (lambda _stage, _done, _total: None)
    data = load_dataset(dataset)
    queries = _sampled(data.ranked(), max_queries, seed)
    if not queries:
        raise BadInput(f"no query of {data.name} has a relevant document: there is nothing to rank")
    rows = windows(data.documents)
    course = Course(data, queries, _sampled(data.unranked(), max_queries, seed), rows, depth_of(rows))
    unfinished = Unfinished(cache_folder(), course)
    measured = _measured(course, chosen, unfinished, tell)
    tell("comparing", 0, 1)
    report = _report(course, chosen, measured, seed=seed, public=public)
    tell("comparing", 1, 1)
    if out is not None:
        results.write(out, report, queries, measured, public=public)
    unfinished.forget()
    return report


def _measured(course: Course, chosen: Sequence[Arm], unfinished: Unfinished, tell: Progress) -> dict[str, Measured]:
    """Every arm over one ground."""
    measured: dict[str, Measured] = {}
    texts = [query.text for query in (*course.queries, *course.unanswerable)]
    with Ground.laid(course.rows, texts, tell) as ground:
        for one in chosen:
            found = unfinished.find(one)
            if found is None:
                found = course.run(one, ground.searcher(one), tell)
                unfinished.keep(one, found)
            measured[one.name] = found
    return measured


def _report(
    course: Course,
    chosen: Sequence[Arm],
    measured: Mapping[str, Measured],
    *,
    seed: int,
    public: bool,
) -> dict[str, Any]:
    queries = course.queries
    summaries = {name: _summary(one, queries) for name, one in measured.items()}
    report = {
        "dataset": course.data.name,
        "manifest": results.manifest(course, chosen, seed=seed),
        "guards": inspect(course, chosen, measured, summaries, public=public),
        "arms": summaries,
        "comparisons": _comparisons(measured, queries, chosen[0].name, seed),
    }
    told = {name: _told(one, course) for name, one in measured.items() if one.confidence}
    return report | ({"abstention": told} if told else {})


def _told(one: Measured, course: Course) -> dict[str, Any]:
    """How well an arm's confidence tells the questions that have no answer."""
    kinds = sorted({query.type for query in course.unanswerable})
    return abstention(
        [one.confidence[query.id] for query in course.queries],
        {kind: [one.confidence[query.id] for query in course.unanswerable if query.type == kind] for kind in kinds},
    )


def _summary(measured: Measured, queries: Sequence[BenchQuery]) -> dict[str, Any]:
    import numpy as np

    times = np.array(measured.latencies_ms)
    return {
        "overall": metrics.summary(measured.scores, range(len(queries))),
        "strata": {name: _stratum(measured, places) for name, places in _strata(queries)},
        "halves": {name: metrics.summary(measured.scores, places) for name, places in _halves(queries)},
        "latency_ms": {
            "p50": float(np.percentile(times, 50)),
            "p95": float(np.percentile(times, 95)),
            "mean": float(times.mean()),
            "max": float(times.max()),
        },
        "bytes_per_memory": measured.bytes_per_memory,
        "legs": measured.legs,
    }


def _stratum(measured: Measured, places: Sequence[int]) -> dict[str, Any]:
    return {**metrics.summary(measured.scores, places), "underpowered": len(places) < compare.UNDERPOWERED_BELOW}


def _comparisons(
    measured: Mapping[str, Measured], queries: Sequence[BenchQuery], baseline: str, seed: int
) -> list[dict[str, Any]]:
    groups: dict[str, Sequence[int]] = {"overall": range(len(queries))}
    types = dict(_strata(queries))
    groups |= types if len(types) > 1 else {}
    groups |= {f"half:{name}": places for name, places in _halves(queries)}
    scores = {name: m.scores for name, m in measured.items()}
    return [found.to_json() for found in compare.compare(scores, baseline, groups, seed=seed)]


def _strata(queries: Sequence[BenchQuery]) -> Iterator[tuple[str, list[int]]]:
    for name in sorted({query.type for query in queries}):
        yield name, [place for place, query in enumerate(queries) if query.type == name]


def _halves(queries: Sequence[BenchQuery]) -> Iterator[tuple[str, list[int]]]:
    for name in ("tune", "test"):
        yield name, [place for place, query in enumerate(queries) if half(query) == name]


def _sampled(queries: Sequence[BenchQuery], most: int | None, seed: int) -> list[BenchQuery]:
    """The queries in the order of their ids, or a sample of them that the seed decides."""
    if most is not None and most < 1:
        raise BadInput(f"max-queries must be at least 1, not {most}")
    ordered = sorted(queries, key=lambda query: query.id)
    if most is None or most >= len(ordered):
        return ordered
    return sorted(random.Random(seed).sample(ordered, most), key=lambda query: query.id)


def _require_extra() -> None:
    missing = [name for name in ("numpy", "scipy", "ranx") if find_spec(name) is None]
    if missing:
        raise Unavailable(f"the benchmark needs {', '.join(missing)}: pip install 'triskele[eval]'")
