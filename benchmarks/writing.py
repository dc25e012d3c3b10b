"""CPU time of a written memory until it is embedded, its names are read and curation has compared it.

    TRISKELE_BENCH_DATA=folder python benchmarks/writing.py [--texts 400] [--adds 40]

In multiples of encoding the same texts, which costs one pass of the model: after an import, for single adds, and for
adds while every core is busy with other programs. All threads of the process count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import stores
import texts

RESULTS = Path(__file__).parent / "results" / "writing.json"
SPIN = "while True: pass"
POLL_S = 0.02


def main() -> None:
    """Measure an import and adds, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--adds", type=int, default=40)
    options = parser.parse_args()
    contents = texts.memories(options.texts + 2 * options.adds)
    imported, idle = contents[: options.texts], contents[options.texts : -options.adds]
    loaded = contents[-options.adds :]
    with tempfile.TemporaryDirectory() as folder, stores.open_engine(Path(folder)) as engine:
        semantic = engine.semantic()
        assert semantic is not None, "the benchmark needs the bundled model"
        semantic.embedder.encode_query("anything")
        figures: dict[str, Any] = {"texts": options.texts, "adds": options.adds}
        stores.fill(engine, imported)
        spent = cpu_of(lambda: settle(engine))
        passes = cpu_of(lambda: semantic.embedder.encode_documents(imported))
        figures["import"] = compared(spent, passes, options.texts)
        for name, added in (("add", idle), ("add under load", loaded)):
            with busy_cores() if added is loaded else nullcontext():
                spent = cpu_of(lambda added=added: add(engine, added))
                passes = cpu_of(lambda added=added: [semantic.embedder.encode_documents([text]) for text in added])
            figures[name] = compared(spent, passes, len(added))
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


def add(engine: Any, contents: Sequence[str]) -> None:
    """Store texts one by one, each with what it repeats, as the command line does."""
    for text in contents:
        outcome = engine.remember(text)
        engine.related(id=outcome.id)
        settle(engine)


def settle(engine: Any) -> None:
    """Wait until the worker has nothing left, and curate."""
    engine.work_in_background()
    while engine.background.has_pending():
        time.sleep(POLL_S)
    while not engine.upkeep.curate_new():
        pass


def cpu_of(work: Any) -> float:
    """CPU seconds of all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def compared(spent: float, passes: float, count: int) -> dict[str, float]:
    """Milliseconds a memory, those of encoding it, and their ratio."""
    per_memory = {"cpu_ms": round(spent * 1000 / count, 2), "encoding_ms": round(passes * 1000 / count, 2)}
    return {**per_memory, "passes": round(spent / passes, 2)}


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
