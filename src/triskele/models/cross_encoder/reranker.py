"""A cross-encoder over the head of a ranking: within its time, or the ranking stands."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Generic, TypeVar

from triskele.base.deadlines import within
from triskele.errors import Unavailable
from triskele.models.cross_encoder.protocol import CrossEncoder
from triskele.types import Agreement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEPTH = 30
TIMEOUT_S = 2.0
_LOADING_S = 30.0
# Work that was left behind goes on for a while: this bounds how much of it there can be.
_AT_ONCE = 4
_TOP = 5

Text = TypeVar("Text")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rows in their new order; in the old one, with the reason, where there are no scores."""

    order: tuple[int, ...]
    scores: Mapping[int, float]
    agreement: Agreement | None = None
    missing: str = ""


class Reranker(Generic[Text]):
    """Asks a cross-encoder about the head of rankings."""

    def __init__(self, encoder: CrossEncoder[Text], *, timeout_s: float = TIMEOUT_S, depth: int = DEPTH) -> None:
        self._encoder = encoder
        self._timeout_s = timeout_s
        self.depth = depth
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    @property
    def name(self) -> str:
        """What the cross-encoder is called."""
        return self._encoder.name

    def verdict(self, question: Text | None, texts: Mapping[int, Text | None]) -> Verdict:
        """Order rows, given best first; those without a text that may be read keep their places."""
        rows = tuple(texts)
        read = {row: text for row in rows[: self.depth] if (text := texts[row]) is not None}
        if question is None:
            return Verdict(rows, {}, missing=f"{self.name} may not read the question")
        if len(read) < 2:
            return Verdict(rows, {}, missing=f"{self.name} has nothing to compare")
        try:
            found = self._scored(question, list(read.values()))
        except TimeoutError:
            return Verdict(rows, {}, missing=f"{self.name} took longer than {self._timeout_s:g} s")
        except Unavailable as error:
            return Verdict(rows, {}, missing=str(error))
        except Exception as error:
            # Whatever a model of somebody else's does, the ranking stands.
            return Verdict(rows, {}, missing=f"{self.name} fails ({type(error).__name__})")
        scores = dict(zip(read, found.tolist(), strict=True))
        order = reordered(rows, scores)
        return Verdict(order, scores, agreement(rows, order, scores))

    def _scored(self, question: Text, texts: Sequence[Text]) -> NDArray[np.float32]:
        # Weights are loaded once, which may take longer than reading with them ever does.
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
    """Rows by their scores, among the places that they held; rows without a score stay where they are."""
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
