"""The benchmark: arms over one data set, measured the same way and compared in pairs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.errors import BadInput, Unavailable
from triskele.evaluation import compare, metrics, results
from triskele.evaluation.arms import ARMS, Arm, Ground, Searcher, arm
from triskele.evaluation.datasets import BenchQuery, Dataset, half, load_dataset
from triskele.evaluation.windows import Window, best_documents, windows

if TYPE_CHECKING:
    from triskele.evaluation.metrics import Scores

RUN_DEPTH = 100
_PROGRESS_EVERY = 50

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one arm found, how good that was and what it cost."""

    run: Mapping[str, Sequence[tuple[str, float]]]
    scores: Scores
    latencies_ms: Sequence[float]
    bytes_per_memory: float


def available_arms() -> list[str]:
    """The names of the arms that can be measured."""
    return list(ARMS)


def run_bench(
    dataset: Path,
    *,
    arms: Sequence[str],
    baseline: str = "fts",
    out: Path | None = None,
    max_queries: int | None = None,
    seed: int = 7,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure arms on a data set folder and compare each with the baseline; `out` keeps runs and values per query."""
    chosen = [arm(name) for name in dict.fromkeys((baseline, *arms))]
    _require_extra()
    if out is not None:
        results.make_folder(out)
    tell = progress or (lambda _stage, _done, _total: None)
    data = load_dataset(dataset)
    queries = _sampled(data, max_queries, seed)
    rows = windows(data.documents)
    measured: dict[str, Measured] = {}
    with Ground.laid(rows, [query.text for query in queries], tell) as ground:
        for one in chosen:
            measured[one.name] = _measure(one, ground.searcher(one), data, queries, rows, tell)
    tell("comparing", 0, 1)
    report = {
        "dataset": data.name,
        "manifest": results.manifest(data, queries=queries, rows=rows, seed=seed, depth=RUN_DEPTH),
        "arms": {name: _summary(m, queries) for name, m in measured.items()},
        "comparisons": _comparisons(measured, queries, baseline, seed),
    }
    tell("comparing", 1, 1)
    if out is not None:
        results.write(out, report, queries, measured)
    return report


def _measure(
    one: Arm,
    searcher: Searcher,
    data: Dataset,
    queries: Sequence[BenchQuery],
    rows: Sequence[Window],
    tell: Progress,
) -> Measured:
    # Several windows of one document take several places, so that many more rows are asked for.
    depth = RUN_DEPTH * -(-len(rows) // max(1, len({row.document for row in rows})))
    searcher.search(queries[0].text, queries[0].scope, depth)
    run: dict[str, Sequence[tuple[str, float]]] = {}
    latencies_ms: list[float] = []
    for done, query in enumerate(queries, start=1):
        started = time.perf_counter()
        found = searcher.search(query.text, query.scope, depth)
        latencies_ms.append((time.perf_counter() - started) * 1000)
        run[query.id] = best_documents(found, rows, RUN_DEPTH)
        if done % _PROGRESS_EVERY == 0 or done == len(queries):
            tell(one.name, done, len(queries))
    names = [query.id for query in queries]
    ranked = {name: [document for document, _ in found] for name, found in run.items()}
    scores = metrics.evaluate(names, data.qrels, ranked)
    return Measured(run, scores, latencies_ms, searcher.bytes() / max(1, len(rows)))


def _summary(measured: Measured, queries: Sequence[BenchQuery]) -> dict[str, Any]:
    import numpy as np

    times = np.array(measured.latencies_ms)
    return {
        "overall": metrics.summary(measured.scores, range(len(queries))),
        "strata": {name: metrics.summary(measured.scores, places) for name, places in _strata(queries)},
        "halves": {name: metrics.summary(measured.scores, places) for name, places in _halves(queries)},
        "latency_ms": {
            "p50": float(np.percentile(times, 50)),
            "p95": float(np.percentile(times, 95)),
            "mean": float(times.mean()),
            "max": float(times.max()),
        },
        "bytes_per_memory": measured.bytes_per_memory,
    }


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


def _sampled(data: Dataset, max_queries: int | None, seed: int) -> list[BenchQuery]:
    """The ranked queries in the order of their ids, or a sample of them that the seed decides."""
    if max_queries is not None and max_queries < 1:
        raise BadInput(f"max-queries must be at least 1, not {max_queries}")
    ranked = sorted(data.ranked(), key=lambda query: query.id)
    if not ranked:
        raise BadInput(f"no query of {data.name} has a relevant document: there is nothing to rank")
    if max_queries is None or max_queries >= len(ranked):
        return ranked
    return sorted(random.Random(seed).sample(ranked, max_queries), key=lambda query: query.id)


def _require_extra() -> None:
    missing = [name for name in ("numpy", "scipy", "ranx") if find_spec(name) is None]
    if missing:
        raise Unavailable(f"the benchmark needs {', '.join(missing)}: pip install 'triskele[eval]'")
