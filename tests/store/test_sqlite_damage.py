"""Damage: flipped bits in the database are noticed, and a damaged index is mended from the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from random import Random

import apsw
import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable
from triskele.store.sqlite.store import SqliteStore
from triskele.text import timestamps
from triskele.types import Add, Connect, Forget, Link, LinkKind, Memory

pytestmark = pytest.mark.slow

FLIPS = 200
INDEX_FLIPS = 24


@pytest.fixture(scope="module")
def seed() -> int:
    return 20261115


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _everything(store: SqliteStore) -> tuple[object, ...]:
    return list(store.versions()), list(store.all_links()), store.journal(limit=10_000)


@pytest.fixture
def sound(tmp_path: Path, make_memory: Callable[..., Memory]) -> tuple[bytes, tuple[object, ...]]:
    """The bytes of a store with memories, links and forgotten ones, and all that is in it."""
    unbound = SqliteStore(tmp_path / "sound.db")
    store = unbound.for_owner("me")
    memories = [make_memory(f"memory {number} " + "ünd " * (number % 40), tags=("a",)) for number in range(90)]
    store.apply([Add(memory) for memory in memories], batch="one")
    pairs = zip(memories[:20], memories[20:40], strict=True)
    links = [
        Link(source=one.id, kind=LinkKind.PART_OF, target=two.id, known_from=timestamps.now()) for one, two in pairs
    ]
    store.apply([*map(Connect, links), *(Forget(memory.id) for memory in memories[:9])], batch="two")
    everything = _everything(store)
    unbound.close()
    return (tmp_path / "sound.db").read_bytes(), everything


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_or_harmless(
    tmp_path: Path, sound: tuple[bytes, tuple[object, ...]], seed: int
) -> None:
    data, everything = sound
    random = Random(seed)
    noticed = 0
    for number in range(FLIPS):
        path = tmp_path / f"flipped-{number}.db"
        # A quarter of them hit the header and the schema, where little damage does most.
        reach = 8192 if number % 4 == 0 else len(data)
        path.write_bytes(_flipped(data, random.randrange(8 * reach)))
        noticed += _is_noticed(path, everything)
    assert noticed > FLIPS // 5


def _is_noticed(path: Path, everything: tuple[object, ...]) -> bool:
    try:
        unbound = SqliteStore(path)
        store = unbound.for_owner("me")
    except StoreUnavailable:
        return True
    try:
        if unbound.maintenance.check(deep=True):
            # Whatever is read from it, only the one kind of error comes out.
            with suppress(StoreUnavailable):
                _everything(store)
            return True
        assert _everything(store) == everything
        return False
    except StoreUnavailable:
        return True
    finally:
        unbound.close()


@pytest.mark.parametrize("place", [0, 100, 5000])
def test_a_zeroed_or_cut_file_is_noticed(tmp_path: Path, sound: tuple[bytes, tuple[object, ...]], place: int) -> None:
    data, everything = sound
    for name, damaged in {"cut": data[: len(data) // 2 + place], "zeroed": _zeroed(data, place)}.items():
        path = tmp_path / f"{name}.db"
        path.write_bytes(damaged)
        assert _is_noticed(path, everything), name


def _zeroed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes(4096) + data[place + 4096 :]


@pytest.mark.parametrize(
    ("statement", "subject"),
    [
        ("UPDATE versions SET content = content || '!' WHERE row = 3", "versions"),
        ("UPDATE versions SET importance = 0.9 WHERE row = 3", "versions"),
        ("UPDATE versions SET known_to = NULL WHERE row = 3", "versions"),
        ("UPDATE versions SET speaker = 'Bo' WHERE row = 3", "versions"),
        ("UPDATE versions SET role = 'user' WHERE row = 3", "versions"),
        ("UPDATE links SET target = source WHERE row = 3", "links"),
        ("DELETE FROM versions WHERE row = 3", "link"),
        ("DROP TRIGGER journal_keeps_words; UPDATE journal SET id = 'x' WHERE seq = 3", "journal"),
        ("DROP TRIGGER journal_keeps_lines; DELETE FROM journal WHERE seq = 3", "journal"),
        (
            "DROP TRIGGER journal_keeps_lines; DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)",
            "journal",
        ),
    ],
)
def test_a_row_changed_behind_our_back_is_named(
    tmp_path: Path, sound: tuple[bytes, tuple[object, ...]], statement: str, subject: str
) -> None:
    connection = apsw.Connection(str(tmp_path / "sound.db"))
    connection.execute(statement)
    connection.close()
    unbound = SqliteStore(tmp_path / "sound.db")
    findings = unbound.maintenance.check(deep=True)
    unbound.close()
    # A memory is named too where versions and journal no longer agree.
    assert {finding.subject.split()[0] for finding in findings} - {"memory"} == {subject}


@pytest.mark.parametrize("statement", ["DELETE FROM journal", "UPDATE journal SET id = 'other'"])
def test_the_database_itself_guards_the_journal(
    tmp_path: Path, sound: tuple[bytes, tuple[object, ...]], statement: str
) -> None:
    connection = apsw.Connection(str(tmp_path / "sound.db"))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        connection.execute(statement)
    connection.close()


def test_a_damaged_store_is_not_mended_by_guessing(
    open_engine: Callable[..., LocalEngine], tmp_path: Path, sound: tuple[bytes, tuple[object, ...]]
) -> None:
    connection = apsw.Connection(str(tmp_path / "sound.db"))
    connection.execute("UPDATE versions SET content = 'made up' WHERE row = 3")
    connection.close()
    engine = open_engine(tmp_path / "sound.db")
    health = engine.upkeep.inspect(deep=True)
    assert health.findings
    assert health.repaired == ()
    with pytest.raises(StoreUnavailable):
        engine.upkeep.backup(tmp_path / "copy.db")


# The index


@pytest.fixture
def indexed(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    """An engine whose index has several segments and deleted documents."""
    engine = open_engine()
    for part in range(2):
        engine.apply([Add(engine.draft(f"otter number{part}x{n} {'swims ' * (n % 5)}")) for n in range(40)])
        engine.lexical.catch_up()
    engine.forget(engine.recall("number1x7").hits[0].memory.id)
    engine.lexical.catch_up()
    return engine


def _is_right(engine: LocalEngine) -> bool:
    answers = [engine.recall(word).hits for word in ("number0x3", "number0x39", "number1x8")]
    contents = [[hit.memory.content.split()[1] for hit in hits] for hits in answers]
    counted = len(engine.recall("otter", limit=200).hits), len(engine.recall("swims", limit=200).hits)
    return (
        contents == [["number0x3"], ["number0x39"], ["number1x8"]]
        and counted == (79, 63)
        and engine.recall("number1x7").hits == ()
    )


@pytest.fixture
def with_damage(
    indexed: LocalEngine, open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> Callable[..., LocalEngine]:
    """Opens an engine over the sound index with one of its files replaced."""
    pristine = tmp_path / "pristine"
    shutil.copytree(indexed.lexical.path, pristine)
    indexed.close()

    def damage(name: str, data: bytes) -> LocalEngine:
        shutil.rmtree(indexed.lexical.path)
        shutil.copytree(pristine, indexed.lexical.path)
        (indexed.lexical.path / name).write_bytes(data)
        return open_engine()

    return damage


def _index_files(tmp_path: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((tmp_path / "pristine").iterdir()) if path.stat().st_size}


@pytest.mark.slow
def test_a_flipped_bit_in_the_index_is_harmless_once_the_doctor_came(
    with_damage: Callable[..., LocalEngine], tmp_path: Path, seed: int
) -> None:
    files, random = _index_files(tmp_path), Random(seed)
    for number in range(INDEX_FLIPS):
        name = sorted(files)[number % len(files)]
        bit = random.randrange(8 * len(files[name]))
        engine = with_damage(name, _flipped(files[name], bit))
        engine.recall("otter")
        engine.upkeep.inspect(deep=True)
        assert _is_right(engine), (name, bit)
        engine.close()


def test_damage_is_seen_before_tantivy_stumbles_over_it(
    with_damage: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    guarded = {name: data for name, data in _index_files(tmp_path).items() if not name.endswith((".json", ".lock"))}
    assert {name.rpartition(".")[2] for name in guarded} >= {"idx", "term", "store", "fast", "fieldnorm", "del"}
    for name, data in guarded.items():
        middle = len(data) // 3
        engine = with_damage(
            name, data[:middle] + bytes(255 - byte for byte in data[middle : middle + 4]) + data[middle + 4 :]
        )
        assert _is_right(engine), name
        engine.close()


def test_a_cut_index_file_is_harmless(with_damage: Callable[..., LocalEngine], tmp_path: Path) -> None:
    for (name, data), size in zip(_index_files(tmp_path).items(), cycle((0, 10, -1)), strict=False):
        engine = with_damage(name, data[:size])
        engine.recall("otter")
        engine.upkeep.inspect(deep=True)
        assert _is_right(engine), name
        engine.close()


@pytest.mark.parametrize("what", ["folder", "index", "meta", "file in its place"])
def test_a_missing_index_comes_back_by_itself(
    indexed: LocalEngine, open_engine: Callable[..., LocalEngine], what: str
) -> None:
    path = indexed.lexical.path
    indexed.close()
    if what == "meta":
        (path / "meta.json").unlink()
    else:
        shutil.rmtree(path.parent if what == "folder" else path)
    if what == "file in its place":
        path.write_text("not a folder")
    assert _is_right(open_engine())


def test_the_index_of_another_store_is_not_believed(
    indexed: LocalEngine, open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    other = open_engine(tmp_path / "other" / "memories.db")
    other.remember("otter from elsewhere")
    other.upkeep.reindex()
    indexed.close()
    shutil.rmtree(indexed.lexical.path)
    shutil.copytree(other.lexical.path, indexed.lexical.path)
    assert _is_right(open_engine())


def test_doctor_reports_an_index_without_some_documents(
    indexed: LocalEngine, open_engine: Callable[..., LocalEngine]
) -> None:
    """An index that claims to be up to date and holds less than the store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(indexed.lexical), "_documents", lambda *_: iter(()))
        indexed.upkeep.reindex()
    engine = open_engine()
    engine.upkeep.inspect(deep=True)
    assert _is_right(engine)


def test_a_restored_store_is_not_answered_from_an_older_view(
    open_engine: Callable[..., LocalEngine], tmp_path: Path
) -> None:
    writer, reader = open_engine(), open_engine()
    writer.remember("the base camp")
    writer.upkeep.backup(tmp_path / "copy.db")
    writer.remember("a yellow tent")
    assert reader.recall("yellow").hits
    writer.upkeep.restore_backup(tmp_path / "copy.db")
    writer.remember("a green tent")
    assert reader.recall("yellow").hits == ()
    assert [hit.memory.content for hit in reader.recall("tent").hits] == ["a green tent"]
