"""Giving vectors to what was written: in the background, through failures, kills and crowds."""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from triskele.config import load
from triskele.engine import Engine
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index import local, worker
from triskele.index.analysis import Analyzer
from triskele.index.append_file import AppendFile
from triskele.index.lexical import LexicalIndex
from triskele.index.vectors import TokenIndex
from triskele.index.worker import Worker, embed_waiting
from triskele.models.embedders import Encoding
from triskele.stores.derived import EMBED, MOST_TRIES
from triskele.stores.sqlite.store import SqliteStore
from triskele.stores.sqlite.vectors import SqliteVectors

PATIENCE_S = 30
DIMENSIONS, TOKEN_DIMENSIONS = 8, 4


def _unit(text: str, width: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    drawn = np.random.default_rng(seed).standard_normal(width).astype(np.float32)
    return drawn / np.linalg.norm(drawn)


class Toy:
    """A model that hashes, counts its calls, and first runs the action of a test."""

    dimensions, token_dimensions = DIMENSIONS, TOKEN_DIMENSIONS

    def __init__(self, fingerprint: str = "toy@1") -> None:
        self.fingerprint = fingerprint
        self.asked: Counter[str] = Counter()
        self.before: Callable[[], None] = lambda: None
        self.refused = "\0"

    def encode_query(self, text: str) -> Encoding:
        return self._encoding(text)

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        self.before()
        self.asked.update(texts)
        if any(self.refused in text for text in texts):
            raise ModelUnavailable("the model gave no numbers")
        return [self._encoding(text) for text in texts]

    def _encoding(self, text: str) -> Encoding:
        spans = [match.span() for match in re.finditer(r"\w+", text)]
        vectors = [_unit(text[start:stop], TOKEN_DIMENSIONS) for start, stop in spans]
        tokens = np.array(vectors, dtype=np.float32).reshape(-1, TOKEN_DIMENSIONS)
        ids = np.arange(len(spans), dtype=np.int32)
        return Encoding(_unit(text, DIMENSIONS), tokens, ids, np.array(spans, dtype=np.int32).reshape(-1, 2))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The model that every engine of the test opens."""
    made = Toy()
    monkeypatch.setattr(local, "bundled", lambda: made)
    return made


def _open(folder: Path) -> Engine:
    return Engine(
        load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden", "TRISKELE_RECALL_EMBED_FIRST": "0"}), folder
    )


@pytest.fixture
def engine(tmp_path: Path, toy: Toy) -> Iterator[Engine]:
    with _open(tmp_path / "home") as opened:
        yield opened


def _fill(engine: Engine, count: int, start: int = 0) -> None:
    engine.remember_all([engine.draft(f"memory number {number} here") for number in range(start, start + count)])


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _assert_whole(engine: Engine, count: int) -> None:
    """Every content has one vector and one record of tokens, and each is what the model says."""
    semantic = engine.semantic()
    assert semantic is not None
    assert engine.store.vectors.count_waiting() == 0
    toy = Toy(semantic.embedder.fingerprint)
    kept = {}
    last = 0
    while page := engine.store.vectors.page(toy.fingerprint, after=last):
        kept |= {slot: np.frombuffer(vector, dtype="<f4") for slot, _, vector in page}
        last = page[-1][0]
    texts = engine.store.vectors.contents(sorted(kept))
    assert len(set(texts.values())) == len(texts) == len(kept) == count
    for slot, vector in kept.items():
        np.testing.assert_array_equal(vector, _unit(texts[slot], DIMENSIONS))
    records = semantic.tokens._file.open(engine.store.epoch())
    assert records is not None
    assert sorted(records.slots.tolist()) == sorted(kept)
    assert records.damaged().tolist() == []
    health = engine.inspect(deep=True, repair=False)
    assert (health.findings, health.vectors_damaged, health.vectors_orphaned) == ((), 0, 0)


# In small durable steps


def test_what_waits_is_embedded_in_batches(engine: Engine, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BATCH", 4)
    _fill(engine, 10)
    told: list[int] = []
    sizes: list[int] = []
    toy.before = lambda: sizes.append(engine.store.vectors.count_waiting())
    assert engine.embed(progress=told.append) == 10
    assert (told, sizes) == ([4, 8, 10], [10, 6, 2])
    assert set(toy.asked.values()) == {1}
    assert engine.embed() == 0
    _assert_whole(engine, 10)


def test_no_more_than_asked_for_is_embedded(engine: Engine) -> None:
    _fill(engine, 10)
    semantic = engine.semantic()
    assert semantic is not None
    assert embed_waiting(engine.store, semantic, limit=3) == 3
    assert engine.store.vectors.count_waiting() == 7


def test_what_the_model_has_seen_is_not_shown_to_it_again(engine: Engine, toy: Toy) -> None:
    kept = engine.remember("seen once")
    engine.embed()
    engine.edit(kept.id, tags=["new"], importance=0.9)
    engine.forget(kept.id)
    engine.undo()
    assert engine.embed() == 0
    assert toy.asked == {"seen once": 1}
    _assert_whole(engine, 1)


def test_an_edit_is_embedded_anew_and_the_old_version_keeps_its_vector(engine: Engine, toy: Toy) -> None:
    kept = engine.remember("first words")
    engine.embed()
    engine.edit(kept.id, content="second words")
    assert engine.embed() == 1
    assert toy.asked == {"first words": 1, "second words": 1}
    _assert_whole(engine, 2)


def test_another_model_sees_everything_beside_the_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(engine, 5)
    engine.embed()
    engine.close()
    other = Toy("toy@2")
    monkeypatch.setattr(local, "bundled", lambda: other)
    with _open(engine.settings.home) as again:
        answer = again.recall("memory")
        assert answer.waiting == 5
        assert len(answer.hits) == 5
        assert again.embed() == 5
        _assert_whole(again, 5)
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


def _with_vectors(engine: Engine) -> set[str]:
    """The memories that recall scores by meaning; their cosines must be those of one model."""
    hits = engine.recall("memory number 1 here", limit=10).hits
    scored = {hit.memory.content: hit.legs["dense"].score for hit in hits if "dense" in hit.legs}
    model = engine.semantic()
    assert len(hits) == 6 and model is not None
    asked = model.embedder.encode_query("memory number 1 here").sentence
    for text, score in scored.items():
        assert score == pytest.approx(float(asked @ model.embedder.encode_query(text).sentence), abs=1e-4)
    return set(scored)


def test_after_an_update_of_the_weights_a_store_answers_at_once_and_is_embedded_again_in_the_background(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(engine, 6)
    engine.embed()
    assert len(_with_vectors(engine)) == 6
    first = engine.store.vectors.page("toy@1")
    engine.close()
    updated = Wider("toy@2")
    monkeypatch.setattr(local, "bundled", lambda: updated)
    with _open(engine.settings.home) as again:
        assert _with_vectors(again) == set() and again.recall("memory").waiting == 6
        again.embed(limit=2)
        assert _with_vectors(again) == {"memory number 0 here", "memory number 1 here"}
        assert again.recall("memory").waiting == 4
        again.work_in_background()
        _until(lambda: again.recall("memory").waiting == 0)
        _until(lambda: len(_with_vectors(again)) == 6)
        assert again.store.vectors.page("toy@1") == first
        assert again.store.models.seen() == {"toy@1": 6, "toy@2": 6}
        assert set(updated.asked.values()) == {1}


def test_a_text_erased_while_it_is_embedded_leaves_nothing(engine: Engine, toy: Toy) -> None:
    gone, _ = engine.remember("soon erased"), engine.remember("still there")

    def erase() -> None:
        toy.before = lambda: None
        engine.erase(gone.id)

    toy.before = erase
    engine.embed()
    _assert_whole(engine, 1)


# Claimed, so that each text is embedded once


@pytest.mark.slow
def test_what_another_process_claimed_is_left_to_it_until_its_lease_ends(engine: Engine, toy: Toy) -> None:
    assert engine.semantic() is not None
    _fill(engine, 5)
    claimed = engine.store.jobs.claim(EMBED, 2, lease_s=1.0)
    assert engine.embed(limit=5) == 3
    assert engine.store.vectors.count_waiting() == 2
    # Without a limit it waits for the other one, which is gone.
    assert engine.embed() == 2
    assert len(claimed) == 2 and set(toy.asked.values()) == {1}
    _assert_whole(engine, 5)


def test_what_fails_for_want_of_a_store_waits_again_at_once(engine: Engine, toy: Toy) -> None:
    _fill(engine, 2)

    def fail() -> None:
        raise StoreUnavailable("busy")

    toy.before = fail
    with pytest.raises(StoreUnavailable):
        engine.embed()
    assert [job.tries for job in engine.store.jobs.claim(EMBED)] == [0, 0]


def test_a_text_that_the_model_refuses_takes_no_other_with_it(engine: Engine, toy: Toy) -> None:
    toy.refused = "number 3 "
    _fill(engine, 6)
    assert engine.embed(limit=6) == 5
    counts = engine.store.jobs.counts()
    assert (counts.embed, counts.given_up, counts.last_error) == (1, 0, "the model gave no numbers")
    for _ in range(MOST_TRIES - 1):
        with pytest.raises(ModelUnavailable):
            engine.embed(limit=6)
    counts = engine.inspect().jobs
    assert (counts.embed, counts.given_up, counts.last_error) == (0, 1, "the model gave no numbers")
    assert engine.embed(limit=6) == 0
    # Asked to do all, it tries again.
    toy.refused = "\0"
    assert engine.embed() == 1
    counts = engine.store.jobs.counts()
    assert (counts.given_up, counts.last_error) == (0, "")
    _assert_whole(engine, 6)


def test_the_background_survives_a_text_that_breaks_the_model(engine: Engine, toy: Toy) -> None:
    def fail() -> None:
        raise ValueError("memory number 1 here")

    engine.work_in_background()
    toy.before = fail
    engine.remember("memory number 1 here")
    _until(lambda: bool(engine.store.jobs.counts().last_error))
    # The error of another's code may quote the text.
    assert engine.store.jobs.counts().last_error == "ValueError"
    toy.before = lambda: None
    engine.remember("memory number 2 here")
    _until(lambda: engine.store.vectors.count_waiting() == 0)


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
    "before the vectors are kept": (SqliteVectors, "keep", _die),
    "before the tokens are added": (TokenIndex, "add", _die),
    "in the middle of a file": (AppendFile, "_write", _die_in_the_middle_of_values),
    "before the stamp": (Path, "replace", _die),
}


@pytest.mark.parametrize("first", [0, 6], ids=["at once", "later"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_batch_that_dies_is_made_whole_by_the_next(
    tmp_path: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch, moment: str, first: int
) -> None:
    engine = _open(tmp_path / "home")
    _fill(engine, first)
    engine.embed()
    _fill(engine, 5, start=first)
    with monkeypatch.context() as patched:
        patched.setattr(*MOMENTS[moment])
        with pytest.raises(Died):
            engine.embed()
    engine.close()
    with _open(tmp_path / "home") as again:
        assert len(again.recall("memory", limit=50).hits) == first + 5
        assert again.inspect(deep=True, repair=False).vectors_damaged == 0
        again.embed()
        _assert_whole(again, first + 5)


# In the background


def test_the_background_embeds_what_is_there_and_what_comes(engine: Engine) -> None:
    _fill(engine, 3)
    engine.work_in_background()
    _until(lambda: engine.store.vectors.count_waiting() == 0)
    engine.remember("written later")
    _until(lambda: engine.store.vectors.count_waiting() == 0)
    engine.edit(engine.recall("later").hits[0].memory.id, content="edited later still")
    _until(lambda: engine.store.vectors.count_waiting() == 0)
    semantic = engine.semantic()
    assert semantic is not None
    _until(lambda: not len(semantic.tokens.missing(np.unique(semantic.catalog.view().slots))))
    _assert_whole(engine, 5)


def test_a_write_returns_before_it_is_embedded(engine: Engine, toy: Toy) -> None:
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
    _until(lambda: engine.store.vectors.count_waiting() == 0)


def test_lost_tokens_come_back_in_the_background(engine: Engine) -> None:
    _fill(engine, 5)
    engine.embed()
    semantic = engine.semantic()
    assert semantic is not None
    shutil.rmtree(semantic.tokens.path)
    slots = np.unique(semantic.catalog.view().slots)
    assert len(semantic.tokens.missing(slots)) == 5
    engine.work_in_background()
    _until(lambda: not len(semantic.tokens.missing(slots)))
    _assert_whole(engine, 5)


def test_rows_of_an_earlier_version_are_converted_until_there_are_none(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [64, 3, 0]
    monkeypatch.setattr(TokenIndex, "convert_rows", lambda _self, _limit: left.pop(0))
    semantic = engine.semantic()
    assert semantic is not None
    background = Worker(engine.store, engine.lexical, engine.semantic)
    # Asked once more it would raise.
    assert [background._converted(semantic) for _ in range(4)] == [64, 3, 0, 0]


@pytest.mark.parametrize("error", [ModelUnavailable("the weights are gone"), OSError(28, "No space left on device")])
def test_the_background_survives_a_failure_and_tries_again(
    engine: Engine, toy: Toy, monkeypatch: pytest.MonkeyPatch, error: Exception
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
    assert engine.store.vectors.count_waiting() == 1
    assert engine.recall("first").hits
    toy.before = lambda: None
    engine.remember("second")
    _until(lambda: engine.store.vectors.count_waiting() == 0)
    assert engine.runtime._worker is not None and engine.runtime._worker._thread is not None
    assert engine.runtime._worker._thread.is_alive()


def test_a_folder_that_cannot_be_written_does_not_stop_the_background(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_IDLE_S", 0.0)

    def refuse(self: TokenIndex) -> Path:
        raise PermissionError("read-only")

    with monkeypatch.context() as patched:
        patched.setattr(TokenIndex, "_lock_path", refuse)
        engine.work_in_background()
        engine.remember("first")
        _until(lambda: engine.store.vectors.count_waiting() == 0)
    engine.remember("second")
    semantic = engine.semantic()
    assert semantic is not None
    _until(lambda: engine.store.vectors.count_waiting() == 0)
    _until(lambda: not len(semantic.tokens.missing(np.unique(semantic.catalog.view().slots))))
    _assert_whole(engine, 2)


def test_stopping_ends_the_thread(engine: Engine) -> None:
    _fill(engine, 3)
    working = Worker(engine.store, engine.lexical, engine.semantic)
    working.stop()
    working.wake()
    working.stop()
    assert working._thread is not None and not working._thread.is_alive()
    working.stop()


def test_closing_the_engine_ends_the_batch_and_the_thread(tmp_path: Path, toy: Toy) -> None:
    with _open(tmp_path / "home") as engine:
        _fill(engine, 300)
        begun = threading.Event()
        toy.before = begun.set
        engine.work_in_background()
        assert begun.wait(PATIENCE_S)
        engine.work_in_background()
    assert [thread for thread in threading.enumerate() if thread.name == "triskele-worker"] == []
    with _open(tmp_path / "home") as engine:
        # Whole batches were embedded, perhaps all of them.
        assert (300 - engine.store.vectors.count_waiting()) % worker.BATCH in (0, 300 % worker.BATCH)
        engine.embed()
        _assert_whole(engine, 300)


def test_without_a_model_the_background_has_nothing_to_do(tmp_path: Path) -> None:
    asked: list[bool] = []
    unbound = SqliteStore(tmp_path / "store.db")
    store = unbound.of("me")
    words = LexicalIndex(tmp_path / "index", store, Analyzer())
    working = Worker(store, words, lambda: asked.append(True))
    working.wake()
    _until(lambda: bool(asked))
    working.stop()
    assert len(asked) <= 2
    unbound.close()


# Other processes


def work(home: str) -> None:
    """What a process of these tests does: embed everything in tiny batches, and say so."""
    toy = Toy()
    local.bundled = lambda: toy  # type: ignore[assignment, return-value]
    worker.BATCH = 2
    with _open(Path(home)) as engine:
        engine.store.vectors.count_waiting()
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        engine.embed()
    sys.stdout.write("".join(f"{text}\n" for text in toy.asked.elements()))


def _start(home: Path) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); import test_worker; test_worker.work({str(home)!r})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def _kill_in_the_middle(process: subprocess.Popen[str], engine: Engine, after: float) -> None:
    """Kill a process some time after it has embedded anything."""
    left = engine.store.vectors.count_waiting()
    _until(lambda: engine.store.vectors.count_waiting() < left or process.poll() is not None)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _wait_until_begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"


@pytest.mark.slow
def test_a_killed_process_loses_nothing_and_damages_nothing(tmp_path: Path, toy: Toy) -> None:
    count, random = 400, Random("kills")
    with _open(tmp_path / "home") as engine:
        _fill(engine, count)
    for _ in range(4):
        process = _start(tmp_path / "home")
        _wait_until_begun(process)
        with _open(tmp_path / "home") as engine:
            # A random moment is the point here, not a wait for something.
            _kill_in_the_middle(process, engine, after=random.random() * 0.05)
            assert len(engine.recall("memory", limit=200).hits) == 200
            health = engine.inspect(deep=True, repair=False)
            assert (health.findings, health.vectors_damaged, health.vectors_orphaned) == ((), 0, 0)
    with _open(tmp_path / "home") as engine:
        engine.embed()
        _assert_whole(engine, count)


@pytest.mark.slow
def test_processes_that_embed_at_once_neither_double_nor_spoil_anything(tmp_path: Path, toy: Toy) -> None:
    with _open(tmp_path / "home") as engine:
        _fill(engine, 120)
    processes = [_start(tmp_path / "home") for _ in range(2)]
    for process in processes:
        _wait_until_begun(process)
    asked: Counter[str] = Counter()
    for process in processes:
        out, _ = process.communicate()
        assert process.returncode == 0
        asked.update(out.splitlines())
    assert asked == {f"memory number {number} here": 1 for number in range(120)}
    with _open(tmp_path / "home") as engine:
        engine.embed()
        _assert_whole(engine, 120)
