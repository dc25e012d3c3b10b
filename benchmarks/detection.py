"""How well secrets are found: precision and recall over the labelled samples, kind by kind and half by half.

    python benchmarks/detection.py

The rules were tuned on half 0. Recall counts a secret as found when one finding covers all of it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "privacy"))

import secret_samples
from secret_samples import Sample

from triskele.privacy.detect import find


def main() -> None:
    """For each file of samples one line for each half, then one for each kind of secret and of look-alike."""
    for templates in (secret_samples.TEMPLATES, secret_samples.FORMS):
        print(f"\n## {templates.name}\n")
        report(secret_samples.load(templates))


def report(samples: list[Sample]) -> None:
    """The tables of these samples."""
    print("| half | secrets | found | innocent | false alarms | precision | recall |\n|---|---|---|---|---|---|---|")
    for half, name in enumerate(("0 (tuned on)", "1 (unseen)")):
        print(_summary(name, [sample for sample in samples if sample.half == half]))
    print("\n| kind | tuned: found | unseen: found | named right |\n|---|---|---|---|")
    for kind in dict.fromkeys(sample.kind for sample in samples if sample.kind):
        print(_kind(kind, [sample for sample in samples if sample.kind == kind]))
    print("\n| look-alike | tuned: false alarms | unseen: false alarms |\n|---|---|---|")
    for like in dict.fromkeys(sample.like for sample in samples if sample.like):
        print(_like(like, [sample for sample in samples if sample.like == like]))


def is_found(sample: Sample) -> bool:
    """Whether one finding covers the whole secret."""
    return any(finding.start <= sample.start and sample.end <= finding.end for finding in find(sample.text))


def _summary(name: str, samples: list[Sample]) -> str:
    guilty = [sample for sample in samples if sample.kind]
    found = sum(map(is_found, guilty))
    false = sum(1 for sample in samples if sample.kind is None and find(sample.text))
    share = f"{found / (found + false):.3f} | {found / len(guilty):.3f}"
    return f"| {name} | {len(guilty)} | {found} | {len(samples) - len(guilty)} | {false} | {share} |"


def _kind(kind: str, samples: list[Sample]) -> str:
    right = sum(any(finding.kind == kind for finding in find(sample.text)) for sample in samples)
    return f"| {kind} | {_share(samples, 0)} | {_share(samples, 1)} | {right}/{len(samples)} |"


def _share(samples: Iterable[Sample], half: int) -> str:
    counts = Counter(is_found(sample) for sample in samples if sample.half == half)
    return f"{counts[True]}/{counts.total()}"


def _like(like: str, samples: list[Sample]) -> str:
    cells = []
    for half in (0, 1):
        of_half = [sample for sample in samples if sample.half == half]
        cells.append(f"{sum(bool(find(sample.text)) for sample in of_half)}/{len(of_half)}")
    return f"| {like} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
