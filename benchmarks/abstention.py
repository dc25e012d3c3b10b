"""Does confidence separate answerable questions from others? AUROC, and precision at the default threshold.

    TRISKELE_BENCH_DATA=folder python benchmarks/abstention.py

What `triskele bench` says of questions that a set marks unanswerable or adversarial and, where a set has scopes, the
same for its answerable questions asked of another scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import texts

from triskele.bench.arms import arm
from triskele.bench.bench import run_bench
from triskele.bench.datasets import windows
from triskele.bench.harness import BenchHarness
from triskele.bench.loaders import load_dataset
from triskele.bench.metrics import abstention

ARM = "default"


def main() -> None:
    """One line per kind of question that should not be answered."""
    print("| set | against | n | AUROC | precision at 0.5 | answerable kept at 0.5 |\n|---|---|---|---|---|---|")
    for folder in (Path(str(resources.files("triskele.samples") / "team")), texts.data_folder() / "locomo"):
        for told in (run_bench(folder, arms=[ARM], baseline=ARM)["abstention"][ARM], *_elsewhere(folder)):
            for kind, found in told["kinds"].items():
                print(_line(folder.name, kind, told["answerable"], found))


def _elsewhere(folder: Path) -> Iterator[dict[str, Any]]:
    """Answerable questions in their own scope, against the same questions in the next one."""
    data = load_dataset(folder)
    asked = [(query.text, query.scope) for query in data.ranked() if query.scope]
    scopes = sorted({scope for _, scope in asked})
    if len(scopes) < 2:
        return
    following = dict(zip(scopes, [*scopes[1:], scopes[0]], strict=True))
    with BenchHarness(windows(data.documents)) as harness:
        here = [harness.search(arm(ARM), text, scope).confidence for text, scope in asked]
        there = [harness.search(arm(ARM), text, following[scope]).confidence for text, scope in asked]
    yield abstention(here, {"the wrong scope": there})


def _line(dataset: str, kind: str, answerable: int, found: Mapping[str, Any]) -> str:
    precision = "–" if found["precision"] is None else f"{found['precision']:.2f}"
    counts = f"{answerable} + {found['n']}"
    return f"| {dataset} | {kind} | {counts} | {found['auroc']:.3f} | {precision} | {found['coverage']:.2f} |"


if __name__ == "__main__":
    main()
