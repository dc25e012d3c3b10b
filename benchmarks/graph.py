"""What the graph brings and what it costs: quality with and without it, its controls, and its price at two sizes.

    TRISKELE_BENCH_DATA=folder python benchmarks/graph.py [--parts quality,cost] [--sets …] [--sizes 5452,50000]

Quality: the default with and without the graph, titles in the question included, paired, 95 % intervals; then the
same graph with every memory holding what another one mentions (random links of the same degrees), the graph as a leg
of RRF, and, where a set has triples that a language model wrote, the same ranking over those.
Cost: CPU time of all threads; texts are runs of real sentences, many of them more than once, so that the graph is
denser than one of real memories; vectors are synthetic. A part that is not asked for keeps its last figures.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from importlib import resources
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

# As the command line does, and before numpy is there.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import stores
import texts

from triskele.bench import comparison
from triskele.bench.arms import arm
from triskele.bench.datasets import BenchQuery, Dataset, half, windows
from triskele.bench.harness import BenchHarness, measure_arm
from triskele.bench.loaders import load_dataset
from triskele.bench.measure import Measured
from triskele.engine.local import LocalEngine
from triskele.index.corpus import Ints
from triskele.index.local import LocalCorpus
from triskele.index.mentions import Bipartite, Layers
from triskele.index.name_linking import FOUND, _Known, _Texts, read_names
from triskele.recall import graph, pipeline
from triskele.store.values import Named
from triskele.text.spellings import key

if TYPE_CHECKING:
    from triskele.bench.metrics import Scores

RESULTS = Path(__file__).parent / "results" / "graph.json"
WITH, WITHOUT, RANDOM, WRITTEN = "default", "default-graph", "random links", "written triples"
LEG, BESIDE = "graph", "rrf"
LEG_WEIGHTS = (0.1, 0.35, 1.0)
METRICS = ("recall@5", "ndcg@10")
TRIPLES = "triples.jsonl.gz"
SEED = 7
TOP = 10
# Set, what is compared, over which questions, by what; then the figure that counts and the least it may be, in points.
QUALITY_BARS = (
    ("2wikimultihopqa", (WITH, None), "test", "recall@5", "mean", 92.0),
    ("2wikimultihopqa", (WITH, WITHOUT), "test", "recall@5", "delta", 20.0),
    ("musique_train100_openie", (WITH, WITHOUT), "all", "recall@5", "delta", 3.0),
    ("locomo", (WITH, WITHOUT), "all", "recall@5", "low", -1.0),
    ("scifact", (WITH, WITHOUT), "all", "ndcg@10", "low", -1.0),
    ("til_notes", (WITH, WITHOUT), "all", "ndcg@10", "low", -1.0),
    ("team", (WITH, WITHOUT), "multi-hop", "recall@5", "low", 0.0),
    ("2wikimultihopqa", (WITH, RANDOM), "all", "recall@5", "low", 0.0),
    ("musique_train100_openie", (WITH, RANDOM), "all", "recall@5", "low", 0.0),
    ("team", (WITH, RANDOM), "all", "recall@5", "low", 0.0),
)

WARMING = 50
SINGLES = 60
CURVE = (1_000, 5_452, 20_000, 50_000)
OFF, ON = "recall without the graph", "recall with the graph"
BARE = ", without encoding"
TABLES = ("names", "readings", "merges")
# Of one question: where the time goes, as functions of the ranking and the label that they are told under.
TIMED = (
    (pipeline, "graph", "graph, all of it"),
    (graph, "titles", "titles in the question"),
    (graph, "with_rows", "rescoring of neighbours"),
    (graph, "link_gains", "links and gain"),
    (graph, "passed_on", "mass passed on"),
)
MOST_BULK_MS, MOST_LINKS_MS, MOST_GAIN_MS, MOST_RATIO, MOST_GROWTH = 3.0, 2.0, 3.0, 1.5, 1.5

Figures = dict[str, Any]
Runs = dict[str, Measured]


def main() -> None:
    """Measure the requested parts and add them to the earlier results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="cost,quality")
    parser.add_argument("--sets", default="")
    parser.add_argument("--seeds", type=int, default=3, help="how many graphs with random links")
    parser.add_argument("--sizes", default="5452,50000")
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    found: Figures = {}
    if "cost" in given.parts:
        found["cost"] = cost([int(part) for part in given.sizes.split(",")], given.questions)
    if "quality" in given.parts:
        found["quality"] = quality(_folders(given.sets.split(",") if given.sets else []), given.seeds)
    # What another run has written meanwhile stays.
    before: Figures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = {part: before.get(part, {}) | found.get(part, {}) for part in ("quality", "cost")}
    results["bars"] = [*_quality_bars(results["quality"]), *_cost_bars(results["cost"])]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    show(results)
    print(f"written to {RESULTS.name}")


