"""Building: which memories are asked about, what each question knows of itself, and what a second building keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from triskele.bench.harness import in_use
from triskele.bench.own import build as building
from triskele.bench.own.build import MAX_COSINE, build, spread, stratum
from triskele.bench.own.questions import OwnQuestion, questions_of, save_questions
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.types import Sensitivity


def _standing(engine: LocalEngine) -> list[OwnQuestion]:
    return list(questions_of(engine).values())


def _stock(engine: LocalEngine, count: int = 12) -> list[str]:
    categories = ("facts", "decisions", "lessons")
    return [
        engine.remember(
            f"machine number{number} of hall{number} hums the tune{number}",
            category=categories[number % 3],
            importance=(0.2, 0.5, 0.9)[number // 4],
            tags=[f"label{number}"],
        ).id
        for number in range(count)
    ]


def test_every_category_and_band_of_importance_gets_its_turn(engine: LocalEngine) -> None:
    _stock(engine)
    memories = in_use(engine).values()
    strata = {stratum(memory) for memory in memories}
    assert {stratum(memory) for memory in spread(memories, seed=1)[: len(strata)]} == strata
    assert spread(memories, seed=1) != spread(memories, seed=2)


def test_questions_know_their_origin(engine: LocalEngine) -> None:
    ids = _stock(engine)
    build(engine, size=9, seed=1)
    found = _standing(engine)
    assert {question.generator for question in found} == {"phrase", "reworded"}
    for question in found:
        assert question.sources == question.about and set(question.sources) <= set(ids)
        assert question.project == engine.project
        assert question.stratum == stratum(engine.store.history(question.sources[0])[-1])
        assert question.circular == ("words",)
        assert question.judged is None


def test_the_same_seed_makes_the_same_questions_once(engine: LocalEngine) -> None:
    _stock(engine)
    first = build(engine, size=12, seed=1)
    assert len(first.added) == 8
    assert build(engine, size=12, seed=1).added == []
    assert len(build(engine, size=18, seed=2).added) == 4


def test_private_superseded_forgotten_and_expired_memories_are_never_asked_about(engine: LocalEngine) -> None:
    kept = engine.remember("the visible kettle whistles Mozart").id
    engine.remember("the private kettle whistles Haydn", sensitivity=Sensitivity.PRIVATE)
    engine.remember("the expired kettle whistles Bach", valid_to="2001-01-01")
    older = engine.remember("the replaced kettle whistles Liszt").id
    newer = engine.remember("the newest kettle whistles Brahms", supersedes=older).id
    engine.forget(engine.remember("the forgotten kettle whistles Satie").id)
    build(engine, size=30, seed=1)
    assert {source for question in _standing(engine) for source in question.sources} == {kept, newer}


def test_a_paraphrase_that_shares_too_many_words_is_refused(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stock(engine)
    monkeypatch.setattr(building, "MAX_OVERLAP", 0.1)
    built = build(engine, size=12, seed=1)
    assert Counter(question.type for question in built.added) == {"exact": 4}
    assert built.refused == {"paraphrase: shares more than 10 % of its words with the memory": 12}
    assert built.missing() == {"paraphrase": 4, "multi-hop": 4}


def test_past_questions_come_first_by_how_many_words_they_share(engine: LocalEngine) -> None:
    engine.settings = replace(engine.settings, recall=replace(engine.settings.recall, log=True))
    id = engine.remember("the red kettle whistles at noon", keywords="teapot pours midday").id
    engine.recall("teapot pours at midday")
    engine.recall("red kettle noon")
    engine.recall("kettle")
    built = build(engine, size=3, seed=1)
    logged = {question.text: question for question in built.added if question.generator == "log"}
    assert {text: question.type for text, question in logged.items()} == {
        "teapot pours at midday": "paraphrase",
        "red kettle noon": "exact",
    }
    assert all(question.about == (id,) and question.circular == () for question in logged.values())
    assert built.refused["log: a single word"] == 1


def test_a_past_question_about_a_private_memory_is_left_alone(engine: LocalEngine) -> None:
    engine.settings = replace(engine.settings, recall=replace(engine.settings.recall, log=True))
    engine.remember("the red kettle whistles", sensitivity=Sensitivity.PRIVATE)
    engine.recall("red kettle")
    assert build(engine, size=3, seed=1).added == []


def test_judged_questions_stay_and_stale_ones_go(engine: LocalEngine) -> None:
    ids = _stock(engine, 2)
    build(engine, size=6, seed=1)
    by_source = {question.sources: question for question in _standing(engine) if question.type == "exact"}
    judged = replace(by_source[(ids[0],)], judged="hand")
    save_questions(engine.store, [judged])
    engine.forget(*ids)
    built = build(engine, size=6, seed=1)
    assert built.dropped == 3
    assert _standing(engine) == [judged]


def test_erasing_a_memory_takes_its_questions_along(engine: LocalEngine) -> None:
    ids = _stock(engine, 2)
    build(engine, size=6, seed=1)
    engine.erase(ids[0])
    assert {question.sources for question in _standing(engine)} == {(ids[1],)}


@pytest.mark.parametrize("size", [0, 2, 5001])
def test_a_size_must_make_sense(engine: LocalEngine, size: int) -> None:
    with pytest.raises(BadInput, match="size"):
        build(engine, size=size, seed=1)


def test_hops_join_memories_that_are_not_near_in_meaning(team: LocalEngine) -> None:
    built = build(team, size=60, seed=1)
    found = [question for question in built.added if question.type == "multi-hop"]
    assert len(found) == 20
    semantic = team.semantic()
    assert semantic is not None
    for question in found:
        texts = [team.get(id).content for id in question.sources]
        one, other = (encoding.sentence for encoding in semantic.embedder.encode_documents(texts))
        assert float(one @ other) < MAX_COSINE + 0.01
        assert set(question.circular) == {"links", "words"}
    assert {question.generator for question in found} == {"links", "terms"}
