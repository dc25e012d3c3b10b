"""The gate: each condition at its border, under the labels of today."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.bench.own import gate as gates
from triskele.bench.own.judge import import_grades, import_questions
from triskele.bench.own.questions import JudgedSet, delete_questions, questions_of
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput

JudgedOf = Callable[..., JudgedSet]
WriteLines = Callable[..., Path]

FILLER = [f"x{number}" for number in range(12)]


def _at(place: int) -> list[str]:
    """A ranking with the answer at a place; 0 is nowhere."""
    return [*FILLER[: place - 1], "answer", *FILLER[place - 1 :]] if place else FILLER


def _gate(judged_of: JudgedOf, before: list[int], now: list[int], *, improve: bool = False) -> gates.Gate:
    ids = [f"q{number:03d}" for number in range(len(before))]
    judged = judged_of({id: {"answer": 3} for id in ids})
    then, today = ({id: _at(place) for id, place in zip(ids, places, strict=True)} for places in (before, now))
    return gates.compare_rankings(judged, then, today, improve=improve)


def _failed(gate: gates.Gate) -> set[str]:
    return {check.name for check in gate.checks if not check.passed}


def test_the_same_rankings_pass(judged_of: JudgedOf) -> None:
    gate = _gate(judged_of, [1, 2, 0, 7], [1, 2, 0, 7])
    assert gate.passed and gate.broken == ()
    assert [check.name for check in gate.checks] == ["MRR", "recall@10", "passing cases"]


@pytest.mark.parametrize(("moved", "failed"), [(4, set()), (6, {"MRR"})], ids=["2 %", "3 %"])
def test_mrr_may_fall_by_two_percent(judged_of: JudgedOf, moved: int, failed: set[str]) -> None:
    before, now = [1] * 100, [2] * moved + [1] * (100 - moved)
    assert _failed(_gate(judged_of, before, now)) == failed


@pytest.mark.parametrize(("lost", "failed"), [(2, set()), (3, {"recall@10"})])
def test_recall_may_fall_by_two_hundredths(judged_of: JudgedOf, lost: int, failed: set[str]) -> None:
    before = [10] * lost + [1] * (100 - lost)
    assert _failed(_gate(judged_of, before, [12] * lost + [1] * (100 - lost))) == failed


def test_no_passing_case_may_fail(judged_of: JudgedOf) -> None:
    gate = _gate(judged_of, [5] + [1] * 99, [6] + [1] * 99)
    assert _failed(gate) == {"passing cases"}
    assert gate.broken == ("q000",)
    assert _failed(_gate(judged_of, [6] + [1] * 99, [7] + [1] * 99)) == set()


def test_a_case_passes_with_an_answer_not_with_what_is_only_related(judged_of: JudgedOf) -> None:
    assert gates.passes(["a", "b"], {"b": 2})
    assert not gates.passes(["a", "b"], {"b": 1})
    assert not gates.passes([*FILLER[:5], "b"], {"b": 3})


@pytest.mark.parametrize(("raised", "failed"), [(3, set()), (2, {"improvement"})], ids=["3 %", "2 %"])
def test_an_improvement_is_three_percent_of_one_metric(judged_of: JudgedOf, raised: int, failed: set[str]) -> None:
    # From the second place to the first: one of a hundred raises MRR by a hundredth, and the other metrics by less.
    gate = _gate(judged_of, [2] * 100, [1] * raised + [2] * (100 - raised), improve=True)
    assert _failed(gate) == failed


@pytest.fixture
def asked(engine: LocalEngine, write_lines: WriteLines) -> list[str]:
    """Three memories and three questions, each with its answer."""
    ids = [engine.remember(f"the {colour} kettle whistles").id for colour in ("red", "green", "blue")]
    rows = [{"text": f"{c} kettle", "ids": [id]} for c, id in zip(("red", "green", "blue"), ids, strict=True)]
    import_questions(engine, write_lines(*rows))
    return ids


def test_without_a_baseline_there_is_nothing_to_compare_with(engine: LocalEngine, asked: list[str]) -> None:
    with pytest.raises(BadInput, match="--accept"):
        gates.gate(engine)


def test_what_was_accepted_passes_until_it_gets_worse(engine: LocalEngine, asked: list[str]) -> None:
    assert gates.accept(engine)["overall"]["mrr"] == 1.0
    assert gates.gate(engine).passed
    for number in range(6):
        engine.remember(f"red kettle red kettle {number}")
    gate = gates.gate(engine)
    assert _failed(gate) == {"MRR", "passing cases"}
    [broken] = gate.broken
    assert questions_of(engine)[broken].text == "red kettle"


def test_both_are_scored_by_the_labels_of_today(engine: LocalEngine, asked: list[str], write_lines: WriteLines) -> None:
    gates.accept(engine)
    import_grades(engine, write_lines({"question": "red kettle", "memory": asked[1], "grade": 3}))
    gate = gates.gate(engine)
    assert gate.passed and gate.before == gate.now


def test_questions_judged_since_then_do_not_count(
    engine: LocalEngine, asked: list[str], write_lines: WriteLines
) -> None:
    gates.accept(engine)
    import_questions(engine, write_lines({"text": "loudest kettle", "ids": [asked[0]]}))
    gate = gates.gate(engine)
    assert (gate.questions, gate.not_shared) == (3, 1)


def test_a_baseline_whose_questions_are_gone_is_told(
    engine: LocalEngine, asked: list[str], write_lines: WriteLines
) -> None:
    gates.accept(engine)
    delete_questions(engine.store, list(questions_of(engine)))
    with pytest.raises(BadInput, match="eval build"):
        gates.gate(engine)
    import_questions(engine, write_lines({"text": "loudest kettle", "ids": [asked[0]]}))
    with pytest.raises(BadInput, match="accept a new baseline"):
        gates.gate(engine)
