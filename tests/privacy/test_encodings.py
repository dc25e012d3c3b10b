"""A quotation is recognised in the writings that machines use, and a secret by any word that makes it one."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
import secret_samples
from hypothesis import given
from hypothesis import strategies as st

from triskele.privacy.clearance import Quotes, clear_question
from triskele.privacy.encodings import decodings, readings

TEXT = "Anna is pregnant, the baby is due in October"
NOTHING = Quotes.of(())

DISGUISES: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64, one byte later": lambda text: base64.b64encode(b"x" + text.encode()).decode(),
    "base64, two bytes later": lambda text: base64.b64encode(b"xx" + text.encode()).decode(),
    "base64 after a slash": lambda text: f"blob/{base64.b64encode(text.encode()).decode()}",
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "hex": lambda text: text.encode().hex(),
    "hex after a digit": lambda text: f"a{text.encode().hex()}",
    "hex in capitals, with blanks": lambda text: text.encode().hex(" ").upper(),
    "hex with colons": lambda text: text.encode().hex(":"),
    "hex as in C": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "hex as numbers": lambda text: ", ".join(f"0x{byte:02x}" for byte in text.encode()),
    "percent signs": lambda text: quote(text, safe=""),
    "percent signs everywhere": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "plus signs": lambda text: text.replace(" ", "+"),
    "escapes": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "backwards": lambda text: text[::-1],
}


@pytest.mark.parametrize("how", DISGUISES)
def test_a_quotation_in_another_writing_is_held_back(how: str) -> None:
    quotes, written = Quotes.of([TEXT]), DISGUISES[how](TEXT)
    assert clear_question(f"what does {written} mean", quotes) is None
    assert clear_question(f"what does {written} mean", NOTHING) is not None


@pytest.mark.parametrize("how", [how for how in DISGUISES if how != "backwards"])
def test_plain_text_matches_an_encoded_private_text(how: str) -> None:
    assert clear_question("is the baby due in October?", Quotes.of([f"note: {DISGUISES[how](TEXT)}"])) is None


@pytest.mark.parametrize("how", DISGUISES)
def test_unstored_secret_is_detected_in_other_encodings(how: str) -> None:
    token = secret_samples.fill("ghp_‹alnum:36›")
    assert clear_question(f"why does it say {DISGUISES[how](f'use {token} here')}", NOTHING) is None


@pytest.mark.parametrize(
    ("secret", "question"),
    [
        ("the wifi password is Sommerregen7", "is sommerregen7 still right?"),
        ("postgres://app:qwrtzpsdfg-hjklyxcvbn@db.internal/garden", "what is hjklyxcvbn for"),
        ("postgres://app:qwrtzpsdfg-hjklyxcvbn@db.internal/garden", "is it zpsdfg-hjkl?"),
        ("the gate opens with Rhabarberkuchen", "Rhabarberkuchen"),
        ("wifi: qx7Lm2Zp9Rt4", "q x 7 L m 2 Z p 9 R t 4"),
        ("wifi: qx7Lm2Zp9Rt4", "qx7L-m2Zp-9Rt4"),
        ("密码是qx7Lm2Zp9Rt4", "what is qx7Lm2Zp9Rt4"),
        ("私の給料は月に四十五万円です", "給 料 は 月 に 四 十 五"),
    ],
)
def test_secret_part_of_a_text_matches_by_itself(secret: str, question: str) -> None:
    quotes = Quotes.of(())
    quotes.add_secrets([secret])
    assert clear_question(question, quotes) is None


def test_words_around_a_secret_may_leave() -> None:
    quotes = Quotes.of(())
    quotes.add_secrets(["the wifi password is Sommerregen7", " ".join(f"word{letter}" for letter in "abcdefghijk")])
    assert clear_question("how good is the wifi here?", quotes) is not None
    assert clear_question("what is worda", quotes) is not None


@pytest.mark.parametrize(
    "question",
    [
        "what is commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "internationalization and telecommunications",
        "who has 550e8400-e29b-41d4-a716-446655440000",
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
        "100% of what? \\u00e9 %zz 0x",
        "",
    ],
)
def test_text_that_only_looks_encoded_may_leave(question: str) -> None:
    assert clear_question(question, Quotes.of([TEXT])) is not None


@given(st.text(max_size=200))
def test_every_text_has_readings(text: str) -> None:
    assert decodings(text)[0] == text and readings(text)[-1] == text[::-1]


@pytest.mark.parametrize("piece", ["a", "a1", "%41", "\\u0041", "0x41,", "zz-", "ab "])
def test_reading_takes_time_in_proportion(piece: str) -> None:
    def work(size: int) -> float:
        text = piece * (size // len(piece))
        started = time.process_time()
        readings(text)
        return time.process_time() - started

    assert any(work(200_000) < 3.2 * work(100_000) + 0.05 for _ in range(3))
