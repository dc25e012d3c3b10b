"""Compare two encoders over all sets of a report of training.evaluate_recalled.

    python -m training.macro REPORT.json BEFORE AFTER

A name may join several models with `,`: the mean of their results, question by question. Prints nDCG@10 per set and the
means over sets of questions and of prompts, each difference with its 95 % interval (questions drawn within their set).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from training.evaluate_recalled import KINDS, PROMPTS
from training.metrics import DRAWS, bootstrap

NDCG = 1


def results(models: dict[str, dict], names: str, kind: str) -> np.ndarray:
    """nDCG@10 of each question in percent, the mean of the named models."""
    return 100 * np.mean([np.array(models[name][kind])[:, NDCG] for name in names.split(",")], 0)


def macro(differences: list[np.ndarray], seed: int = 0) -> list[float]:
    """The mean over sets of their means, and its 95 % interval."""
    generator = np.random.default_rng(seed)
    drawn = [own[generator.integers(len(own), size=(DRAWS, len(own)))].mean(1) for own in differences]
    low, high = np.percentile(np.mean(drawn, 0), [2.5, 97.5])
    return [round(float(value), 2) for value in (np.mean([own.mean() for own in differences]), low, high)]


def main() -> None:
    """Read the report, print the sets and the means."""
    report, before, after = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], sys.argv[3]
    for kind in KINDS[1:]:
        groups: dict[str, list[np.ndarray]] = {"questions": [], "prompts": []}
        for name, models in report.items():
            old, new = results(models, before, kind), results(models, after, kind)
            groups["prompts" if name in PROMPTS else "questions"].append(new - old)
            print(f"{kind:6} {name:20} {old.mean():5.1f} -> {new.mean():5.1f} {bootstrap(new - old)}")
        for what, differences in groups.items():
            if differences:
                print(f"{kind:6} macro of {what:11} {macro(differences)}")


if __name__ == "__main__":
    main()
