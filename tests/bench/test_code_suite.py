"""The relevance suite of code search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triskele.bench.code_suite import FORMAT, CodeCase, arms, is_suite, load_suite, run_suite
from triskele.errors import BadInput

SHIPPED = Path(__file__).parent.parent.parent / "benchmarks" / "code" / "suite.json"


def _suite(folder: Path, *cases: dict[str, Any]) -> Path:
    path = folder / "suite.json"
    path.write_text(json.dumps({"format": FORMAT, "trees": {"shop": {"version": "1"}}, "cases": cases}))
    return path


def _case(**values: Any) -> dict[str, Any]:
    return {"id": "a", "tree": "shop", "question": "who retries", "expected": {"pay.py": 3}, **values}


@pytest.mark.parametrize(
    ("ranked", "passes"),
    [
        (["pay.py"], True),
        (["other.py", "pay.py"], True),
        (["test.py", "pay.py"], False),
        (["pay.py", "test.py"], True),
        (["mail.py", "test.py", "pay.py"], True),
        (["1", "2", "3", "4", "5", "pay.py"], False),
        (["mail.py"], False),
        ([], False),
    ],
)
def test_a_case_passes_with_a_best_path_and_no_forbidden_one_before(ranked: list[str], passes: bool) -> None:
    case = CodeCase("a", "shop", "sentence", "q", {"pay.py": 3, "mail.py": 1}, ("test.py",))
    assert case.passes(ranked) is passes


@pytest.mark.parametrize(
    "values",
    [{"expected": {}}, {"expected": {"a": 4}}, {"expected": {"a": 0}}, {"tree": "other"}, {"expected": 3}],
)
def test_a_wrong_case_is_refused_by_its_number(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="case 1"):
        load_suite(_suite(tmp_path, _case(**values)))


def test_ids_are_unique_and_other_files_are_no_suites(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="repeats"):
        load_suite(_suite(tmp_path, _case(), _case()))
    (tmp_path / "other.json").write_text("{}")
    assert is_suite(tmp_path / "suite.json") and not is_suite(tmp_path / "other.json")
    with pytest.raises(BadInput, match="not a suite"):
        load_suite(tmp_path / "other.json")


def test_the_shipped_suite_is_large_and_diverse() -> None:
    suite = load_suite(SHIPPED)
    assert len(suite.cases) >= 250 and len(suite.trees) >= 8
    assert {case.type for case in suite.cases} == {"sentence", "symbol", "architecture"}
    assert any(case.forbidden for case in suite.cases)


def test_a_suite_is_measured_per_arm(tmp_path: Path) -> None:
    tree = tmp_path / "trees" / "shop-1"
    (tree / "tests").mkdir(parents=True)
    (tree / "pay.py").write_text("def again():\n    '''Retries a charge.'''\n")
    (tree / "tests" / "test_pay.py").write_text("def test_again():\n    '''Retries retries retries.'''\n")
    suite = load_suite(_suite(tmp_path, _case(forbidden=["tests/test_pay.py"])))
    report = run_suite(suite, tmp_path / "trees", tmp_path / "home", names=["bm25", "lexical"])
    assert (report["arms"]["bm25"]["passed"], report["arms"]["lexical"]["passed"]) == (0, 1)
    assert report["arms"]["lexical"]["ndcg@10 by group"]["all"] == 1
    assert report["failed"]["bm25"] == ["a"]
    assert {each["a"] for each in report["comparisons"]} == {"lexical"}


def test_unknown_arms_and_missing_trees_are_named(tmp_path: Path) -> None:
    suite = load_suite(_suite(tmp_path, _case()))
    with pytest.raises(BadInput, match="unknown arm 'x'"):
        arms(["x"])
    with pytest.raises(BadInput, match="shop-1"):
        run_suite(suite, tmp_path, tmp_path / "home", names=["bm25"])
