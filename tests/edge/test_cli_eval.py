"""`triskele eval` as a user walks it: build, judge, run, gate, tune, rollback."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_team import grades_of, questions_of, written

from triskele.bench.own.questions import load_labels
from triskele.edge.cli import curation, invocation
from triskele.engine.opening import open_memory
from triskele.recall import plan as plans
from triskele.recall.plan import Plan

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Add = Callable[..., str]


def _adopt(plan: Plan) -> None:
    with open_memory() as engine:
        semantic = engine.semantic()
        assert semantic is not None
        plans.adopt(engine.store, plan, fingerprint=semantic.embedder.fingerprint, questions=60)


def test_eval_from_build_to_rollback(run: Run, tmp_path: Path, answers: dict[str, dict[str, int]]) -> None:
    built = run("eval", "build", "--size", "30", "--json").json
    assert Counter(question["type"] for question in built["questions"]) == dict.fromkeys(
        ("exact", "paraphrase", "multi-hop"), 10
    )
    questions = questions_of(answers, 60)
    assert run("eval", "build", "--import", written(tmp_path / "q.jsonl", questions), "--json").json["added"] == 240
    grades = written(tmp_path / "grades.jsonl", grades_of(questions, answers))
    state = run("eval", "judge", "--scripted", grades, "--json").json
    assert (state["judged"], state["waiting"]) == (240, 30)

    report = run("eval", "run", "--arms", "default", "--json").json
    arms = report["arms"]
    assert arms["default"]["overall"]["ndcg@10"] > arms["fts"]["overall"]["ndcg@10"]
    assert set(arms["default"]["strata"]) == {"exact", "paraphrase", "multi-hop", "prompt"}
    assert report["manifest"]["counts"]["left_out"]["not judged yet"] == 30

    assert run("eval", "gate").is_refused(2, "no baseline", "--accept")
    assert "Accepted as the baseline" in run("eval", "gate", "--accept").out
    passed = run("eval", "gate", "--json").json
    assert passed["passed"] and len(passed["checks"]) == 3

    _adopt(Plan(weights={"lexical": 1.0}))
    assert "Adopted weights are in force" in run("stats").out
    failed = run("eval", "gate")
    assert failed.code == 1
    assert "✗ MRR" in failed.out and "✗ passing cases" in failed.out and "triskele eval rollback" in failed.out
    failed = run("eval", "gate", "--rollback-on-failure", "--json")
    assert failed.code == 1 and json.loads(failed.out)["rolled_back"]
    assert run("stats", "--json").json["adopted"] is None
    assert run("eval", "gate").code == 0

    tuned = run("eval", "tune", "--budget", "3", "--json")
    evidence = json.loads(tuned.out)
    assert tuned.code == (0 if evidence["adopted"] else 1)
    assert evidence["questions"] >= 170 and evidence["configurations"] == 4 and evidence["folds"] == 5
    low, high = evidence["ci95"]
    assert low <= evidence["delta"] <= high and evidence["reason"] and evidence["fingerprint"]
    assert evidence["adopted"] == (run("stats", "--json").json["adopted"] is not None)
    if not evidence["adopted"]:
        _adopt(Plan(weights={"lexical": 0.5, "dense": 0.5}))
    assert "In force now: as shipped" in run("eval", "rollback").out
    assert run("eval", "rollback").is_refused(1, "no adopted plan")


def test_eval_tune_counts_missing_questions(run: Run, tmp_path: Path, answers: dict[str, dict[str, int]]) -> None:
    exact = [each for each in questions_of(answers, 60) if each["type"] == "exact"]
    run("eval", "build", "--import", written(tmp_path / "q.jsonl", exact))
    run("eval", "judge", "--scripted", written(tmp_path / "g.jsonl", grades_of(exact[:49], answers)))
    ran = run("eval", "tune")
    assert ran.code == 1
    assert "50 are needed" in ran.out and "Nothing is adopted" in ran.out
    assert json.loads(run("eval", "tune", "--json").out)["questions"] <= 49


@pytest.fixture
def kettles(run: Run, add: Add, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three memories and two questions about them, by words alone."""
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    monkeypatch.setattr(curation, "has_keys", lambda: True)
    ids = [add(f"the {colour} kettle whistles") for colour in ("red", "green", "blue")]
    rows = [{"text": "kettle one?"}, {"text": "kettle two?"}]
    run("eval", "build", "--import", written(tmp_path / "q.jsonl", rows))
    return ids


