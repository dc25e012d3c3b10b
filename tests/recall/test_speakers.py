"""Whose words a query asks for: the user's, the assistant's, or those of the one speaker that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.index.corpus import Facts
from triskele.models.embedder import Encoding
from triskele.recall import evidence, late
from triskele.recall.confidence import SEARCHED
from triskele.recall.legs import conversation_share
from triskele.recall.plan import Plan
from triskele.recall.question import Question
from triskele.recall.scores import Scores
from triskele.text import timestamps
from triskele.types import GOOD_MATCH, Query, Role, Scope

ANN, BOB, NOBODY = 4, 9, -1
USER, ASSISTANT = (list(Role).index(role) for role in (Role.USER, Role.ASSISTANT))


class Names:
    def speakers(self, codes: list[int]) -> dict[int, str]:
        return {code: name for code, name in {ANN: "Ann Miller", BOB: "bob"}.items() if code in codes}


def facts_of(said_by: list[int], roles: list[int] | None = None, before: list[int] | None = None) -> Facts:
    count = len(said_by)
    return Facts(
        is_visible=np.ones(count, dtype=np.bool_),
        importance=np.zeros(count, dtype=np.float32),
        sessions=np.zeros(count, dtype=np.int64),
        neighbours=np.array(before or [-1] * count, dtype=np.int64)[:, None],
        speakers=np.array(said_by, dtype=np.int64),
        roles=np.array(roles or [-1] * count, dtype=np.int64),
        times=np.zeros(count, dtype=np.int64),
    )


def shares(text: str, said_by: list[int], roles: list[int] | None = None) -> list[float] | None:
    corpus: Any = Names()
    found = evidence.by_speaker(text, facts_of(said_by, roles), corpus)
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("How many sprints did I plan?", Role.USER),
        ("what is my sister's name", Role.USER),
        ("When do we deploy?", Role.USER),
        ("What did you suggest for my garden?", Role.ASSISTANT),
        ("which books had you recommended", Role.ASSISTANT),
        ("your advice about the visa", Role.ASSISTANT),
        ("Can you tell me when I moved?", Role.USER),
        ("Could you list the steps again?", None),
        ("Who wrote Emma?", None),
        ("Henry VIII and the mimeograph", None),
    ],
)
def test_role_asked(text: str, role: Role | None) -> None:
    assert evidence.role_asked(text) is role


def test_a_named_speaker_is_preferred_to_any_other_known_one() -> None:
    assert shares("What does Ann drink?", [ANN, BOB, NOBODY]) == [1.0, 0.0, 1.0]
    assert shares("Is BOB's car red?", [ANN, BOB]) == [0.0, 1.0]


def test_who_asks_for_words_of_a_speaker_does_not_ask_for_a_memory_of_nobody() -> None:
    for text in ("What did Ann say about tea?", "has ann ever mentioned tea"):
        assert shares(text, [ANN, BOB, NOBODY]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("What did Bob say about the lease?", "Bob"),
        ("Has Bob ever mentioned bees?", "Bob"),
        ("What did Bob Marsh tell us?", "Bob"),
        ("What did I say about the lease?", None),
        ("what did people say about the lease?", None),
        ("What does the Council recommend?", None),
        ("Bob said that the tests fail", None),
        ("Did Bob get a dog?", None),
    ],
)
def test_whose_words_a_question_asks_for(text: str, name: str | None) -> None:
    assert evidence.teller(text) == name


def test_two_named_speakers_or_none_prefer_nobody() -> None:
    assert shares("What do Ann and Bob share?", [ANN, BOB]) is None
    assert shares("Who owns the annual report?", [ANN, BOB]) is None


def test_first_person_prefers_the_user() -> None:
    assert shares("Where did I park?", [NOBODY] * 3, [USER, ASSISTANT, -1]) == [1.0, 0.0, 1.0]


def test_memories_without_roles_are_all_alike() -> None:
    assert shares("Where did I park?", [NOBODY, NOBODY]) is None


def weights(text: str, said_by: list[int], before: list[int], plan: Plan | None = None) -> list[float]:
    """The weights of a query's words in late interaction, where all of them weigh the same at first."""
    spans, start = [], 0
    for word in text.split():
        start = text.index(word, start)
        spans.append((start, start + len(word)))
    count = len(spans)
    encoding = Encoding(np.zeros(2), np.zeros((count, 2)), np.zeros(count), np.array(spans, dtype=np.int32))
    even = np.full(count, 1 / count, dtype=np.float32)
    query = Query(text=text, scope=Scope(as_of=timestamps.now()))
    question = Question(query, plan or Plan(), encoding=encoding, token_weights=even)
    corpus: Any = Names()
    facts = facts_of(said_by, before=before)
    share = conversation_share(facts.neighbours)
    scores = Scores(np.arange(len(said_by)), (), facts=facts, in_conversation=share)
    token_weights = late._without_names(question, corpus, scores)
    return [round(float(weight / token_weights.max()), 3) for weight in token_weights]


