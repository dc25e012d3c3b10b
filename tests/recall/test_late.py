"""Late interaction against its definition: plain loops over tokens, neighbours and sessions."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from triskele.index.corpus import Facts
from triskele.index.token_vectors import packed
from triskele.models.embedder import Encoding
from triskele.recall import evidence, late
from triskele.recall.legs import _columns
from triskele.recall.plan import Plan
from triskele.recall.question import REACH, Question, _word, _words, token_weights
from triskele.recall.scores import Ranking, Scores
from triskele.text import timestamps
from triskele.text.analysis import Analyzer
from triskele.types import Query, Scope

WIDTH = 16
# Directions at right angles that signs can express: the rows of a Hadamard matrix.
DIRECTIONS = np.array([[(-1) ** (row & column).bit_count() for column in range(WIDTH)] for row in range(WIDTH)])
# Of numbers of one size the first third counts as far from 0: what each dimension of a kept vector is.
SIZES = np.where(np.arange(WIDTH) < round(0.32 * WIDTH), 10 / 3, 1)
SIZES /= np.linalg.norm(SIZES)
Floats = NDArray[np.float32]


class Talks:
    """Rows 10, 20, … with token vectors by place and conversations by number; -1 stands alone."""

    def __init__(
        self,
        vectors: dict[int, NDArray[np.uint8]],
        sessions: list[int],
        positions: list[int] | None = None,
    ) -> None:
        self.rows = np.arange(1, len(sessions) + 1, dtype=np.int64) * 10
        self.vectors = vectors
        self.sessions = sessions
        self.positions = positions or list(range(len(sessions)))

    def tokens(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        own = [self.vectors.get(row // 10, np.empty((0, WIDTH // 4), dtype=np.uint8)) for row in rows.tolist()]
        counts = np.array([len(each) for each in own], dtype=np.int64)
        return np.concatenate([np.empty((0, WIDTH // 4), dtype=np.uint8), *own]), counts

    def facts(self, rows: NDArray[np.int64], *, reach: int = 0) -> Facts:
        places = [row // 10 - 1 for row in rows.tolist()]
        offsets = [side * distance for distance in range(1, reach + 1) for side in (-1, 1)]
        beside = [[self._beside(place, offset) for offset in offsets] for place in places]
        return Facts(
            np.ones(len(rows), dtype=np.bool_),
            np.zeros(len(rows), dtype=np.float32),
            np.array([self.sessions[place] for place in places], dtype=np.int64),
            np.array(beside, dtype=np.int64).reshape(len(rows), len(offsets)),
            np.full(len(rows), -1),
            np.full(len(rows), -1),
            np.full(len(rows), -1),
        )

    def _beside(self, place: int, offset: int) -> int:
        session = self.sessions[place]
        talk = sorted((i for i, other in enumerate(self.sessions) if other == session), key=self.positions.__getitem__)
        there = talk.index(place) + offset
        return (talk[there] + 1) * 10 if session >= 0 and 0 <= there < len(talk) else -1


def late_ranking(
    encoding: Encoding, weights: Floats, talks: Talks, rows: NDArray[np.int64] | None = None, *, context: bool = True
) -> Ranking:
    query = Query(text="", scope=Scope(as_of=timestamps.now()))
    question = Question(query, Plan(context=context), encoding=encoding, reach=REACH if context else 0)
    corpus: Any = talks
    rows = talks.rows if rows is None else rows
    return late.interact(question, weights, rows, corpus).ranking(rows)


def asked_for(tokens: Floats) -> Encoding:
    count = len(tokens)
    return Encoding(np.zeros(4, np.float32), tokens, np.arange(count, dtype=np.int32), np.zeros((count, 2), np.int32))


def draw(seed: int, counts: list[int], asked: int) -> tuple[Floats, dict[int, NDArray[np.uint8]]]:
    random = np.random.default_rng(seed)
    question = random.standard_normal((asked, WIDTH)).astype(np.float32)
    question /= np.linalg.norm(question, axis=1, keepdims=True)
    drawn = {place + 1: random.integers(-127, 128, (n, WIDTH), np.int8) for place, n in enumerate(counts) if n}
    return question, {place: packed(each) for place, each in drawn.items()}


def plain_max_sim(question: Floats, own: NDArray[np.uint8]) -> list[float]:
    """For every token of the question its best product with any token of the memory."""
    kept = [[level(byte >> place & 3) for byte in row.tolist() for place in (6, 4, 2, 0)] for row in own]
    unit = [[number / math.hypot(*row) for number in row] for row in kept]
    return [max(sum(a * b for a, b in zip(token, row, strict=True)) for row in unit) for token in question.tolist()]


def level(pair: int) -> float:
    """What two bits say: the sign, then whether the number is far from 0."""
    return (1 if pair & 2 else -1) * (10 / 3 if pair & 1 else 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), counts=st.lists(st.integers(0, 5), max_size=6), asked=st.integers(0, 4))
def test_best_matches_are_those_of_a_double_loop(seed: int, counts: list[int], asked: int) -> None:
    question, own = draw(seed, counts, asked)
    talks: Any = Talks(own, [-1] * len(counts))
    found, known = late.best_matches(question, talks.rows, talks)
    assert known.tolist() == counts
    places = range(1, len(counts) + 1)
    expected = [plain_max_sim(question, own[place]) if place in own else [0.0] * asked for place in places]
    np.testing.assert_allclose(found, np.array(expected).reshape(len(counts), asked), atol=1e-4)


def plain_late(question: Floats, weights: Floats, own: dict[int, NDArray[np.uint8]], talks: Talks) -> dict[int, float]:
    """The definition, with its neighbours and sessions, candidate by candidate."""
    matches = [
        plain_max_sim(question, own[place]) if place in own else [0.0] * len(question)
        for place in range(1, len(talks.sessions) + 1)
    ]
    decays = dict(zip((-1, 1, -2, 2), late._DECAY.tolist(), strict=True))
    sessions, positions = talks.sessions, talks.positions
    scores = {}
    for place, session in enumerate(sessions):
        talk = sorted((i for i, other in enumerate(sessions) if other == session), key=lambda i: positions[i])
        best = list(matches[place])
        for offset, decay in decays.items() if session >= 0 else ():
            there = talk.index(place) + offset
            if 0 <= there < len(talk):
                best = [max(mine, decay * theirs) for mine, theirs in zip(best, matches[talk[there]], strict=True)]
        share = late.OWN_SHARE
        mixed = [(1 - share) * b + share * m for b, m in zip(best, matches[place], strict=True)]
        tokens = len(own[place + 1]) if place + 1 in own else 0
        brevity = min(tokens / late.FEW_TOKENS, 1) ** late.BREVITY_POWER
        scores[place] = brevity * sum(w * x for w, x in zip(weights.tolist(), mixed, strict=True))
    best_of = {s: max([0.0, *(scores[i] for i, own in enumerate(sessions) if own == s)]) for s in set(sessions)}
    moved = {
        place: _towards(score, best_of[sessions[place]]) if sessions[place] >= 0 else score
        for place, score in scores.items()
    }
    return {place: moved[place] for place in moved if place + 1 in own}


def _towards(score: float, best: float) -> float:
    """A turn's score on its way to the best of its conversation."""
    return (score + late.SESSION_SHARE * best) / (1 + late.SESSION_SHARE)