def _commit() -> str:
    """What was measured; a tree with changes says so."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    ).stdout.strip()


def _folders(names: Sequence[str]) -> list[Path]:
    found = [Path(str(resources.files("triskele.samples") / "team"))]
    found += [path for path in sorted(texts.data_folder().iterdir()) if (path / "qrels.tsv.gz").exists()]
    return [path for path in found if not names or path.name in names]


def quality(folders: Sequence[Path], seeds: int) -> dict[str, Figures]:
    """Every set in a separate process, the largest first."""
    order = sorted(folders, key=lambda folder: -sum(file.stat().st_size for file in folder.glob("queries.jsonl*")))
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as workers:
        found = dict(zip(order, workers.map(partial(measured, seeds), order), strict=True))
    return {folder.name: found[folder] for folder in folders}


def measured(seeds: int, folder: Path) -> Figures:
    """Every arm on one set."""
    started = time.monotonic()
    data = load_dataset(folder)
    queries = data.ranked()
    with BenchHarness(windows(data.documents)) as harness:
        runs = {name: _run(data, harness, name) for name in (WITHOUT, WITH, BESIDE)}
        runs |= {f"{LEG} {weight}": _run(data, harness, f"{LEG}:graph={weight}") for weight in LEG_WEIGHTS}
        seeded = []
        for seed in range(seeds):
            with random_links(harness, seed):
                seeded.append(_run(data, harness, WITH))
        if (folder / TRIPLES).exists():
            runs[WRITTEN] = over_triples(data, harness, folder / TRIPLES)
    print(f"{folder.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return _report(queries, runs, seeded)


def _run(data: Dataset, harness: BenchHarness, name: str) -> Measured:
    return measure_arm(harness, arm(name), data.ranked(), data.qrels)


def _report(queries: Sequence[BenchQuery], runs: Runs, seeded: Sequence[Measured]) -> Figures:
    scores: dict[str, Scores] = {name: run.scores for name, run in runs.items()}
    if seeded:
        # One arm for all seeds: what a question gets from random links on average.
        every = [run.scores for run in seeded]
        scores[RANDOM] = {metric: np.mean([one[metric] for one in every], axis=0) for metric in every[0]}
    strata = _strata(queries)
    pairs = [(WITH, WITHOUT), (RANDOM, WITHOUT), (WITH, RANDOM), (WRITTEN, WITHOUT), (WITH, WRITTEN)]
    pairs += [(f"{LEG} {weight}", BESIDE) for weight in LEG_WEIGHTS]
    return {
        "commit": _commit(),
        "means": {name: {of: _means(own, places) for of, places in strata.items()} for name, own in scores.items()},
        "compared": [
            found for a, b in pairs if a in scores and b in scores for found in _compared(scores, a, b, strata)
        ],
        # Of the pairs of an arm the first counts: the one against what it adds to.
        "changed": {a: _changed(runs[b], runs[a]) for a, b in reversed(pairs) if a in runs and b in runs},
        "random_by_seed": [_means(run.scores, range(len(queries))) for run in seeded],
    }


def _strata(queries: Sequence[BenchQuery]) -> dict[str, list[int]]:
    """All questions, both halves of the fixed split, and kinds where there are several."""
    places: dict[str, list[int]] = defaultdict(list)
    has_kinds = len({query.type for query in queries}) > 1
    for place, query in enumerate(queries):
        names = ["all", half(query)]
        if has_kinds:
            names += [query.type, f"{query.type}, {half(query)}"]
        for name in names:
            places[name].append(place)
    return dict(sorted(places.items(), key=lambda pair: (pair[0] not in ("all", "tune", "test"), pair[0])))


def _means(scores: Scores, places: Sequence[int]) -> Figures:
    chosen = list(places)
    return {"n": len(chosen), **{metric: round(100 * float(scores[metric][chosen].mean()), 2) for metric in METRICS}}


def _compared(scores: Mapping[str, Scores], a: str, b: str, strata: Mapping[str, Sequence[int]]) -> Iterator[Figures]:
    for found in comparison.compare({a: scores[a], b: scores[b]}, b, strata, seed=SEED):
        if found.metric in METRICS:
            low, high = (round(100 * edge, 2) for edge in found.ci95)
            figures = {"delta": round(100 * found.delta, 2), "low": low, "high": high, "p": round(found.p, 4)}
            yield {"a": a, "b": b, "over": found.stratum, "metric": found.metric, "n": found.n} | figures


def _changed(before: Measured, after: Measured) -> float:
    """The share of questions whose first ten documents differ or have another order."""
    tops = ([[document for document, _ in run.run[id][:TOP]] for id in before.run] for run in (before, after))
    return round(float(np.mean([first != second for first, second in zip(*tops, strict=True)])), 3)


@contextmanager
def random_links(harness: BenchHarness, seed: int) -> Iterator[None]:
    """Link memories as if each held the mentions of another one of its scope; titles in the question stay true."""
    projects = defaultdict(list)
    for row, memory in harness.engine.store.versions():
        projects[memory.project].append(row)
    layers = harness.engine.semantic().mentions.view()  # type: ignore[union-attr]
    rows = np.array([row for own in projects.values() for row in own], dtype=np.int64)
    chance = np.random.default_rng(seed)
    others = np.concatenate([chance.permutation(np.array(own, dtype=np.int64)) for own in projects.values()])
    exchanged, links = _exchanged(layers, rows, others), graph.concept_links

    def links_of_others(corpus: LocalCorpus, nodes: Ints) -> object:
        other = copy(corpus)
        other._layers, other.mentions = exchanged, exchanged.mentions
        return links(other, nodes)

    with patch.object(graph, "concept_links", links_of_others):
        yield


def _exchanged(layers: Layers, rows: Ints, others: Ints) -> Layers:
    """What each row mentions, given to the row in the same place of another list."""
    places, concepts, is_subject = layers.concepts(rows)
    nothing = np.empty(0, dtype=np.int64)
    empty = Bipartite.build(nothing, nothing, nothing.astype(bool))
    return Layers(Bipartite.build(others[places], concepts, is_subject), empty, layers.spread)


def over_triples(data: Dataset, harness: BenchHarness, path: Path) -> Measured:
    """The default over names that a language model wrote down, in a copy of the store."""
    spoken: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            said = json.loads(line)
            spoken[said["doc_id"]].append((said["subject"], said["object"]))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(harness.folder, Path(folder) / "store")
        apart = BenchHarness(harness.windows, folder=Path(folder) / "store")
        apart.precompute(())
        engine = apart.engine
        engine.store.names.forget()
        texts = _Texts(engine.lexical.view(), engine.lexical.analyzer)
        known = _Known(next(memory.owner for _, memory in engine.store.versions()), texts, (), ())
        listed = {row: apart.windows_by_memory[memory.id] for row, memory in engine.store.versions()}
        found = {row: _written(known, window.text, spoken[window.document]) for row, window in listed.items()}
        engine.store.names.save(found, through=max(found))
        measured = _run(data, apart, WITH)
        apart.close()
    return measured


def _written(known: _Known, text: str, triples: Sequence[tuple[str, str]]) -> list[Named]:
    """The phrases of a document's triples; what most of them speak of is its subject."""
    about = Counter(subject for subject, _ in triples).most_common(1)
    phrases = dict.fromkeys(phrase for triple in triples for phrase in triple)
    title = about[0][0] if about else ""
    kept = [phrase for phrase in phrases if key(phrase) and (phrase == title or phrase.casefold() in text.casefold())]
    return [known.as_named(key(phrase), phrase, "title" if phrase == title else FOUND) for phrase in kept]


