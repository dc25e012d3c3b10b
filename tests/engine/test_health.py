"""The doctor over vectors: what it counts, what it mends, and what erasing and restoring leave behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.index.lexical import LexicalIndex
from triskele.index.local import ModelIndexes
from triskele.index.token_vectors import compressed
from triskele.models.bundled import bundled
from triskele.store.values import EMBED
from triskele.store.vector_bytes import row_bytes, row_of
from triskele.text.ids import content_hash
from triskele.types import Add, Answer

NOTES = (
    "Releases reach the cluster through Argo CD",
    "Ingrid waters the plants on the fourth floor",
    "Customers may cancel within thirty days",
    "The nightly backup takes forty minutes",
    "The office cat is called Pixel",
)


def _open(folder: Path, model: str = "bundled", tail_cap: int = 1) -> LocalEngine:
    environment = {
        "TRISKELE_HOME": str(folder),
        "TRISKELE_PROJECT": "garden",
        "TRISKELE_RECALL_MODEL": model,
    }
    engine = LocalEngine(load(environment), folder)
    engine.embed_first, engine.lexical.tail_cap = 0, tail_cap
    if (semantic := engine.semantic()) is not None:
        semantic.dense.tail_cap = tail_cap
    return engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    """A store whose every note is embedded and in the files."""
    with _open(tmp_path / "home") as opened:
        opened.apply([Add(opened.draft(text)) for text in NOTES])
        opened.upkeep.embed()
        opened.recall("anything")
        yield opened


def _semantic(engine: LocalEngine) -> ModelIndexes:
    semantic = engine.semantic()
    assert semantic is not None
    return semantic


def _contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


def _id(engine: LocalEngine, content: str) -> str:
    return next(memory.id for _, memory in engine.store.versions() if memory.content == content)


def test_inspect_reports_irreparable_damage(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(engine.lexical.path)

    def refuse(self: LexicalIndex) -> Path:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(LexicalIndex, "_lock_path", refuse)
    health = engine.upkeep.inspect()
    assert (health.findings, health.index_behind, health.repaired) == ((), None, ())
    assert "read-only" in (health.repair_problem or "")
    monkeypatch.undo()
    assert engine.upkeep.inspect().repaired and engine.upkeep.inspect().repair_problem is None


@pytest.fixture
def traces(tmp_path: Path) -> Callable[[str], set[str]]:
    """The files below the store in which a text's vectors stand, sentence or tokens."""
    made: dict[str, list[bytes]] = {}

    def find(content: str) -> set[str]:
        if content not in made:
            [encoding] = bundled().encode_documents([content])
            tokens = compressed(content, encoding)
            made[content] = [row_of(encoding.sentence), *(row.tobytes() for row in tokens)]
        files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
        return {path.name for path in files for piece in made[content] if piece in path.read_bytes()}

    return find


def test_a_store_in_order_has_nothing_to_mend(engine: LocalEngine) -> None:
    health = engine.upkeep.inspect(deep=True)
    assert (health.vectors_damaged, health.vectors_orphaned, health.waiting, health.model_problem) == (0, 0, 0, None)
    assert all("vector" not in line for line in health.repaired)


def test_inspect_counts_pending_work(engine: LocalEngine) -> None:
    engine.remember("written since")
    assert engine.upkeep.inspect().waiting == 1


UNSOUND = {
    "of another length": b"\x00\x01\x02",
    "of no length": bytes(row_bytes(384)),
    "of another checksum": b"\x00\x00" + b"\x01" * 384,
}


