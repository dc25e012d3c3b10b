"""One arm over all questions: what it found, how good that was and what it cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from triskele.evaluation import metrics
from triskele.evaluation.arms import Arm
from triskele.evaluation.datasets import BenchQuery, Dataset
from triskele.evaluation.ground import Searcher
from triskele.evaluation.tally import Given, Tally
from triskele.evaluation.windows import Window, best_documents

if TYPE_CHECKING:
    from triskele.recall.fusion import Scores

RUN_DEPTH = 100
_PROGRESS_EVERY = 50
_NO_LEGS: Mapping[str, Any] = {"legs": {}, "overlap": {}}

Progress = Callable[[str, int, int], None]
Run = Mapping[str, Sequence[tuple[str, float]]]
Standings = Mapping[str, Mapping[str, Mapping[str, Given]]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What one arm found, how good that was and what it cost.

    `legs` counts what each leg did, `right` holds what each gave to the right documents, question by question;
    `confidence` is there for arms that tell it, for questions without an answer too.
    """

    run: Run
    scores: Scores
    latencies_ms: Sequence[float]
    bytes_per_memory: float
    legs: Mapping[str, Any] = field(default_factory=lambda: _NO_LEGS)
    right: Standings = field(default_factory=dict)
    confidence: Mapping[str, float] = field(default_factory=dict)


def depth_of(rows: Sequence[Window]) -> int:
    """Several windows of one document take several places, so that many more rows are asked for."""
    return RUN_DEPTH * -(-len(rows) // max(1, len({row.document for row in rows})))


@dataclass(frozen=True, slots=True)
class Course:
    """The questions that every arm is asked, in their order."""

    data: Dataset
    queries: Sequence[BenchQuery]
    unanswerable: Sequence[BenchQuery]
    rows: Sequence[Window]
    depth: int

    def run(self, arm: Arm, searcher: Searcher, tell: Progress) -> Measured:
        """Ask everything of one arm; only the ranking is timed."""
        searcher.search(self.queries[0].text, self.queries[0].scope, self.depth)
        run: dict[str, Sequence[tuple[str, float]]] = {}
        latencies_ms: list[float] = []
        confidence: dict[str, float] = {}
        tally = Tally()
        for done, query in enumerate(self.queries, start=1):
            started = time.perf_counter()
            answered = searcher.search(query.text, query.scope, self.depth)
            latencies_ms.append((time.perf_counter() - started) * 1000)
            found = answered.ranked()
            run[query.id] = best_documents(found.rows, self.rows, RUN_DEPTH)
            tally.add(query.id, found.fused, self.rows, self.right(query))
            if arm.tells_confidence and self.unanswerable:
                confidence[query.id] = answered.confidence()
            if done % _PROGRESS_EVERY == 0 or done == len(self.queries):
                tell(arm.name, done, len(self.queries))
        if arm.tells_confidence:
            confidence |= {query.id: self.sureness(searcher, query.text, query.scope) for query in self.unanswerable}
        size = searcher.bytes() / max(1, len(self.rows))
        return Measured(run, self.scores(run), latencies_ms, size, tally.to_json(), tally.gold, confidence)

    def sureness(self, searcher: Searcher, text: str, scope: str | None) -> float:
        """How sure an arm is of its answer to one question."""
        return searcher.search(text, scope, self.depth).confidence()

    def right(self, query: BenchQuery) -> frozenset[str]:
        """The documents that answer a question."""
        return frozenset(id for id, grade in self.data.qrels[query.id].items() if grade > 0)

    def scores(self, run: Run) -> Scores:
        """Every metric of every question."""
        ranked = {id: [document for document, _ in found] for id, found in run.items()}
        return metrics.evaluate([query.id for query in self.queries], self.data.qrels, ranked)
