"""The journal: one line per change, in order, and never altered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from triskele.base import timestamps
from triskele.errors import Conflict
from triskele.stores.protocol import Store
from triskele.types import (
    Action,
    Add,
    Connect,
    Disconnect,
    Forget,
    JournalEntry,
    Link,
    LinkKind,
    Memory,
    Outcome,
    Revise,
)

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]


@pytest.fixture
def told(store: Store, make_memory: Make) -> list[JournalEntry]:
    """The journal of a life in which every kind of change happened, one batch each."""
    one, other = make_memory("one"), make_memory("other")
    link = Link(source=one.id, kind=LinkKind.PART_OF, target=other.id, known_from=timestamps.now())
    story = [
        [Add(one), Add(other)],
        [Connect(link)],
        [Revise(replace(one, content="one again"), base=1)],
        [Forget(one.id)],
        [Revise(replace(one, content="one again"), base=2)],
        [Disconnect(link)],
    ]
    for number, changes in enumerate(story):
        store.apply(changes, batch=f"chapter-{number}", undoes=4 if number == 4 else None)
    return store.journal()


def test_every_change_is_one_line_with_its_versions(told: list[JournalEntry]) -> None:
    one, other = told[0].id, told[1].id
    shown = [(e.action, e.id, e.version, e.previous, e.link_kind, e.other, e.undoes) for e in told]
    assert shown == [
        (Action.ADDED, one, 1, None, None, None, None),
        (Action.ADDED, other, 1, None, None, None, None),
        (Action.LINKED, one, None, None, LinkKind.PART_OF, other, None),
        (Action.EDITED, one, 2, 1, None, None, None),
        (Action.FORGOTTEN, one, None, 2, None, None, None),
        (Action.RESTORED, one, 3, 2, None, None, 4),
        (Action.UNLINKED, one, None, None, LinkKind.PART_OF, other, None),
    ]


def test_lines_are_numbered_upwards_and_dated(store: Store, told: list[JournalEntry]) -> None:
    numbers = [entry.seq for entry in told]
    assert numbers == sorted(set(numbers))
    assert min(numbers) > 0
    assert store.last_seq() == numbers[-1]
    assert all(entry.at <= timestamps.now() for entry in told)
    assert [entry.batch for entry in told] == [f"chapter-{n}" for n in (0, 0, 1, 2, 3, 4, 5)]


def test_outcomes_name_their_lines(store: Store, do: Do, make_memory: Make) -> None:
    outcomes = do(Add(make_memory("one")), Add(make_memory("one")), Add(make_memory("two")))
    first, second = store.journal()
    assert [outcome.seq for outcome in outcomes] == [first.seq, None, second.seq]


def test_a_version_is_known_from_the_moment_of_its_line(store: Store, told: list[JournalEntry]) -> None:
    moment_of = {(entry.id, entry.version): entry.at for entry in told if entry.version is not None}
    known = {(memory.id, memory.version): memory.known_from for _, memory in store.versions()}
    assert moment_of == known


def test_pages_of_the_journal_join_without_gap(store: Store, told: list[JournalEntry]) -> None:
    read: list[JournalEntry] = []
    while page := store.journal(after=read[-1].seq if read else 0, limit=2):
        assert len(page) <= 2
        read += page
    assert read == told


def test_the_newest_lines_come_newest_first(store: Store, told: list[JournalEntry]) -> None:
    assert store.newest_entries() == told[-1:]
    assert store.newest_entries(limit=100) == told[::-1]
    assert store.newest_entries(before=told[3].seq, limit=2) == [told[2], told[1]]
    assert store.newest_entries(before=told[0].seq) == []


def test_lines_can_be_asked_for_by_memory_and_batch(store: Store, told: list[JournalEntry]) -> None:
    one, other = told[0].id, told[1].id
    assert store.journal(id=one) == [entry for entry in told if entry.id == one]
    assert store.journal(id=other) == [entry for entry in told if other in (entry.id, entry.other)]
    assert store.journal(batch="chapter-0") == told[:2]
    assert store.journal(batch="chapter-0", id=other) == told[1:2]
    assert store.journal(batch="nothing") == []


def test_lines_are_only_ever_added(store: Store, told: list[JournalEntry], do: Do, make_memory: Make) -> None:
    do(Forget(told[1].id))
    with pytest.raises(Conflict):
        do(Add(make_memory("more")), Revise(make_memory(id=told[0].id), base=9))
    store.erase([told[0].id], batch="gone")
    store.scrub()
    now = store.journal()
    assert now[: len(told)] == told
    assert [entry.action for entry in now[len(told) :]] == [Action.FORGOTTEN, Action.ERASED]


def test_numbers_are_never_used_again(store: Store, do: Do, make_memory: Make) -> None:
    one, other = make_memory("one"), make_memory("other")
    do(Add(one))
    last = store.last_seq()
    with pytest.raises(Conflict):
        do(Add(make_memory("two")), Add(make_memory("three", id=one.id)))
    do(Add(other))
    assert [entry.id for entry in store.journal(after=last)] == [other.id]
    assert store.last_seq() > last


def test_an_empty_store_has_an_empty_journal(store: Store) -> None:
    assert store.journal() == store.newest_entries() == []
    assert store.last_seq() == 0


def test_a_lineage_is_a_stores_own(store: Store, open_store: Callable[..., Store]) -> None:
    assert store.lineage() == open_store().lineage()
    assert store.lineage() != open_store("second").lineage()


def test_inside_a_snapshot_nothing_changes(
    open_store: Callable[..., Store], make_memory: Callable[..., Memory]
) -> None:
    store, other = open_store(), open_store()
    first, second = make_memory("one"), make_memory("two")
    store.apply([Add(first)], batch="one")
    with store.snapshot():
        before = store.last_seq()
        other.apply([Add(second)], batch="two")
        assert store.last_seq() == before
        assert second.id not in store.memories([first.id, second.id])
        assert other.last_seq() > before
    assert store.last_seq() > before
    assert second.id in store.memories([second.id])
