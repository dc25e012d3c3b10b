"""Giving vectors to what was written: in batches, through failures and an update of the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_model import DIMENSIONS, TOKEN_DIMENSIONS, Toy, _unit, assert_whole, fill, open_toy, until

from triskele.engine.local import LocalEngine
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index import local, worker
from triskele.index.lifecycle import AppendFile
from triskele.index.token_vectors import TokenIndex
from triskele.index.worker import embed_waiting
from triskele.models.embedder import Encoding
from triskele.store.derived_rows import VectorStore
from triskele.store.values import EMBED, MOST_TRIES

# In small durable steps


def test_worker_embeds_in_batches(engine: LocalEngine, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BATCH", 4)
    fill(engine, 10)
    counts: list[int] = []
    sizes: list[int] = []
    toy.before = lambda: sizes.append(engine.store.jobs.count(EMBED))
    assert engine.upkeep.embed(progress=counts.append) == 10
    assert (counts, sizes) == ([4, 8, 10], [10, 6, 2])
    assert set(toy.asked.values()) == {1}
    assert engine.upkeep.embed() == 0
    assert_whole(engine, 10)


def test_worker_embeds_at_most_the_requested_number(engine: LocalEngine) -> None:
    fill(engine, 10)
    semantic = engine.semantic()
    assert semantic is not None
    assert embed_waiting(engine.store, semantic, limit=3) == 3
    assert engine.store.jobs.count(EMBED) == 7


def test_worker_embeds_each_text_once(engine: LocalEngine, toy: Toy) -> None:
    memory = engine.remember("seen once")
    engine.upkeep.embed()
    engine.edit(memory.id, tags=["new"], importance=0.9)
    engine.forget(memory.id)
    engine.undo()
    assert engine.upkeep.embed() == 0
    assert toy.asked == {"seen once": 1}
    assert_whole(engine, 1)


def test_edit_is_embedded_and_the_old_version_retains_its_vector(engine: LocalEngine, toy: Toy) -> None:
    memory = engine.remember("first words")
    engine.upkeep.embed()
    engine.edit(memory.id, content="second words")
    assert engine.upkeep.embed() == 1
    assert toy.asked == {"first words": 1, "second words": 1}
    assert_whole(engine, 2)


def test_another_model_sees_everything_beside_the_first(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(engine, 5)
    engine.upkeep.embed()
    engine.close()
    other = Toy("toy@2")
    monkeypatch.setattr(local, "bundled", lambda: other)
    with open_toy(engine.settings.home) as again:
        answer = again.recall("memory")
        assert answer.waiting == 5
        assert len(answer.hits) == 5
        assert again.upkeep.embed() == 5
        assert_whole(again, 5)
        assert len(again.store.vectors.page("toy@1")) == 5


class Wider(Toy):
    """Other weights: other vectors, and of other lengths, so that none can be read as one of the first."""

    dimensions, token_dimensions = DIMENSIONS + 3, TOKEN_DIMENSIONS + 2

    def _encoding(self, text: str) -> Encoding:
        spans = [match.span() for match in re.finditer(r"\w+", text)]
        tokens = np.array([_unit(f"other {text[a:b]}", self.token_dimensions) for a, b in spans], dtype=np.float32)
        ids = np.arange(len(spans), dtype=np.int32)
        sentence = _unit(f"other {text}", self.dimensions)
        return Encoding(sentence, tokens, ids, np.array(spans, dtype=np.int32).reshape(-1, 2))


def _with_vectors(engine: LocalEngine) -> set[str]:
    """The memories that recall scores by meaning; their cosines must be those of one model."""
    hits = engine.recall("memory number 1 here", limit=10).hits
    scored = {hit.memory.content: hit.legs["dense"].score for hit in hits if "dense" in hit.legs}
    model = engine.semantic()
    assert len(hits) == 6 and model is not None
    query = model.embedder.encode_query("memory number 1 here").sentence
    for text, score in scored.items():
        assert score == pytest.approx(float(query @ model.embedder.encode_query(text).sentence), abs=0.01)
    return set(scored)


def test_after_an_update_of_the_weights_a_store_answers_at_once_and_is_embedded_again_in_the_background(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(engine, 6)
    engine.upkeep.embed()
    assert len(_with_vectors(engine)) == 6
    first = engine.store.vectors.page("toy@1")
    engine.close()
    updated = Wider("toy@2")
    monkeypatch.setattr(local, "bundled", lambda: updated)
    with open_toy(engine.settings.home) as again:
        assert _with_vectors(again) == set() and again.recall("memory").waiting == 6
        again.upkeep.embed(limit=2)
        assert _with_vectors(again) == {"memory number 0 here", "memory number 1 here"}
        assert again.recall("memory").waiting == 4
        again.work_in_background()
        until(lambda: again.recall("memory").waiting == 0)
        until(lambda: len(_with_vectors(again)) == 6)
        assert again.store.vectors.page("toy@1") == first
        assert again.store.models.seen() == {"toy@1": 6, "toy@2": 6}
        assert set(updated.asked.values()) == {1}


def test_a_text_erased_while_it_is_embedded_leaves_nothing(engine: LocalEngine, toy: Toy) -> None:
    gone, _ = engine.remember("soon erased"), engine.remember("still there")

    def erase() -> None:
        toy.before = lambda: None
        engine.erase(gone.id)

    toy.before = erase
    engine.upkeep.embed()
    assert_whole(engine, 1)


# Claimed, so that each text is embedded once


@pytest.mark.slow
def test_claimed_job_waits_for_the_end_of_its_lease(engine: LocalEngine, toy: Toy) -> None:
    assert engine.semantic() is not None
    fill(engine, 5)
    claimed = engine.store.jobs.claim(EMBED, 2, lease_s=1.0)
    assert engine.upkeep.embed(limit=5) == 3
    assert engine.store.jobs.count(EMBED) == 2
    # Without a limit it waits for the other one, which is gone.
    assert engine.upkeep.embed() == 2
    assert len(claimed) == 2 and set(toy.asked.values()) == {1}
    assert_whole(engine, 5)


def test_job_that_fails_with_the_store_waits_again_at_once(engine: LocalEngine, toy: Toy) -> None:
    fill(engine, 2)

    def fail() -> None:
        raise StoreUnavailable("busy")

    toy.before = fail
    with pytest.raises(StoreUnavailable):
        engine.upkeep.embed()
    assert [job.tries for job in engine.store.jobs.claim(EMBED)] == [0, 0]


def test_a_text_that_the_model_refuses_takes_no_other_with_it(engine: LocalEngine, toy: Toy) -> None:
    toy.refused = "number 3 "
    fill(engine, 6)
    assert engine.upkeep.embed(limit=6) == 5
    counts = engine.store.jobs.counts()
    assert (counts.embed, counts.given_up, counts.last_error) == (1, 0, "the model gave no numbers")
    for _ in range(MOST_TRIES - 1):
        with pytest.raises(ModelUnavailable):
            engine.upkeep.embed(limit=6)
    counts = engine.upkeep.inspect().jobs
    assert (counts.embed, counts.given_up, counts.last_error) == (0, 1, "the model gave no numbers")
    assert engine.upkeep.embed(limit=6) == 0
    # Asked to do all, it tries again.
    toy.refused = "\0"
    assert engine.upkeep.embed() == 1
    counts = engine.store.jobs.counts()
    assert (counts.given_up, counts.last_error) == (0, "")
    assert_whole(engine, 6)


# Dying at the worst moments


class Died(BaseException):
    """An error that no code catches, like a power failure."""


def _die(*_: Any, **__: Any) -> Any:
    raise Died


def _die_in_the_middle_of_values(self: AppendFile, name: str, offset: int, content: bytes) -> None:
    with (self.path / name).open("ab") as file:
        file.write(content[: len(content) // 2])
    if name == "values":
        raise Died


MOMENTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "before the vectors are kept": (VectorStore, "save", _die),
    "before the tokens are added": (TokenIndex, "add", _die),
    "in the middle of a file": (AppendFile, "_write", _die_in_the_middle_of_values),
    "before the stamp": (Path, "replace", _die),
}


@pytest.mark.parametrize("first", [0, 6], ids=["at once", "later"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_next_batch_completes_an_interrupted_one(
    tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch, moment: str, first: int
) -> None:
    engine = open_toy(tmp_path / "home")
    fill(engine, first)
    engine.upkeep.embed()
    fill(engine, 5, start=first)
    with monkeypatch.context() as patched:
        patched.setattr(*MOMENTS[moment])
        with pytest.raises(Died):
            engine.upkeep.embed()
    engine.close()
    with open_toy(tmp_path / "home") as again:
        assert len(again.recall("memory", limit=50).hits) == first + 5
        assert again.upkeep.inspect(deep=True, repair=False).vectors_damaged == 0
        again.upkeep.embed()
        assert_whole(again, first + 5)
