"""Which candidates are served: a shorter list is the beginning of the longer one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.recall.plan import SHIPPED
from triskele.recall.scores import Candidate
from triskele.recall.supersession import Priors, resolve
from triskele.types import Query, Sort

COUNT = 80
PRIORS = Priors(importance=0.3)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """Memories of every importance; each fifth one replaces the one before it."""
    home: Path = tmp_path_factory.mktemp("home")
    settings = config.load({"TRISKELE_HOME": str(home), "TRISKELE_RECALL_MODEL": "none"})
    chance = random.Random(5)
    with LocalEngine(settings, home) as opened:
        ids: list[str] = []
        for number in range(COUNT):
            replaced = ids[-1] if number % 5 == 4 else None
            outcome = opened.remember(f"fact {number}", importance=chance.random(), supersedes=replaced)
            ids.append(outcome.id)
        yield opened


def served(
    engine: LocalEngine, scores: list[float], limit: int, sort: Sort = Sort.RELEVANCE
) -> list[tuple[str, float]]:
    """The ids and scores of a list; the candidates are the memories in order of rows."""
    rows = sorted(row for row, _ in engine.store.versions())
    fused = [Candidate(row, score, {}) for row, score in zip(rows, scores, strict=True)]
    query = Query(text="fact", scope=engine.scope(), limit=limit, sort=sort)
    corpus = engine.models.sources(query, SHIPPED).open_corpus(query.scope)
    return [(each.memory.id, each.score) for each in resolve(fused, query, engine.store, corpus, priors=PRIORS)]


@pytest.mark.parametrize("seed", range(12))
def test_a_shorter_list_is_the_beginning_of_the_longer(engine: LocalEngine, seed: int) -> None:
    chance = random.Random(seed)
    spread = chance.choice([0.02, 0.3, 1.0])
    scores = sorted((chance.uniform(1 - spread, 1) for _ in range(COUNT)), reverse=True)
    everything = served(engine, scores, COUNT)
    assert len(everything) < COUNT, "what was replaced is served once, with its successor"
    for limit in (1, 3, 10, len(everything)):
        assert served(engine, scores, limit) == everything[:limit]


def test_an_important_memory_comes_up_from_far_below(engine: LocalEngine) -> None:
    importance = {memory.id: memory.importance for _, memory in engine.store.versions()}
    last = max(importance, key=lambda id: importance[id])
    ids = [memory.id for _, memory in sorted(engine.store.versions())]
    # As good as the first but for its importance, and listed behind all others.
    scores = [0.5 + 0.001 * (ids[place] == last) for place in range(COUNT)]
    assert served(engine, scores, 1)[0][0] == last


def test_scores_that_do_not_fall_are_read_to_the_end(engine: LocalEngine) -> None:
    # A reranker keeps scores by position only where it ran: what lies below may have a higher one.
    scores = [0.9] * 12 + [0.1] * (COUNT - 13) + [0.95]
    assert served(engine, scores, 5) == served(engine, scores, COUNT)[:5]


def test_a_candidate_outside_the_scope_takes_no_place(engine: LocalEngine) -> None:
    query = Query(text="fact", scope=engine.scope(), limit=2)
    corpus = engine.models.sources(query, SHIPPED).open_corpus(query.scope)
    # No links: the first three memories replace nothing.
    rows = sorted(row for row, _ in engine.store.versions())[:3]
    fused = [Candidate(10_000, 9.0, {}), *(Candidate(row, 1.0, {}) for row in rows)]
    resolved = resolve(fused, query, engine.store, corpus, priors=Priors())
    assert [each.candidate.row for each in resolved] == rows[:2]


def test_an_older_version_outside_the_scope_does_not_take_the_place_of_the_newer_one(tmp_path: Path) -> None:
    settings = config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_RECALL_MODEL": "none"})
    with LocalEngine(settings, tmp_path) as engine:
        replaced = engine.remember("the mill stands")
        id = engine.remember("the mill turns", supersedes=replaced.id).id
        engine.edit(id, content="the mill turns at dawn")
        older, newer = (row for row, _ in engine.store.versions([id]))
        query = Query(text="mill", scope=engine.scope(), limit=2)
        corpus = engine.models.sources(query, SHIPPED).open_corpus(query.scope)
        fused = [Candidate(older, 0.9, {}), Candidate(newer, 0.8, {})]
        resolved = resolve(fused, query, engine.store, corpus, priors=Priors())
    assert [(each.candidate.row, each.memory.content) for each in resolved] == [(newer, "the mill turns at dawn")]


def test_other_orders_are_left_as_they_are(engine: LocalEngine) -> None:
    scores = [float(number) for number in range(COUNT)]
    everything = served(engine, scores, COUNT, Sort.RECENCY)
    assert served(engine, scores, 3, Sort.RECENCY) == everything[:3]
