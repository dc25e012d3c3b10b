"""The verdict of a cross-encoder: in time and sound, or the ranking stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from triskele.errors import ModelUnavailable
from triskele.models.cross_encoder import DEPTH, Reranker, agreement, reordered
from triskele.types import Agreement


class Fake:
    """Scores by a table, and remembers what it read."""

    name = "fake"

    def __init__(self, answer: Callable[[Sequence[str]], Any]) -> None:
        self.answer = answer
        self.read: list[list[str]] = []

    def prepare(self) -> None:
        pass

    def score(self, question: str, texts: Sequence[str]) -> Any:
        self.read.append(list(texts))
        return np.asarray(self.answer(texts), dtype=np.float32)


def by_length(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_the_best_score_comes_first_with_the_agreement() -> None:
    reranked = Reranker(Fake(by_length)).rerank("q", {7: "a", 8: "bb", 9: "ccc"})
    assert reranked.order == (9, 8, 7)
    assert reranked.scores == {7: 1.0, 8: 2.0, 9: 3.0}
    assert reranked.agreement == Agreement(tau=-1.0, kept=1.0)
    assert reranked.missing == ""


def test_only_the_head_is_read_and_the_rest_follows_as_it_was() -> None:
    encoder = Fake(by_length)
    texts: dict[int, str | None] = {row: "x" * row for row in range(40)}
    reranked = Reranker(encoder).rerank("q", texts)
    assert len(encoder.read) == 1 and len(encoder.read[0]) == DEPTH == 30
    assert reranked.order == (*range(29, -1, -1), *range(30, 40))
    assert Reranker(encoder, depth=3).rerank("q", texts).order[:4] == (2, 1, 0, 3)


def test_rows_that_may_not_be_read_keep_their_places() -> None:
    encoder = Fake(by_length)
    reranked = Reranker(encoder).rerank("q", {1: "a", 2: None, 3: "ccc", 4: None, 5: "bb"})
    assert reranked.order == (3, 2, 5, 4, 1)
    assert encoder.read == [["a", "ccc", "bb"]]


def test_a_question_that_may_not_be_read_changes_nothing() -> None:
    encoder = Fake(by_length)
    reranked = Reranker(encoder).rerank(None, {1: "a", 2: "bb"})
    assert reranked.order == (1, 2) and "may not read the question" in reranked.missing and encoder.read == []


@pytest.mark.parametrize("texts", [{}, {1: "a"}, {1: "a", 2: None}])
def test_rerank_with_nothing_to_compare_sends_nothing(texts: dict[int, str | None]) -> None:
    encoder = Fake(by_length)
    assert Reranker(encoder).rerank("q", texts).order == tuple(texts)
    assert encoder.read == []


def test_score_within_ends_at_its_time(gate: threading.Event) -> None:
    def slow(texts: Sequence[str]) -> list[int]:
        gate.wait(30)
        return by_length(texts)

    encoder = Fake(slow)
    judge = Reranker(encoder, timeout_s=0.05)
    for _ in range(6):
        reranked = judge.rerank("q", {1: "a", 2: "bb"})
        assert reranked.order == (1, 2) and reranked.agreement is None
        assert "longer than 0.05 s" in reranked.missing
    assert len(encoder.read) == 4, "what was left behind is bounded"


def test_after_slow_work_has_ended_there_is_room_again(gate: threading.Event) -> None:
    gate.set()
    judge = Reranker(Fake(by_length))
    assert all(judge.rerank("q", {1: "a", 2: "bb"}).order == (2, 1) for _ in range(9))


def test_a_failure_leaves_the_ranking() -> None:
    def fail(texts: Sequence[str]) -> list[int]:
        raise ModelUnavailable("out of order")

    judge = Reranker(Fake(fail))
    for _ in range(9):
        reranked = judge.rerank("q", {1: "a", 2: "bb"})
        assert (reranked.order, reranked.missing) == ((1, 2), "out of order")


def test_equal_scores_keep_the_order() -> None:
    assert reordered([3, 1, 2], {3: 0.0, 1: 0.0, 2: 0.0}) == (3, 1, 2)
    assert reordered([], {}) == ()


def test_agreement_counts_pairs_and_the_first_five() -> None:
    scored = dict.fromkeys(range(8), 0.0)
    assert agreement(range(8), range(8), scored) == Agreement(1.0, 1.0)
    swapped = agreement(range(8), (1, 0, 2, 3, 4, 5, 6, 7), scored)
    assert swapped.tau == pytest.approx(1 - 2 / 28) and swapped.kept == 1.0
    assert agreement(range(8), tuple(range(7, -1, -1)), scored) == Agreement(-1.0, pytest.approx(0.4))
    assert agreement([], [], {}) == Agreement(1.0, 1.0)
    # What was not scored did not agree or disagree.
    assert agreement([1, 2, 3], [3, 2, 1], {1: 0.0, 3: 1.0}).tau == -1.0