def cost(sizes: Sequence[int], questions: int) -> Figures:
    """One store that grows: what reading costs at every point of the curve, what a question costs at some."""
    points = sorted({*(size for size in CURVE if size <= max(sizes)), *sizes})
    contents = texts.memories(points[-1] + SINGLES * len(points))
    asked = texts.questions(questions + WARMING)
    figures: Figures = {"commit": _commit(), "cpus": os.cpu_count(), "questions": questions, "curve": []}
    with tempfile.TemporaryDirectory() as folder:
        home, written = Path(folder), 0
        for before, size in pairwise([0, *points]):
            # Single memories of the point before are part of the store by now.
            own = contents[written : written + size - before]
            with stores.open_engine(home) as engine:
                point = _bulk(engine, own, asked[:WARMING], size)
                spare = contents[written + len(own) : written + len(own) + SINGLES]
                point |= _singles(engine, spare, asked)
            written += len(own) + len(spare)
            figures["curve"].append({"memories": size} | point)
            print(figures["curve"][-1], file=sys.stderr, flush=True)
            if size in sizes:
                figures[str(size)] = _asking(home, asked) | _room(home)
    return figures


def _bulk(engine: LocalEngine, contents: Sequence[str], warming: Sequence[str], seed: int) -> Figures:
    """Fill, and read all names at once."""
    stores.fill(engine, contents)
    centre = stores.rehearse(engine, warming).centre()
    stores.give_vectors(engine, stores.random_vectors(len(contents), centre, seed=seed), seed=seed)
    started = time.process_time()
    read = read_names(engine.store, engine.lexical)
    return {"bulk_ms": round((time.process_time() - started) * 1000 / read, 3)}


