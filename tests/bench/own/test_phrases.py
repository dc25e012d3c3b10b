"""Questions by rule: the rarest words, other words, and how many words a question shares."""

from __future__ import annotations

import pytest

from triskele.bench.own import build
from triskele.engine.local import LocalEngine


@pytest.fixture
def stocked(engine: LocalEngine) -> LocalEngine:
    for number in range(8):
        engine.remember(f"the server in room {number} runs the nightly backup of the database")
    return engine


def test_the_phrase_is_the_rarest_run_of_words(stocked: LocalEngine) -> None:
    text = "the server in the cellar has a purple Zanzibar sticker on the lid"
    stocked.remember(text)
    assert build.salient_phrase(text, stocked.lexical) == "purple Zanzibar sticker"


def test_a_phrase_does_not_run_over_the_end_of_a_sentence(stocked: LocalEngine) -> None:
    text = "the server has Zanzibar. Purple is the database"
    stocked.remember(text)
    assert build.salient_phrase(text, stocked.lexical) == "server has Zanzibar"


def test_an_identifier_is_one_word(stocked: LocalEngine) -> None:
    text = "the backup calls sounding_decode_backlog and the database"
    stocked.remember(text)
    assert "sounding_decode_backlog" in (build.salient_phrase(text, stocked.lexical) or "")


@pytest.mark.parametrize("text", ["it is what it is", "...", "短信验证"])
def test_odd_texts_give_a_phrase_or_none(stocked: LocalEngine, text: str) -> None:
    phrase = build.salient_phrase(text, stocked.lexical)
    assert phrase is None or phrase in text


def test_a_rewording_speaks_in_keywords_and_tags(stocked: LocalEngine) -> None:
    memory = stocked.draft(
        "the server in the cellar sends mail", category="decisions", tags=["cellar", "smtp"], keywords="delivery"
    )
    text = build.reworded(memory, stocked.lexical)
    assert text is not None
    assert text.startswith("what was decided about delivery smtp, ")
    assert build.overlap(text, memory.content, stocked.lexical.analyzer) <= build.MAX_OVERLAP


def test_without_other_words_there_is_no_rewording(stocked: LocalEngine) -> None:
    assert build.reworded(stocked.draft("the server sends mail", tags=["mail", "server"]), stocked.lexical) is None


def test_overlap_counts_telling_words_by_their_stems(stocked: LocalEngine) -> None:
    analyzer = stocked.lexical.analyzer
    assert build.overlap("what is the server?", "servers run", analyzer) == 1.0
    assert build.overlap("which server delivers letters?", "the server sends mail", analyzer) == pytest.approx(1 / 3)
    assert build.overlap("", "the server", analyzer) == 1.0
