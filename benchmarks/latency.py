"""Speed side by side in one run: recall against plain FTS5 and a peer, at two sizes, questions interleaved.

    TRISKELE_BENCH_DATA=folder python benchmarks/latency.py [--sizes 5452,50000] [--questions 200]

CPU time of all threads is what counts: machines are noisy. Vectors are synthetic (encoding 50,000 texts takes an hour
on two cores) and the same for everyone; the time of a scan does not depend on what is in them. The engine is opened
anew after filling and warmed up by other questions than those it is measured on.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import stores
import texts
from peer import NAME as PEER
from peer import HybridPeer, open_peer

from triskele.bench.datasets import Window
from triskele.bench.harness import FtsBaseline
from triskele.engine.local import LocalEngine
from triskele.index.name_linking import read_names

RESULTS = Path(__file__).parent / "results" / "latency.json"
WARMING = 50
BASELINE, LEG, WORDS = "FTS5 baseline", "lexical leg", "recall, words alone"
BARE, ENCODE, BOTH = "recall, words and meaning, no encoding", "encoding the question", "recall, words and meaning"
DEFAULT = "recall, default, with the graph"
# What is measured against what, and the most that it may be, at 5,452 and at 50,000.
BARS: Mapping[str, tuple[str, str, float, float]] = {
    "lexical leg / baseline": (LEG, BASELINE, 1.0, 0.1),
    "recall without encoding / baseline": (BARE, BASELINE, 1.0, 0.2),
    "recall / baseline": (BOTH, BASELINE, 3.0, 0.3),
    "recall / peer": (BOTH, PEER, 0.3, 0.3),
    "recall with the graph / without": (DEFAULT, BOTH, 1.5, 1.5),
}
MOST_SPREAD = 2.0
MOST_USS_MB = 450.0
LARGE = 50_000

Arm = Callable[[str], object]
Times = Mapping[str, Sequence[float]]


def main() -> None:
    """Run at every size and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5452,50000")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--memory-of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory_of is not None:
        print(json.dumps(memory_after(given.memory_of, texts.questions(given.questions))))
        return
    asked = texts.questions(given.questions + WARMING)
    results: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "questions": given.questions}
    for size in (int(part) for part in given.sizes.split(",")):
        results[str(size)] = measure(size, asked[:WARMING], asked[WARMING:])
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {RESULTS.name}")


def measure(size: int, warming: Sequence[str], asked: Sequence[str]) -> dict[str, Any]:
    """Every figure at one size."""
    contents = texts.memories(size)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "store"
        engine = stores.open_engine(home)
        figures: dict[str, Any] = {"memories": size, "batch_adds_per_s": stores.fill(engine, contents)}
        vectors = stores.random_vectors(size, stores.rehearse(engine, warming).centre())
        stores.give_vectors(engine, vectors)
        read_names(engine.store, engine.lexical)
        engine.close()
        engine = stores.open_engine(home)
        embedder = stores.rehearse(engine, [*warming, *asked])
        baseline = FtsBaseline(Window(str(number), text, None, None, None, 0.5) for number, text in enumerate(contents))
        peer = open_peer(Path(folder) / "peer", contents, vectors)
        figures["peer"] = f"{PEER} {peer.version}" if peer else f"{PEER}: not installed"
        del contents, vectors
        taken = race(dict(arms(engine, embedder, baseline, peer)), warming, asked)
        figures["arms"] = {name: summary(name, taken) for name in taken}
        figures["bars"] = bars(size, figures["arms"], taken)
        engine.close()
        baseline.close()
        figures |= upkeep(home, size, len(asked))
    show(figures)
    return figures


def arms(
    engine: LocalEngine, embedder: stores.Rehearsed, baseline: FtsBaseline, peer: HybridPeer | None
) -> Iterator[tuple[str, Arm]]:
    """What is raced; every arm answers the same question in turn."""

    def recall(text: str, is_rehearsed: bool, legs: Sequence[str] | None = ("lexical", "dense")) -> object:
        embedder.is_rehearsed = is_rehearsed
        return engine.recall(text, legs=legs)

    def encode(text: str) -> stores.Encoding:
        embedder.is_rehearsed = False
        return embedder.encode_query(text)

    yield BASELINE, lambda text: baseline.search(text, None, 50)
    yield LEG, lambda text: stores.lexical_leg(engine, text)
    yield WORDS, lambda text: engine.recall(text, legs=["lexical"])
    yield BARE, lambda text: recall(text, True)
    yield ENCODE, encode
    yield BOTH, lambda text: recall(text, False)
    yield DEFAULT, lambda text: recall(text, False, None)
    if peer is not None:
        yield PEER, lambda text: peer.search(text, encode(text).sentence)