def _singles(engine: LocalEngine, contents: Sequence[str], asked: Sequence[str]) -> Figures:
    """Read one new memory at a time; then the next question takes in what it mentions."""
    semantic = engine.semantic()
    assert semantic is not None
    semantic.mentions.view()
    taken: dict[str, list[float]] = {"single_ms": [], "taking_in_ms": []}
    for text in contents:
        engine.remember(text)
        # Words of a new memory are indexed for the next question anyway.
        engine.recall(asked[0], legs=["lexical"])
        taken["single_ms"].append(_cpu_ms(lambda: read_names(engine.store, engine.lexical, limit=1)))
        taken["taking_in_ms"].append(_cpu_ms(semantic.mentions.view))
    chance = np.random.default_rng(SEED).standard_normal(
        (len(contents), semantic.embedder.dimensions), dtype=np.float32
    )
    stores.give_vectors(engine, chance / np.linalg.norm(chance, axis=1, keepdims=True))
    worst = {f"{name}_worst": round(max(own), 2) for name, own in taken.items()}
    return {name: round(statistics.median(own), 2) for name, own in taken.items()} | worst


def _asking(home: Path, asked: Sequence[str]) -> Figures:
    """Whole recalls with and without the graph, interleaved; then where the graph's share of them goes."""
    with stores.open_engine(home) as engine:
        embedder = stores.rehearse(engine, asked)

        def ask(text: str, legs: Sequence[str] | None, is_rehearsed: bool) -> object:
            embedder.is_rehearsed = is_rehearsed
            return engine.recall(text, legs=legs)

        arms: dict[str, Callable[[str], object]] = {}
        for name, legs in ((OFF, ["lexical", "dense"]), (ON, None)):
            arms[name] = partial(ask, legs=legs, is_rehearsed=False)
            arms[name + BARE] = partial(ask, legs=legs, is_rehearsed=True)
        for text in asked[:WARMING]:
            for each in arms.values():
                each(text)
        taken: dict[str, list[float]] = {name: [] for name in arms}
        gc.collect()
        gc.disable()
        for text in asked[WARMING:]:
            for name, each in arms.items():
                taken[name].append(_cpu_ms(partial(each, text)))
        gc.enable()
        parts = _parts(partial(arms[ON + BARE]), asked[WARMING:])
    medians = {name: statistics.median(own) for name, own in taken.items()}
    return {
        "arms": {name: _spread(own) for name, own in taken.items()},
        "ratio": round(medians[ON] / medians[OFF], 3),
        "ratio_without_encoding": round(medians[ON + BARE] / medians[OFF + BARE], 3),
        "parts": parts,
    }


def _parts(ask: Callable[[str], object], asked: Sequence[str]) -> dict[str, dict[str, float]]:
    """CPU milliseconds a question of the functions that make up the graph's share, summed over their calls."""
    now: dict[str, float] = {}
    taken: dict[str, list[float]] = {label: [] for _, _, label in TIMED}

    def timed(inner: Callable[..., object], label: str, *args: Any, **options: Any) -> object:
        started = time.process_time()
        result = inner(*args, **options)
        now[label] += (time.process_time() - started) * 1000
        return result

    with ExitStack() as replaced:
        for module, name, label in TIMED:
            replaced.enter_context(patch.object(module, name, partial(timed, getattr(module, name), label)))
        for text in asked:
            now.update(dict.fromkeys(taken, 0.0))
            ask(text)
            for label, figure in now.items():
                taken[label].append(figure)
    pairs = zip(taken["links and gain"], taken["mass passed on"], strict=True)
    taken["gain"] = [whole - passed for whole, passed in pairs]
    return {label: _spread(own) for label, own in taken.items()}


