"""The catalog: its masks are the store's own filters, and keeping it fresh is the same as reading it anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triskele.index import catalog
from triskele.index.catalog import Catalog, Columns
from triskele.index.token_vectors import distinct
from triskele.store import derived_rows
from triskele.store.sqlite.store import SqliteOwnerStore, SqliteStore
from triskele.text import timestamps
from triskele.text.ids import IdMaker, content_hash
from triskele.types import Add, Connect, Forget, Link, LinkKind, Memory, Revise, Role, Scope, Sensitivity

MODEL = "a-model@1"
OWNERS = ("me", "ada")
PROJECTS = ("", "garden", "kitchen")
CATEGORIES = ("facts", "people")
TAGS = ("red", "very green", 'a "quoted" one')
SESSIONS = (None, "talk", "walk")
SPEAKERS = (None, "Ann", "Bo")
YEARS = (None, 2024, 2025, 2026)


def _year(number: int | None) -> datetime | None:
    return None if number is None else datetime(number, 1, 1, tzinfo=UTC)


@dataclass
class World:
    """A store with the means to change it at random; other owners write into the same file."""

    unbound: SqliteStore
    ids: list[str] = field(default_factory=list)
    moments: list[datetime] = field(default_factory=list)
    maker: IdMaker = field(default_factory=IdMaker)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    @property
    def store(self) -> SqliteOwnerStore:
        return self.unbound.for_owner("me")

    def apply(self, *changes: Any, owner: str = "me") -> None:
        self.unbound.for_owner(owner).apply(changes, batch=f"batch {next(self.numbers)}")
        self.moments.append(timestamps.now())

    def add(self, content: str | None = None, **details: Any) -> Memory:
        now = timestamps.now()
        text = content or f"number {next(self.numbers)}"
        times = {"created_at": now, "updated_at": now, "known_from": now}
        memory = Memory(id=self.maker.make(now), content=text, content_hash=content_hash(text), **times, **details)
        self.apply(Add(memory), owner=memory.owner)
        if memory.owner == "me":
            self.ids.append(memory.id)
        return memory

    def edit(self, id: str, **details: Any) -> None:
        latest = self.store.history(id)[-1]
        self.apply(Revise(replace(latest, **details), base=latest.version))

    def embed(self, limit: int = 256) -> None:
        self.store.vectors.save(MODEL, {digest: b"1234" for digest, _ in self.store.vectors.waiting(limit)})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    unbound = SqliteStore(tmp_path / "store.db")
    yield World(unbound)
    unbound.close()


def details() -> st.SearchStrategy[dict[str, Any]]:
    periods = st.tuples(st.sampled_from(YEARS), st.sampled_from(YEARS)).filter(
        lambda years: None in years or years[0] < years[1]
    )
    labels = st.fixed_dictionaries(
        {
            "owner": st.sampled_from(OWNERS),
            "project": st.sampled_from(PROJECTS),
            "category": st.sampled_from(CATEGORIES),
            "tags": st.lists(st.sampled_from(TAGS), unique=True, max_size=2).map(tuple),
            "session": st.sampled_from(SESSIONS),
            "position": st.none() | st.integers(0, 5),
            "speaker": st.sampled_from(SPEAKERS),
            "role": st.sampled_from([None, *Role]),
        }
    )
    return st.tuples(labels, periods).map(
        lambda both: both[0] | {"valid_from": _year(both[1][0]), "valid_to": _year(both[1][1])}
    )


def scopes(world: World) -> st.SearchStrategy[Scope]:
    moment = st.sampled_from([_year(2023), _year(2024), _year(2025), timestamps.parse("2025-06-01"), timestamps.now()])
    return st.builds(
        Scope,
        owner=st.sampled_from([*OWNERS, "nobody"]),
        projects=st.none() | st.frozensets(st.sampled_from([*PROJECTS, "unknown"])),
        category=st.sampled_from([None, None, *CATEGORIES, "lessons"]),
        tags=st.frozensets(st.sampled_from([*TAGS, "green"]), max_size=2),
        as_of=moment,
        known_at=st.sampled_from([None, None, *world.moments]),
        any_time=st.booleans(),
        since=st.none() | moment,
        until=st.none() | moment,
    )


def changes() -> st.SearchStrategy[list[tuple[str, Any]]]:
    place = st.integers(0, 100)
    one = st.one_of(
        st.tuples(st.just("add"), details()),
        st.tuples(st.just("edit"), st.tuples(place, details())),
        st.tuples(st.just("forget"), place),
        st.tuples(st.just("undo"), place),
        st.tuples(st.just("erase"), place),
        st.tuples(st.just("embed"), st.integers(1, 3)),
        st.tuples(st.just("link"), st.tuples(place, place)),
    )
    return st.lists(one, min_size=1, max_size=8)


def carry_out(world: World, what: str, how: Any) -> None:
    """One change; those that need a memory do nothing while there is none."""
    if what == "add":
        world.add(**how)
    elif what == "embed":
        world.embed(how)
    elif not world.ids:
        return
    elif what == "edit":
        place, found = how
        text = f"edited {next(world.numbers)}"
        labels = {"category": found["category"], "tags": found["tags"], "valid_to": None, "speaker": found["speaker"]}
        world.edit(world.ids[place % len(world.ids)], content=text, content_hash=content_hash(text), **labels)
    elif what == "link":
        one, other = (world.ids[place % len(world.ids)] for place in how)
        if one != other:
            world.apply(Connect(Link(source=one, kind=LinkKind.SEE_ALSO, target=other, known_from=timestamps.now())))
    elif what == "forget":
        world.apply(Forget(world.ids[how % len(world.ids)]))
    elif what == "undo":
        # What an undo of a forgetting does: the last version comes back as a new one.
        world.edit(world.ids[how % len(world.ids)], importance=0.25)
    elif what == "erase":
        world.store.erase([world.ids.pop(how % len(world.ids))], batch="erase")


def visible(columns: Columns, scope: Scope, store: SqliteOwnerStore) -> set[tuple[str, int]]:
    memories = store.rows(columns.rows[columns.scoped(scope).is_visible].tolist())
    return {(memory.id, memory.version) for memory in memories.values()}


def plain(columns: Columns) -> list[tuple[Any, ...]]:
    """The columns with names in place of numbers, so that two catalogs compare."""
    names = [
        {code: name for name, code in codes.items()}
        for codes in (
            columns.codes.places,
            columns.codes.categories,
            columns.codes.sessions,
            columns.codes.speakers,
        )
    ]
    tags = [
        frozenset(tag for tag, rows in columns.codes.tagged.items() if row in rows) for row in columns.rows.tolist()
    ]
    coded = (columns.places, columns.categories, columns.sessions, columns.speakers)
    named = [[each.get(code) for code in column.tolist()] for each, column in zip(names, coded, strict=True)]
    times = (columns.valid_from, columns.valid_to, columns.known_from, columns.known_to)
    numbers = (columns.rows, columns.importance, columns.positions, columns.roles, columns.slots, *times)
    return list(zip(*named, tags, *(column.tolist() for column in numbers), strict=True))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_masks_are_the_filters_of_the_store(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(SqliteStore(Path(folder) / "store.db"))
        for found in data.draw(st.lists(details(), min_size=1, max_size=8)):
            world.add(**found)
        for what, how in data.draw(changes()):
            carry_out(world, what, how)
        columns = Catalog(world.store, MODEL).view()
        for scope in data.draw(st.lists(scopes(world), min_size=4, max_size=12)):
            browsed = {(memory.id, memory.version) for memory in world.store.browse(scope, limit=1000)}
            assert visible(columns, scope, world.store) == browsed
        world.unbound.close()


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(changes(), min_size=1, max_size=5))
def test_updated_catalog_equals_a_rebuilt_one(batches: list[list[tuple[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(SqliteStore(Path(folder) / "store.db"))
        catalog = Catalog(world.store, MODEL)
        catalog.view()
        for batch in batches:
            for what, how in batch:
                carry_out(world, what, how)
            fresh = Catalog(world.store, MODEL).view()
            assert plain(catalog.view()) == plain(fresh)
            everyone = np.arange(len(fresh.rows))
            offsets = (-2, -1, 1, 2)
            neighbours = catalog.view().neighbours(everyone, offsets)
            np.testing.assert_array_equal(neighbours, fresh.neighbours(everyone, offsets))
        world.unbound.close()


def test_masks_are_half_open_at_both_ends_of_both_times(world: World) -> None:
    current = world.add("kept", valid_from=_year(2024), valid_to=_year(2025))
    world.edit(current.id, importance=0.9)
    columns = Catalog(world.store, MODEL).view()
    first, second = world.store.history(current.id)
    assert first.known_to == second.known_from
    tick = timedelta(microseconds=1)
    for as_of in (_year(2024), _year(2025)):
        for known_at in (None, first.known_from, second.known_from):
            for back in (tick, timedelta(0)):
                assert as_of is not None
                scope = Scope(as_of=as_of - back, known_at=known_at and known_at - back)
                browsed = {(memory.id, memory.version) for memory in world.store.browse(scope)}
                assert visible(columns, scope, world.store) == browsed


def test_rows_that_got_a_vector_since_have_their_place(world: World) -> None:
    world.add("first")
    world.add("second")
    catalog = Catalog(world.store, MODEL)
    assert catalog.view().slots.tolist() == [-1, -1]
    world.embed(1)
    assert catalog.view().slots.tolist() == [1, -1]
    world.embed()
    assert catalog.view().slots.tolist() == [1, 2]


def test_many_changes_at_once_keep_the_order_of_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_rows, "_PAGE", 2)
    old = world.add()
    catalog = Catalog(world.store, MODEL)
    catalog.view()
    for _ in range(4):
        world.add()
    # The oldest id now has the newest row.
    world.edit(old.id, importance=0.9)
    rows = catalog.view().rows.tolist()
    assert rows == sorted(rows)
    assert plain(catalog.view()) == plain(Catalog(world.store, MODEL).view())


def test_nothing_is_read_again_while_nothing_happens(world: World) -> None:
    world.add()
    catalog = Catalog(world.store, MODEL)
    assert catalog.view() is catalog.view()
    before = catalog.view()
    catalog.rebuild()
    assert catalog.view() is not before


def test_catalog_is_rebuilt_after_a_restore(world: World, tmp_path: Path) -> None:
    world.add("before")
    world.unbound.maintenance.backup(tmp_path / "copy.db")
    catalog = Catalog(world.store, MODEL)
    world.add("after")
    assert len(catalog.view().rows) == 2
    world.unbound.maintenance.restore(tmp_path / "copy.db")
    assert len(catalog.view().rows) == 1


def test_stored_content_has_its_slot_at_once(world: World) -> None:
    world.add("said twice", project="garden")
    world.embed()
    catalog = Catalog(world.store, MODEL)
    catalog.view()
    world.add("said twice", project="kitchen")
    slot = world.store.heads(MODEL).slot
    assert catalog.view().slots.tolist() == [slot, slot]


def test_another_model_s_vectors_do_not_count(world: World) -> None:
    world.add()
    world.embed()
    assert Catalog(world.store, "another@2").view().slots.tolist() == [-1]


def test_an_empty_store_has_empty_columns(world: World) -> None:
    columns = Catalog(world.store, MODEL).view()
    assert columns.scoped(Scope(as_of=timestamps.now())).is_visible.tolist() == []
    assert columns.neighbours(columns.find([]), (-1, 1)).shape == (0, 2)


def test_cached_view_belongs_to_its_scope_and_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_MOST_VIEWS", 2)
    now = timestamps.now()
    world.add("always", project="garden")
    world.add("elsewhere", project="kitchen")
    columns = Catalog(world.store, MODEL).view()
    garden, kitchen = (Scope(projects=frozenset({name}), as_of=now) for name in ("garden", "kitchen"))
    for _ in range(2):
        assert columns.scoped(garden).is_visible.tolist() == [True, False]
        assert columns.scoped(kitchen).is_visible.tolist() == [False, True]
        assert columns.scoped(Scope(as_of=now)).is_visible.all()
    later = Scope(as_of=now + timedelta(days=9))
    assert columns.scoped(later) is columns.scoped(Scope(as_of=now))
    world.add("for a week", valid_to=now + timedelta(days=7))
    columns = Catalog(world.store, MODEL).view()
    for _ in range(2):
        assert columns.scoped(Scope(as_of=now)).is_visible.all()
        assert columns.scoped(later).is_visible.tolist() == [True, True, False]
        assert columns.scoped(replace(later, any_time=True)).is_visible.all()


def test_neighbours_follow_the_positions_of_a_session(world: World) -> None:
    positions = (30, 10, 20, 40)
    turns = [world.add(session="talk", position=position) for position in positions]
    columns = Catalog(world.store, MODEL).view()
    at = columns.find(range(1, len(turns) + 1))
    # By position: 10 is the second entry, 20 the third, 30 the first, 40 the last.
    assert columns.neighbours(at, (-1, 1, -2, 2)).tolist() == [
        [2, 3, 1, -1],
        [-1, 2, -1, 0],
        [1, 0, -1, 3],
        [0, -1, 2, -1],
    ]


def test_neighbours_are_of_the_same_conversation_owner_and_project(world: World) -> None:
    world.add(session="talk", position=1)
    world.add(session="walk", position=2)
    world.add(session="talk", position=2, owner="ada")
    world.add(session="talk", position=2, project="garden")
    world.add(position=2)
    columns = Catalog(world.store, MODEL).view()
    assert (columns.neighbours(np.arange(4), (-1, 1)) == -1).all()


def test_only_current_versions_are_neighbours(world: World) -> None:
    first, second, third = (world.add(session="talk", position=position) for position in (1, 2, 3))
    world.edit(third.id, content="edited", content_hash=content_hash("edited"))
    world.apply(Forget(second.id))
    columns = Catalog(world.store, MODEL).view()
    rows = {(memory.id, memory.version): row for row, memory in world.store.versions()}
    at = columns.find([rows[first.id, 1], rows[second.id, 1], rows[third.id, 1], rows[third.id, 2]])
    neighbours = columns.neighbours(at, (-1, 1))
    assert neighbours.tolist() == [[-1, at[3]], [-1, -1], [-1, -1], [at[0], -1]]


def test_names_may_be_added_during_a_mask(world: World) -> None:
    world.add()
    columns = Catalog(world.store, MODEL).view()
    places = columns.codes.places

    class Interrupted(str):
        """Lets another thread read a new project at the worst moment."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            places.setdefault(("me", f"project {len(places)}"), len(places))
            return str.__eq__(self, other)

    assert columns.scoped(Scope(owner=Interrupted("me"), as_of=timestamps.now())).is_visible.tolist() == [True]
    assert len(places) == 2


