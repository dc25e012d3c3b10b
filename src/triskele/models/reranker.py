"""Reordering the top of a ranking with a cross-encoder; the ranking is kept if the time runs out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

from triskele.base.deadlines import within
from triskele.errors import Unavailable
from triskele.models.cross_encoders import CrossEncoder
from triskele.types import Agreement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 30
TIMEOUT_S = 2.0
_LOADING_S = 30.0
# Work that ran out of time goes on in its thread: this bounds how many there are.
_AT_ONCE = 4
_TOP = 5

Text = TypeVar("Text")


@dataclass(frozen=True, slots=True)
class Reranking:
    """The rows in their new order, or in the old one with the reason why there are no scores."""

    order: tuple[int, ...]
    scores: Mapping[int, float]
    agreement: Agreement | None = None
    missing: str = ""


class Reranker(Generic[Text]):
    """Reorders the top of a ranking by the scores of a cross-encoder."""

    def __init__(self, encoder: CrossEncoder[Text], *, timeout_s: float = TIMEOUT_S, depth: int = DEPTH) -> None:
        self._encoder = encoder
        self._timeout_s = timeout_s
        self.depth = depth
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    @property
    def name(self) -> str:
        """The name of the cross-encoder."""
        return self._encoder.name

    def rerank(self, question: Text | None, texts: Mapping[int, Text | None]) -> Reranking:
        """Reorder rows, given best first; rows whose text may not be read keep their positions."""
        rows = tuple(texts)
        read = {row: text for row in rows[: self.depth] if (text := texts[row]) is not None}
        if question is None:
            return Reranking(rows, {}, missing=f"{self.name} may not read the question")
        if len(read) < 2:
            return Reranking(rows, {}, missing=f"{self.name} has nothing to compare")
        try:
            found = self._scored(question, list(read.values()))
        except TimeoutError:
            return Reranking(rows, {}, missing=f"{self.name} took longer than {self._timeout_s:g} s")
        except Unavailable as error:
            return Reranking(rows, {}, missing=str(error))
        except Exception as error:
            # A model of a third party may raise anything; the ranking is kept.
            return Reranking(rows, {}, missing=f"{self.name} fails ({type(error).__name__})")
        scores = dict(zip(read, found.tolist(), strict=True))
        order = reordered(rows, scores)
        return Reranking(order, scores, agreement(rows, order, scores))

    def _scored(self, question: Text, texts: Sequence[Text]) -> NDArray[np.float32]:
        # Loading the weights may take longer than scoring; it has its own limit.
        within(_LOADING_S, self._encoder.prepare)
        if not self._free.acquire(blocking=False):
            raise TimeoutError

        def work() -> NDArray[np.float32]:
            try:
                return self._encoder.score(question, texts)
            finally:
                self._free.release()

        return within(self._timeout_s, work)


def reordered(rows: Sequence[int], scores: Mapping[int, float]) -> tuple[int, ...]:
    """Rows by their scores, among the positions that they held; rows without a score keep theirs."""
    best_first = iter(sorted((row for row in rows if row in scores), key=lambda row: -scores[row]))
    return tuple(next(best_first) if row in scores else row for row in rows)


def agreement(before: Sequence[int], after: Sequence[int], scored: Mapping[int, float]) -> Agreement:
    """Compare two orders of the same rows."""
    place = {row: number for number, row in enumerate(after)}
    pairs = list(combinations([row for row in before if row in scored], 2))
    same = sum(place[first] < place[second] for first, second in pairs)
    tau = 2 * same / len(pairs) - 1 if pairs else 1.0
    top = set(before[:_TOP])
    return Agreement(tau, len(top & set(after[:_TOP])) / len(top) if top else 1.0)
