"""Indexing throughput: texts per second through the engine against the bare runtime on the same texts and batches.

    TRISKELE_BENCH_DATA=folder python benchmarks/indexing.py [--texts 512] [--rounds 3]

Bare is the minimum of work: tokenize, group by length, run the graph. The engine adds its queue, the durable
rows and the token file. Rounds are interleaved; CPU time of all threads decides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import stores
import texts

from triskele.index.worker import BATCH
from triskele.models.bundled import MODEL_FOLDER
from triskele.models.inference import BundledRuntime, batches, cut
from triskele.models.manifest import read_manifest

RESULTS = Path(__file__).parent / "results" / "indexing.json"
LEAST_SHARE = 0.9


def main() -> None:
    """Run both in turn and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    runtime = BundledRuntime.load(MODEL_FOLDER, read_manifest(MODEL_FOLDER))
    contents = texts.memories(given.texts * given.rounds + BATCH)
    bare(contents[-BATCH:], runtime)
    through_engine(contents[-BATCH:])
    taken: dict[str, list[float]] = {"bare": [], "engine": []}
    for start in range(0, given.texts * given.rounds, given.texts):
        own = contents[start : start + given.texts]
        taken["bare"].append(bare(own, runtime))
        taken["engine"].append(through_engine(own))
    rates = {name: round(given.texts / statistics.median(own), 1) for name, own in taken.items()}
    share = round(sum(taken["bare"]) / sum(taken["engine"]), 3)
    figures = {"texts": given.texts, "rounds": given.rounds, "texts_per_cpu_s": rates, "share_of_bare": share}
    figures["bar"] = {"least": LEAST_SHARE, "held": share >= LEAST_SHARE}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


def bare(contents: Sequence[str], runtime: BundledRuntime) -> float:
    """CPU seconds of tokenizer and graph alone, in the batches that the engine makes."""
    started = time.process_time()
    for start in range(0, len(contents), BATCH):
        tokenized = runtime.tokenizer.encode_batch(contents[start : start + BATCH], add_special_tokens=False)
        ids = [found.ids for found in tokenized]
        windows = [w for number, own in enumerate(ids) for w in cut(number, len(own), runtime.capacity)]
        for batch in batches(windows):
            rows = [[runtime.first, *ids[w.text][w.start : w.stop], runtime.last] for w in batch]
            runtime.session.run(["sentence", "tokens"], {"input_ids": rows})
    return time.process_time() - started


def through_engine(contents: Sequence[str]) -> float:
    """CPU seconds of `embed` over a store that holds the texts and waits."""
    with tempfile.TemporaryDirectory() as folder, stores.open_engine(Path(folder)) as engine:
        stores.fill(engine, contents)
        engine.semantic()
        started = time.process_time()
        done = engine.upkeep.embed()
        took = time.process_time() - started
    assert done == len(contents), "every text waits once"
    return took


if __name__ == "__main__":
    main()
