from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.index import lexical
from triskele.index.lexical import LexicalIndex
from triskele.index.shard import Shard
from triskele.types import Add, Sort

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as opened:
        yield opened


def _fill(engine: LocalEngine, count: int, start: int = 0) -> list[str]:
    drafts = []
    for number in range(start, start + count):
        chosen = [WORDS[(number * step) % len(WORDS)] for step in range(1, 3 + number % 7)]
        drafts.append(engine.draft(f"note{number} " + " ".join(chosen), tags=[f"tag{number % 3}"]))
    return [outcome.id for outcome in engine.apply([Add(draft) for draft in drafts])]


def _scores(engine: LocalEngine, text: str) -> dict[str, float]:
    return {hit.memory.id: hit.score for hit in engine.recall(text, limit=100, legs=("lexical",)).hits}


def test_a_memory_scores_the_same_before_and_after_the_writer_caught_up(engine: LocalEngine) -> None:
    _fill(engine, 60)
    engine.lexical.catch_up()
    _fill(engine, 7, start=60)
    questions = ["gamma", "alpha zeta note63", "theta tag1 beta", "note5 note66"]
    before = [_scores(engine, question) for question in questions]
    assert engine.lexical.behind() == 7
    engine.lexical.rebuild()
    after = [_scores(engine, question) for question in questions]
    for early, late in zip(before, after, strict=True):
        assert early == pytest.approx(late, rel=0.01)


def test_a_large_index_settles_once_the_store_was_quiet_for_long(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lexical, "MOST_SETTLED", 10)
    for start in (0, 20):
        _fill(engine, 20, start=start)
        engine.lexical.catch_up()
    _fill(engine, 1, start=40)
    # Brought up to date, and left for later.
    for _ in range(2):
        assert not engine.lexical.flush(39 / lexical.SETTLED_PER_S)
        assert engine.lexical.behind() == 0
    grown = _scores(engine, "gamma")
    assert engine.lexical.flush(41 / lexical.SETTLED_PER_S)
    settled = _scores(engine, "gamma")
    engine.lexical.rebuild()
    assert _scores(engine, "gamma") == settled != grown
    assert engine.lexical.flush(0)


def test_an_index_that_grew_ranks_as_one_that_was_built_at_once(engine: LocalEngine) -> None:
    for start in range(0, 600, 100):
        _fill(engine, 100, start=start)
        engine.lexical.catch_up()
    questions = ["gamma", "alpha zeta note63", "theta beta", "note5 note66 kappa"]
    grown = [_scores(engine, question) for question in questions]
    engine.lexical.rebuild()
    built = [_scores(engine, question) for question in questions]
    assert [list(each) for each in grown] == [list(each) for each in built]
    for early, late in zip(grown, built, strict=True):
        assert early == pytest.approx(late, rel=1e-4)


def test_changed_and_forgotten_memories_never_show_their_old_words(engine: LocalEngine) -> None:
    ids = _fill(engine, 20)
    engine.lexical.catch_up()
    engine.edit(ids[3], content="entirely rewritten")
    engine.forget(ids[4])
    assert _scores(engine, "note3 note4") == {}
    assert list(_scores(engine, "rewritten")) == [ids[3]]
    engine.lexical.catch_up()
    assert _scores(engine, "note3 note4") == {}
    assert list(_scores(engine, "rewritten")) == [ids[3]]


