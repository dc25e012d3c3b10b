"""What is worth keeping of a conversation: the user's own words, and nothing that a program or a guess wrote."""

from __future__ import annotations

import pytest

from triskele.agents.capture import CapturedText, capture, secrets_from_turn, sorted_out
from triskele.bench.curation_pairs import measure_capture
from triskele.privacy.findings import Finding
from triskele.types import SpokenTurn


def captured(*texts: str, **details: object) -> list[str]:
    turns = [SpokenTurn("user", text, **details) for text in texts]  # type: ignore[arg-type]
    return [each.text for each in capture(turns)]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Remember that the lab closes at 18:00.", "The lab closes at 18:00."),
        ("please note: invoices go to Olga", "Invoices go to Olga"),
        ("from now on answer in French", "Answer in French"),
        ("no, we build with Bazel here", "We build with Bazel here"),
        ("We decided to freeze the schema until May", "We decided to freeze the schema until May"),
        ("I prefer tables over lists", "I prefer tables over lists"),
        ("My name is Olga Petrov", "My name is Olga Petrov"),
        ("Run it. Olga is our new controller. Thanks!", "Olga is our new controller."),
    ],
)
def test_learn_stores_the_users_own_words(said: str, kept: str) -> None:
    assert captured(said) == [kept]


@pytest.mark.parametrize(
    "said",
    [
        "do you remember that the lab closes at 18:00?",
        "remember to buy milk",
        "what if we decided to freeze the schema",
        "maybe we decided to drop it, not sure",
        "no, the other one",
        "no, try again",
        "actually, can you make it blue?",
        "he said remember that the lab is closed",
        'the log says "we decided to reject it"',
        "we decided to rename this function",
        "off the record: we decided to leave",
        "> Remember that the lab closes at 18:00",
        "```\nRemember that the lab closes at 18:00\n```",
        "I love it",
        "note it",
    ],
)
def test_questions_tasks_guesses_and_quotations_are_not(said: str) -> None:
    assert captured(said) == []


def test_learn_reads_only_typed_turns() -> None:
    text = "Remember that the lab closes at 18:00"
    turns = [SpokenTurn("assistant", text), SpokenTurn("tool", text), SpokenTurn("user", text, is_typed=False)]
    assert capture(turns) == []


def test_the_skip_marker_leaves_out_its_session_and_no_other() -> None:
    turns = [
        SpokenTurn("user", "Remember that the lab closes at 18:00", session="one"),
        SpokenTurn("user", "#no-memory", session="one"),
        SpokenTurn("user", "Remember that the gym opens at 7:00", session="two"),
    ]
    assert [each.text for each in capture(turns)] == ["The gym opens at 7:00"]


def test_learn_setting_decides_between_storing_and_proposing() -> None:
    texts = capture(
        [SpokenTurn("user", "Remember that Olga pays. Our canteen is in the east wing now. I'd rather walk home.")]
    )
    assert [[each.text for each in part] for part in sorted_out(texts, "strict")] == [["Olga pays."], []]
    assert [len(part) for part in sorted_out(texts, "normal")] == [2, 1]
    assert [len(part) for part in sorted_out(texts, "all")] == [3, 0]


@pytest.mark.parametrize("half", ["tune", "test"])
def test_the_labelled_conversations_hold_their_promise(half: str) -> None:
    report = measure_capture(half)
    assert report.conversations == 30
    assert report.precision >= 0.9
    assert report.recall >= 0.6


@pytest.mark.parametrize(
    ("text", "secret", "hidden"),
    [
        ("We use kelp 9931", "kelp 9931", ["kelp 9931"]),
        # The text ends inside the secret, or begins there.
        ("We use kelp", "kelp 9931", ["kelp"]),
        ("9931 here.", "kelp 9931", ["9931"]),
        ("The lab is red", "kelp 9931", []),
        # Of two equal texts one has the secret.
        ("Here", "here. The", ["Here"]),
        # Worded anew.
        ("Kelp is used", "kelp 9931", ["Kelp is used"]),
    ],
)
def test_secrets_from_turn_are_those_that_reach_into_the_text(text: str, secret: str, hidden: list[str]) -> None:
    own = "here  we use\nkelp 9931  here. The lab is red"
    captured = CapturedText(text, "rule", "facts", 0.9, SpokenTurn("user", own))
    at = own.index(secret)
    findings = list(secrets_from_turn(captured, [Finding("password", at, at + len(secret), "")]))
    assert [text[finding.start : finding.end] for finding in findings] == hidden
