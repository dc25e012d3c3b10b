"""Does confidence tell answerable questions from others? AUROC, and precision at the default threshold.

    TRISKELE_BENCH_DATA=folder python benchmarks/abstention.py

Answerable questions against those that the data set marks unanswerable or adversarial, and, where a set has scopes,
against the same questions asked of another scope.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import texts
from numpy.typing import NDArray

from triskele.candidates import Plan
from triskele.evaluation.arms import Ground, StoredWindows, arm
from triskele.evaluation.datasets import BenchQuery, Dataset, load_dataset
from triskele.evaluation.windows import windows

THRESHOLD = 0.5
UNANSWERABLE = {"adversarial", "unanswerable", "abstention"}

Values = NDArray[np.float64]


def main() -> None:
    """One line per kind of question that should not be answered."""
    print("| set | against | n | AUROC | precision at 0.5 | answerable kept at 0.5 |\n|---|---|---|---|---|---|")
    for folder in (Path(str(resources.files("triskele.samples") / "team")), texts.data_folder() / "locomo"):
        data = load_dataset(folder)
        with Ground.laid(windows(data.documents)) as ground:
            stored = ground.searcher(arm("default")).stored  # type: ignore[attr-defined]
            answerable = _confidences(stored, [(query, query.scope) for query in data.ranked()])
            for name, asked in _others(data):
                print(_line(data.name, name, answerable, _confidences(stored, asked)))


def _others(data: Dataset) -> Iterator[tuple[str, list[tuple[BenchQuery, str | None]]]]:
    for kind in sorted({query.type for query in data.queries} & UNANSWERABLE):
        yield kind, [(query, query.scope) for query in data.queries if query.type == kind]
    scopes = sorted({query.scope for query in data.ranked() if query.scope})
    if len(scopes) > 1:
        following = dict(zip(scopes, [*scopes[1:], scopes[0]], strict=True))
        yield "the wrong scope", [(query, following[query.scope]) for query in data.ranked() if query.scope]


def _confidences(stored: StoredWindows, asked: list[tuple[BenchQuery, str | None]]) -> Values:
    engine = stored.engine
    places = [{"project": scope} if scope is not None else {"all_projects": True} for _, scope in asked]
    return np.array(
        [engine.ask(query.text, Plan(), **place).confidence for (query, _), place in zip(asked, places, strict=True)]
    )


def _line(dataset: str, name: str, answerable: Values, others: Values) -> str:
    values = np.concatenate([answerable, others])
    ranks = np.empty(len(values))
    ranks[np.argsort(values)] = np.arange(1, len(values) + 1)
    wins = ranks[: len(answerable)].sum() - len(answerable) * (len(answerable) + 1) / 2
    area = wins / (len(answerable) * len(others))
    kept, wrong = (answerable >= THRESHOLD).sum(), (others >= THRESHOLD).sum()
    # As if both kinds were asked equally often.
    precision = (kept / len(answerable)) / max(1e-9, kept / len(answerable) + wrong / len(others))
    return (
        f"| {dataset} | {name} | {len(answerable)} + {len(others)} | {area:.3f} | {precision:.2f}"
        f" | {kept / len(answerable):.2f} |"
    )


if __name__ == "__main__":
    main()
