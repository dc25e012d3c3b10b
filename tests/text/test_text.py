"""Texts without a topic: greetings, answers, numbers and commands to go on."""

from __future__ import annotations

import pytest

from triskele.text.words import has_topic


@pytest.mark.parametrize(
    "text",
    """
    hi|Hello!|hey there|Good morning|thanks|Thank you so much 🙏|THX|yes|Yes, please|no|nope|ok|OK 👍|Okay...|y|n|k|b)
    2|42.|#3|3.11|1 and 2|10%|2026-05-03|½|continue|Continue!|go on|go ahead|run it|commit|push it|next|what's next?
    try again|stop|do it|DON'T|let’s go|undo that|once more|lgtm|sounds good|👍|🎉🎉|...|?!||option 2|the second one
    """.strip()
    .replace("\n    ", "|")
    .split("|"),
)
def test_has_topic_is_false_without_a_content_word(text: str) -> None:
    assert not has_topic(text)


@pytest.mark.parametrize(
    "text",
    [
        "Wombat",
        "deploy!",
        "commit message",
        "hi, where is the rota?",
        "run the migrations",
        "v2",
        "数据库",
        "C++17",
        "naïve",
    ],
)
def test_has_topic_is_true_with_any_other_word(text: str) -> None:
    assert has_topic(text)