def test_in_a_conversation_names_of_its_speakers_weigh_nothing() -> None:
    turns = [ANN, BOB], [10, 20]
    assert weights("did Ann sail", *turns) == [1, 0, 1]
    assert weights("did BOB meet ann Miller", *turns) == [1, 0, 1, 0, 0]
    assert weights("did Carl sail", *turns) == [1, 1, 1]
    assert weights("did annual Bobby sail", *turns) == [1, 1, 1, 1]


def test_names_weigh_less_by_the_share_of_turns_and_keep_their_weight_in_single_memories() -> None:
    assert weights("did Ann sail", [ANN, BOB], [-1, -1]) == [1, 1, 1]
    assert weights("did Ann sail", [ANN, BOB], [10, -1]) == [1, 0.5, 1]
    assert weights("did Ann sail", [NOBODY, NOBODY], [10, 20]) == [1, 1, 1]
    assert weights("did Ann sail", [ANN, BOB], [10, 20], Plan(evidence=frozenset({"time"}))) == [1, 1, 1]


def test_a_query_of_names_alone_keeps_its_weights() -> None:
    assert weights("Ann bob", [ANN, BOB], [10, 20]) == [1, 1]


@pytest.mark.parametrize("model", ["bundled", "none"])
def test_a_bare_name_finds_what_its_bearer_said(tmp_path: Path, model: str) -> None:
    said = {
        "Dana Whitlock": [
            "The flat is small but bright",
            "Rehearsal is every Tuesday",
            "The dentist moved my appointment",
        ],
        "Omar": ["Two hives stand behind the shed", "We drive to Norway in June", "Ramen, please"],
    }
    with LocalEngine(
        load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_MODEL": model}), tmp_path
    ) as engine:
        for name, texts in said.items():
            for text in texts:
                engine.remember(text, project="", speaker=name)
        if model != "none":
            engine.upkeep.embed()
        for name in ("Dana", "dana whitlock"):
            answer = engine.recall(name, project="", limit=6)
            assert {hit.memory.content for hit in answer.hits[:3]} == set(said["Dana Whitlock"])
            assert answer.confidence == SEARCHED
            assert all("in the words of Dana Whitlock" in hit.reason for hit in answer.hits[:3])
        # A question, another word, or part of a name is no search for a speaker.
        for other in ("Whitlock", "Danas", "Dana?"):
            assert engine.recall(other, project="").confidence < SEARCHED
        engine.remember("Dana is allergic to walnuts", project="")
        assert engine.recall("Dana", project="").hits[0].memory.content == "Dana is allergic to walnuts"
        assert engine.recall("Dana", project="", fusion="rrf").hits[0].memory.content == "Dana is allergic to walnuts"


TALK = (
    ("Caroline", "I went to the adoption agency on Monday and they were lovely."),
    ("Melanie", "That is wonderful news! When do you hear back?"),
    ("Caroline", "In about six weeks, I hope."),
    ("Melanie", "We should renew the lease before the rent goes up again."),
    ("Maria", "I'd rather move to the harbour, honestly."),
    ("Caroline", "I got a puppy from the shelter, his name is Biscuit."),
    ("Maria", "My sister is getting married in Porto."),
    ("Melanie", "My kids started swimming lessons."),
    ("Maria", "I finished the marathon in under four hours."),
    ("Caroline", "I am painting a sunset for the exhibition."),
)


def test_the_name_of_the_speaker_is_no_word_that_the_text_lacks(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        for name, text in TALK:
            engine.remember(text, project="", speaker=name)
        engine.upkeep.embed()
        for question, place in (("what did Melanie say about the lease?", 3), ("What is Caroline painting?", 9)):
            answer = engine.recall(question, project="")
            assert answer.hits[0].memory.content == TALK[place][1]
            assert answer.confidence > 2 * GOOD_MATCH
        # Nobody called Bob speaks, and Maria said nothing about the lease.
        for name in ("Bob", "Maria"):
            assert engine.recall(f"What did {name} say about the lease?", project="").confidence < GOOD_MATCH / 3
        # Mel may be Melanie, and another memory holds the name of Porto, which may be anything.
        nickname = engine.recall("What did Mel say about the lease?", project="").confidence
        known = engine.recall("What did Porto say about the lease?", project="").confidence
        assert min(nickname, known) > GOOD_MATCH / 2


def test_words_of_a_speaker_come_before_a_memory_about_the_speaker(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        engine.remember("The lease of the office ends in May", project="", speaker="Maria")
        engine.remember("Maria owns the on-call rota for billing", project="")
        engine.remember("Maria prefers reviews before noon", project="")
        engine.upkeep.embed()
        hits = engine.recall("what did Maria say about the lease?", project="").hits
        assert hits[0].memory.speaker == "Maria"
        assert "speaker" not in hits[1].legs