def race(racing: Mapping[str, Arm], warming: Sequence[str], asked: Sequence[str]) -> dict[str, list[float]]:
    """CPU milliseconds of every arm, questions interleaved."""
    cpu: dict[str, list[float]] = {name: [] for name in racing}
    for text in warming:
        for arm in racing.values():
            arm(text)
    gc.collect()
    gc.disable()
    for text in asked:
        for name, arm in racing.items():
            started = time.process_time()
            arm(text)
            cpu[name].append((time.process_time() - started) * 1000)
    gc.enable()
    return cpu


def summary(name: str, taken: Times) -> dict[str, float]:
    """The figures of one arm."""
    p50, p95 = statistics.median(taken[name]), statistics.quantiles(taken[name], n=20)[-1]
    figures = {"cpu_ms_p50": p50, "cpu_ms_p95": p95, "p95_to_p50": p95 / p50}
    for reference, label in ((BASELINE, "to_baseline"), (PEER, "to_peer")):
        if reference in taken:
            figures[label] = p50 / statistics.median(taken[reference])
    return {label: round(figure, 4) for label, figure in figures.items()}


def bars(size: int, measured: Mapping[str, Mapping[str, float]], taken: Times) -> dict[str, Any]:
    """Every ratio with the most that it may be."""
    found = {}
    for title, (name, reference, small, large) in BARS.items():
        if reference in taken:
            ratio = statistics.median(taken[name]) / statistics.median(taken[reference])
            found[title] = _held(ratio, large if size >= LARGE else small)
    found["p95 / p50 of recall"] = _held(measured[DEFAULT]["p95_to_p50"], MOST_SPREAD)
    return found


def _held(figure: float, most: float) -> dict[str, Any]:
    return {"figure": round(figure, 4), "most": most, "held": figure <= most}


def upkeep(home: Path, size: int, questions: int) -> dict[str, Any]:
    """The cost of a store besides its answers; no other process has it open."""
    used = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
    figures: dict[str, Any] = {"bytes_per_memory": round(used / size), **memory_of(home, questions)}
    if size >= LARGE and "rss_mb" in figures:
        # Libraries that this process maps as well are not private: what is resident is the safe bound.
        figures["memory_bar"] = _held(figures["rss_mb"], MOST_USS_MB)
    figures["cold_start_ratio"] = cold_start(home)
    with stores.open_engine(home) as engine:
        figures["add_ms_p50"] = add_one_by_one(engine)
    return figures


def add_one_by_one(engine: LocalEngine, count: int = 100) -> float:
    """Milliseconds until a single add is durable."""
    taken = []
    for number in range(count):
        started = time.perf_counter()
        engine.remember(f"a single durable memory, number {number}")
        taken.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(taken), 2)


def memory_of(home: Path, questions: int) -> dict[str, float]:
    """Memory of a separate process that has answered every question by the default recall."""
    command = [sys.executable, __file__, "--memory-of", str(home), "--questions", str(questions)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(said)
    return figures


def memory_after(home: Path, asked: Sequence[str]) -> dict[str, float]:
    """The private and the resident memory of this process in megabytes, if the system reports them."""
    with stores.open_engine(home) as engine:
        for text in asked:
            engine.recall(text)
        try:
            lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            return {}
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return {"uss_mb": round(private, 1), "rss_mb": round(sizes["Rss"], 1)}


def cold_start(home: Path, rounds: int = 7) -> float:
    """A whole `triskele recall` process against `python -c pass`."""
    environment = os.environ | {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "bench"}
    program = "from triskele.edge.cli.main import main; main()"
    command = [sys.executable, "-c", program, "recall", "what does the study say", "--json"]
    taken: dict[str, list[float]] = {"recall": [], "pass": []}
    for _ in range(rounds):
        for name, line in (("recall", command), ("pass", [sys.executable, "-c", "pass"])):
            started = time.perf_counter()
            subprocess.run(line, env=environment, check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - started)
    return round(statistics.median(taken["recall"]) / statistics.median(taken["pass"]), 1)


def show(figures: Mapping[str, Any]) -> None:
    """One size as a table."""
    print(f"\n{figures['memories']:,} memories; {figures['peer']}")
    for name, row in figures["arms"].items():
        peer = f"{row['to_peer']:7.3f} x peer" if "to_peer" in row else ""
        print(
            f"  {name:34} CPU p50 {row['cpu_ms_p50']:7.2f} ms  p95 {row['cpu_ms_p95']:7.2f} ms"
            f"  {row['p95_to_p50']:5.2f}  {row['to_baseline']:7.3f} x baseline  {peer}"
        )
    for name, bar in figures["bars"].items():
        print(f"  {name:34} {bar['figure']:7.3f} of {bar['most']}: {'held' if bar['held'] else 'MISSED'}")
    for name in ("batch_adds_per_s", "add_ms_p50", "bytes_per_memory", "uss_mb", "rss_mb", "cold_start_ratio"):
        print(f"  {name:34} {figures.get(name)}")


if __name__ == "__main__":
    main()