@given(st.lists(st.integers(-3, 9)))
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    numbers = np.array(values, dtype=np.int64)
    np.testing.assert_array_equal(distinct(numbers), np.unique(numbers))


def test_a_reader_who_may_see_all_of_a_store_needs_no_mask(world: World) -> None:
    world.add()
    open_alone = Scope(owner="me", as_of=timestamps.now(), sensitivities=frozenset({Sensitivity.OPEN}))
    assert Catalog(world.store, MODEL).view().scoped(open_alone).is_readable is None
    world.add(sensitivity=Sensitivity.PRIVATE)
    is_readable = Catalog(world.store, MODEL).view().scoped(open_alone).is_readable
    assert is_readable is not None and is_readable.tolist() == [True, False]


@pytest.mark.parametrize("others", [0, 2])
def test_rows_are_located_with_and_without_gaps(world: World, others: int) -> None:
    for _ in range(3):
        for _ in range(others):
            world.add(owner="ada")
        world.add()
    columns = Catalog(world.store, MODEL).view()
    rows = np.array([0, *columns.rows.tolist()[::-1], int(columns.rows[-1]) + 1, 10_000])
    is_known, at = columns.locate(rows)
    assert is_known.tolist() == [False, True, True, True, False, False] and at.tolist() == [2, 1, 0]
