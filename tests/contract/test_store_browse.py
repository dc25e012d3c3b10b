"""Browsing: every filter of a scope, the orders, and pages; and finding by a prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from triskele.errors import BadInput
from triskele.store.owner import OwnerStore
from triskele.text import timestamps
from triskele.types import Add, Forget, Memory, Origin, Outcome, Revise, Scope, Sensitivity, Sort

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]

TRUTH = True


def _scope(**details: Any) -> Scope:
    return Scope(**({"as_of": timestamps.now()} | details))


def _contents(store: OwnerStore, sort: Sort = Sort.RECENCY, **details: Any) -> list[str]:
    return [memory.content for memory in store.browse(_scope(**details), sort=sort, limit=100)]


def _day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def test_a_scope_of_another_owner_is_empty(store: OwnerStore, add: Make) -> None:
    add("mine")
    assert _contents(store) == ["mine"]
    assert _contents(store, owner="nobody") == []


def test_browse_filters_by_project(store: OwnerStore, add: Make) -> None:
    add("kitchen things", project="kitchen")
    add("garden things", project="garden")
    add("things everywhere", project="")
    assert set(_contents(store, projects=None)) == {"kitchen things", "garden things", "things everywhere"}
    assert set(_contents(store, projects=frozenset({"garden", ""}))) == {"garden things", "things everywhere"}
    assert _contents(store, projects=frozenset({"kitchen"})) == ["kitchen things"]
    assert _contents(store, projects=frozenset()) == []


def test_browse_filters_by_category(store: OwnerStore, add: Make) -> None:
    add("a fact")
    add("a lesson", category="lessons")
    assert _contents(store, category="lessons") == ["a lesson"]
    assert _contents(store, category="people") == []


def test_browse_requires_every_tag_in_full(store: OwnerStore, add: Make) -> None:
    add("both", tags=("red", "very green"))
    add("one", tags=("red",))
    add("none")
    assert set(_contents(store, tags=frozenset({"red"}))) == {"both", "one"}
    assert _contents(store, tags=frozenset({"red", "very green"})) == ["both"]
    assert _contents(store, tags=frozenset({"green"})) == []
    assert _contents(store, tags=frozenset({'"'})) == []
    for tag in ('a "quoted" one', "back\\slash", "Müll", "日本", "tab\there", "🦩"):
        add(f"with {tag}", tags=("red", tag))
        assert _contents(store, tags=frozenset({tag})) == [f"with {tag}"]


def test_validity_is_half_open_and_open_sides_never_exclude(store: OwnerStore, add: Make) -> None:
    add("always")
    add("from the 10th", valid_from=_day(10))
    add("until the 20th", valid_to=_day(20))
    add("between", valid_from=_day(10), valid_to=_day(20))
    second = timedelta(seconds=1)
    expected = {
        _day(10) - second: {"always", "until the 20th"},
        _day(10): {"always", "from the 10th", "until the 20th", "between"},
        _day(20) - second: {"always", "from the 10th", "until the 20th", "between"},
        _day(20): {"always", "from the 10th"},
    }
    for moment, contents in expected.items():
        assert set(_contents(store, as_of=moment)) == contents
    assert len(_contents(store, as_of=_day(1), any_time=True)) == 4


def test_browse_combines_both_time_axes(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("until the 20th", valid_to=_day(20))
    believed = timestamps.now()
    do(Revise(replace(memory, content="until the 5th", valid_to=_day(5)), base=1))
    assert _contents(store, as_of=_day(15)) == []
    assert _contents(store, as_of=_day(15), known_at=believed) == ["until the 20th"]
    assert _contents(store, as_of=_day(4)) == ["until the 5th"]


def test_browse_filters_earlier_versions_by_their_own_fields(store: OwnerStore, do: Do, add: Make) -> None:
    before = timestamps.now()
    memory = add("first words", tags=("old",), category="lessons")
    then = timestamps.now()
    do(Revise(replace(memory, content="second words", tags=("new",), category="facts"), base=1))
    do(Forget(memory.id))
    assert _contents(store) == []
    assert _contents(store, known_at=before) == []
    assert _contents(store, known_at=then, tags=frozenset({"old"}), category="lessons") == ["first words"]
    assert _contents(store, known_at=then, tags=frozenset({"new"})) == []


def test_recent_memories_come_first_and_ties_go_by_id(store: OwnerStore, add: Make) -> None:
    for content, day in (("middle", 2), ("oldest", 1), ("tied first", 3), ("tied second", 3)):
        add(content, updated_at=_day(day))
    assert _contents(store, Sort.RECENCY) == ["tied second", "tied first", "middle", "oldest"]


def test_important_memories_come_first_and_ties_go_by_recency(store: OwnerStore, add: Make) -> None:
    for content, importance, day in (("low", 0.1, 9), ("high", 0.9, 1), ("even", 0.5, 2), ("even, newer", 0.5, 3)):
        add(content, importance=importance, updated_at=_day(day))
    assert _contents(store, Sort.IMPORTANCE) == ["high", "even, newer", "even", "low"]


def test_relevance_is_no_order_without_a_question(store: OwnerStore) -> None:
    with pytest.raises(BadInput):
        store.browse(_scope(), sort=Sort.RELEVANCE)


def test_pages_show_everything_once(store: OwnerStore, add: Make) -> None:
    for number in range(7):
        add(f"number {number}")
    pages = [store.browse(_scope(), limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert [memory for page in pages for memory in page] == store.browse(_scope(), limit=100)


def test_a_prefix_finds_current_and_forgotten_ids_in_order(store: OwnerStore, do: Do, make_memory: Make) -> None:
    for id in ("ab34", "ab12", "abz9", "b000"):
        do(Add(make_memory(f"words of {id}", id=id)))
    do(Forget("ab12"))
    assert store.find("ab") == ["ab12", "ab34", "abz9"]
    assert store.find("ab3") == ["ab34"]
    assert store.find("ab", limit=2) == ["ab12", "ab34"]
    assert store.find("b000") == ["b000"]
    assert store.find("c") == store.find("b0001") == store.find("%") == store.find("a_") == []


def test_a_prefix_names_an_edited_memory_once(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add()
    do(Revise(replace(memory, content="other words"), base=1))
    assert store.find(memory.id[:9]) == [memory.id]


def test_short_ids_are_as_short_as_their_neighbours_allow(store: OwnerStore, do: Do, make_memory: Make) -> None:
    ids = ("aaaaaaaa11", "aaaaaaaa12", "aaaaaaab11", "b123456789")
    for id in ids:
        do(Add(make_memory(f"words of {id}", id=id)))
    short = store.shorten(ids, shortest=4)
    assert short == dict(zip(ids, ("aaaaaaaa11", "aaaaaaaa12", "aaaaaaab", "b123"), strict=True))
    assert store.shorten(ids[3:]) == {"b123456789": "b1234567"}
    for id, prefix in short.items():
        assert store.find(prefix) == [id]


def test_forgotten_ids_still_lengthen_short_ones(store: OwnerStore, do: Do, make_memory: Make) -> None:
    do(Add(make_memory("one", id="aaaaaaaa11")), Add(make_memory("two", id="aaaaaaaa12")), Forget("aaaaaaaa12"))
    assert store.shorten(["aaaaaaaa11"]) == {"aaaaaaaa11": "aaaaaaaa11"}


def test_a_scope_lists_the_sensitivities_and_origins_that_it_allows(store: OwnerStore, add: Make) -> None:
    plain, private, web = (
        add("plain"),
        add("private", sensitivity=Sensitivity.PRIVATE),
        add("web", origin=Origin.WEB),
    )
    assert set(_contents(store)) == {plain.content, private.content, web.content}
    assert set(_contents(store, sensitivities=frozenset({Sensitivity.OPEN}))) == {plain.content, web.content}
    assert set(_contents(store, origins=frozenset({Origin.USER}))) == {plain.content, private.content}
    assert _contents(store, origins=frozenset()) == []
