"""The reference arm keeps its rules: all words first, any only if none fits, substrings on error, the blend."""

from __future__ import annotations

import apsw
import pytest

from triskele.bench.datasets import Window
from triskele.bench.harness import FtsBaseline


def built(*texts: str, importance: tuple[float, ...] = (), scopes: tuple[str, ...] = ()) -> FtsBaseline:
    weights = importance or (0.5,) * len(texts)
    places = scopes or ("",) * len(texts)
    return FtsBaseline(
        Window(f"d{number}", text, scope or None, None, None, weight)
        for number, (text, weight, scope) in enumerate(zip(texts, weights, places, strict=True))
    )


def rows(baseline: FtsBaseline, text: str, scope: str | None = None, depth: int = 10) -> list[int]:
    return [row for row, _ in baseline.search(text, scope, depth)]


def test_all_words_keep_rows_with_some_of_them_out() -> None:
    baseline = built("red boat", "red red red", "green boat", "nothing")
    assert rows(baseline, "red boat") == [0]


def test_any_word_will_do_only_when_no_row_has_all() -> None:
    baseline = built("red boat", "red red red", "green door", "nothing")
    assert set(rows(baseline, "red door")) == {0, 1, 2}
    assert rows(baseline, "purple") == []


def test_words_are_neither_stemmed_nor_left_out_and_quotes_join_parts() -> None:
    baseline = built("the boats", "boat", "pre-war", "war pre")
    assert rows(baseline, "boat") == [1]
    assert rows(baseline, "the") == [0]
    assert rows(baseline, 'pre-war"') == [2]


def test_operators_are_words() -> None:
    baseline = built("this OR that", "this and that", "near")
    assert rows(baseline, "this OR") == [0]
    assert rows(baseline, "NEAR(") == [2]


def test_what_fts5_refuses_is_looked_for_as_a_substring_by_importance() -> None:
    baseline = built("plain", "odd \x01 text", importance=(0.2, 0.9))
    # Nothing to ask for is an error in FTS5; every text holds the empty one.
    assert rows(baseline, "   ") == []
    assert baseline.search("", None, 10) == [(1, 0.9), (0, 0.2)]


def test_the_score_blends_bm25_and_importance() -> None:
    texts = ("red boat", "red boat", "a long line about something else", "another long line about nothing")
    baseline = built(*texts, importance=(0.1, 1.0, 0.5, 0.5))
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE plain USING fts5(content, category, tags, keywords)")
    connection.executemany("INSERT INTO plain VALUES (?, '', '', '')", [(text,) for text in texts])
    bm25 = connection.execute("SELECT bm25(plain) FROM plain WHERE plain MATCH 'boat' LIMIT 1").get
    found = baseline.search("boat", None, 10)
    assert [row for row, _ in found] == [1, 0]
    assert [score for _, score in found] == pytest.approx([-bm25 * 0.7 + 0.3, -bm25 * 0.7 + 0.03])


def test_the_scope_is_a_filter_before_the_cut() -> None:
    texts = ("red boat", "red boat here and there", "red door", "red boat of all")
    baseline = built(*texts, scopes=("a", "b", "b", ""))
    assert rows(baseline, "red boat", "b") == [3, 1]
    assert rows(baseline, "red boat", "b", depth=1) == [3]
    # All words stand in scope a alone: inside c any word will do.
    assert rows(built("red boat", "red door", scopes=("a", "c")), "red boat", "c") == [1]
