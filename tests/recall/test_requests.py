"""Requests and remarks: the rules that apply to them, not the memories that resemble them, come first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.recall import late, question
from triskele.recall.question import form_of
from triskele.types import Add, Answer, Role

RULE = "When you write code, always end the name of every function with _fn"
RESEMBLING = "The lecture on vectors was moved to the big hall"
TASK = "Write a function that computes the cross product of two vectors."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TASK, True),
        ("I got a headache on the way home just now.", True),
        ("Can you recommend some good hotels in Cancun?", True),
        ("Which shampoo should I buy?", True),
        ("Can you write a function that sorts names?", True),
        ("Open https://example.org/list?page=2 and copy the table.", True),
        ("Which shampoo did you recommend last week?", False),
        ("Where can I meet the maintainer of the billing service?", False),
        ("Who should I ask about the billing service?", False),
        ("Tell me what Ann did in June 2024", False),
        ("And when did the tests fail?", False),
        ("متى انتقلت آن إلى لشبونة في الصيف؟", False),
        ("When did Ann move to Lisbon?", False),
        ("Does the backup run at night?", False),
        ("redis cache", False),
        ("Fix the flaky test", False),
        ("", False),
    ],
)
def test_a_text_is_a_request_unless_it_asks_what_is_stored(text: str, expected: bool) -> None:
    assert form_of(text).is_request is expected


Memories = Iterable[tuple[str, Mapping[str, Any]]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Callable[[str, Memories], Answer]]:
    with LocalEngine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as engine:

        def store_and_recall(text: str, memories: Memories) -> Answer:
            engine.apply([Add(engine.draft(content, project="", **fields)) for content, fields in memories])
            engine.upkeep.embed()
            return engine.recall(text, project="")

        yield store_and_recall


Ask = Callable[[str, Memories], Answer]


def plain(*contents: str) -> Memories:
    return [(content, {}) for content in contents]


def first(answer: Answer) -> str:
    return answer.hits[0].memory.content


def lead_of_rule(answer: Answer) -> float:
    scores = {hit.memory.content: hit.score for hit in answer.hits}
    return scores[RULE] / scores[RESEMBLING]


def test_rules_count_more_for_a_request_than_for_a_question(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    lead = lead_of_rule(ask(TASK, plain(RULE, RESEMBLING)))
    assert lead > 1
    assert lead > 1.05 * lead_of_rule(ask("Does a function compute the cross product of two vectors?", []))
    monkeypatch.setattr(late, "RULE_SHARE", 0.0)
    assert lead > 1.05 * lead_of_rule(ask(TASK, []))


def test_only_a_question_follows_connections(ask: Ask) -> None:
    memories = plain("Meridian is led by Ingrid Solberg", "Ingrid Solberg lives in Tromsø", "Ingrid Solberg rows")
    asked, requested = (
        ask("Where does the head of Meridian live?", memories),
        ask("Tell the head of Meridian to call.", []),
    )
    assert any("graph" in hit.legs for hit in asked.hits)
    assert not any("graph" in hit.legs for hit in requested.hits)


def test_a_day_that_a_remark_mentions_is_no_time_of_memories(ask: Ask) -> None:
    memories = [("The drive to the office was slow", {"created_at": datetime(2026, 2, 10, tzinfo=UTC)})]
    asked, remarked = ask("How was the drive in February?", memories), ask("The drive was slow again in February.", [])
    assert "time" in asked.hits[0].legs
    assert "time" not in remarked.hits[0].legs


def test_the_words_of_the_user_count_for_a_request(ask: Ask) -> None:
    text = "Window seats are best on the train to Lyon"
    memories = [
        (f"{text}, says {role}", {"session": "s", "position": place, "role": role})
        for place, role in enumerate((Role.ASSISTANT, Role.USER))
    ]
    answer = ask("Book me the train to Lyon for Friday.", memories)
    assert [("speaker" in hit.legs) for hit in answer.hits] == [True, False]
    assert first(answer).endswith("user")


def test_the_last_sentence_of_a_request_counts_most(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    memories = plain("The heating of the car is set to 21 degrees", "The radio of the car plays jazz")
    text = "The heating of the car blows cold air. Switch the radio on. \n"

    def lead_of_radio(answer: Answer) -> float:
        scores = {hit.memory.content.split()[1]: hit.score for hit in answer.hits}
        return scores["radio"] / scores["heating"]

    lead = lead_of_radio(ask(text, memories))
    monkeypatch.setattr(question, "LAST_SENTENCE", 1.0)
    assert lead > lead_of_radio(ask(text, []))


def test_the_words_of_rules_are_encoded_once_for_a_model(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "_rule_tokens", {})
    ask(TASK, plain(RULE))
    ((tokens,),) = [question._rule_tokens.values()]
    ask(TASK, [])
    assert [vectors is tokens for vectors in question._rule_tokens.values()] == [True]
    assert len(tokens) == len(question.RULE_WORDS)
    assert np.allclose(np.linalg.norm(tokens, axis=1), 1, atol=1e-3)
