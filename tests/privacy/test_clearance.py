"""Nothing has the type that egress takes unless it was cleared."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import secret_samples
from hypothesis import given
from hypothesis import strategies as st

from triskele.privacy.clearance import ClearedText, Quotes, clear_memory, clear_question
from triskele.types import Memory, Sensitivity

PRIVATE = [
    "Anna is pregnant, the baby is due in October",
    "The offer of Kestrel Ltd was 84,500 euros",
    "Diagnose",
    "the build agent signs with qx7Lm2Zp9Rt4Vw8Ny3Bc",
    "私の給料は月に四十五万円です",
]
QUOTES = Quotes.of(PRIVATE)


@dataclass
class Fake:
    text: str = "secret"


def _all_ways_around(cleared: ClearedText) -> list[Callable[[], Any]]:
    def bare() -> Any:
        return object.__new__(ClearedText).text

    def bare_and_filled() -> Any:
        forged = object.__new__(ClearedText)
        object.__setattr__(forged, "_ClearedText__text", "secret")
        return forged.text

    def subclass() -> Any:
        return type("Mine", (ClearedText,), {})

    return [
        lambda: ClearedText("secret", None),
        lambda: ClearedText("secret", object()),
        lambda: ClearedText("secret", made=True),
        lambda: ClearedText("secret"),  # type: ignore[call-arg]
        bare,
        bare_and_filled,
        subclass,
        lambda: setattr(cleared, "text", "secret"),
        lambda: setattr(cleared, "_ClearedText__text", "secret"),
        lambda: copy.copy(cleared),
        lambda: copy.deepcopy(cleared),
        lambda: pickle.dumps(cleared),
        lambda: copy.replace(cleared, text="secret") if hasattr(copy, "replace") else ClearedText("secret", None),
    ]


@pytest.mark.parametrize("way", range(13))
def test_there_is_no_other_way_to_cleared_text(way: int, make_memory: Callable[..., Memory]) -> None:
    cleared = clear_memory(make_memory("open text"))
    assert cleared is not None
    with pytest.raises((TypeError, AttributeError)):
        _all_ways_around(cleared)[way]()
    assert cleared.text == "open text"


def test_only_an_open_memory_is_cleared(make_memory: Callable[..., Memory]) -> None:
    assert clear_memory(make_memory("a", sensitivity=Sensitivity.OPEN)) is not None
    assert clear_memory(make_memory("a", sensitivity=Sensitivity.PRIVATE)) is None
    # A class that this version does not know is not open either.
    for value in ("secret", "OPEN", "", "unknown"):
        assert clear_memory(make_memory("a", sensitivity=SimpleNamespace(value=value))) is None


def test_a_part_of_cleared_text_is_cleared(make_memory: Callable[..., Memory]) -> None:
    cleared = clear_memory(make_memory("one two three"))
    assert cleared is not None and cleared.part(4, 7).text == "two"
    assert "one" not in repr(cleared)


@pytest.mark.parametrize(
    "question",
    [
        "Is Anna pregnant?",
        "pregnant Anna",
        "who said that the offer of Kestrel Ltd was too low",
        "was it 84,500?",
        "was it 84500?",
        "WAS IT 84 500 EUROS",
        "diagnose?",
        "what is qx7lm2zp9rt4 for",
        "給料は月に四十五万円?",
        "the ｋｅｓｔｒｅｌ ltd offer",
    ],
)
def test_a_question_that_quotes_is_held_back(question: str) -> None:
    assert clear_question(question, QUOTES) is None


@pytest.mark.parametrize(
    "question",
    [
        "what is Anna's phone number",
        "how do I sign a build",
        "is the office open in October",
        "",
        "what was the offer",
        "給料日",
    ],
)
def test_a_question_of_common_words_is_cleared(question: str) -> None:
    cleared = clear_question(question, QUOTES)
    assert cleared is not None and cleared.text == question


def test_a_question_with_a_secret_is_held_back() -> None:
    text = secret_samples.fill("why does ghp_‹alnum:36› not work")
    assert clear_question(text, Quotes.of([])) is None


def test_pairs_of_words_and_numbers_are_quotations() -> None:
    assert clear_question("the release train", Quotes.of(["release train on Monday"])) is None
    assert clear_question("room 84500", Quotes.of(["84500"])) is None


def test_texts_can_be_added() -> None:
    quotes = Quotes.of([])
    assert clear_question("blue heron", quotes) is not None
    quotes.add(["the blue heron nests here"])
    assert clear_question("blue heron", quotes) is None


def test_the_marks_do_not_show_the_texts() -> None:
    assert all(isinstance(mark, bytes) and len(mark) == 8 for mark in QUOTES._marks)
    assert not Quotes.of(PRIVATE)._marks & QUOTES._marks, "each set has a key of its own"


@given(st.text(max_size=200))
def test_every_text_with_a_telling_pair_quotes_itself(text: str) -> None:
    quotes = Quotes.of([text])
    assert quotes.shares(text) is (len(quotes) > 0)
    assert Quotes.of([text]).shares(text) is quotes.shares(text)


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["a", "a1", "猫", "ab 12cd ", "\u0300"])
def test_clearing_takes_time_in_proportion(piece: str) -> None:
    def work(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        Quotes.of([text]).shares("x" + text)
        return time.process_time() - started

    assert any(work(200_000) < 3.2 * work(100_000) + 0.05 for _ in range(3))
