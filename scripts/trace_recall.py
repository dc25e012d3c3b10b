"""Count the files that one warm recall runs through, and how often it goes from one file to another.

    python scripts/trace_recall.py [--list] [QUESTION]

The recall runs on the sample corpus with the default plan. Only functions of triskele count. A switch is a call of a
function whose file differs from that of the function called before it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Any

import triskele
from triskele.edge.cli.demo import temporary_memory

SOURCE = str(Path(triskele.__file__).parent)
QUESTION = "how do releases reach the cluster?"


@dataclass
class Trace:
    """The files that a call ran through, with how often each was entered."""

    files: Counter[str] = field(default_factory=Counter)
    switches: int = 0
    _current: str = ""

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note the file of every function that is called."""
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        file = frame.f_code.co_filename.removeprefix(SOURCE + "/")
        if file != self._current:
            self.switches += bool(self._current)
            self.files[file] += 1
            self._current = file


def traced(call: Callable[[], object]) -> Trace:
    """Run a call under the profiler."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    return trace


def traced_recall(question: str) -> Trace:
    """Trace the fourth of four equal recalls on the sample corpus."""
    with temporary_memory() as engine:
        for _ in range(3):
            engine.recall(question, logged=False)
        return traced(lambda: engine.recall(question, logged=False))


def typical_recall() -> Trace:
    """The trace with the median number of switches: how many a recall takes depends on the hits, chains cost more."""
    lines = (resources.files("triskele.samples") / "team" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    with temporary_memory() as engine:
        recalls = [
            partial(engine.recall, json.loads(line)["text"], logged=False) for line in lines[:: len(lines) // 16]
        ]
        for recall in recalls:
            recall()
        return sorted(map(traced, recalls), key=lambda trace: (trace.switches, len(trace.files)))[len(recalls) // 2]


def main() -> None:
    """Print the two numbers."""
    parser = argparse.ArgumentParser(description="Count the files and file switches of one warm recall.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--list", action="store_true", help="also list the files, most often entered first")
    arguments = parser.parse_args()
    trace = traced_recall(arguments.question)
    print(f"{len(trace.files)} files, {trace.switches} switches")
    if arguments.list:
        for file, entered in trace.files.most_common():
            print(f"{entered:6} {file}")


if __name__ == "__main__":
    main()
