"""A cross-encoder that learned from half of the sample questions judges what recall finds for the other half."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from models import trained
from models.kernels import Network, padded, softmax
from models.trained import Lesson

from triskele import config
from triskele.bench.datasets import BenchQuery
from triskele.bench.metrics import auroc
from triskele.engine.local import LocalEngine
from triskele.models.cross_encoder import ExportedCrossEncoder, Reranker, Reranking
from triskele.types import Hit

pytestmark = pytest.mark.slow


class Judged(NamedTuple):
    query: BenchQuery
    hits: tuple[Hit, ...]
    verdict: Reranking

    def right(self) -> list[int]:
        """The places of what answers among the hits."""
        grades = trained.graded(self.query)
        return [place for place, hit in enumerate(self.hits) if grades.get(hit.memory.content, 0) > 0]


@pytest.fixture(scope="module")
def team(team_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("judged")
    shutil.copytree(team_home, folder / "home")
    environment = {"TRISKELE_HOME": str(folder / "home"), "TRISKELE_PROJECT": "demo"}
    with LocalEngine(config.load(environment), folder) as engine:
        yield engine


@pytest.fixture(scope="module")
def judged(team: LocalEngine, trained_cross_encoder: Path) -> list[Judged]:
    """Every second question of the half that nobody learned from, for the sake of time."""
    judge = Reranker(ExportedCrossEncoder(trained_cross_encoder), timeout_s=60)
    ranks = []
    for query in trained.questions("test")[::2]:
        hits = trained.head(team, query)
        texts: dict[int, str | None] = {place: hit.memory.content for place, hit in enumerate(hits)}
        ranks.append(Judged(query, hits, judge.rerank(query.text, texts)))
    return ranks


def _loss(network: Network, lesson: Lesson) -> float:
    shares = softmax(network.scores(lesson.question, lesson.texts))
    return float(-(lesson.wanted * np.log(shares)).sum())


def _small_lesson() -> tuple[Network, Lesson]:
    chance = np.random.default_rng(5)
    gates = np.concatenate([[0.0], chance.uniform(0.5, 2.0, 19)])
    network = Network.untrained(chance.normal(size=(20, 6)), gates, seed=2)
    weights = {name: value + chance.normal(0, 0.2, value.shape) for name, value in network.weights.items()}
    texts = padded([[3, 4, 5], [1, 6], [7, 8, 9, 2]])
    return network.learned(weights), Lesson(np.array([1, 2, 3]), texts, np.array([0.7, 0.3, 0.0]))


@pytest.mark.parametrize("name", ["turn", "mix", "shift", "out"])
def test_gradients_are_those_of_small_steps(name: str) -> None:
    network, lesson = _small_lesson()
    gradient = network.gradients(*lesson)[name]
    for position in np.ndindex(gradient.shape):
        step = np.zeros_like(gradient)
        step[position] = 1e-5
        above, below = (
            _loss(network.learned({**network.weights, name: network.weights[name] + sign * step}), lesson)
            for sign in (1, -1)
        )
        assert gradient[position] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-7)


def test_learning_lowers_the_loss() -> None:
    network, lesson = _small_lesson()
    assert _loss(trained.learn(network, [lesson] * 20), lesson) < 0.9 * _loss(network, lesson)


def test_the_exported_graph_gives_the_scores_of_the_network(
    trained_network: Network, trained_cross_encoder: Path
) -> None:
    texts = [document.text for document in trained.DATASET.documents[::6]]
    texts += ["", "berthd", "[SEP]", "短信验证", "🛶", "\ud800"]
    encoder = ExportedCrossEncoder(trained_cross_encoder)
    for question in ("who maintains ledgerline?", "berthd gRPC port", "🛶", ""):
        question_ids = np.array(trained.ids(question), dtype=np.int64)
        read = padded([trained.ids(text.replace("\ud800", "\ufffd")) for text in texts])
        encoder_scores = encoder.score(question, texts)
        np.testing.assert_allclose(encoder_scores, trained_network.scores(question_ids, read), atol=1e-4)
    assert np.ptp(encoder.score("who maintains ledgerline?", texts)) > 0.1


def test_unseen_questions_are_ordered_better_than_by_chance(judged: list[Judged]) -> None:
    """How often what answers is above what does not: 0.5 by chance, and by a network before it has learned."""
    margins = []
    for one in judged:
        right = one.right()
        scores = one.verdict.scores
        wrong_scores = [score for place, score in scores.items() if place not in right]
        if right and wrong_scores:
            margins.append(auroc([scores[place] for place in right], wrong_scores))
    assert len(margins) > 40
    assert np.mean(margins) > 0.7


def test_rerank_cross_reorders_hits_and_reports_agreement(judged: list[Judged]) -> None:
    for one in judged:
        verdict = one.verdict
        assert verdict.missing == "" and verdict.agreement is not None
        assert sorted(verdict.order) == list(range(len(one.hits)))
        assert [verdict.scores[place] for place in verdict.order] == sorted(verdict.scores.values(), reverse=True)
        is_same = verdict.order == tuple(range(len(one.hits)))
        assert (verdict.agreement.tau == 1.0) == is_same
    changed = [one for one in judged if one.verdict.order != tuple(range(len(one.hits)))]
    assert len(changed) > len(judged) / 2
    # Both look for the same thing: they agree more than two random orders would.
    assert np.mean([one.verdict.agreement.tau for one in judged if one.verdict.agreement]) > 0.05
