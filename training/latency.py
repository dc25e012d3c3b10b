"""Time a cross-encoder over ten candidates of 76 tokens, on one and on two threads.

python -m training.latency EXPORTED_FOLDER... [--rounds 40]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnxruntime

CANDIDATES, TOKENS = 10, 76


def times(folder: Path, threads: int, rounds: int) -> np.ndarray:
    """Milliseconds of each round after three to warm up."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    ids = np.random.default_rng(0).integers(2000, 29_000, size=(CANDIDATES, TOKENS), dtype=np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    taken = []
    for _ in range(rounds + 3):
        begun = time.perf_counter()
        session.run(["logits"], inputs)
        taken.append(1000 * (time.perf_counter() - begun))
    return np.array(taken[3:])


def main() -> None:
    """Parse the command line and time."""
    parser = argparse.ArgumentParser(description="Time cross-encoders.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    for folder in args.folders:
        for threads in (1, 2):
            taken = times(folder, threads, args.rounds)
            print(
                f"{folder.name}: {threads} thread(s), p50 {np.median(taken):.1f} ms, min {taken.min():.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
