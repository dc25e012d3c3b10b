"""Metrics against values worked out by hand and against a second library."""

from __future__ import annotations

import math
import random

import ir_measures
import pytest

from triskele.evaluation import metrics

QRELS = {
    "q1": {"a": 3, "b": 1, "z": 0},
    "q2": {"c": 2},
    "q3": {"d": 1},
    "q4": {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1},
}
RUN = {"q1": ["b", "x", "a"], "q2": ["x", "y", "z", "w", "v", "c"], "q3": [], "q4": ["a", "b", "c", "d", "e", "f"]}


def test_by_hand() -> None:
    scores = metrics.evaluate(list(QRELS), QRELS, RUN)
    ideal = 3 + 1 / math.log2(3)
    expected = {
        "recall@1": [0.5, 0, 0, 1 / 6],
        "recall@5": [1, 0, 0, 5 / 6],
        "recall@10": [1, 1, 0, 1],
        "ndcg@10": [(1 + 3 / 2) / ideal, 1 / math.log2(7), 0, 1],
        "mrr": [1, 1 / 6, 0, 1],
        "map": [(1 + 2 / 3) / 2, 1 / 6, 0, 1],
        "recall_all@5": [1, 0, 0, 0],
        "recall_any@5": [1, 0, 0, 1],
        "top_hit": [1, 0, 0, 1],
    }
    for name, values in expected.items():
        assert scores[name] == pytest.approx(values), name


def test_summary_over_some_queries() -> None:
    scores = metrics.evaluate(list(QRELS), QRELS, RUN)
    assert metrics.summary(scores, [0, 1])["mrr"] == pytest.approx((1 + 1 / 6) / 2)
    assert metrics.summary(scores, [])["n"] == 0
    assert metrics.summary(scores, [])["map"] is None
    assert set(metrics.summary(scores, [0])) == {"n", *metrics.METRICS}


def test_against_a_second_library() -> None:
    chance = random.Random(11)
    documents = [f"doc {number}" for number in range(60)]
    qrels = {f"q{n:02}": {d: chance.randint(0, 3) for d in chance.sample(documents, 9)} for n in range(40)}
    run = {query: chance.sample(documents, chance.randint(1, 50)) for query in qrels}
    ours = metrics.evaluate(list(qrels), qrels, run)
    names = {
        "recall@1": "R@1",
        "recall@5": "R@5",
        "recall@10": "R@10",
        "recall@20": "R@20",
        "recall@30": "R@30",
        "ndcg@10": "nDCG@10",
        "mrr": "RR",
        "map": "AP",
        "recall_any@5": "Success@5",
        "top_hit": "Success@1",
    }
    measures = {ir_measures.parse_measure(theirs): name for name, theirs in names.items()}
    scored = {query: {d: -float(rank) for rank, d in enumerate(found)} for query, found in run.items()}
    places = {query: place for place, query in enumerate(qrels)}
    for found in ir_measures.pytrec_eval.iter_calc(list(measures), qrels, scored):
        name = measures[found.measure]
        assert ours[name][places[found.query_id]] == pytest.approx(found.value), (name, found.query_id)
