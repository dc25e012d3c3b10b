"""How recall grows with the store: one store filled step by step, measured at every size, plotted.

    TRISKELE_BENCH_DATA=folder python benchmarks/growth.py [--sizes 5452,50000,200000,500000] [--questions 30]

CPU time of all threads; the encoding of the question, which does not grow, is left out. Vectors are synthetic. Up to
50,000 vectors the dense scan is exact, above one bit per dimension chooses what is looked at exactly. The exponent
between two sizes says how a figure grows: 1 is linear, 0 not at all.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import stores
import texts

RESULTS = Path(__file__).parent / "results"
WARMING = 10
LARGE_BATCH = 5000
LEG, WORDS, BARE, OPENING = "lexical leg", "recall, words alone", "recall, default, without encoding", "first recall"
# Time is measured to about a tenth; an exponent above this is more than linear growth.
MOST_EXPONENT = 1.05

Point = dict[str, Any]


def main() -> None:
    """Grow a store, measure it at every size, write table and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="5452,50000,200000,500000")
    parser.add_argument("--questions", type=int, default=30)
    given = parser.parse_args()
    sizes = sorted(int(part) for part in given.sizes.split(","))
    asked = texts.questions(given.questions + WARMING)
    with tempfile.TemporaryDirectory() as folder:
        points = grow(Path(folder), sizes, asked)
    figures = {"points": points, "exponents": exponents(points)}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "growth.json").write_text(json.dumps(figures, indent=1) + "\n")
    show(figures)
    plot(points, RESULTS / "growth.svg")


def grow(home: Path, sizes: Sequence[int], asked: Sequence[str]) -> list[Point]:
    """Fill up to each size in turn and measure there."""
    contents = texts.memories(sizes[-1])
    points = []
    for before, size in pairwise([0, *sizes]):
        with stores.open_engine(home) as engine:
            rate = stores.fill(engine, contents[before:size])
            centre = stores.rehearse(engine, asked[:WARMING]).centre()
            vectors = stores.random_vectors(size - before, centre, seed=size)
            stores.give_vectors(engine, vectors, batch=LARGE_BATCH, seed=size)
            # Brings the file of sentence vectors up to date, as any recall after many writes does.
            engine.recall(asked[0])
        used = sum(file.stat().st_size for file in home.rglob("*") if file.is_file())
        point = {"memories": size, "batch_adds_per_s": rate, "bytes_per_memory": round(used / size)}
        points.append(point | measure(home, asked))
        print(points[-1])
    return points


def measure(home: Path, asked: Sequence[str]) -> Point:
    """CPU milliseconds of the first recall of a process, and the median of those that follow."""
    with stores.open_engine(home) as engine:
        stores.rehearse(engine, asked).is_rehearsed = True
        opening = _cpu_ms(lambda: engine.recall(asked[0]))
        arms = {
            LEG: lambda text: stores.lexical_leg(engine, text),
            WORDS: lambda text: engine.recall(text, legs=["lexical"]),
            BARE: engine.recall,
        }
        taken: dict[str, list[float]] = {name: [] for name in arms}
        gc.collect()
        for number, text in enumerate(asked):
            for name, arm in arms.items():
                took = _cpu_ms(lambda arm=arm, text=text: arm(text))
                if number >= WARMING:
                    taken[name].append(took)
    return {OPENING: round(opening), **{name: round(statistics.median(own), 2) for name, own in taken.items()}}


def exponents(points: Sequence[Point]) -> dict[str, list[float]]:
    """How each figure grows from one size to the next."""
    return {
        name: [
            round(math.log(after[name] / before[name]) / math.log(after["memories"] / before["memories"]), 2)
            for before, after in pairwise(points)
        ]
        for name in (LEG, WORDS, BARE, OPENING)
    }


def show(figures: Mapping[str, Any]) -> None:
    """The table, and whether anything grows above linear."""
    sizes = [point["memories"] for point in figures["points"]]
    print(f"{'CPU ms at':36}" + "".join(f"{size:>10,}" for size in sizes) + "   exponents")
    for name, own in figures["exponents"].items():
        values = "".join(f"{point[name]:10.1f}" for point in figures["points"])
        verdict = "held" if max(own) <= MOST_EXPONENT else "ABOVE LINEAR"
        print(f"{name:36}{values}   {own} {verdict}")


def plot(points: Sequence[Point], path: Path) -> None:
    """CPU per question against size, both logarithmic, with a line of linear growth."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    sizes = [point["memories"] for point in points]
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name, mark in ((BARE, "o-"), (WORDS, "s-"), (LEG, "^-")):
        axes.loglog(sizes, [point[name] for point in points], mark, label=name)
    first = points[0][BARE] / sizes[0]
    axes.loglog(sizes, [first * size for size in sizes], ":", color="grey", label="linear growth")
    axes.set(xlabel="memories", ylabel="CPU ms per question", title="Growth of recall")
    axes.set_ylim(bottom=0.5, top=20 * max(point[BARE] for point in points))
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path)


def _cpu_ms(action: Any) -> float:
    started = time.process_time()
    action()
    return (time.process_time() - started) * 1000


if __name__ == "__main__":
    main()
