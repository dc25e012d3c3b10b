"""Another judge's labels: kappa by its definition, and every reason for which they do not count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.bench.own.judge import agreement, cohen_kappa, import_labels
from triskele.bench.own.questions import (
    Label,
    OwnQuestion,
    load_labels,
    make_question,
    questions_of,
    save_labels,
    save_questions,
)
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput

WriteLines = Callable[..., Path]


def test_kappa_by_hand() -> None:
    # 20 both yes, 5 and 10 apart, 15 both no: agreed 0.7, by chance 0.5.
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)
    assert cohen_kappa([(0, 0), (3, 3)]) == 1.0
    assert cohen_kappa([(0, 1), (1, 0)]) == -1.0
    assert cohen_kappa([(2, 2)] * 5) is None
    assert cohen_kappa([]) is None


@pytest.fixture
def asked(engine: LocalEngine) -> list[OwnQuestion]:
    """Forty questions about one memory each."""
    made = []
    for number in range(40):
        id = engine.remember(f"kettle number{number} whistles").id
        made.append(make_question(f"number{number}", "exact", "phrase", sources=(id,)))
    save_questions(engine.store, made)
    return made


def _by_hand(engine: LocalEngine, asked: list[OwnQuestion], grades: list[int]) -> None:
    given = [Label(each.id, each.sources[0], grade) for each, grade in zip(asked, grades, strict=False)]
    save_labels(engine.store, given, questions_of(engine))


def _rows(asked: list[OwnQuestion], grades: list[int]) -> list[dict[str, object]]:
    pairs = zip(asked, grades, strict=True)
    return [{"question": each.id, "memory": each.sources[0], "grade": grade} for each, grade in pairs]


def _taken(engine: LocalEngine) -> set[str]:
    return {label.by for label in load_labels(engine.store).values()}


def test_labels_that_agree_are_taken_where_there_is_none_by_hand(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines
) -> None:
    grades = [number % 4 for number in range(40)]
    _by_hand(engine, asked, [3, *grades[1:20]])
    verdict = import_labels(engine, write_lines(*_rows(asked, grades)), "model-x")
    assert verdict.is_accepted and verdict.by_hand == 20
    assert verdict.kappa == pytest.approx(14 / 15, abs=0.01)
    kept = load_labels(engine.store)
    assert (kept[asked[0].id, asked[0].sources[0]].grade, kept[asked[0].id, asked[0].sources[0]].by) == (3, "hand")
    assert sum(label.by == "model-x" for label in kept.values()) == 20
    assert questions_of(engine)[asked[39].id].judged == "model-x"


@pytest.mark.parametrize(
    ("hand", "words"),
    [
        ([0, 1, 2, 3] * 4 + [3], "17 of the 40 labelled pairs are judged by hand, 20 are needed"),
        ([3, 2, 1, 0] * 6, "kappa over the four grades is -0.33 on 24 pairs, 0.6 is needed"),
    ],
    ids=["too few", "too far apart"],
)
def test_labels_that_cannot_be_trusted_are_refused_whole(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines, hand: list[int], words: str
) -> None:
    _by_hand(engine, asked, hand)
    verdict = import_labels(engine, write_lines(*_rows(asked, [0, 1, 2, 3] * 10)), "model-x")
    assert verdict.reason == words or (verdict.reason or "").startswith(words)
    assert _taken(engine) == {"hand"}
    assert questions_of(engine)[asked[0].id].judged is None


def test_fifteen_percent_by_hand_are_needed_of_many() -> None:
    many = {f"q{n}": make_question(f"q{n}", "exact", "phrase") for n in range(400)}
    by_name = {each.id: each for each in many.values()}
    given = [Label(id, "m", place % 4, "model-x") for place, id in enumerate(by_name)]
    for by_hand, accepted in ((59, False), (60, True)):
        known = {label.pair: Label(*label.pair, label.grade) for label in given[:by_hand]}
        assert agreement(given, known, by_name, "model-x").is_accepted is accepted


def test_kappa_of_equal_grades_says_nothing(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines
) -> None:
    _by_hand(engine, asked, [0] * 40)
    assert "kappa is undefined" in (import_labels(engine, write_lines(*_rows(asked, [0] * 40)), "model-x").reason or "")


def test_who_made_the_questions_may_not_judge_them(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines
) -> None:
    grades = [0, 1, 2, 3] * 10
    _by_hand(engine, asked, grades)
    verdict = import_labels(engine, write_lines(*_rows(asked, grades)), "Phrase")
    assert "made the questions of 40" in (verdict.reason or "")


def test_multi_hop_questions_are_left_to_hand(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines
) -> None:
    hop = make_question("both kettles", "multi-hop", "user", sources=asked[0].sources)
    save_questions(engine.store, [hop])
    grades = [0, 1, 2, 3] * 10
    _by_hand(engine, asked, grades)
    rows = [*_rows(asked, grades), {"question": hop.id, "memory": hop.sources[0], "grade": 3}]
    verdict = import_labels(engine, write_lines(*rows), "model-x")
    assert verdict.is_accepted and verdict.left_to_hand == 1
    assert questions_of(engine)[hop.id].judged is None


def test_a_judge_needs_a_name_of_its_own(
    engine: LocalEngine, asked: list[OwnQuestion], write_lines: WriteLines
) -> None:
    for name in ("hand", " ", "HAND"):
        with pytest.raises(BadInput, match="another judge"):
            import_labels(engine, write_lines(*_rows(asked, [0] * 40)), name)
