"""Compare the encoders of evaluation reports with the model that ships, question by question.

python -m training.compare EVAL.npz REPORT.json...
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from training.metrics import bootstrap

BEFORE = "shipped"


def halves(ids: list[str]) -> np.ndarray:
    """Which half each question belongs to, by a hash of its id."""
    return np.array([hashlib.sha256(id.encode()).digest()[0] & 1 for id in ids], bool)


def main() -> None:
    """Read the reports and print one line per set, model and kind of score."""
    source, *paths = sys.argv[1:]
    arrays, merged = np.load(source), {}
    for path in paths:
        for key, models in json.loads(Path(path).read_text()).items():
            merged.setdefault(key, {}).update(models)
    for key, models in merged.items():
        half = halves(arrays[f"{key.partition('+')[0]}.ids"].tolist())
        # What a model makes of a turn with context is compared with the shipped model's best use: without.
        before = merged[key.partition("+")[0]][BEFORE]
        for name, results in models.items():
            for kind in ("late", "dense"):
                old, new = np.array(before[kind]), np.array(results[kind])
                change = 100 * (new - old)
                sides = [
                    f"{(100 * new[side].mean(0)).round(1).tolist()} {bootstrap(change[side, 1])}"
                    for side in (~half, half)
                ]
                means = f"{(100 * old.mean(0)).round(1).tolist()} -> {(100 * new.mean(0)).round(1).tolist()}"
                figures = f"R@5 {bootstrap(change[:, 0])} nDCG@10 {bootstrap(change[:, 1])}"
                print(f"{key:20} {name:13} {kind:5} {means} {figures} | {' | '.join(sides)}")


if __name__ == "__main__":
    main()