@pytest.mark.parametrize("kind", UNSOUND)
def test_invalid_vectors_are_reported_dropped_and_embedded_again(engine: LocalEngine, kind: str) -> None:
    text = "The greenhouse is heated to nineteen degrees"
    engine.remember(text)
    engine.store.vectors.save(bundled().fingerprint, {content_hash(text): UNSOUND[kind]})
    answer = engine.recall("who waters the greenery?")
    assert _contents(answer)[0] == NOTES[1]
    # Its words still speak for it.
    assert _contents(engine.recall("greenhouse nineteen degrees"))[0] == text
    assert engine.upkeep.inspect(deep=True, repair=False).vectors_damaged == 1
    health = engine.upkeep.inspect(deep=True)
    assert [line for line in health.repaired if "1 damaged vector;" in line]
    assert health.waiting == 1
    assert engine.upkeep.embed() == 1
    assert engine.upkeep.inspect(deep=True).vectors_damaged == 0
    [hit] = [hit for hit in engine.recall("how warm is it where plants grow?").hits if hit.memory.content == text]
    assert {"dense", "late"} <= set(hit.legs)


@pytest.mark.parametrize("kind", ["dense", "tokens"])
def test_damaged_files_are_reported_and_rebuilt(engine: LocalEngine, kind: str) -> None:
    before = [engine.recall(text).hits[0].legs["late"].score for text in NOTES]
    [folder] = engine._index_folder.glob(f"{kind}-*")
    content = bytearray((folder / "values").read_bytes())
    content[len(content) // 2] ^= 0x40
    (folder / "values").write_bytes(content)
    assert engine.upkeep.inspect().vectors_damaged == 0
    assert engine.upkeep.inspect(deep=True, repair=False).vectors_damaged == 1
    assert engine.upkeep.inspect(deep=True).repaired
    assert engine.upkeep.inspect(deep=True).vectors_damaged == 0
    assert engine.upkeep.embed() == (1 if kind == "tokens" else 0)
    assert engine.upkeep.embed() == 0
    for text, score in zip(NOTES, before, strict=True):
        hit = engine.recall(text).hits[0]
        assert hit.memory.content == text
        assert hit.legs["dense"].score == pytest.approx(1, abs=1e-4)
        assert hit.legs["late"].score == pytest.approx(score, abs=1e-6)


def test_missing_files_are_rebuilt(engine: LocalEngine) -> None:
    ModelIndexes.remove_files(engine._index_folder)
    assert ModelIndexes.files(engine._index_folder) == []
    assert _contents(engine.recall("who waters the greenery?"))[0] == NOTES[1]
    assert engine.upkeep.embed() == len(NOTES)
    assert engine.upkeep.inspect(deep=True).vectors_damaged == 0


def test_erasing_leaves_no_vector_in_any_file(engine: LocalEngine, traces: Callable[[str], set[str]]) -> None:
    assert {"memories.db-wal", "values"} <= traces(NOTES[1])
    engine.erase(_id(engine, NOTES[1]))
    assert traces(NOTES[1]) == set()
    assert traces(NOTES[2])
    assert engine.upkeep.inspect(deep=True).vectors_orphaned == 0
    assert NOTES[1] not in _contents(engine.recall("who waters the greenery?"))


def test_erasing_without_a_model_leaves_no_vector_either(
    engine: LocalEngine, tmp_path: Path, traces: Callable[[str], set[str]]
) -> None:
    engine.close()
    with _open(tmp_path / "home", model="none") as plain:
        plain.erase(_id(plain, NOTES[1]))
        assert traces(NOTES[1]) == set()
    with _open(tmp_path / "home") as again:
        # The others' token vectors went with the file and come back.
        assert again.upkeep.embed() == len(NOTES) - 1
        assert again.upkeep.inspect(deep=True).vectors_damaged == 0


def test_an_erasure_cut_short_is_finished(engine: LocalEngine, traces: Callable[[str], set[str]]) -> None:
    # The process died before the files were written anew.
    engine.store.erase([_id(engine, NOTES[1])], batch="cut short")
    assert traces(NOTES[1]) == {"values"}
    assert engine.upkeep.inspect(repair=False).vectors_orphaned == 2
    assert [line for line in engine.upkeep.inspect().repaired if "erased memories" in line]
    assert traces(NOTES[1]) == set()
    assert engine.upkeep.inspect().vectors_orphaned == 0
    assert engine.upkeep.embed() == 0


def test_another_process_does_not_recall_erased_memories(engine: LocalEngine, tmp_path: Path) -> None:
    with _open(tmp_path / "home") as other:
        assert NOTES[1] in _contents(other.recall("who waters the greenery?"))
        engine.erase(_id(engine, NOTES[1]))
        answer = other.recall("who waters the greenery?")
        assert NOTES[1] not in _contents(answer)
        columns = _semantic(other).catalog.view()
        assert len(columns.rows) == len(NOTES) - 1


def test_a_restored_store_answers_with_its_own_vectors(engine: LocalEngine, tmp_path: Path) -> None:
    with _open(tmp_path / "second") as other:
        # The same slots as in the first store, for other texts.
        texts = [f"Quite another matter {number}" for number in range(4)]
        other.apply([Add(other.draft(text)) for text in texts])
        other.upkeep.embed()
        other.upkeep.backup(tmp_path / "copy.db")
    assert _contents(engine.recall("who waters the greenery?"))[0] == NOTES[1]
    engine.upkeep.restore_backup(tmp_path / "copy.db")
    engine.upkeep.embed()
    assert engine.upkeep.inspect(deep=True).vectors_damaged == 0
    for text in texts:
        hit = engine.recall(text).hits[0]
        assert hit.memory.content == text
        assert hit.legs["dense"].score == pytest.approx(1, abs=1e-4)
        assert hit.legs["late"].score > 0.7


def test_a_backup_brings_the_vectors_back_without_the_model(engine: LocalEngine, tmp_path: Path) -> None:
    engine.upkeep.backup(tmp_path / "copy.db")
    with _open(tmp_path / "second") as other:
        other.upkeep.restore_backup(tmp_path / "copy.db")
        assert other.store.jobs.count(EMBED) == 0
        assert _contents(other.recall("who waters the greenery?"))[0] == NOTES[1]


def test_a_backup_that_knew_another_model_waits_for_this_one(engine: LocalEngine, tmp_path: Path) -> None:
    with _open(tmp_path / "second", model="none") as other:
        other.remember("Pixel is a cat")
        other.store.vectors.use_model("an-older-model@0")
        other.store.vectors.save("an-older-model@0", {content_hash("Pixel is a cat"): b"old"})
        assert other.store.jobs.count(EMBED) == 0
        other.upkeep.backup(tmp_path / "copy.db")
    engine.upkeep.restore_backup(tmp_path / "copy.db")
    assert engine.recall("which animal lives here?").waiting == 1
    assert engine.upkeep.embed() == 1
    assert _contents(engine.recall("which animal lives here?")) == ["Pixel is a cat"]


def test_an_index_of_another_model_is_not_believed(engine: LocalEngine, tmp_path: Path) -> None:
    """What an upgrade to other weights finds: everything waits, words answer, embedding mends it."""
    ours = bundled().fingerprint
    engine.close()
    with _open(tmp_path / "home", model="none") as plain:
        for path in ModelIndexes.files(plain._index_folder):
            path.rename(path.with_name(path.name.replace(ours.rpartition("@")[2], "0" * 16)))
        plain.store.vectors.drop([slot for slot, _, _ in plain.store.vectors.page(ours)])
        older = {digest: row_of(np.ones(384, dtype=np.float32)) for digest, _ in plain.store.vectors.waiting()}
        plain.store.vectors.use_model("an-older-model@0")
        plain.store.vectors.save("an-older-model@0", older)
        assert plain.store.jobs.count(EMBED) == 0
    with _open(tmp_path / "home") as again:
        answer = again.recall("plants Ingrid")
        assert answer.waiting == len(NOTES)
        assert _contents(answer) == [NOTES[1]]
        assert set(answer.hits[0].legs) == {"lexical"}
        assert again.upkeep.embed() == len(NOTES)
        assert _contents(again.recall("who waters the greenery?"))[0] == NOTES[1]


def test_an_index_that_follows_is_no_repair(engine: LocalEngine) -> None:
    engine.remember("One fact")
    engine.upkeep.inspect()
    engine.remember("Another fact")
    health = engine.upkeep.inspect()
    assert (health.index_behind, health.repaired) == (1, ())
    assert engine.upkeep.inspect().index_behind == 0
