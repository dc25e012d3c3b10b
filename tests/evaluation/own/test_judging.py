"""Judging by hand: a blind pool, a grade that is kept at once, undo, skip and resume."""

from __future__ import annotations

import pytest

from triskele.engine import Engine
from triskele.evaluation.own import judging, labels, questions
from triskele.evaluation.own.ground import OwnGround
from triskele.evaluation.own.judging import Sitting, pool
from triskele.types import Sensitivity


@pytest.fixture
def ids(engine: Engine) -> list[str]:
    """Four kettles, of which one is private, and two questions about them."""
    found = [engine.remember(f"the {colour} kettle whistles").id for colour in ("red", "green", "blue")]
    found.append(engine.remember("the secret kettle whistles", sensitivity=Sensitivity.PRIVATE).id)
    asked = [questions.make(text, "exact", "user") for text in ("red kettle", "green kettle")]
    questions.save(engine.store, asked)
    return found


def _labels(engine: Engine) -> dict[tuple[str, str], int]:
    return {pair: label.grade for pair, label in labels.load(engine.store).items()}


def _finish(sitting: Sitting, grade: int = 0) -> None:
    card = sitting.card()
    while card is not None and (following := sitting.card()) and following.question == card.question:
        sitting.grade(grade)


def test_a_pool_holds_what_the_arms_bring_and_the_source_but_nothing_out_of_use(engine: Engine, ids: list[str]) -> None:
    far = engine.remember("nothing in common").id
    older = engine.remember("the older red kettle").id
    newer = engine.remember("the newer red kettle", supersedes=older).id
    question = questions.make("red kettle", "exact", "user", sources=(far, older))
    assert set(pool(OwnGround(engine), question, seed=1)) == {*ids, newer, far}


def test_the_order_tells_nothing_and_follows_the_seed(engine: Engine, ids: list[str]) -> None:
    ground = OwnGround(engine)
    question = next(iter(questions.load(engine.store).values()))
    orders = {tuple(pool(ground, question, seed)) for seed in range(20)}
    assert len(orders) > 5
    assert pool(ground, question, 3) == pool(ground, question, 3)


def test_a_grade_is_kept_at_once_and_a_question_is_judged_with_its_last_one(engine: Engine, ids: list[str]) -> None:
    sitting = Sitting(OwnGround(engine), seed=1)
    first = sitting.card()
    assert first is not None and (first.place, first.places, first.questions_left) == (1, 4, 2)
    sitting.grade(3)
    assert _labels(engine) == {(first.question.id, first.memory.id): 3}
    assert questions.load(engine.store)[first.question.id].judged is None
    _finish(sitting)
    assert questions.load(engine.store)[first.question.id].judged == "hand"
    following = sitting.card()
    assert following is not None and following.question != first.question


def test_a_later_sitting_goes_on_where_the_last_one_stopped(engine: Engine, ids: list[str]) -> None:
    sitting = Sitting(OwnGround(engine), seed=1)
    sitting.grade(1)
    sitting.grade(2)
    expected = sitting.card()
    assert Sitting(OwnGround(engine), seed=1).card() == expected


def test_undo_returns_to_the_last_pair_even_of_a_finished_question(engine: Engine, ids: list[str]) -> None:
    sitting = Sitting(OwnGround(engine), seed=1)
    first = sitting.card()
    assert first is not None
    _finish(sitting)
    assert sitting.undo()
    back = sitting.card()
    assert back is not None and back.question.id == first.question.id and back.place == 4
    assert back.question.judged is None
    assert len(_labels(engine)) == 3
    assert [sitting.undo() for _ in range(4)] == [True, True, True, False]
    assert _labels(engine) == {}


def test_a_skipped_question_waits_for_another_sitting(engine: Engine, ids: list[str]) -> None:
    sitting = Sitting(OwnGround(engine), seed=1)
    first = sitting.card()
    sitting.skip()
    sitting.skip()
    assert sitting.card() is None
    assert Sitting(OwnGround(engine), seed=1).card() == first


def test_unanswerable_questions_are_not_shown(engine: Engine, ids: list[str]) -> None:
    questions.drop(engine.store, list(questions.load(engine.store)))
    questions.save(engine.store, [questions.make("who owns the moon?", "unanswerable", "user")])
    assert Sitting(OwnGround(engine), seed=1).card() is None


def test_an_export_holds_open_pairs_without_grades(engine: Engine, ids: list[str]) -> None:
    secret = ids[-1]
    more = [
        questions.make("secret kettle", "exact", "log", about=(secret,)),
        questions.make("red and green", "multi-hop", "user"),
    ]
    questions.save(engine.store, more)
    rows = list(judging.to_export(OwnGround(engine), seed=1))
    assert {row["text"] for row in rows} == {"red kettle", "green kettle"}
    assert {row["memory"] for row in rows} == set(ids[:3])
    assert all(row.keys() == {"question", "text", "memory", "content"} for row in rows)
