"""Odd and long questions, odd memories, and languages that the model does not know."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from embedded_notes import open_engine

from triskele.engine.local import LocalEngine
from triskele.types import Add

ODD = ["👍", "?", "...!?", "", " ", "\x00", "漢字 и русский عربى हिन्दी mixed", "a\u0301" * 50, "\ud800", "of the", "0"]
LONG = {
    "one long word": "x" * 100_000,
    "many words": " ".join(f"word{number % 5000}" for number in range(11_000)),
    "only signs": "?!" * 50_000,
    "no spaces": "漢字" * 50_000,
    "all scripts": "mixed и русский عربى 漢字 हिन्दी 👍 " * 3000,
}


@pytest.mark.parametrize("text", ODD)
def test_odd_questions_are_answered(embedded: tuple[LocalEngine, list[str]], text: str) -> None:
    engine, ids = embedded
    answer = engine.recall(text)
    assert 0 <= answer.confidence <= 1
    assert all(np.isfinite(hit.score) for hit in answer.hits)
    assert engine.why_not(ids[0], text).verdict


@pytest.mark.slow
# A second or two each; one whose cost grew with its square would take minutes.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", LONG)
def test_long_questions_take_bounded_time(embedded: tuple[LocalEngine, list[str]], kind: str) -> None:
    engine, _ = embedded
    assert len(LONG[kind]) >= 90_000
    assert engine.recall(LONG[kind], limit=200).took_ms > 0


def test_odd_memories_are_embedded_and_found(engine: LocalEngine) -> None:
    texts = [
        "👍",
        "?!",
        "0",
        "漢字かな交じり文",
        "мы едем в Казань",
        "a\u0301" * 40,
        "x" * 1400,
        "the of and",
        "👍 ship it",
    ]
    ids = [outcome.id for outcome in engine.apply([Add(engine.draft(text)) for text in texts])]
    assert engine.upkeep.embed() == len(texts)
    for id, text in zip(ids, texts, strict=True):
        found = [hit.memory.id for hit in engine.recall(text).hits]
        # A question without a letter or a digit may well ask for nothing.
        is_asked = any(character.isalnum() for character in text)
        assert id in found[:2] or not (found or is_asked), text
    assert engine.recall(" \n").hits == ()
    assert engine.upkeep.inspect(deep=True).vectors_damaged == 0


# Other languages than the model's

LANGUAGES = json.loads((Path(__file__).parents[1] / "data" / "multilingual.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_english_model_does_not_drown_other_languages_words(tmp_path: Path, language: str) -> None:
    memories, questions = LANGUAGES[language]["memories"], LANGUAGES[language]["questions"]
    with open_engine(tmp_path) as engine:
        ids = [outcome.id for outcome in engine.apply([Add(engine.draft(text)) for text in memories])]
        assert engine.upkeep.embed() == len(memories)

        def mean_reciprocal_rank(**options: object) -> float:
            total = 0.0
            for text, wanted in questions:
                found = [hit.memory.id for hit in engine.recall(text, limit=len(memories), **options).hits]  # type: ignore[arg-type]
                total += 1 / (found.index(ids[wanted]) + 1) if ids[wanted] in found else 0.0
            return total / len(questions)

        assert mean_reciprocal_rank() >= mean_reciprocal_rank(legs=("lexical",)) > 0.8
