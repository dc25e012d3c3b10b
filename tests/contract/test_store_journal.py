"""The journal: one line per change, in order, and never altered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from triskele.errors import Conflict
from triskele.store.owner import OwnerStore
from triskele.store.values import START, Cursor
from triskele.text import timestamps
from triskele.types import (
    CURATION,
    IMPORT,
    USER,
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
    Sensitivity,
    client_actor,
)

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]

TRUTH = True


@pytest.fixture
def told(store: OwnerStore, make_memory: Make) -> list[JournalEntry]:
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


def test_lines_are_numbered_and_dated(told: list[JournalEntry]) -> None:
    numbers = [entry.seq for entry in told]
    assert len(numbers) == len(set(numbers))
    assert min(numbers) > 0
    assert all(entry.at <= timestamps.now() for entry in told)
    assert [entry.batch for entry in told] == [f"chapter-{n}" for n in (0, 0, 1, 2, 3, 4, 5)]


def test_outcomes_name_their_lines(store: OwnerStore, do: Do, make_memory: Make) -> None:
    outcomes = do(Add(make_memory("one")), Add(make_memory("one")), Add(make_memory("two")))
    first, second = store.journal()
    assert [outcome.seq for outcome in outcomes] == [first.seq, None, second.seq]


def test_version_begins_at_the_time_of_its_journal_entry(store: OwnerStore, told: list[JournalEntry]) -> None:
    moment_of = {(entry.id, entry.version): entry.at for entry in told if entry.version is not None}
    starts = {(memory.id, memory.version): memory.known_from for _, memory in store.versions()}
    assert moment_of == starts


def test_pages_of_changes_join_without_gap(store: OwnerStore, told: list[JournalEntry]) -> None:
    read: list[JournalEntry] = []
    cursor = START
    while (page := store.changes_since(cursor, limit=2)).entries:
        assert len(page.entries) <= 2
        read += page.entries
        cursor = page.cursor
    assert read == told
    assert page.cursor == cursor == store.position()


def test_cursor_leads_to_later_entries(store: OwnerStore, told: list[JournalEntry], do: Do) -> None:
    before = store.position()
    assert store.changes_since(before).entries == []
    do(Forget(told[1].id))
    after = store.position()
    assert after != before
    assert [entry.id for entry in store.changes_since(before).entries] == [told[1].id]
    assert store.changes_since(Cursor(str(before))).cursor == after


def test_the_newest_lines_come_newest_first(store: OwnerStore, told: list[JournalEntry]) -> None:
    assert store.newest_entries() == told[-1:]
    assert store.newest_entries(limit=100) == told[::-1]
    assert store.newest_entries(before=told[3].seq, limit=2) == [told[2], told[1]]
    assert store.newest_entries(before=told[0].seq) == []


def test_journal_filters_by_memory_and_batch(store: OwnerStore, told: list[JournalEntry]) -> None:
    one, other = told[0].id, told[1].id
    assert store.journal(id=one) == [entry for entry in told if entry.id == one]
    assert store.journal(id=other) == [entry for entry in told if other in (entry.id, entry.other)]
    assert store.journal(batch="chapter-0") == told[:2]
    assert store.journal(batch="chapter-0", id=other) == told[1:2]
    assert store.journal(batch="nothing") == []


def test_lines_are_only_ever_added(store: OwnerStore, told: list[JournalEntry], do: Do, make_memory: Make) -> None:
    do(Forget(told[1].id))
    with pytest.raises(Conflict):
        do(Add(make_memory("more")), Revise(make_memory(id=told[0].id), base=9))
    store.erase([told[0].id], batch="gone")
    now = store.journal()
    assert now[: len(told)] == told
    assert [entry.action for entry in now[len(told) :]] == [Action.FORGOTTEN, Action.ERASED]


def test_numbers_are_never_used_again(store: OwnerStore, do: Do, make_memory: Make) -> None:
    one, other = make_memory("one"), make_memory("other")
    do(Add(one))
    last = store.position()
    with pytest.raises(Conflict):
        do(Add(make_memory("two")), Add(make_memory("three", id=one.id)))
    do(Add(other))
    assert [entry.id for entry in store.changes_since(last).entries] == [other.id]
    assert len({entry.seq for entry in store.journal()}) == 2


def test_journal_entry_names_the_actor(store: OwnerStore, make_memory: Make) -> None:
    one, two = make_memory("one"), make_memory("two")
    store.apply([Add(one)], batch="first")
    store.apply([Add(two)], batch="second", actor=client_actor("codex"))
    store.apply([Forget(two.id)], batch="third", actor=CURATION)
    store.erase([one.id], batch="fourth", actor=IMPORT)
    assert [entry.actor for entry in store.journal()] == [USER, "client:codex", CURATION, IMPORT]


def test_outcomes_name_batch_project_and_sensitivity(store: OwnerStore, make_memory: Make) -> None:
    one = make_memory("one", project="garden", sensitivity=Sensitivity.PRIVATE)
    link = Link(source=one.id, kind=LinkKind.SEE_ALSO, target=make_memory("two").id, known_from=timestamps.now())
    changes = [
        Add(one),
        Add(make_memory("one", project="garden")),
        Add(make_memory("two", id=link.target)),
        Connect(link),
        Connect(link),
        Forget(one.id),
        Forget(one.id),
    ]
    outcomes = store.apply(changes, batch="all")
    found = [(each.batch, each.project, each.sensitivity) for each in outcomes]
    of_one = ("all", "garden", Sensitivity.PRIVATE)
    # What wrote nothing belongs to no batch: there is nothing to undo.
    no_op = ("", *of_one[1:])
    assert found == [of_one, no_op, ("all", "", Sensitivity.OPEN), of_one, no_op, of_one, no_op]
    [erased] = store.erase([one.id], batch="gone")
    assert (erased.batch, erased.project, erased.sensitivity) == ("gone", "garden", Sensitivity.PRIVATE)


def test_an_empty_store_has_an_empty_journal(store: OwnerStore) -> None:
    assert store.journal() == store.newest_entries() == []
    assert store.position() == START
    assert store.changes_since(START) == ([], START)


def test_an_epoch_is_a_stores_own(store: OwnerStore, open_store: Callable[..., OwnerStore]) -> None:
    assert store.epoch() == open_store().epoch()
    assert store.epoch() != open_store("second").epoch()


def test_inside_a_snapshot_nothing_changes(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    store, other = open_store(), open_store()
    first, second = make_memory("one"), make_memory("two")
    store.apply([Add(first)], batch="one")
    with store.snapshot():
        before = store.position()
        other.apply([Add(second)], batch="two")
        assert store.position() == before
        assert second.id not in store.memories([first.id, second.id])
        assert other.position() != before
    assert store.position() != before
    assert second.id in store.memories([second.id])


def test_a_snapshot_inside_another_is_part_of_it(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    store, other = open_store(), open_store()
    with store.snapshot():
        before = store.position()
        other.apply([Add(make_memory("one"))], batch="one")
        with store.snapshot():
            assert store.position() == before
        other.apply([Add(make_memory("two"))], batch="two")
        assert store.position() == before
    assert store.position() == other.position() != before


def test_an_outcome_says_batch_project_and_sensitivity(store: OwnerStore, make_memory: Make) -> None:
    memory = make_memory("the boiler is in the cellar", project="house", sensitivity=Sensitivity.PRIVATE)
    other = make_memory("the boiler was serviced in May", project="garden")
    for change in (Add(memory), Revise(replace(memory, importance=0.9), base=1), Forget(memory.id)):
        (outcome,) = store.apply([change], batch="done")
        assert (outcome.batch, outcome.project, outcome.sensitivity) == ("done", "house", Sensitivity.PRIVATE)
    link = Link(source=other.id, kind=LinkKind.SEE_ALSO, target=memory.id, known_from=timestamps.now())
    (_, linked) = store.apply([Add(other), Connect(link)], batch="linked")
    assert (linked.batch, linked.project) == ("linked", "garden")
    (known,) = store.apply([Add(replace(other, id=make_memory().id))], batch="again")
    assert (known.action, known.batch, known.project) == (Action.DUPLICATE, "", "garden")
