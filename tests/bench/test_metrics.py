"""Metrics against values by hand and against ranx and ir-measures; AUROC by hand and against scipy."""

from __future__ import annotations

import math
import random
from pathlib import Path

import ir_measures
import pytest

from triskele.bench import metrics

pytestmark = pytest.mark.slow

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


def random_set(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, list[str]]]:
    """Graded labels with zeros, queries without a relevant document, and runs of any length, some of them empty."""
    chance = random.Random(seed)
    documents = [f"doc {number}" for number in range(60)]
    qrels = {f"q{n:02}": {d: chance.randint(0, 3) for d in chance.sample(documents, 9)} for n in range(40)}
    qrels["q07"] = dict.fromkeys(qrels["q07"], 0)
    qrels["q08"] = dict.fromkeys(documents[:20], 2)
    run = {query: chance.sample(documents, chance.randint(1, 50)) for query in qrels}
    run["q09"] = []
    return qrels, run


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("seed", range(5))
def test_ranx_is_an_oracle(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Importing ranx makes a folder in the home folder otherwise.
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    import ranx

    qrels, run = random_set(seed)
    ours = metrics.evaluate(list(qrels), qrels, run)
    names = ("recall@1", "recall@5", "recall@10", "recall@20", "recall@30", "ndcg@10", "mrr", "map")
    # A document of its own keeps the place of a query without results, which ranx refuses.
    scored = {query: {d: 1 / rank for rank, d in enumerate(found or ["none"], start=1)} for query, found in run.items()}
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(scored), list(names), return_mean=False)
    for name in names:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-12), name


@pytest.mark.parametrize("seed", range(5))
def test_ir_measures_is_an_oracle(seed: int) -> None:
    qrels, run = random_set(seed)
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
    positions = {query: position for position, query in enumerate(qrels)}
    compared = 0
    for found in ir_measures.pytrec_eval.iter_calc(list(measures), qrels, scored):
        name = measures[found.measure]
        assert ours[name][positions[found.query_id]] == pytest.approx(found.value), (name, found.query_id)
        compared += 1
    assert compared >= 39 * len(names)


def test_a_rank_below_the_run_is_a_miss_and_a_short_run_counts_as_it_is() -> None:
    scores = metrics.evaluate(["q"], {"q": {"a": 1, "b": 1}}, {"q": ["a"]})
    assert scores["recall@30"].tolist() == [0.5]
    assert scores["map"].tolist() == [0.5]
    assert metrics.evaluate(["q"], {"q": {"a": 0}}, {"q": ["a"]})["ndcg@10"].tolist() == [0.0]


def test_the_area_counts_pairs() -> None:
    assert metrics.auroc([0.9, 0.8], [0.1, 0.2]) == 1
    assert metrics.auroc([0.1], [0.9]) == 0
    assert metrics.auroc([0.5, 0.9], [0.5, 0.1]) == pytest.approx((0.5 + 1 + 1 + 1) / 4)


def test_precision_is_said_for_equally_many_of_both() -> None:
    found = metrics.abstention([0.9, 0.7, 0.5, 0.2], {"unanswerable": [0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.6]})
    assert (found["threshold"], found["answerable"]) == (0.5, 4)
    kind = found["kinds"]["unanswerable"]
    assert (kind["n"], kind["coverage"]) == (8, 0.75)
    assert kind["precision"] == pytest.approx(0.75 / (0.75 + 0.25))


def test_where_nothing_is_kept_there_is_no_precision() -> None:
    assert metrics.abstention([0.1], {"adversarial": [0.2]})["kinds"]["adversarial"]["precision"] is None


def test_auroc_agrees_with_scipy_on_ties() -> None:
    from scipy.stats import mannwhitneyu

    chance = random.Random(3)
    higher, lower = ([chance.randint(0, 9) / 10 for _ in range(count)] for count in (37, 53))
    theirs = mannwhitneyu(higher, lower).statistic / (len(higher) * len(lower))
    assert metrics.auroc(higher, lower) == pytest.approx(theirs)
