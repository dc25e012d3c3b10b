"""Token vectors of format 1 (int8) become bits without the model, whenever a process dies on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from triskele.base.ids import content_hash
from triskele.config import load
from triskele.engine import Engine
from triskele.index import vectors
from triskele.index.append_file import AppendFile
from triskele.index.vectors import TokenIndex, packed
from triskele.models.bundled import BundledEmbedder, bundled
from triskele.models.embedders import Encoding
from triskele.stores.protocols import OwnerStore
from triskele.stores.sqlite.store import SqliteStore
from triskele.types import Add, Memory

MODEL, DIMENSIONS, COUNT = "some/model@1", 32, 9
NOTES = (
    "Marta waters the herbs on the balcony every evening",
    "The bakery near the station closes at two on Saturdays",
    "The spare key hangs behind the third flowerpot",
)


def before(slot: int) -> NDArray[np.int8]:
    return np.random.default_rng(slot).integers(-127, 128, (slot % 4, DIMENSIONS), np.int8)


def write_format_1(folder: Path, epoch: str, records: dict[int, NDArray[np.int8]], width: int = DIMENSIONS) -> None:
    """The files of format 1."""
    folder.mkdir(parents=True)
    np.array(list(records), dtype="<i8").tofile(folder / "slots")
    np.array([len(each) for each in records.values()], dtype="<i8").tofile(folder / "counts")
    checks = [zlib.crc32(each.tobytes(), zlib.crc32(b"%d" % slot)) for slot, each in records.items()]
    np.array(checks, dtype="<u4").tofile(folder / "checks")
    (folder / "values").write_bytes(b"".join(each.tobytes() for each in records.values()))
    rows = sum(len(each) for each in records.values())
    stamp = {"lineage": epoch, "width": width, "dtype": "i1", "records": len(records), "rows": rows}
    (folder / "stamp.json").write_text(json.dumps(stamp))


def open_store(folder: Path) -> OwnerStore:
    return SqliteStore(folder / "store.db").of("me")


def open_index(folder: Path) -> TokenIndex:
    return TokenIndex(folder / "index", open_store(folder), MODEL, DIMENSIONS)


@pytest.fixture
def home(tmp_path: Path, make_memory: Callable[..., Memory]) -> Path:
    """A store whose token vectors lie in files of format 1; the slot of number n is n + 1."""
    store = open_store(tmp_path)
    store.apply([Add(make_memory(f"number {number}")) for number in range(COUNT)], batch="first")
    for number in range(COUNT):
        store.vectors.keep(MODEL, {content_hash(f"number {number}"): b"vector"})
    slots = [4, 1, 2, 3, 9, 8, 7, 6, 5]
    write_format_1(older(tmp_path), store.epoch(), {slot: before(slot) for slot in slots})
    return tmp_path


def older(home: Path) -> Path:
    return home / "index" / "tokens-1-some_model@1"


def folders(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "index").glob("tokens-*"))


def assert_all_there(index: TokenIndex, slots: Sequence[int] = range(1, COUNT + 1)) -> None:
    bits, counts = index.view().gather(np.array(slots, dtype=np.int64))
    assert counts.tolist() == [len(before(slot)) for slot in slots]
    np.testing.assert_array_equal(bits, np.concatenate([packed(before(slot)) for slot in slots]))
    assert not len(index.missing(np.array(slots)))
    assert index.damaged() == 0


def test_the_first_read_converts_and_removes_the_old_files(home: Path) -> None:
    index = open_index(home)
    assert_all_there(index)
    assert folders(home) == ["tokens-2-some_model@1"]
    assert_all_there(open_index(home), [9, 2, 2, 5])


def die(folder: str, place: str, times: int) -> None:
    """What a process of these tests does: it is killed at the nth call of a function, before the function."""
    left = iter(range(times))

    def dying(call: Callable[..., None]) -> Callable[..., None]:
        def killed(*given: object, **named: object) -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            call(*given, **named)

        return killed

    vectors._CONVERTED_AT_ONCE = 2
    owner = {"append": AppendFile, "_write": AppendFile, "rmtree": shutil}[place]
    setattr(owner, place, dying(getattr(owner, place)))
    open_index(Path(folder)).view()


# Five appends of two records, each of four files.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "times"), [("append", 0), ("append", 3), ("_write", 7), ("_write", 12), ("rmtree", 1)]
)
def test_a_kill_in_the_middle_leaves_a_store_that_ends_converted(home: Path, place: str, times: int) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_token_conversion"
    code += f"; test_token_conversion.die({str(home)!r}, {place!r}, {times})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert older(home).exists()
    assert_all_there(open_index(home))
    assert folders(home) == ["tokens-2-some_model@1"]
    slots = np.fromfile(home / "index" / "tokens-2-some_model@1" / "slots", dtype="<i8")
    assert sorted(slots.tolist()) == list(range(1, COUNT + 1))


def test_where_nothing_can_be_written_memory_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenIndex, "_has_caught_up", lambda _: False)
    assert_all_there(open_index(home))
    assert folders(home) == ["tokens-1-some_model@1"]
    monkeypatch.undo()
    assert_all_there(open_index(home))
    assert folders(home) == ["tokens-2-some_model@1"]


def test_what_was_added_meanwhile_stays(home: Path) -> None:
    index = open_index(home)
    index.add({3: packed(before(3)), 4: packed(before(4))})
    assert older(home).exists()
    assert_all_there(index)
    slots = np.fromfile(index.path / "slots", dtype="<i8")
    assert sorted(slots.tolist()) == list(range(1, COUNT + 1))


def test_damage_is_told_and_not_carried_over(home: Path) -> None:
    content = bytearray((older(home) / "values").read_bytes())
    content[-1] ^= 0x40
    (older(home) / "values").write_bytes(content)
    index = open_index(home)
    assert index.damaged() == 1
    # The last record of the file is that of slot 5.
    assert index.missing(np.arange(1, COUNT + 1)).tolist() == [5]
    assert_all_there(index, [1, 2, 3, 4, 6, 7, 8, 9])


def test_what_is_erased_leaves_no_byte_of_the_old_files(home: Path) -> None:
    store = open_store(home)
    gone = next(memory.id for _, memory in store.versions() if memory.content == "number 2")
    store.erase([gone], batch="erase")
    index = open_index(home)
    standing = [slot for slot in range(1, COUNT + 1) if slot != 3]
    index.rebuild()
    assert folders(home) == ["tokens-2-some_model@1"]
    written = b"".join(path.read_bytes() for path in index.path.iterdir())
    assert not any(row.tobytes() in written for row in before(3))
    assert index.missing(np.array([3])).tolist() == [3]
    assert index.orphans(np.array(standing)) == 0
    assert_all_there(index, standing)


def test_orphans_of_both_formats_count(home: Path) -> None:
    index = open_index(home)
    assert index.orphans(np.arange(2, COUNT + 1)) == 1


def test_files_of_another_epoch_are_not_believed(home: Path) -> None:
    stamp = json.loads((older(home) / "stamp.json").read_text())
    (older(home) / "stamp.json").write_text(json.dumps(stamp | {"lineage": "another"}))
    index = open_index(home)
    assert index.missing(np.array([1, 2])).tolist() == [1, 2]
    assert not older(home).exists()


def test_a_store_of_the_previous_version_recalls_without_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"TRISKELE_HOME": str(tmp_path / "home")})
    with Engine(settings, tmp_path) as engine:
        engine.remember_all([engine.draft(note) for note in NOTES])
        engine.embed()
        fresh, texts = _bits(engine), engine.store.vectors.contents(_slots(engine))
        path, epoch = engine.semantic().tokens.path, engine.store.epoch()  # type: ignore[union-attr]
    shutil.rmtree(path)
    int8 = {slot: _int8(text, made) for (slot, text), made in _encoded(texts)}
    write_format_1(path.with_name(path.name.replace("tokens-2", "tokens-1")), epoch, int8, 96)

    def refuse(self: BundledEmbedder, texts: Sequence[str]) -> list[Encoding]:
        raise AssertionError("embedded again")

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refuse)
    with Engine(settings, tmp_path) as engine:
        hit = engine.recall("when does the bakery close?").hits[0]
        assert hit.memory.content == NOTES[1] and hit.legs["late"].score > 0.5
        assert engine.embed() == 0
        np.testing.assert_array_equal(_bits(engine), fresh)
        assert [found.name for found in path.parent.glob("tokens-[0-9]*")] == [path.name]


def _slots(engine: Engine) -> list[int]:
    semantic = engine.semantic()
    assert semantic is not None
    return np.unique(semantic.catalog.view().slots).tolist()


def _bits(engine: Engine) -> NDArray[np.uint8]:
    semantic = engine.semantic()
    assert semantic is not None
    return semantic.tokens.view().gather(np.array(_slots(engine)))[0]


def _encoded(texts: dict[int, str]) -> list[tuple[tuple[int, str], Encoding]]:
    return list(zip(texts.items(), bundled().encode_documents(list(texts.values())), strict=True))


def _int8(text: str, made: Encoding) -> NDArray[np.int8]:
    """Token vectors as the previous version wrote them."""
    is_kept = [vectors._is_content_word(text[start:stop]) for start, stop in made.spans]
    return np.round(made.tokens[is_kept] * 127).astype(np.int8)
