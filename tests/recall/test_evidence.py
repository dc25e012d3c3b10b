"""Speaker and time in a ranking: they move what the legs found, with contributions of their own, and filter nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.recall import graph
from triskele.recall.plan import Plan
from triskele.types import Answer

ANN = "I adopted a grey kitten from the shelter"
BEN = "I adopted a grey kitten from the shelter too"
USER = "The sprint review moved to Thursday at ten"
ASSISTANT = "The sprint review moved to Thursday: invite the team, book the room, prepare the demo of the sprint"
JUNE = "We repaired the pump in the cellar"
MARCH = "We repaired the pump in the cellar again"
JULY = "On 14 July 2025 the washing machine ran over"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("evidence")
    with LocalEngine(load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden"}), folder) as opened:
        opened.remember(ANN, speaker="Ann")
        opened.remember(BEN, speaker="Ben")
        opened.remember(USER, role="user")
        opened.remember(ASSISTANT, role="assistant")
        opened.remember(JUNE, created_at="2025-06-10")
        opened.remember(MARCH, created_at="2025-03-10")
        opened.remember(JULY)
        opened.upkeep.embed()
        yield opened


def ask(engine: LocalEngine, text: str, evidence: tuple[str, ...] = ("speaker", "time")) -> Answer:
    return engine.ask(text, Plan(evidence=frozenset(evidence)), limit=10)


def first(answer: Answer, *contents: str) -> str:
    return next(hit.memory.content for hit in answer.hits if hit.memory.content in contents)


@pytest.mark.parametrize(
    ("text", "wanted", "other"),
    [
        ("What did Ann adopt from the shelter?", ANN, BEN),
        ("What did Ben adopt from the shelter?", BEN, ANN),
        ("When is my sprint review?", USER, ASSISTANT),
        ("What did you suggest for the sprint review?", ASSISTANT, USER),
        ("What did we repair in the cellar in June 2025?", JUNE, MARCH),
        ("What did we repair in the cellar in March 2025?", MARCH, JUNE),
    ],
)
def test_evidence_decides_between_equals_and_hides_nothing(
    engine: LocalEngine, text: str, wanted: str, other: str
) -> None:
    answer = ask(engine, text)
    assert first(answer, wanted, other) == wanted
    assert other in [hit.memory.content for hit in answer.hits]


def test_evidence_is_a_contribution_that_the_reason_names(engine: LocalEngine) -> None:
    hit = ask(engine, "What did Ann adopt from the shelter?").hits[0]
    assert hit.legs["speaker"].contribution > 0
    assert sum(leg.contribution for leg in hit.legs.values()) * hit.prior == pytest.approx(hit.score)
    assert "in the words of Ann" in hit.reason
    hit = ask(engine, "What did we repair in the cellar in June 2025?").hits[0]
    assert hit.legs["time"].contribution > 0
    assert "from about the time that the query asks for" in hit.reason


def test_recall_of_a_month_finds_the_day_that_a_text_names(engine: LocalEngine) -> None:
    best, *others = ask(engine, "What happened in July 2025?").hits
    assert best.memory.content == JULY
    assert best.legs["time"].contribution > best.score / 2
    assert "from about the time" in best.reason and not any("from about the time" in hit.reason for hit in others)


def test_an_address_counts_less_than_what_the_person_says(tmp_path: Path) -> None:
    turns = {
        "Morning, Tom!": "Ines",
        "It is raining here.": "Tom",
        "Oh no. Poor Tom.": "Ines",
        "The roof leaks.": "Tom",
    }
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "chat"}), tmp_path) as chat:
        for position, (text, speaker) in enumerate(turns.items()):
            chat.remember(text, speaker=speaker, session="monday", position=position)
        chat.upkeep.embed()
        with_names, without = (
            {hit.memory.content: hit.legs["late"].score for hit in ask(chat, "What leaks at Tom's?", legs).hits}
            for legs in (("time",), ("speaker", "time"))
        )
    fall = {text: with_names[text] - without[text] for text in turns}
    assert fall["Morning, Tom!"] > fall["The roof leaks."] + 0.02


def test_a_plan_can_leave_evidence_out(engine: LocalEngine) -> None:
    for name in ("speaker", "time"):
        answer = ask(engine, "What did Ann adopt in June 2025?", (name,))
        assert {leg for hit in answer.hits for leg in hit.legs} & {"speaker", "time"} == {name}


def matches(*rows: list[float]) -> graph.Floats:
    return np.array(rows, dtype=np.float32)


HALVES = np.array([0.5, 0.5], dtype=np.float32)


def test_what_repeats_the_first_is_passed_by_what_adds_to_it() -> None:
    seen = matches([0.9, 0.5], [0.9, 0.5], [0.3, 0.9])
    scores = np.array([1.0, 0.95, 0.7])
    added = graph.novelty_gains(HALVES, scores, seen, np.ones(3, dtype=np.float32))
    assert added[1] == 0
    assert (scores + added).argsort()[::-1].tolist() == [0, 2, 1]


def test_novelty_needs_a_link_and_a_first_candidate_that_matches() -> None:
    seen, scores = matches([0.9, 0.5], [0.3, 0.9]), np.array([1.0, 0.7])
    unconnected = np.array([1.0, 0.0], dtype=np.float32)
    assert not graph.novelty_gains(HALVES, scores, seen, unconnected).any()
    least = graph.GATE[0]
    lost = matches([least, least - 0.1], [0.3, 0.9])
    assert not graph.novelty_gains(HALVES, scores, lost, np.ones(2, dtype=np.float32)).any()
