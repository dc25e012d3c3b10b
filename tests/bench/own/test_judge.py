"""Judging by hand: a blind pool, a grade that is kept at once, undo, skip and resume."""

from __future__ import annotations

import pytest

from triskele.bench.harness import OwnHarness
from triskele.bench.own.judge import JudgingSession, export_pairs, pool
from triskele.bench.own.questions import (
    delete_questions,
    load_labels,
    make_question,
    questions_of,
    save_questions,
)
from triskele.engine.local import LocalEngine
from triskele.types import Sensitivity


@pytest.fixture
def ids(engine: LocalEngine) -> list[str]:
    """Four kettles, of which one is private, and two questions about them."""
    found = [engine.remember(f"the {colour} kettle whistles").id for colour in ("red", "green", "blue")]
    found.append(engine.remember("the secret kettle whistles", sensitivity=Sensitivity.PRIVATE).id)
    asked = [make_question(text, "exact", "user") for text in ("red kettle", "green kettle")]
    save_questions(engine.store, asked)
    return found


def _labels(engine: LocalEngine) -> dict[tuple[str, str], int]:
    return {pair: label.grade for pair, label in load_labels(engine.store).items()}


def _finish(session: JudgingSession, grade: int = 0) -> None:
    item = session.item()
    while item is not None and (following := session.item()) and following.question == item.question:
        session.grade(grade)


def test_a_pool_holds_what_the_arms_bring_and_the_source_but_nothing_out_of_use(
    engine: LocalEngine, ids: list[str]
) -> None:
    far = engine.remember("nothing in common").id
    older = engine.remember("the older red kettle").id
    newer = engine.remember("the newer red kettle", supersedes=older).id
    question = make_question("red kettle", "exact", "user", sources=(far, older))
    assert set(pool(OwnHarness(engine), question, seed=1)) == {*ids, newer, far}


def test_the_order_tells_nothing_and_follows_the_seed(engine: LocalEngine, ids: list[str]) -> None:
    harness = OwnHarness(engine)
    question = next(iter(questions_of(engine).values()))
    orders = {tuple(pool(harness, question, seed)) for seed in range(20)}
    assert len(orders) > 5
    assert pool(harness, question, 3) == pool(harness, question, 3)


def test_a_grade_is_kept_at_once_and_a_question_is_judged_with_its_last_one(
    engine: LocalEngine, ids: list[str]
) -> None:
    session = JudgingSession(OwnHarness(engine), seed=1)
    first = session.item()
    assert first is not None and (first.number, first.total, first.questions_left) == (1, 4, 2)
    session.grade(3)
    assert _labels(engine) == {(first.question.id, first.memory.id): 3}
    assert questions_of(engine)[first.question.id].judged is None
    _finish(session)
    assert questions_of(engine)[first.question.id].judged == "hand"
    following = session.item()
    assert following is not None and following.question != first.question


def test_a_later_sitting_goes_on_where_the_last_one_stopped(engine: LocalEngine, ids: list[str]) -> None:
    session = JudgingSession(OwnHarness(engine), seed=1)
    session.grade(1)
    session.grade(2)
    expected = session.item()
    assert JudgingSession(OwnHarness(engine), seed=1).item() == expected


def test_undo_returns_to_the_last_pair_even_of_a_finished_question(engine: LocalEngine, ids: list[str]) -> None:
    session = JudgingSession(OwnHarness(engine), seed=1)
    first = session.item()
    assert first is not None
    _finish(session)
    assert session.undo()
    back = session.item()
    assert back is not None and back.question.id == first.question.id and back.number == 4
    assert back.question.judged is None
    assert len(_labels(engine)) == 3
    assert [session.undo() for _ in range(4)] == [True, True, True, False]
    assert _labels(engine) == {}


def test_a_skipped_question_waits_for_another_sitting(engine: LocalEngine, ids: list[str]) -> None:
    session = JudgingSession(OwnHarness(engine), seed=1)
    first = session.item()
    session.skip()
    session.skip()
    assert session.item() is None
    assert JudgingSession(OwnHarness(engine), seed=1).item() == first


def test_unanswerable_questions_are_not_shown(engine: LocalEngine, ids: list[str]) -> None:
    delete_questions(engine.store, list(questions_of(engine)))
    save_questions(engine.store, [make_question("who owns the moon?", "unanswerable", "user")])
    assert JudgingSession(OwnHarness(engine), seed=1).item() is None


def test_an_export_holds_open_pairs_without_grades(engine: LocalEngine, ids: list[str]) -> None:
    secret = ids[-1]
    more = [
        make_question("secret kettle", "exact", "log", about=(secret,)),
        make_question("red and green", "multi-hop", "user"),
    ]
    save_questions(engine.store, more)
    rows = list(export_pairs(OwnHarness(engine), seed=1))
    assert {row["text"] for row in rows} == {"red kettle", "green kettle"}
    assert {row["memory"] for row in rows} == set(ids[:3])
    assert all(row.keys() == {"question", "text", "memory", "content"} for row in rows)
