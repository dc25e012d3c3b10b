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
    """Milliseconds of each round after three to warm up, on the clock and of processor time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    ids = np.random.default_rng(0).integers(2000, 29_000, size=(CANDIDATES, TOKENS), dtype=np.int64)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    inputs = {declared.name: given[declared.name] for declared in session.get_inputs()}
    taken = []
    for _ in range(rounds + 3):
        begun, used = time.perf_counter(), time.process_time()
        session.run(["logits"], inputs)
        taken.append((1000 * (time.perf_counter() - begun), 1000 * (time.process_time() - used)))
    return np.array(taken[3:])


def main() -> None:
    """Parse the command line and time."""
    parser = argparse.ArgumentParser(description="Time cross-encoders.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    for folder in args.folders:
        for threads in (1, 2):
            clock, used = times(folder, threads, args.rounds).T
            figures = f"p50 {np.median(clock):.0f} ms, min {clock.min():.0f} ms, processor p50 {np.median(used):.0f} ms"
            print(f"{folder.name}: {threads} thread(s), {figures}", flush=True)


if __name__ == "__main__":
    main()