def test_the_tail_is_folded_in_at_its_cap(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as engine:
        engine.lexical.tail_cap = 5
        _fill(engine, 5)
        engine.recall("alpha")
        _fill(engine, 5, start=5)
        engine.recall("alpha")
        assert engine.lexical.behind() == 5
        _fill(engine, 1, start=10)
        engine.recall("alpha")
        assert engine.lexical.behind() == 0


@pytest.mark.parametrize("damage", ["missing", "emptied", "garbled", "no meta"])
def test_a_damaged_index_heals_itself(engine: LocalEngine, damage: str) -> None:
    ids = _fill(engine, 10)
    engine.lexical.rebuild()
    engine.lexical.close()
    path = engine.lexical.path
    if damage == "missing":
        shutil.rmtree(path)
    elif damage == "no meta":
        (path / "meta.json").unlink()
    else:
        for file in path.glob("*.*"):
            file.write_bytes(b"" if damage == "emptied" else b"\x07" * 40)
    assert ids[6] in _scores(engine, "note6")
    assert engine.lexical.behind() == 0


def test_files_that_a_killed_writer_left_do_not_stop_the_next_one(engine: LocalEngine, tmp_path: Path) -> None:
    ids = _fill(engine, 10)
    engine.lexical.rebuild()
    engine.lexical.close()
    path, copy = engine.lexical.path, tmp_path / "copy"
    shutil.copytree(path, copy)
    engine.edit(ids[6], content="entirely rewritten")
    assert engine.lexical.catch_up()
    left = {file.name for file in path.glob("*.del")}
    assert left
    # The same commit once more, over the file that its writer had written when it was killed.
    engine.lexical.close()
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    for name in left:
        (path / name).write_bytes(b"half")
    assert engine.lexical.behind() == 1
    assert engine.lexical.catch_up()
    assert (engine.lexical.behind(), engine.lexical.damaged()) == (0, 0)
    assert list(_scores(engine, "rewritten")) == [ids[6]]


def test_an_index_of_another_format_or_language_is_rebuilt_and_the_old_one_removed(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as engine:
        _fill(engine, 3)
        engine.recall("alpha")
        english = engine.lexical.path
    german = load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_INDEX_LANGUAGE": "german"})
    with LocalEngine(german, tmp_path) as engine:
        assert len(_scores(engine, "note1")) == 1
        assert engine.lexical.path.exists()
        assert not english.exists()


def test_another_process_reads_concurrent_writes(engine: LocalEngine) -> None:
    _fill(engine, 3)
    engine.recall("alpha")
    with LocalEngine(engine.settings, Path.cwd()) as other:
        other.remember("written elsewhere", project="")
    assert len(_scores(engine, "elsewhere")) == 1


def test_recall_works_where_the_index_folder_cannot_be_written(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(engine, 3)

    def refuse(self: LexicalIndex) -> Path:
        raise PermissionError("read-only")

    monkeypatch.setattr(LexicalIndex, "_lock_path", refuse)
    assert len(_scores(engine, "note1")) == 1


def test_recency_and_importance_order_over_all_matches_not_only_the_most_relevant(engine: LocalEngine) -> None:
    drafts = [engine.draft(f"pear pear {number}", importance=0.1) for number in range(120)]
    drafts.append(engine.draft("pear amid a very long and winding text about nothing in particular", importance=0.9))
    engine.apply([Add(draft) for draft in drafts])
    assert engine.recall("pear", sort=Sort.IMPORTANCE).hits[0].memory.importance == 0.9
    assert engine.recall("pear", sort=Sort.RECENCY).hits[0].memory.importance == 0.9


def test_filters_apply_before_the_cut(engine: LocalEngine) -> None:
    engine.apply([Add(engine.draft(f"plum plum {number}", category="facts")) for number in range(120)])
    wanted = engine.remember("one plum in a long sentence about other matters", category="people", tags=["rare"])
    assert [hit.memory.id for hit in engine.recall("plum", category="people").hits] == [wanted.id]
    assert [hit.memory.id for hit in engine.recall("plum", tags=["rare"]).hits] == [wanted.id]


def test_inspection_removes_orphans(engine: LocalEngine) -> None:
    ids = _fill(engine, 4)
    engine.lexical.rebuild()
    engine.store.erase([ids[0]], batch="test")
    assert engine.lexical.damaged() == 1
    assert engine.upkeep.inspect(deep=True).repaired
    assert engine.lexical.damaged() == 0


def test_open_shard_does_not_follow_commits_by_itself(engine: LocalEngine, tmp_path: Path) -> None:
    _fill(engine, 60)
    engine.lexical.catch_up()
    (lock,) = tmp_path.rglob(".tantivy-meta.lock")
    rounds, reloads = 40, 0
    for _ in range(rounds):
        shard = Shard.open(lock.parent, set())
        lock.unlink()
        # A reader that follows commits looks for the first one as soon as its thread runs, and locks to read it.
        time.sleep(0.02)
        reloads += lock.exists()
        lock.touch()
        assert shard is not None
    assert reloads < rounds / 2