def _room(home: Path) -> Figures:
    """Bytes that the graph takes per memory: rows and their indexes in the store, and the file of mentions."""
    with stores.open_engine(home) as engine:
        engine.semantic().mentions.rebuild()  # type: ignore[union-attr]
        with engine.store._database.reading() as connection:  # type: ignore[attr-defined]
            owned = f"SELECT name FROM sqlite_schema WHERE tbl_name IN {TABLES}"
            rows = connection.execute(f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({owned})").get
            counts = {table: connection.execute(f"SELECT count(*) FROM {table}").get for table in TABLES}
        memories = engine.store.census().versions
    file = sum(path.stat().st_size for path in home.rglob("mentions-*/*") if path.is_file())
    per_memory = {f"{table}_per_memory": round(count / memories, 2) for table, count in counts.items()}
    return {
        "row_bytes_per_memory": round(rows / memories),
        "file_bytes_per_memory": round(file / memories),
    } | per_memory


def _cpu_ms(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return (time.process_time() - started) * 1000


def _spread(taken: Sequence[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(taken), 3), "p95": round(statistics.quantiles(taken, n=20)[-1], 3)}


def _quality_bars(sets: Mapping[str, Figures]) -> Iterator[Figures]:
    for name, (a, b), over, metric, which, least in QUALITY_BARS:
        if name not in sets:
            continue
        if b is None:
            figure = sets[name]["means"][a][over][metric]
        else:
            wanted = {"a": a, "b": b, "over": over, "metric": metric}
            found = [each for each in sets[name]["compared"] if wanted.items() <= each.items()]
            if not found:
                continue
            figure = found[0][which]
        title = f"{name}, {over}: {metric} of {a}" + (f" − {b}" if b else "") + (", low end" if which == "low" else "")
        # Strictly: an interval that ends on the bar does not pass it.
        yield {
            "title": title,
            "figure": figure,
            "least": least,
            "held": figure > least if which == "low" else figure >= least,
        }


def _cost_bars(figures: Mapping[str, Any]) -> Iterator[Figures]:
    curve = figures.get("curve", [])
    for point in curve:
        yield _most(f"{point['memories']:,}: reading in bulk, ms a memory", point["bulk_ms"], MOST_BULK_MS)
    known = {point["memories"]: point for point in curve}
    if len(curve) > 1:
        first, last = known.get(CURVE[1], curve[0]), curve[-1]
        for name in ("single_ms", "taking_in_ms"):
            title = f"{name}, {last['memories']:,} against {first['memories']:,}"
            yield _most(title, round(last[name] / first[name], 2), MOST_GROWTH)
    for size, own in figures.items():
        if size.isdigit():
            yield _most(
                f"{int(size):,}: mass passed on, CPU ms p50", own["parts"]["mass passed on"]["p50"], MOST_LINKS_MS
            )
            yield _most(f"{int(size):,}: gain, CPU ms p50", own["parts"]["gain"]["p50"], MOST_GAIN_MS)
            yield _most(f"{int(size):,}: recall with / without", own["ratio"], MOST_RATIO)


def _most(title: str, figure: float, most: float) -> Figures:
    return {"title": title, "figure": figure, "most": most, "held": figure <= most}


def show(results: Figures) -> None:
    """Print tables of the results so far."""
    for name, own in results.get("quality", {}).items():
        print(f"\n{name}; first ten changed by the graph: {own['changed'][WITH]:.0%}")
        for each in own["compared"]:
            # Halves and kinds of questions are told of the graph itself; the file has them of everything.
            if each["over"] != "all" and (each["a"], each["b"]) != (WITH, WITHOUT):
                continue
            low, high = own["means"][each["b"]][each["over"]], own["means"][each["a"]][each["over"]]
            print(
                f"  {each['a']:16} − {each['b']:16} {each['over']:18} {each['n']:5} {each['metric']:9}"
                f" {low[each['metric']]:6.2f} → {high[each['metric']]:6.2f}"
                f"  {each['delta']:+6.2f} [{each['low']:+.2f}, {each['high']:+.2f}]"
            )
    for size, own in results.get("cost", {}).items():
        if size.isdigit():
            print(
                f"\n{int(size):,} memories; {own['row_bytes_per_memory']} + {own['file_bytes_per_memory']} bytes each"
            )
            for name, figures in (own["arms"] | own["parts"]).items():
                print(f"  {name:44} CPU p50 {figures['p50']:7.2f} ms  p95 {figures['p95']:7.2f} ms")
            print(f"  with / without: {own['ratio']}; without encoding: {own['ratio_without_encoding']}")
    for point in results.get("cost", {}).get("curve", []):
        print(f"  {point}")
    print()
    for bar in results["bars"]:
        bound = f"at least {bar['least']}" if "least" in bar else f"at most {bar['most']}"
        print(f"  {bar['title']:80} {bar['figure']:8.2f}, {bound}: {'held' if bar['held'] else 'MISSED'}")


if __name__ == "__main__":
    main()
