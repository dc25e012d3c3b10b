from __future__ import annotations

import pytest
import secret_samples

from triskele.privacy.detect import find, title_for
from triskele.privacy.findings import Finding

SAMPLES = secret_samples.load() + secret_samples.load(secret_samples.FORMS)
GUILTY = [sample for sample in SAMPLES if sample.kind and find(sample.text)]


@pytest.mark.parametrize("sample", GUILTY, ids=lambda sample: sample.kind)
def test_a_title_shows_no_piece_of_the_secret(sample: secret_samples.Sample) -> None:
    secret = sample.text[sample.start : sample.end].lower()
    label, _, words = title_for(sample.text, find(sample.text)).partition(", ")
    assert label
    pieces = {secret[at : at + 3] for at in range(len(secret) - 2)} if sample.end > 0 else set()
    assert not any(piece in words.lower() for piece in pieces if piece.isalnum())


def test_title_names_the_use_of_the_secret() -> None:
    text = secret_samples.fill("The Anthropic key for the build box is sk-ant-api03-‹url:95›")
    assert title_for(text, find(text)) == "Anthropic key, build box"


def test_a_title_names_two_kinds_at_most() -> None:
    text = secret_samples.fill("AKIA‹base32:16› ghp_‹alnum:36› npm_‹alnum:36› Anna")
    assert title_for(text, find(text)) == "AWS key id and GitHub token, Anna"


def test_words_behind_a_password_may_belong_to_it() -> None:
    text = "the cabin password is Blue7 tulip garden"
    assert title_for(text, find(text)) == "Password, cabin"
    reversed_text = "correct horse battery Staple7! is the password"
    assert title_for(reversed_text, find(reversed_text)) == "Password"


def test_a_secret_marked_by_hand_has_a_title_too() -> None:
    assert title_for("the garden gnome moves at night", []) == "Secret"
    assert title_for("only this", [Finding("secret", 0, 9, "marked")]) == "Secret"
