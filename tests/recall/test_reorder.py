"""Other orders of a finished answer: unlike each other first, most talked about, or near to a memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.types import Answer

TEXTS = (
    "Argo CD: rolls releases out to the cluster",
    "Argo CD: rolls releases out to our cluster",
    "The Harbour Desk approves releases before Argo CD sees them",
    "The Harbour Desk is run by Ines Ferrao",
    "Releases are announced in the newsletter",
)


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    engine = open_engine(model="bundled")
    for text in TEXTS:
        engine.remember(text)
    engine.upkeep.embed()
    return engine


def _contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


def test_unlike_ones_first(engine: LocalEngine) -> None:
    plain = _contents(engine.recall("how are releases rolled out to the cluster by Argo CD?"))
    varied = engine.recall("how are releases rolled out to the cluster by Argo CD?", order="diverse")
    assert set(plain[:2]) == set(TEXTS[:2]), "twins stand first"
    assert _contents(varied)[0] == plain[0] and _contents(varied).index(plain[1]) > 1
    assert sorted(_contents(varied)) == sorted(plain)
    for hit in varied.hits:
        assert hit.score == pytest.approx(sum(leg.contribution for leg in hit.legs.values()) * hit.prior)


def test_what_is_most_talked_about_first(engine: LocalEngine) -> None:
    found = engine.recall("releases, the newsletter, the Harbour Desk", order="mentioned")
    assert set(_contents(found)[:2]) == set(TEXTS[:2]), "others mention what they are about"


def test_near_to_a_memory_first(engine: LocalEngine) -> None:
    ines = engine.recall("Ines Ferrao").hits[0].memory
    found = _contents(engine.recall("releases and the cluster", near=ines.id))
    assert found[0] == TEXTS[2], "both know the Harbour Desk"
    assert found.index(TEXTS[0]) < found.index(TEXTS[4]), "two names away, and not connected at all"


def test_without_a_model_the_order_stays(open_engine: Callable[..., LocalEngine], tmp_path: Path) -> None:
    engine = open_engine(tmp_path / "words.db")
    for text in TEXTS:
        engine.remember(text)
    assert _contents(engine.recall("releases", order="diverse")) == _contents(engine.recall("releases"))
