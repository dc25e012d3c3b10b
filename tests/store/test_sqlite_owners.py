"""Two owners in one file: a check, an erasure from copies and the end of conversations see each by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from triskele.errors import Conflict
from triskele.store import usage
from triskele.store.archive import TABLES
from triskele.store.owner import OwnerStore
from triskele.store.sqlite.store import SqliteStore
from triskele.store.values import VAULT, Document, Use
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import Add, Connect, Link, LinkKind, Memory, Sealed, Sensitivity

MakeMemory = Callable[..., Memory]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def drafts(make_memory: MakeMemory) -> list[Memory]:
    """Two memories and a secret."""
    return [make_memory("one"), make_memory("two"), make_memory("a title", sensitivity=Sensitivity.SECRET)]


def _fill(store: OwnerStore, one: Memory, two: Memory, secret: Memory) -> None:
    """Two linked memories and a secret."""
    memories = [replace(each, owner=store.owner) for each in (one, two)]
    link = Link(source=one.id, kind=LinkKind.PART_OF, target=two.id, known_from=timestamps.now())
    store.documents.put(VAULT, {"keys": Document("keys")})
    sealed = Add(replace(secret, owner=store.owner), sealed=Sealed(b"sealed", content_hash("keys")))
    store.apply([*map(Add, memories), sealed, Connect(link)], batch="one")


def test_an_archive_for_one_owner_touches_nothing_of_another(file: SqliteStore, drafts: list[Memory]) -> None:
    alice = file.for_owner("alice")
    _fill(alice, *drafts)
    with file.maintenance.archive.reading() as reader:
        before = [list(reader.rows("alice", f"SELECT * FROM {table} WHERE owner = {{owner}}")) for table in TABLES]
    with file.maintenance.archive.writing("bob") as writer:
        writer.begin("bob", TABLES)
    with file.maintenance.archive.reading() as reader:
        after = [list(reader.rows("alice", f"SELECT * FROM {table} WHERE owner = {{owner}}")) for table in TABLES]
    assert before == after and sum(map(bool, before)) > 3
    with pytest.raises(Conflict, match="alice"), file.maintenance.archive.writing("alice") as writer:
        writer.begin("alice", TABLES)


@pytest.mark.parametrize("number", [0, 1], ids=["source", "target"])
def test_check_reports_a_lost_memory_that_another_owner_has(
    tmp_path: Path, file: SqliteStore, drafts: list[Memory], number: int
) -> None:
    for owner in ("alice", "bob"):
        _fill(file.for_owner(owner), *drafts)
    assert file.maintenance.check(deep=True) == []
    _delete(tmp_path, "versions", drafts[number].id)
    problems = {finding.problem for finding in file.maintenance.check(deep=True)}
    assert problems == {"points to a memory that does not exist", "is in the journal and not stored"}


@pytest.mark.parametrize("table", ["secrets", "versions"])
def test_check_reports_half_a_secret_that_another_owner_has_whole(
    tmp_path: Path, file: SqliteStore, drafts: list[Memory], table: str
) -> None:
    for owner in ("alice", "bob"):
        _fill(file.for_owner(owner), *drafts)
    _delete(tmp_path, table, drafts[2].id)
    problem = {"secrets": "its sealed text is missing", "versions": "has a sealed text and is no secret"}[table]
    assert problem in {finding.problem for finding in file.maintenance.check(deep=True)}


def test_an_erasure_by_another_owner_explains_no_lost_version(
    tmp_path: Path, file: SqliteStore, make_memory: MakeMemory
) -> None:
    memory = make_memory("one")
    for owner in ("alice", "bob"):
        file.for_owner(owner).apply([Add(replace(memory, owner=owner))], batch="one")
    file.for_owner("alice").erase([memory.id], batch="two")
    _delete(tmp_path, "versions", memory.id)
    assert [finding.problem for finding in file.maintenance.check(deep=True)] == ["is in the journal and not stored"]


def test_an_entry_of_another_owner_tells_of_no_version(
    tmp_path: Path, file: SqliteStore, make_memory: MakeMemory
) -> None:
    memory = make_memory("one")
    for owner in ("alice", "bob"):
        file.for_owner(owner).apply([Add(replace(memory, owner=owner))], batch="one")
    _delete(tmp_path, "journal", memory.id)
    assert "is in no journal entry" in {finding.problem for finding in file.maintenance.check(deep=True)}


def _delete(folder: Path, table: str, id: str) -> None:
    """Lose the row of one owner, as a damaged page would."""
    connection = apsw.Connection(str(folder / "store.db"))
    connection.execute("DROP TRIGGER journal_keeps_lines")
    connection.execute(f"DELETE FROM {table} WHERE owner = 'bob' AND id = ?", [id])
    assert connection.changes() == 1
    connection.close()


def test_an_id_of_another_owner_does_not_stop_an_erasure_from_copies(
    tmp_path: Path, file: SqliteStore, make_memory: MakeMemory
) -> None:
    hers, his = make_memory("hers", owner="alice"), make_memory("his", owner="bob")
    for memory in (hers, his):
        file.for_owner(memory.owner).apply([Add(memory)], batch="one")
    file.maintenance.backup(tmp_path / "copy.backup")
    copy = file.maintenance.restore(tmp_path / "copy.backup")
    assert copy is not None
    assert file.maintenance.erase_from_copies([hers.id, his.id], "bob") == [copy]


def test_a_full_table_of_conversations_is_not_swept_at_every_new_one(
    file: SqliteStore, make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    monkeypatch.setattr(usage, "MOST_CONVERSATIONS", 20)
    alice, draft = file.for_owner("alice"), make_memory("one")
    alice.apply([Add(replace(draft, owner="alice"))], batch="one")
    remaining = []
    for number in range(26):
        now += timedelta(minutes=1)
        alice.usage.injected(f"talk {number}", [Use(draft.id, 1, draft.content_hash)])
        remaining.append(len(alice.usage.conversations(limit=100)))
    assert remaining[19:] == [20, 21, 22, 20, 21, 22, 20]


def test_the_conversations_of_another_owner_take_no_place(
    file: SqliteStore, make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    monkeypatch.setattr(usage, "MOST_CONVERSATIONS", 2)
    alice, bob, draft = file.for_owner("alice"), file.for_owner("bob"), make_memory("one")
    for store in (alice, bob):
        store.apply([Add(replace(draft, owner=store.owner))], batch="one")
    uses = [Use(draft.id, 1, draft.content_hash)]
    bob.usage.injected("talk", uses)
    now += timedelta(minutes=1)
    for number in range(2):
        alice.usage.injected(f"talk {number}", uses)
    now += timedelta(minutes=1)
    bob.usage.injected("another", uses)
    assert [each.id for each in bob.usage.given("talk")] == [draft.id]
