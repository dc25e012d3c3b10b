from __future__ import annotations

import pytest

from triskele import validation
from triskele.config import MemorySettings
from triskele.errors import BadInput

SETTINGS = MemorySettings()


def test_invisible_characters_are_removed_and_joiners_kept() -> None:
    assert validation.check_content("a\u202eb\x1b[31mc\ufeff \U000e0041d", SETTINGS) == "ab[31mc d"
    assert validation.check_content("👩\u200d👧", SETTINGS) == "👩\u200d👧"


def test_line_ends_become_one_kind() -> None:
    assert validation.check_content("one\r\ntwo\rthree\ttab ", SETTINGS) == "one\ntwo\nthree\ttab"


@pytest.mark.parametrize(
    "text", ["", "  \n\t ", "a\x00b", "broken \ud800 text", "\u202e\u2066", "x" * 1401, "x" * 10_000_000]
)
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        validation.check_content(text, SETTINGS)


def test_the_limit_counts_code_points() -> None:
    assert len(validation.check_content("猫" * 1400, SETTINGS)) == 1400


def test_long_text_is_cut_at_sentences_and_loses_nothing() -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(200)) + " " + "y" * 300
    pieces = validation.split_sentences(text, 120)
    assert all(len(piece) <= 120 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece.endswith(".") for piece in pieces if "y" * 20 not in piece)


def test_tags_are_lower_case_and_unique() -> None:
    assert validation.check_tags(["Deploy", " deploy ", "", "CI"]) == ("deploy", "ci")


@pytest.mark.parametrize("importance", [7, -0.1, float("nan"), float("inf")])
def test_importance_lies_between_zero_and_one(importance: float) -> None:
    with pytest.raises(BadInput):
        validation.check_importance(importance)


def test_labels_have_a_limit() -> None:
    with pytest.raises(BadInput):
        validation.check_tags(["t" * 501])
    with pytest.raises(BadInput):
        validation.check_keywords("k" * 501)


def test_an_unknown_category_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="decisions"):
        validation.check_category("gossip", SETTINGS)
