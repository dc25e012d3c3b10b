"""The thread that embeds in the background: what it does, survives and leaves behind."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from toy_model import PATIENCE_S, Toy, assert_whole, fill, open_toy, until

from triskele.engine.local import LocalEngine
from triskele.errors import ModelUnavailable
from triskele.index import worker
from triskele.index.lexical import LexicalIndex
from triskele.index.token_vectors import TokenIndex
from triskele.index.worker import Worker
from triskele.store.sqlite.store import SqliteStore
from triskele.store.values import EMBED
from triskele.text.analysis import Analyzer


def test_the_background_survives_a_text_that_breaks_the_model(engine: LocalEngine, toy: Toy) -> None:
    def fail() -> None:
        raise ValueError("memory number 1 here")

    engine.work_in_background()
    toy.before = fail
    engine.remember("memory number 1 here")
    until(lambda: bool(engine.store.jobs.counts().last_error))
    # The error of another's code may quote the text.
    assert engine.store.jobs.counts().last_error == "ValueError"
    toy.before = lambda: None
    engine.remember("memory number 2 here")
    until(lambda: engine.store.jobs.count(EMBED) == 0)


def test_background_embeds_existing_and_new_texts(engine: LocalEngine) -> None:
    fill(engine, 3)
    engine.work_in_background()
    until(lambda: engine.store.jobs.count(EMBED) == 0)
    engine.remember("written later")
    until(lambda: engine.store.jobs.count(EMBED) == 0)
    engine.edit(engine.recall("later").hits[0].memory.id, content="edited later still")
    until(lambda: engine.store.jobs.count(EMBED) == 0)
    semantic = engine.semantic()
    assert semantic is not None
    until(lambda: not len(semantic.tokens.missing(np.unique(semantic.catalog.view().slots))))
    assert_whole(engine, 5)


def test_a_write_returns_before_it_is_embedded(engine: LocalEngine, toy: Toy) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    toy.before = wait
    engine.work_in_background()
    engine.remember("the plums are ripe")
    assert begun.wait(PATIENCE_S)
    engine.remember("the pears are not")
    answer = engine.recall("plums")
    assert [hit.memory.content for hit in answer.hits] == ["the plums are ripe"]
    assert answer.waiting == 2
    go_on.set()
    until(lambda: engine.store.jobs.count(EMBED) == 0)


def test_lost_tokens_come_back_in_the_background(engine: LocalEngine) -> None:
    fill(engine, 5)
    engine.upkeep.embed()
    semantic = engine.semantic()
    assert semantic is not None
    shutil.rmtree(semantic.tokens.path)
    slots = np.unique(semantic.catalog.view().slots)
    assert len(semantic.tokens.missing(slots)) == 5
    engine.work_in_background()
    until(lambda: not len(semantic.tokens.missing(slots)))
    assert_whole(engine, 5)


@pytest.mark.parametrize("error", [ModelUnavailable("the weights are gone"), OSError(28, "No space left on device")])
def test_the_background_survives_a_failure_and_tries_again(
    engine: LocalEngine, toy: Toy, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(worker, "_IDLE_S", 0.0)
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise error

    toy.before = fail
    engine.work_in_background()
    engine.remember("first")
    assert failed.wait(PATIENCE_S)
    assert engine.store.jobs.count(EMBED) == 1
    assert engine.recall("first").hits
    toy.before = lambda: None
    engine.remember("second")
    until(lambda: engine.store.jobs.count(EMBED) == 0)
    assert engine.background._worker is not None and engine.background._worker._thread is not None
    assert engine.background._worker._thread.is_alive()


def test_a_folder_that_cannot_be_written_does_not_stop_the_background(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_IDLE_S", 0.0)

    def refuse(self: TokenIndex) -> Path:
        raise PermissionError("read-only")

    with monkeypatch.context() as patched:
        patched.setattr(TokenIndex, "_lock_path", refuse)
        engine.work_in_background()
        engine.remember("first")
        until(lambda: engine.store.jobs.count(EMBED) == 0)
    engine.remember("second")
    semantic = engine.semantic()
    assert semantic is not None
    until(lambda: engine.store.jobs.count(EMBED) == 0)
    until(lambda: not len(semantic.tokens.missing(np.unique(semantic.catalog.view().slots))))
    assert_whole(engine, 2)


def test_stopping_ends_the_thread(engine: LocalEngine) -> None:
    fill(engine, 3)
    working = Worker(engine.store, engine.lexical, engine.semantic)
    working.stop()
    working.wake()
    working.stop()
    assert working._thread is not None and not working._thread.is_alive()
    working.stop()


def test_closing_the_engine_ends_the_batch_and_the_thread(tmp_path: Path, toy: Toy) -> None:
    with open_toy(tmp_path / "home") as engine:
        fill(engine, 300)
        begun = threading.Event()
        toy.before = begun.set
        engine.work_in_background()
        assert begun.wait(PATIENCE_S)
        engine.work_in_background()
    assert [thread for thread in threading.enumerate() if thread.name == "triskele-worker"] == []
    with open_toy(tmp_path / "home") as engine:
        # Whole batches were embedded, perhaps all of them.
        assert (300 - engine.store.jobs.count(EMBED)) % worker.BATCH in (0, 300 % worker.BATCH)
        engine.upkeep.embed()
        assert_whole(engine, 300)


def test_without_a_model_the_background_has_nothing_to_do(tmp_path: Path) -> None:
    calls: list[bool] = []
    unbound = SqliteStore(tmp_path / "store.db")
    store = unbound.for_owner("me")
    words = LexicalIndex(tmp_path / "index", store, Analyzer())
    working = Worker(store, words, lambda: calls.append(True))
    working.wake()
    until(lambda: bool(calls))
    working.stop()
    assert len(calls) <= 2
    unbound.close()
