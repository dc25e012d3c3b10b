"""Measuring on one's own questions: which count, what is kept, and that two runs are one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from triskele.bench.arms import Arm
from triskele.bench.harness import OwnHarness
from triskele.bench.own.judge import import_grades, import_questions
from triskele.bench.own.questions import JudgedSet, judged_set
from triskele.bench.own.run import RUN, judgeable, own_arm, run
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.recall import plan as plans
from triskele.recall.plan import Plan

WriteLines = Callable[..., Path]


@pytest.fixture
def ids(engine: LocalEngine, write_lines: WriteLines) -> list[str]:
    """Kettles with a question about each, and questions that do not count."""
    found = [engine.remember(f"the {colour} kettle whistles").id for colour in ("red", "green", "blue")]
    rows = [{"text": f"{c} kettle", "ids": [id]} for c, id in zip(("red", "green", "blue"), found, strict=True)]
    more = [{"text": "who owns the moon?", "type": "unanswerable"}, {"text": "nobody looked at this"}]
    import_questions(engine, write_lines(*rows, *more, {"text": "nothing answers"}))
    import_grades(engine, write_lines({"question": "nothing answers", "memory": found[0], "grade": 0}))
    return found


def test_only_judged_questions_with_an_answer_in_use_count(engine: LocalEngine, ids: list[str]) -> None:
    judged = judged_set(OwnHarness(engine))
    assert {question.text for question in judged.questions} == {"red kettle", "green kettle", "blue kettle"}
    assert judged.left_out == {"unanswerable": 1, "not judged yet": 1, "no memory in use answers": 1}
    engine.forget(ids[0])
    engine.remember("the new green kettle", supersedes=ids[1])
    assert [question.text for question in judged_set(OwnHarness(engine)).questions] == ["blue kettle"]


def test_a_run_is_kept_with_its_manifest_and_values_per_question(engine: LocalEngine, ids: list[str]) -> None:
    report = run(engine, arms=["lexical"])
    assert report["arms"].keys() == {"fts", "lexical"}
    assert report["arms"]["lexical"]["overall"]["mrr"] == 1.0
    assert {each["a"] for each in report["comparisons"]} == {"lexical"}
    assert report["manifest"]["counts"]["measured"] == 3
    assert report["coverage"]["arms"]["lexical"] == pytest.approx(3 / 9)
    [kept] = engine.store.documents.all(RUN).values()
    assert kept["report"] == report
    assert kept["scores"]["lexical"]["mrr"] == [1.0, 1.0, 1.0] and len(kept["questions"]) == 3


def test_two_runs_say_the_same(team: LocalEngine, write_lines: WriteLines) -> None:
    memories = team.browse(all_projects=True, limit=12).memories
    rows = [{"text": f"what about {each.content[:40]}", "ids": [each.id]} for each in memories]
    import_questions(team, write_lines(*rows))
    reports = [run(team, arms=["dense", "default"]) for _ in range(2)]
    for report in reports:
        del report["manifest"]["at"]
        for one in report["arms"].values():
            del one["latency_ms"], one["bytes_per_memory"]
    assert reports[0] == reports[1]


def test_a_question_is_asked_in_its_own_project(engine: LocalEngine, ids: list[str]) -> None:
    elsewhere = engine.remember("the red kettle of the neighbours", project="next door").id
    harness = OwnHarness(engine)
    for name in ("fts", "lexical"):
        assert harness.ids(own_arm(name, engine), "red kettle", "next door") == [elsewhere]
        everywhere = harness.ids(own_arm(name, engine), "red kettle", None)
        assert {elsewhere, ids[0]} <= set(everywhere)


def test_what_recall_does_now_is_an_arm_and_is_told(team: LocalEngine, write_lines: WriteLines) -> None:
    memory = team.browse(all_projects=True, limit=1).memories[0]
    import_questions(team, write_lines({"text": memory.content[:40], "ids": [memory.id]}))
    assert run(team)["adopted"] is None
    semantic = team.semantic()
    assert semantic is not None
    plan = Plan(weights={"lexical": 1.0})
    plans.adopt(team.store, plan, fingerprint=semantic.embedder.fingerprint, questions=60)
    report = run(team)
    assert report["adopted"]["plan"] == {"weights": {"lexical": 1.0}}
    assert report["manifest"]["arms"]["now"]["plan"]["weights"] == {"lexical": 1.0}


@pytest.mark.parametrize(
    "plan",
    [Plan(), Plan(fusion="rrf", rerank="late"), Plan(weights={"lexical": 0.3, "late": 0.7}, exact=0.5)],
    ids=["shipped", "rrf", "weights"],
)
def test_what_is_measured_is_what_recall_serves(team: LocalEngine, plan: Plan) -> None:
    harness = OwnHarness(team)
    arm = Arm(name="one", about="", plan=plan)
    for text in ("When may we deploy to production?", "who maintains ledgerline?", "短信验证", "boats sent twice"):
        served = [hit.memory.id for hit in team.ask(text, plan, all_projects=True).hits]
        measured = harness.ids(arm, text, None)
        assert measured[: len(served)] == served != []


def test_questions_made_from_links_never_judge_the_graph(judged_of: Callable[..., JudgedSet]) -> None:
    both = judged_of({"q1": {"m": 3}, "q2": {"m": 3}})
    made = replace(both, questions=(both.questions[0], replace(both.questions[1], circular=("links", "words"))))
    with_graph = Arm(name="g", about="", plan=Plan(legs=frozenset({"lexical", "graph"})))
    without = Arm(name="w", about="", plan=Plan(legs=frozenset({"lexical"})))
    assert judgeable(made, [without]).ids == ["q1", "q2"]
    told = judgeable(made, [without, with_graph])
    assert told.ids == ["q1"]
    assert told.left_out == {"made from links: may not judge the graph": 1}


def test_nothing_to_measure_is_told_with_what_to_do(engine: LocalEngine, write_lines: WriteLines) -> None:
    with pytest.raises(BadInput, match="eval build"):
        run(engine)
    import_questions(engine, write_lines({"text": "nobody looked at this"}))
    with pytest.raises(BadInput, match="1 waits: judge"):
        run(engine)
    with pytest.raises(BadInput, match="unknown arm"):
        run(engine, arms=["magic"])