def _mixed(own: float, around: float) -> float:
    return (1 - late.OWN_SHARE) * around + late.OWN_SHARE * own


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    turns=st.lists(st.tuples(st.integers(0, 4), st.sampled_from([-1, 0, 0, 0, 1])), min_size=1, max_size=9),
)
def test_neighbours_and_sessions_count_as_defined(seed: int, turns: list[tuple[int, int]]) -> None:
    question, own = draw(seed, [count for count, _ in turns], 3)
    weights = np.array([0.5, 0.3, 0.2], dtype=np.float32)
    shuffled = np.random.default_rng(seed).permutation(len(turns)).tolist()
    talks = Talks(own, [session for _, session in turns], shuffled)
    ranking = late_ranking(asked_for(question), weights, talks)
    expected = plain_late(question, weights, own, talks)
    found = {row // 10 - 1: score for row, score in zip(ranking.rows, ranking.scores, strict=True)}
    assert found == pytest.approx(expected, abs=1e-4)
    assert list(ranking.scores) == sorted(ranking.scores, reverse=True)


def _one(direction: int, count: int = late.FEW_TOKENS) -> NDArray[np.uint8]:
    return packed(np.repeat(DIRECTIONS[[direction]], count, axis=0).astype(np.int8))


def _question(*directions: int) -> Encoding:
    """Tokens that match one direction with 1 and the others with 0."""
    return asked_for((DIRECTIONS[list(directions)] / (SIZES * WIDTH)).astype(np.float32))


HALVES = np.array([0.5, 0.5], dtype=np.float32)
ONE = np.ones(1, dtype=np.float32)


def test_a_turn_is_helped_by_what_was_said_before_and_after() -> None:
    # "When was it?" – "In May": the answer alone matches only half of the question.
    talks = Talks({1: _one(0), 2: _one(1), 3: _one(1)}, [0, 0, -1])
    ranking = late_ranking(_question(0, 1), HALVES, talks)
    alone = late_ranking(_question(0, 1), HALVES, talks, context=False)
    scores, plain = (dict(zip(each.rows, each.scores, strict=True)) for each in (ranking, alone))
    assert plain == pytest.approx({10: 0.5, 20: 0.5, 30: 0.5})
    # Neither neighbour nor session lifts the one that stands alone.
    assert scores[30] == pytest.approx(0.5)
    before, after = late._DECAY[:2].tolist()
    assert 0.5 < before <= 1 and 0.5 < after <= 1
    first, second = _mixed(0.5, 0.5 + 0.5 * after), _mixed(0.5, 0.5 + 0.5 * before)
    best = max(first, second)
    assert scores[10] == pytest.approx(_towards(first, best)) and scores[10] > 0.5
    assert scores[20] == pytest.approx(_towards(second, best)) and scores[20] > 0.5


def test_a_neighbour_that_is_no_candidate_itself_counts_too() -> None:
    talks = Talks({1: _one(0), 2: _one(1)}, [0, 0])
    ranking = late_ranking(_question(0, 1), HALVES, talks, talks.rows[1:])
    assert ranking.rows.tolist() == [20]
    assert ranking.scores[0] == pytest.approx(_mixed(0.5, 0.5 + 0.5 * float(late._DECAY[0])))


def test_no_score_is_higher_than_the_ceiling() -> None:
    ranking = late_ranking(_question(0), ONE, Talks({place: _one(0) for place in range(1, 5)}, [0, 0, 0, -1]))
    assert max(ranking.scores) <= ranking.ceiling + 1e-6


def test_a_conversation_in_which_one_turn_fits_comes_before_one_in_which_none_does() -> None:
    # The last turns of both are equal and far from anything; one talk began with a perfect match.
    talks = Talks({place: _one(3) for place in range(1, 15)} | {1: _one(0)}, [0] * 7 + [1] * 7)
    ranking = late_ranking(_question(0), ONE, talks)
    scores = dict(zip(ranking.rows, ranking.scores, strict=True))
    assert scores[70] > scores[140] == pytest.approx(0, abs=1e-6)


def test_a_memory_of_few_tokens_counts_less() -> None:
    few = late.FEW_TOKENS
    ranking = late_ranking(
        _question(0), ONE, Talks({1: _one(0, 1), 2: _one(0, few // 2), 3: _one(0), 4: _one(0, 9 * few)}, [-1] * 4)
    )
    assert ranking.rows.tolist() == [30, 40, 20, 10]
    assert ranking.scores[:2] == pytest.approx((1, 1))
    assert ranking.scores[3] == pytest.approx((1 / few) ** late.BREVITY_POWER)


def test_equal_candidates_come_in_the_order_of_rows() -> None:
    talks = Talks({place: _one(0) for place in range(1, 6)}, [-1] * 5)
    assert late_ranking(_question(0), ONE, talks, talks.rows[[3, 0, 4, 1, 2]]).rows.tolist() == [10, 20, 30, 40, 50]


def test_candidates_without_token_vectors_are_not_ranked() -> None:
    talks = Talks({1: _one(0)}, [0, 0, -1])
    assert late_ranking(_question(0), ONE, talks).rows.tolist() == [10]
    assert late_ranking(_question(0), ONE, talks, talks.rows[:0]).rows.tolist() == []


def test_scores_of_more_rows_join_those_before() -> None:
    talks: Any = Talks({1: _one(0), 2: _one(1), 3: _one(0)}, [-1, -1, -1])
    query = Query(text="", scope=Scope(as_of=timestamps.now()))
    question = Question(query, Plan(), encoding=_question(0), token_weights=ONE)
    words = Ranking("lexical", np.array([20, 30, 40]), np.array([2.0, 1.0, 9.0]), ceiling=4.0)
    dense = Ranking("dense", np.array([30]), np.array([0.5]))
    weights, rows = {"lexical": 0.5, "late": 0.5}, talks.rows[1:]
    facts = talks.facts(rows, reach=question.reach)
    columns = _columns(rows, words, dense, weights)
    pool = Scores(rows, columns, (words, dense), weights=weights, facts=facts)
    # The one without a vector is estimated by its words; the other keeps its score.
    before, after = (
        {each.row: each.score for each in ranked}
        for ranked in (pool.ranked(), evidence.estimate_unembedded(pool.ranked(), pool))
    )
    assert after[20] > before[20] and after[30] == before[30]
    scores = late.late(question, talks, pool)
    both = late.with_rows(question, talks, scores, [10, 20])
    assert late.with_rows(question, talks, scores, [20, 30]) is scores
    assert both.rows.tolist() == [10, 20, 30]
    np.testing.assert_allclose(both.matches[:, 0], [1, 0, 1], atol=1e-6)
    raw = {column.name: column.raw for column in both.columns}
    np.testing.assert_array_equal(raw["lexical"], [np.nan, 2, 1])
    np.testing.assert_array_equal(raw["dense"], [np.nan, np.nan, 0.5])
    assert [candidate.row for candidate in both.ranked()] == [30, 10, 20]


# Weights


def encoded(text: str, pattern: str = r"\w+|[^\w\s]") -> Encoding:
    spans = [match.span() for match in re.finditer(pattern, text)]
    vectors = np.ones((len(spans), WIDTH), dtype=np.float32)
    ids = np.arange(len(spans), dtype=np.int32)
    return Encoding(np.zeros(4, np.float32), vectors, ids, np.array(spans, dtype=np.int32).reshape(-1, 2))


def weighed(text: str, rarity: dict[str, float], pattern: str = r"\w+|[^\w\s]") -> dict[str, float]:
    made = encoded(text, pattern)
    weights = token_weights(text, made, Analyzer(), rarity)
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    return {text[start:stop]: float(weight) for (start, stop), weight in zip(made.spans, weights, strict=True)}


def test_rare_words_weigh_more_and_stop_words_and_punctuation_nothing() -> None:
    found = weighed("Which port, Argo?", {"which": 0.1, "port": 1.0, "argo": 6.0})
    assert found["Argo"] > found["port"] > 0
    assert found["Which"] == found[","] == found["?"] == 0
    assert found["Argo"] / found["port"] == pytest.approx(6**0.7)


def test_every_piece_of_a_word_weighs_what_the_word_does() -> None:
    rarity = {Analyzer().terms("unaffordable")[0]: 5.0, "port": 1.0}
    found = weighed("unaffordable port", rarity, pattern="una|ffor|dable|port")
    assert found["una"] == found["ffor"] == found["dable"] > found["port"]


def test_an_identifier_counts_by_its_rarest_part() -> None:
    found = weighed("deploy user_id", {"deploy": 1.0, "user": 0.5, "id": 0.2, "user_id": 8.0})
    assert found["user_id"] > found["deploy"]


@pytest.mark.parametrize("text", ["?!", "👍", "unknown words", "的"])
def test_where_nothing_is_known_everything_counts_the_same(text: str) -> None:
    assert len(set(weighed(text, {}).values())) == 1


def test_a_question_without_tokens_has_no_weights() -> None:
    assert token_weights("", encoded(""), Analyzer(), {}).shape == (0,)


@given(st.text("ab_-'é1 漢.", max_size=80), st.lists(st.integers(0, 80), max_size=12))
def test_the_word_of_a_token_does_not_depend_on_how_it_is_found(text: str, cuts: list[int]) -> None:
    cuts = sorted(min(cut, len(text)) for cut in cuts)
    spans = np.array([*pairwise(cuts)], dtype=np.int32).reshape(-1, 2)
    expected = [_word(text, start, stop) for start, stop in spans.tolist()]
    assert _words(text, spans) == expected
