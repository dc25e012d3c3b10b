"""Adding, revising and forgetting: what stands, what stood, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from triskele.errors import Conflict, NotFound
from triskele.store.owner import OwnerStore, Store
from triskele.store.values import START
from triskele.text import timestamps
from triskele.types import Action, Add, Change, Forget, Memory, Origin, Outcome, Revise, Role, Sensitivity

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]

TRUTH = True

LONG_AGO = datetime(2021, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)


def _words(memory: Memory) -> Memory:
    """The memory without the two moments that only the store can know."""
    return replace(memory, known_from=memory.created_at, known_to=None)


def test_stored_memory_reads_back_unchanged(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory(
        "Ünïcode: 数据库 🌱\nsecond line",
        category="decisions",
        tags=("a tag", 'quote"d', "ключ"),
        keywords="plants water",
        importance=0.1,
        sensitivity=Sensitivity.PRIVATE,
        project="garden",
        origin=Origin.TOOL,
        session="talk 7",
        position=0,
        speaker="Zoë Ångström",
        role=Role.ASSISTANT,
        created_at=LONG_AGO,
        updated_at=LONG_AGO + timedelta(microseconds=1),
        valid_from=LONG_AGO - timedelta(days=9999),
        valid_to=datetime(9999, 12, 31, tzinfo=UTC),
    )
    [outcome] = do(Add(memory))
    assert (outcome.action, outcome.id, outcome.version) == (Action.ADDED, memory.id, 1)
    assert _words(store.memories([memory.id])[memory.id]) == _words(memory)


def test_known_from_is_the_time_of_the_write(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory()
    between = timestamps.now()
    do(Add(memory))
    assert store.memories([memory.id], known_at=between) == {}
    assert store.memories([memory.id], known_at=timestamps.now()).keys() == {memory.id}


def test_a_memory_taken_over_verbatim_keeps_its_moments_and_may_repeat_content(
    store: OwnerStore, do: Do, make_memory: Make
) -> None:
    ended = make_memory("old words", known_from=LONG_AGO, known_to=LONG_AGO + timedelta(days=1))
    current = replace(make_memory("new words", id=ended.id, version=2), known_from=LONG_AGO + timedelta(days=1))
    twin = make_memory("new words")
    do(Add(ended, verbatim=True), Add(current, verbatim=True), Add(twin, verbatim=True))
    assert store.history(ended.id) == [ended, current]
    assert store.memories([twin.id]).keys() == {twin.id}


def test_memories_survive_reopening(
    unbound: Store, open_store: Callable[..., OwnerStore], add: Make, store: OwnerStore
) -> None:
    memory = add()
    before = store.history(memory.id), store.journal(), store.epoch()
    unbound.close()
    again = open_store()
    assert (again.history(memory.id), again.journal(), again.epoch()) == before


def test_two_openings_share_one_store(open_store: Callable[..., OwnerStore], add: Make) -> None:
    other = open_store()
    memory = add()
    assert other.memories([memory.id]).keys() == {memory.id}


def test_add_of_stored_content_returns_the_stored_memory(store: OwnerStore, do: Do, make_memory: Make) -> None:
    first = make_memory("water the fern")
    do(Add(first))
    entries = store.position()
    [outcome] = do(Add(make_memory("water the fern")))
    assert (outcome.action, outcome.id, outcome.seq) == (Action.DUPLICATE, first.id, None)
    assert store.position() == entries
    assert store.census().memories == 1


@pytest.mark.parametrize(
    "difference",
    [
        {"project": "kitchen"},
        {"session": "talk 8"},
        {"session": None, "position": None},
        {"position": 2},
        {"speaker": "Joanna"},
        {"speaker": None},
        {"role": Role.ASSISTANT},
        {"role": None},
        {"valid_from": LONG_AGO + timedelta(microseconds=1)},
        {"valid_from": None},
        {"valid_to": None},
    ],
    ids=str,
)
def test_content_of_another_place_or_time_is_no_duplicate(
    store: OwnerStore, do: Do, make_memory: Make, difference: dict[str, Any]
) -> None:
    details = {
        "project": "garden",
        "session": "talk 7",
        "position": 1,
        "speaker": "Nate",
        "role": Role.USER,
        "valid_from": LONG_AGO,
        "valid_to": LONG_AGO + timedelta(days=1),
    }
    do(Add(make_memory("water the fern", **details)))
    [outcome] = do(Add(make_memory("water the fern", **(details | difference))))
    assert outcome.action is Action.ADDED
    [again] = do(Add(make_memory("water the fern", **details)))
    assert again.action is Action.DUPLICATE


def test_the_content_of_a_forgotten_memory_or_older_version_is_no_duplicate(
    store: OwnerStore, do: Do, make_memory: Make
) -> None:
    forgotten, edited = make_memory("water the fern"), make_memory("feed the fish")
    do(Add(forgotten), Add(edited), Forget(forgotten.id), Revise(_saying(edited, "feed the cat"), base=1))
    outcomes = do(Add(make_memory("water the fern")), Add(make_memory("feed the fish")))
    assert [outcome.action for outcome in outcomes] == [Action.ADDED, Action.ADDED]


def test_an_id_is_taken_once(store: OwnerStore, do: Do, add: Make, make_memory: Make) -> None:
    memory = add()
    with pytest.raises(Conflict):
        do(Add(make_memory("other words", id=memory.id), verbatim=True))
    with pytest.raises(Conflict):
        do(Add(make_memory("other words", id=memory.id, version=2), verbatim=True))


def test_versions_have_no_gap_or_overlap(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    for base, text in enumerate(("second words", "third words"), start=1):
        [outcome] = do(Revise(_saying(memory, text), base=base))
        assert (outcome.action, outcome.version) == (Action.EDITED, base + 1)
    history = store.history(memory.id)
    assert [version.content for version in history] == ["first words", "second words", "third words"]
    assert [version.version for version in history] == [1, 2, 3]
    assert [version.known_to for version in history] == [history[1].known_from, history[2].known_from, None]
    assert store.memories([memory.id]) == {memory.id: history[-1]}


def test_known_at_shows_the_versions_of_any_moment(store: OwnerStore, do: Do, add: Make) -> None:
    before = timestamps.now()
    memory = add("first words")
    moment_of = {"first words": timestamps.now()}
    do(Revise(_saying(memory, "second words"), base=1))
    moment_of["second words"] = timestamps.now()
    do(Forget(memory.id))
    gone = timestamps.now()
    for words, moment in moment_of.items():
        assert store.memories([memory.id], known_at=moment)[memory.id].content == words
    assert store.memories([memory.id], known_at=before) == {}
    assert store.memories([memory.id], known_at=gone) == {}


def test_a_version_ends_at_the_very_moment_that_the_next_begins(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    do(Revise(_saying(memory, "second words"), base=1))
    edge = store.history(memory.id)[1].known_from
    assert store.memories([memory.id], known_at=edge)[memory.id].content == "second words"
    just_before = store.memories([memory.id], known_at=edge - timestamps.MICROSECOND)
    assert just_before[memory.id].content == "first words"


def test_a_clock_set_back_never_turns_a_period_around(
    store: OwnerStore, do: Do, add: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = add("first words")
    monkeypatch.setattr(timestamps, "now", lambda: LONG_AGO)
    do(Revise(_saying(memory, "second words"), base=1))
    do(Forget(memory.id))
    periods = [(version.known_from, version.known_to) for version in store.history(memory.id)]
    assert all(ended is not None and begun <= ended for begun, ended in periods)
    assert periods[0][1] == periods[1][0]


def test_an_edit_on_a_stale_base_is_a_conflict_and_changes_nothing(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    do(Revise(_saying(memory, "second words"), base=1))
    history, entries = store.history(memory.id), store.position()
    for base in (0, 1, 3):
        with pytest.raises(Conflict):
            do(Revise(_saying(memory, "stale words"), base=base))
    assert (store.history(memory.id), store.position()) == (history, entries)


def test_an_edit_that_changes_nothing_writes_nothing(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    entries = store.position()
    [outcome] = do(Revise(replace(memory, updated_at=timestamps.now()), base=1))
    assert (outcome.action, outcome.version, outcome.seq) == (Action.UNCHANGED, 1, None)
    assert (len(store.history(memory.id)), store.position()) == (1, entries)


@pytest.mark.parametrize(
    "change",
    [
        {"category": "lessons"},
        {"tags": ("new",)},
        {"keywords": "new"},
        {"importance": 0.75},
        {"sensitivity": Sensitivity.PRIVATE},
        {"project": "kitchen"},
        {"speaker": "Nate"},
        {"role": Role.OTHER},
        {"valid_from": LONG_AGO},
        {"valid_to": LONG_AGO},
    ],
    ids=str,
)
def test_every_detail_can_be_revised(store: OwnerStore, do: Do, add: Make, change: dict[str, Any]) -> None:
    memory = add("first words")
    [outcome] = do(Revise(replace(memory, **change), base=1))
    assert outcome.action is Action.EDITED
    current = store.memories([memory.id])[memory.id]
    assert {name: getattr(current, name) for name in change} == change


def test_a_forgotten_memory_stays_in_the_history_and_can_be_brought_back(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    [forgotten] = do(Forget(memory.id))
    assert forgotten.action is Action.FORGOTTEN
    assert store.memories([memory.id]) == {}
    [version] = store.history(memory.id)
    assert version.known_to is not None
    [restored] = do(Revise(version, base=1))
    assert (restored.action, restored.version) == (Action.RESTORED, 2)
    current = store.memories([memory.id])[memory.id]
    assert (current.content, current.version, current.known_to) == ("first words", 2, None)
    assert current.known_from >= version.known_to


def test_forgetting_twice_changes_nothing(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add()
    do(Forget(memory.id))
    entries, history = store.position(), store.history(memory.id)
    [outcome] = do(Forget(memory.id))
    assert (outcome.action, outcome.seq) == (Action.UNCHANGED, None)
    assert (store.position(), store.history(memory.id)) == (entries, history)


def test_unknown_ids_raise_or_are_left_out(store: OwnerStore, do: Do, make_memory: Make) -> None:
    with pytest.raises(NotFound):
        do(Forget("nobody"))
    with pytest.raises(NotFound):
        do(Revise(make_memory(), base=1))
    assert store.memories(["nobody"]) == {}
    assert store.history("nobody") == []
    assert store.rows([123456]) == {}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_list_of_changes_happens_as_a_whole_or_not_at_all(
    store: OwnerStore, do: Do, add: Make, make_memory: Make, place: int
) -> None:
    current = add("standing words")
    good: list[Change] = [Add(make_memory("more words")), Forget(current.id)]
    before = list(store.versions()), store.journal()
    with pytest.raises(Conflict):
        do(*good[:place], Revise(_saying(current, "stale"), base=7), *good[place:])
    assert (list(store.versions()), store.journal()) == before
    assert [outcome.action for outcome in do(*good)] == [Action.ADDED, Action.FORGOTTEN]


def test_later_changes_of_a_list_see_the_earlier_ones(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory("first words")
    outcomes = do(
        Add(memory),
        Add(make_memory("first words")),
        Revise(_saying(memory, "second words"), base=1),
        Forget(memory.id),
        Revise(_saying(memory, "third words"), base=2),
    )
    expected = [Action.ADDED, Action.DUPLICATE, Action.EDITED, Action.FORGOTTEN, Action.RESTORED]
    assert [outcome.action for outcome in outcomes] == expected
    assert store.memories([memory.id])[memory.id].content == "third words"


def test_no_changes_are_no_trouble(store: OwnerStore, do: Do) -> None:
    assert do() == []
    assert store.position() == START


def test_rows_name_versions_for_good(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("first words")
    [(row, first)] = store.versions([memory.id])
    do(Revise(_saying(memory, "second words"), base=1))
    add("other words")
    assert store.rows([row])[row].content == first.content == "first words"
    assert store.rows([row])[row].known_to is not None


def test_versions_of_many_ids_come_in_row_order(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memories = [make_memory(f"number {number}") for number in range(1003)]
    do(*map(Add, memories))
    do(Revise(_saying(memories[0], "number 0 again"), base=1))
    everything = list(store.versions())
    assert len(everything) == 1004
    assert [row for row, _ in everything] == sorted({row for row, _ in everything})
    backwards = [memory.id for memory in reversed(memories)]
    assert list(store.versions(backwards)) == everything
    assert len(store.memories(backwards)) == 1003
    assert store.rows(row for row, _ in everything) == dict(everything)
    assert list(store.versions([])) == []


def _saying(memory: Memory, content: str) -> Memory:
    return replace(memory, content=content, content_hash=f"hash of {content}", updated_at=timestamps.now())


def test_words_of_the_user_raise_the_origin_of_a_stored_text(store: OwnerStore, do: Do, make_memory: Make) -> None:
    first = make_memory("water the fern", origin=Origin.WEB)
    do(Add(first))
    [by_agent] = do(Add(make_memory("water the fern", origin=Origin.AGENT)))
    assert (by_agent.action, by_agent.origin, by_agent.seq) == (Action.DUPLICATE, None, None)
    [outcome] = do(Add(make_memory("water the fern")))
    assert (outcome.action, outcome.id, outcome.version, outcome.origin) == (
        Action.DUPLICATE,
        first.id,
        2,
        Origin.USER,
    )
    assert [memory.origin for memory in store.history(first.id)] == [Origin.WEB, Origin.USER]
    assert store.journal(id=first.id)[-1].action is Action.EDITED


def test_a_private_memory_is_no_duplicate_for_a_client(store: OwnerStore, do: Do, make_memory: Make) -> None:
    first = make_memory("water the fern", sensitivity=Sensitivity.PRIVATE)
    do(Add(first))
    [again] = do(
        Add(
            make_memory("water the fern"),
        )
    )
    [hidden] = do(Add(make_memory("water the fern"), beside_private=True))
    assert (again.action, again.id, hidden.action) == (Action.DUPLICATE, first.id, Action.ADDED)
