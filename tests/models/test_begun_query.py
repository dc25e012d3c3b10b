"""A query that is encoded while its recall does something else: the same numbers, whoever runs the model."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele import config
from triskele.engine import Engine
from triskele.errors import ModelUnavailable
from triskele.models import inference
from triskele.models.bundled import BundledEmbedder
from triskele.models.embedders import Encoding
from triskele.types import Sort

QUESTION = "how do releases reach the cluster?"
SPARE = "triskele-encoding"


class Session:
    """The session of a model, with the threads that ran it; a gate keeps it from running."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.threads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.has_begun = threading.Event()
        self.error: Exception | None = None

    def run(self, names: list[str], inputs: dict[str, Any]) -> Any:
        self.threads.append(threading.current_thread().name.rpartition("_")[0] or "own")
        self.has_begun.set()
        self.gate.wait(30)
        if self.error is not None:
            raise self.error
        return self._inner.run(names, inputs)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[BundledEmbedder]:
    monkeypatch.setattr(inference, "_cores", lambda: 2)
    made = BundledEmbedder()
    loaded = made._runtime()
    made._loaded = dataclasses.replace(loaded, session=Session(loaded.session))
    yield made
    session(made).gate.set()
    rest()


def rest() -> None:
    """Wait until the spare thread has nothing to do."""
    while inference._spare is not None and inference._spare._is_busy.locked():
        time.sleep(0.001)


def session(model: BundledEmbedder) -> Session:
    assert model._loaded is not None
    found: Session = model._loaded.session
    return found


def assert_same(left: Encoding, right: Encoding) -> None:
    for name in ("sentence", "tokens", "token_ids", "spans"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
        assert getattr(left, name).dtype == getattr(right, name).dtype


@pytest.mark.parametrize("text", [QUESTION, "", "…", "long " * 1000, "\ud800 lone"])
def test_a_begun_query_has_the_same_numbers(model: BundledEmbedder, text: str) -> None:
    alone = model.encode_query(text)
    model.begin_query(text)
    assert_same(model.encode_query(text), alone)
    assert session(model).threads == ["own", SPARE]


def test_only_the_next_query_of_the_same_thread_and_text_is_the_begun_one(model: BundledEmbedder) -> None:
    model.begin_query(QUESTION)
    assert_same(model.encode_query("another question"), BundledEmbedder().encode_query("another question"))
    rest()
    model.encode_query(QUESTION)
    model.encode_query(QUESTION)
    assert sorted(session(model).threads) == ["own", "own", "own", SPARE]
    model.begin_query(QUESTION)
    other = threading.Thread(target=model.encode_query, args=[QUESTION], name="other_thread")
    other.start()
    other.join()
    rest()
    assert sorted(session(model).threads[4:]) == ["other", SPARE]


def test_whoever_finds_the_thread_busy_encodes_alone(model: BundledEmbedder) -> None:
    gate = session(model).gate
    gate.clear()
    model.begin_query("a question that takes long")
    assert session(model).has_begun.wait(30)
    found: list[Encoding] = []

    def ask() -> None:
        model.begin_query(QUESTION)
        found.append(model.encode_query(QUESTION))

    other = threading.Thread(target=ask, name="other_thread")
    other.start()
    while len(session(model).threads) < 2:
        other.join(0.01)
    assert session(model).threads == [SPARE, "other"]
    gate.set()
    other.join()
    assert_same(found[0], model.encode_query(QUESTION))
    rest()
    model.begin_query(QUESTION)
    model.encode_query(QUESTION)
    assert session(model).threads[-1] == SPARE


def test_a_single_core_has_no_second_thread(model: BundledEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "_cores", lambda: 1)
    model.begin_query(QUESTION)
    assert not session(model).threads
    model.encode_query(QUESTION)
    assert session(model).threads == ["own"]


def test_what_goes_wrong_is_raised_where_the_query_is_asked_for(model: BundledEmbedder) -> None:
    session(model).error = ModelUnavailable("broken weights")
    model.begin_query(QUESTION)
    with pytest.raises(ModelUnavailable, match="broken weights"):
        model.encode_query(QUESTION)
    session(model).error = None
    assert model.encode_query(QUESTION).sentence.shape == (384,)


def test_nothing_is_begun_before_the_weights_are_loaded() -> None:
    model = BundledEmbedder()
    model.begin_query(QUESTION)
    assert model._loaded is None
    assert model.encode_query(QUESTION).sentence.shape == (384,)


FORKS = """
import os, numpy as np
from triskele.models import inference
from triskele.models.bundled import bundled
inference._cores = lambda: 2
model, text = bundled(), "how do releases reach the cluster?"
alone = model.encode_query(text)
model.begin_query(text)
model.encode_query(text)
child = os.fork()
model.begin_query(text)
assert np.array_equal(model.encode_query(text).sentence, alone.sentence)
assert child == 0 or os.waitpid(child, 0)[1] == 0
# The interpreter ends while the thread is at work.
model.begin_query(text * 100)
"""


def test_a_fork_has_a_thread_of_its_own_and_the_end_waits_for_it() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def engine(tmp_path: Path, model: BundledEmbedder) -> Iterator[Engine]:
    with Engine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as opened:
        opened.remember("Argo CD deploys every release to the cluster")
        opened.embed()
        semantic = opened.semantic()
        assert semantic is not None
        opened.runtime._semantic = dataclasses.replace(semantic, embedder=model)
        yield opened


def test_a_recall_begins_before_it_reads_the_store(
    engine: Engine, model: BundledEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Callable[[], Any] = engine.store.snapshot
    begun: list[bool] = []

    def snapshot() -> Any:
        begun.append(session(model).has_begun.wait(30))
        return read()

    monkeypatch.setattr(engine.store, "snapshot", snapshot)
    assert engine.recall(QUESTION, logged=False).hits[0].memory.content.startswith("Argo CD")
    assert begun[0] and session(model).threads == [SPARE]


def test_a_recall_that_needs_no_vectors_begins_nothing(engine: Engine, model: BundledEmbedder) -> None:
    assert engine.recall(QUESTION, legs=["lexical"], logged=False).hits
    assert engine.recall(QUESTION, sort=Sort.RECENCY, logged=False).hits
    assert not session(model).threads


def test_a_broken_model_leaves_the_words(engine: Engine, model: BundledEmbedder) -> None:
    session(model).error = ModelUnavailable("broken weights")
    answer = engine.recall("release cluster", logged=False)
    assert answer.hits and answer.missing == ("searched by words only: broken weights",)
    assert session(model).threads == [SPARE]


AFTER_THE_MAIN_THREAD = """
import sys, threading, time, triskele
memory = triskele.open(f"sqlite:///{sys.argv[1]}/notes.db")
memory.remember("Releases reach the cluster by Argo CD")
def ask():
    threading.main_thread().join()
    print(memory.recall("how do releases reach the cluster?").hits[0].memory.content)
threading.Thread(target=ask).start()
"""


def test_a_thread_that_outlives_the_main_one_is_answered(tmp_path: Path) -> None:
    command = [sys.executable, "-c", AFTER_THE_MAIN_THREAD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("Releases reach the cluster by Argo CD", "")
