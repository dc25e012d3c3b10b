"""The graph in a ranking: a memory that only a connection reaches, scopes, explanations, and when it keeps silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.recall import graph
from triskele.recall.plan import Plan
from triskele.store.values import NAMES
from triskele.types import Add, Answer, Hit

BRIDGE = "Kestrel is the billing service that Marta Lindqvist maintains"
FAR = "Marta Lindqvist works from the Tromsø office on Thursdays"
QUESTION = "where can the maintainer of the billing service Kestrel be met?"
# Many that lie nearer to the question than the memory that answers it.
CROWD = tuple(
    f"{kind} {number} of the service desk met its goal, as the maintainer of the list noted"
    for number in range(20)
    for kind in ("request", "ticket", "complaint", "order", "question", "return", "refund")
)
# Somebody else says that it is a name, not a bird.
NAMED = "Invoices that fail are retried by Kestrel after an hour"
WITHOUT = Plan(legs=frozenset({"lexical", "dense"}))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("connections")
    settings = load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden"})
    with LocalEngine(settings, folder) as opened:
        opened.embed_first = 0
        opened.apply([Add(draft) for draft in map(opened.draft, (BRIDGE, FAR, NAMED, *CROWD))])
        opened.remember("Marta Lindqvist keeps bees", project="elsewhere")
        opened.upkeep.embed()
        yield opened


def _place(answer: Answer, content: str) -> int | None:
    return next((place for place, hit in enumerate(answer.hits) if hit.memory.content == content), None)


def _hit(answer: Answer, content: str) -> Hit:
    return next(hit for hit in answer.hits if hit.memory.content == content)


def test_a_memory_that_no_other_leg_brings_reaches_the_top(engine: LocalEngine) -> None:
    assert _place(engine.ask(QUESTION, WITHOUT, limit=50), FAR) is None
    place = _place(engine.ask(QUESTION, Plan(), limit=10), FAR)
    assert place is not None and place < 5


def test_its_evidence_adds_up_and_names_the_path(engine: LocalEngine) -> None:
    hit = _hit(engine.recall(QUESTION), FAR)
    assert "lexical" not in hit.legs
    assert sum(leg.contribution for leg in hit.legs.values()) * hit.prior == pytest.approx(hit.score)
    path = hit.legs["graph"].path
    assert path is not None
    assert (path.name, path.says) == ("Marta Lindqvist", BRIDGE.removesuffix("maintains") + "…")
    assert path.other == _hit(engine.recall(QUESTION), BRIDGE).memory.id
    assert f"connected through “Marta Lindqvist” with “{path.says}”" in hit.reason


def test_the_graph_never_leaves_the_scope(engine: LocalEngine) -> None:
    here = {hit.memory.content for hit in engine.recall(QUESTION, limit=100).hits}
    assert "Marta Lindqvist keeps bees" not in here
    everywhere = {hit.memory.content for hit in engine.recall(QUESTION, limit=100, all_projects=True).hits}
    assert "Marta Lindqvist keeps bees" in everywhere


def test_a_title_in_the_question_counts(engine: LocalEngine) -> None:
    assert _hit(engine.ask("what does Kestrel do?", Plan()), BRIDGE).legs["graph"].contribution > 0


def test_connections_of_a_first_candidate_that_does_not_match_add_nothing(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _hit(engine.ask(QUESTION, Plan(), limit=100), FAR).legs["graph"].contribution > 0
    monkeypatch.setattr(graph, "GATE", (0.99, 1.0))
    assert all(hit.memory.content != FAR for hit in engine.ask(QUESTION, Plan(), limit=100).hits)


def test_its_weight_can_be_changed_down_to_none(engine: LocalEngine) -> None:
    usual, half, none = (
        _place(engine.ask(QUESTION, Plan(weights=weights), limit=100), FAR)
        for weights in (None, {"graph": 0.5}, {"graph": 0.0})
    )
    assert usual is not None and half is not None
    assert none is None or none > half >= usual


def test_as_a_leg_of_reciprocal_ranks_it_brings_its_own(engine: LocalEngine) -> None:
    three = Plan(fusion="rrf", rerank="off", weights={"lexical": 1, "dense": 1, "graph": 1})
    found = _hit(engine.ask(QUESTION, three, limit=100), FAR)
    assert found.legs["graph"].rank < min(leg.rank for name, leg in found.legs.items() if name != "graph")


def test_a_conversation_has_its_own_connections(tmp_path: Path) -> None:
    settings = load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "garden"})
    with LocalEngine(settings, tmp_path) as opened:
        for place, text in enumerate((BRIDGE, "I see", FAR, "Thanks")):
            opened.remember(text, session="talk", position=place)
        answer = opened.recall(QUESTION)
        assert all("graph" not in hit.legs or hit.legs["graph"].path is None for hit in answer.hits[1:])


def test_what_waits_to_be_read_is_read_by_the_next_recall(tmp_path: Path) -> None:
    settings = load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "garden"})
    with LocalEngine(settings, tmp_path) as opened:
        for text in (BRIDGE, "the Kestrel repository has a long history", FAR):
            opened.remember(text)
        assert opened.store.jobs.count(NAMES) == 3
        assert "graph" in _hit(opened.recall(QUESTION), FAR).legs
        assert opened.store.jobs.count(NAMES) == 0