def _given() -> list[int]:
    with open_memory() as engine:
        return sorted(label.grade for label in load_labels(engine.store).values())


def test_eval_judge_takes_one_key_per_pair(run: Run, kettles: list[str]) -> None:
    ran = run("eval", "judge", stdin="3u2x01q")
    assert ran.code == 0
    assert "kettle one?" in ran.out or "kettle two?" in ran.out
    assert "2 questions left · memory 1 of 3" in ran.out
    assert "No key 'x'" in ran.out
    assert "1 of 2 questions judged" in ran.out
    assert _given() == [0, 1, 2]
    ran = run("eval", "judge", stdin="us")
    assert "Nothing to undo" in ran.out and "1 question left · memory 1 of 3" in ran.out
    assert _given() == [0, 1, 2]
    assert run("eval", "judge", stdin="000").out.endswith("triskele eval run\n")
    assert run("eval", "judge", "--json").json["waiting"] == 0


def test_eval_judge_keeps_grades_when_stopped(run: Run, kettles: list[str]) -> None:
    run("eval", "judge", stdin="3")
    assert _given() == [3]


def test_eval_judge_needs_a_terminal(
    run: Run, kettles: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(invocation, "_TERMINAL", str(tmp_path / "nowhere"))
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "home"))
    assert run("eval", "judge").is_refused(2, "needs a terminal", "--scripted")


def test_eval_judge_shows_neither_arms_nor_origin(run: Run, kettles: list[str], tmp_path: Path) -> None:
    out = run("eval", "judge", stdin="q").out
    assert not any(word in out for word in ("lexical", "dense", "rrf", "user", "paraphrase"))


def test_eval_judge_exports_open_pairs_and_demands_agreement(run: Run, kettles: list[str], tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    assert run("eval", "judge", "--export", str(pairs), "--json").json["pairs"] == 6
    assert run("eval", "judge", "--export", str(pairs)).is_refused(2, "exists already")
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    file = written(tmp_path / "labels.jsonl", [{**row, "grade": 1} for row in rows])
    ran = run("eval", "judge", "--from", file, "--by", "model-x")
    assert ran.code == 1
    assert "Refused, nothing was imported: 0 of the 6 labelled pairs" in ran.out
    assert _given() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["build", "--size", "2"], "between 3 and 5,000"),
        (["build", "--size", "many"], "--size"),
        (["build", "--import", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["judge"], "no questions yet"),
        (["judge", "--from", "x.jsonl"], "--by NAME"),
        (["judge", "--from", "a", "--by", "b", "--export", "c"], "exclude each other"),
        (["judge", "--scripted", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["run"], "no judged questions yet"),
        (["run", "--arms", "magic"], "unknown arm"),
        (["gate"], "no baseline"),
        (["gate", "--accept"], "no judged questions yet"),
        (["gate", "--accept", "--improve"], "alone"),
        (["tune", "--budget", "0"], "budget"),
        (["nonsense"], "nonsense"),
    ],
)
def test_eval_refuses_bad_input_in_one_line(run: Run, arguments: list[str], words: str) -> None:
    assert run("eval", *arguments).is_refused(2, words)


def test_eval_on_an_empty_store_says_what_to_do(run: Run) -> None:
    assert "triskele add" in run("eval", "build").out


def test_eval_lists_steps_in_order(run: Run) -> None:
    out = run("eval").out
    assert out == run("eval", "--help").out
    places = [
        out.partition("Commands:")[2].index(f"\n  {name} ")
        for name in ("build", "judge", "run", "gate", "tune", "rollback")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["build", "judge", "run", "gate", "tune", "rollback"])
def test_eval_steps_have_help_with_examples_and_json(run: Run, name: str) -> None:
    out = run("eval", name, "--help").out
    assert f"Usage: triskele eval {name} " in out
    assert f"Examples:\n    triskele eval {name}" in out
    assert "--json" in out and "--store" in out
