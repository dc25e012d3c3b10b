"""This version against another checkout in one run: recall, memory, hook and cold add, the two sides in turn.

    TRISKELE_BENCH_DATA=folder python benchmarks/against.py CHECKOUT [--size 5452] [--questions 100] [--rounds 3]

CHECKOUT is a working tree of another commit (`git worktree add --detach FOLDER COMMIT`) with an environment of its own
(`make .venv/runtime.done` in it): a resident process does not inherit PYTHONPATH. Each side fills a store of its own
with the same texts by its own `benchmarks/stores.py`. Then every figure is taken in processes of their own, this side,
the other, this, the other, because the load of a machine changes. What is printed is the ratio of the medians: below
1, this version is cheaper.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
COLD_ADDS = 5
PROMPTS = 40
# How long a resident that an add has started may take until it can be stopped.
STARTING_S = 6.0
# What is printed of what each step measures.
FIGURES = {
    "recall_cpu_ms_p50": "recall, CPU of all threads, p50",
    "recall_uss_mb": "private memory after the recalls",
    "recall_rss_mb": "resident memory after the recalls",
    "hook_ms_p50": "hook process to injected text, wall, p50",
    "cpu_ratio_p50": "hook and resident, CPU in `python -c pass`, p50",
    "resident_cpu_ms_p50": "resident per prompt, CPU, p50",
    "uss_mb": "private memory of the resident",
    "cold_start_s": "first answer of a cold resident",
    "cold_add_ms": "cold add, wall",
    "cold_add_cpu_ms": "cold add, CPU",
}


def main() -> None:
    """Compare, or do one step for one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--size", type=int, default=5452)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        print(json.dumps(STEPS[given.step](given.checkout, given.size, given.questions)))
        return
    sides = {"this": HERE, "other": given.checkout.resolve()}
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        taken = compare(sides, Path(folder), given.size, given.questions, given.rounds)
    show(taken)


def compare(
    sides: Mapping[str, Path], folder: Path, size: int, questions: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Every figure of every round by side; the sides take turns."""
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in sides}
    for name, checkout in sides.items():
        step("fill", checkout, folder / name, size, questions)
    for number in range(rounds):
        for measured in ("recall", "hook", "cold-add"):
            for name, checkout in sides.items():
                found = step(measured, checkout, folder / name, size, questions)
                for figure in FIGURES.keys() & found.keys():
                    taken[name].setdefault(figure, []).append(found[figure])
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return taken


def step(name: str, checkout: Path, home: Path, size: int, questions: int) -> dict[str, Any]:
    """Run one step with the environment and the benchmarks of a checkout."""
    environ = os.environ | {"PYTHONPATH": str(checkout / "benchmarks")}
    # -P: the folder of this file does not come before that of the checkout.
    command = [
        str(checkout / ".venv" / "bin" / "python"),
        "-P",
        __file__,
        str(home),
        "--step",
        name,
        "--size",
        str(size),
    ]
    command += ["--questions", str(questions)]
    said = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def fill(home: Path, size: int, questions: int) -> dict[str, Any]:
    """A store for the recalls, with synthetic vectors, and one for the hook."""
    import hook
    import stores
    import texts

    with stores.open_engine(home / "recall") as engine:
        stores.fill(engine, texts.memories(size))
        centre = stores.rehearse(engine, texts.questions(questions)).centre()
        stores.give_vectors(engine, stores.random_vectors(size, centre))
        # All have vectors: this reads their names.
        getattr(engine, "upkeep", engine).embed()
    with hook.store_of(size, home / "hook"):
        return {}


def recall(home: Path, size: int, questions: int) -> dict[str, Any]:  # noqa: ARG001 - every step has one shape
    """CPU time of recalls after as many others, and the memory of their process."""
    import latency
    import stores
    import texts

    asked = texts.questions(2 * questions)
    spent = []
    with stores.open_engine(home / "recall") as engine:
        for text in asked[:questions]:
            engine.recall(text)
        for text in asked[questions:]:
            began = time.process_time()
            engine.recall(text)
            spent.append((time.process_time() - began) * 1000)
    memory = latency.memory_after(home / "recall", asked[:questions])
    named = {f"recall_{name}": figure for name, figure in memory.items()}
    return {"recall_cpu_ms_p50": statistics.median(spent), **named}


def prompts(home: Path, size: int, questions: int) -> dict[str, Any]:  # noqa: ARG001 - every step has one shape
    """The hook and the resident process."""
    import hook

    found: dict[str, Any] = hook.measure(home / "hook" / str(size), size, PROMPTS)
    return found


def cold_add(home: Path, size: int, questions: int) -> dict[str, Any]:  # noqa: ARG001 - every step has one shape
    """An add in a new process while no resident runs; a resident that it starts is stopped before the next add."""
    import hook

    from triskele.edge.hook import client

    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(home / "add"), "TRISKELE_PROJECT": "bench"}
    wall, spent = [], []
    for number in range(COLD_ADDS + 1):
        text = f"fact number {number} of {time.time_ns()}: the deploy key of a stage is kept by the platform team"
        began, before = time.perf_counter(), hook.children_s()
        command = [sys.executable, "-m", "triskele", "add", text]
        subprocess.run(command, env=environ, check=True, capture_output=True, stdin=subprocess.DEVNULL)
        wall.append((time.perf_counter() - began) * 1000)
        spent.append((hook.children_s() - before) * 1000)
        _stop_if_started(client.Address(environ))
    # The first one makes the store.
    return {"cold_add_ms": statistics.median(wall[1:]), "cold_add_cpu_ms": statistics.median(spent[1:])}


def _stop_if_started(place: Any) -> None:
    from triskele.edge.process import resident

    ends = time.monotonic() + STARTING_S
    while resident.health(place) is None and time.monotonic() < ends:
        time.sleep(0.05)
    resident.stop(place)


STEPS = {"fill": fill, "recall": recall, "hook": prompts, "cold-add": cold_add}


def show(taken: Mapping[str, Mapping[str, list[float]]]) -> None:
    """Medians of the rounds and their ratio."""
    print(f"{'':48} {'this':>9} {'other':>9} {'ratio':>7}")
    for figure, title in FIGURES.items():
        if figure in taken["this"] and figure in taken["other"]:
            this, other = (statistics.median(taken[side][figure]) for side in ("this", "other"))
            print(f"{title:48} {this:9.2f} {other:9.2f} {this / other:7.3f}")


if __name__ == "__main__":
    main()
