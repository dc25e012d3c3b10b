"""Questions made by rules."""

from __future__ import annotations

import random

import pytest

from training import augment


@pytest.mark.parametrize(
    ("asked", "question"),
    [
        ("Nice! Are you a movie fan?", "Is Tom a movie fan?"),
        ("By the way, do you play with your brother?", "Does Tom play with Tom's brother?"),
        ("Do you know what I mean?", ""),
        ("You are right.", ""),
    ],
)
def test_question_to_a_person_becomes_one_about_that_person(asked: str, question: str) -> None:
    assert augment.question_about(asked, "Tom") == question


def test_question_about_a_person_becomes_one_of_that_person() -> None:
    assert augment.question_by("When does Karl visit Karl's aunt?", "Karl") == "When do I visit my aunt?"
    assert augment.question_by("When does Ann come?", "Karl") == ""


def test_turns_and_speakers_stay_apart() -> None:
    assert augment.split_speaker("Ann Lee: hello there") == ("Ann Lee", "hello there")
    assert augment.split_speaker("no speaker here") == ("", "no speaker here")
    assert augment.split_turns("Ann: Are you in? Bob: Yes, I am.") == [("Ann", "Are you in?"), ("Bob", "Yes, I am.")]
    assert augment.split_turns("nobody speaks") == []


def test_a_text_is_split_before_the_sentence_that_fits() -> None:
    said = "It was a long and tiring week. My red bicycle broke down."
    assert augment.split_turn("What about the red bicycle?", said) == (
        "It was a long and tiring week.",
        "My red bicycle broke down.",
    )
    assert augment.split_turn("What about the red bicycle?", "My red bicycle broke down.") is None


def test_dates_are_the_same_for_the_same_seed() -> None:
    first, second = (augment.make_dates(5, random.Random(3)) for _ in range(2))
    assert first == second
