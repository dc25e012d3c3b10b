"""`make bench` replaces its table in docs/benchmarks.md and leaves the rest of the page."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def quality(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("quality")


def test_with_table_replaces_the_text_between_the_marks(quality: ModuleType) -> None:
    page = quality.PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(quality.BEGIN)], page[page.index(quality.END) :]
    replaced = quality.with_table(page, "| set |")
    assert replaced == f"{before}{quality.BEGIN}\n\n| set |\n\n{after}"
    assert quality.with_table(replaced, "| set |") == replaced
    assert before.startswith("# Benchmarks") and "## " in after


def test_with_table_refuses_a_page_without_marks(quality: ModuleType) -> None:
    with pytest.raises(SystemExit, match="lacks the marks"):
        quality.with_table("# Benchmarks\n", "| set |")


@pytest.mark.slow
def test_summary_has_a_row_for_each_set(quality: ModuleType) -> None:
    figures = {"overall": {"recall@5": 0.5, "ndcg@10": 0.25}}
    report = {
        "dataset": "team",
        "manifest": {"counts": {"measured": 1234}, "versions": {"triskele": "0", "tantivy": "0"}},
        "arms": {"rrf": figures, "default": figures},
    }
    lines = list(quality._summary([report], ["rrf", "default"]))
    assert lines[-3:] == [
        "| set | questions | RRF | default |",
        "|---|---|---|---|",
        "| team | 1,234 | 50.0 / 25.0 | 50.0 / 25.0 |",
    ]
