"""What a sentence tells in passing, and amounts of one thing that differ."""

from __future__ import annotations

import pytest

from triskele.agents.capture import asides, capture, sorted_out
from triskele.curation.amounts import other_amount
from triskele.curation.compare import compare
from triskele.curation.wording import words
from triskele.types import SpokenTurn, Verdict


@pytest.mark.parametrize(
    ("sentence", "clauses"),
    [
        ("My seed shelf holds 45 packets now, how can I sort them?", ["My seed shelf holds 45 packets now"]),
        ("By the way, I just moved the loom to the attic.", ["I just moved the loom to the attic."]),
        (
            "I'm worried about the rent, especially since my lease ends on May 3.",
            ["my lease ends on May 3."],
        ),
        ("I've booked the ferry for 14 June, can you check the weather?", ["I've booked the ferry for 14 June"]),
        ("Can you explain how ferries are booked in June?", []),
        ("That sounds great, thanks!", []),
        ("I was thinking of repainting the kitchen cupboards.", []),
        ("How do I sort 45 packets of seeds?", []),
    ],
)
def test_clauses_that_tell_are_kept_without_the_question(sentence: str, clauses: list[str]) -> None:
    assert asides(sentence) == clauses


def test_what_is_told_in_passing_is_kept_only_where_everything_is() -> None:
    turn = SpokenTurn("user", "I've planted 12 rows of beans this spring, what should follow them?", session="a")
    texts = capture([turn])
    assert [each.text for each in sorted_out(texts, "all")[0]] == ["I've planted 12 rows of beans this spring"]
    assert sorted_out(texts, "normal") == ([], [])
    assert sorted_out(texts, "strict") == ([], [])


@pytest.mark.parametrize(
    ("old", "new", "amounts"),
    [
        ("I've increased my snack budget to $65", "We put the snack budget at $75", ("$65", "$75")),
        ("My seed shelf holds 45 packets", "There are 52 packets on the seed shelf", ("45", "52")),
        ("I planted 12 rows of beans", "Nora knitted 9 rows of the scarf", None),
        ("The ferry leaves at 3 PM from Brest", "We take the ferry from Brest at 4 PM", ("3", "4")),
        ("The ferry left Brest on 3 May", "The ferry left Brest on 9 May", None),
        ("I have 3 rooms and 2 cats", "I have 4 rooms and 2 cats", None),
        ("Just three days ago, I was surfing", "Two days ago I signed up for surfing", None),
    ],
)
def test_amounts_of_one_thing_are_found(old: str, new: str, amounts: tuple[str, str] | None) -> None:
    assert other_amount(words(old), words(new)) == amounts


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "I've been using Excel to track my daily expenses since March 1",
            "I've never used Excel for tracking expenses",
        ),
        ("I've never invited Mason to the film evenings", "I've asked Mason to come to the film evenings in April"),
    ],
)
def test_a_denial_in_other_words_is_asked_about(old: str, new: str) -> None:
    relation = compare(old, new)
    assert relation.verdict is Verdict.SUPERSEDE
    assert 0.5 <= relation.confidence < 0.9


def test_another_amount_is_asked_about_and_never_sure() -> None:
    relation = compare("I have a snack budget of $65", "Our snack budget was raised by Nora to $75")
    assert relation.verdict is Verdict.SUPERSEDE
    assert 0.5 <= relation.confidence < 0.9
