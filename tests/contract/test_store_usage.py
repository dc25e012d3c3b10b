"""The ledger of uses: counts by memory and day, what conversations were given, and fingerprints of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from triskele.replies.rooms import ConversationUse, InjectedMemory
from triskele.store import usage as ledger
from triskele.store.owner import Maintenance, OwnerStore
from triskele.store.values import VAULT, Document, Use
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import Forget, Memory, Outcome, Sealed, Sensitivity, UseCount

Make = Callable[..., Memory]
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Sets what time it is."""

    def set_to(moment: datetime) -> None:
        monkeypatch.setattr(timestamps, "now", lambda: moment)

    return set_to


def _use(memory: Memory, tokens: int = 10, *fingerprints: str) -> Use:
    return Use(memory.id, tokens, memory.content_hash, fingerprints)


def _given(store: OwnerStore, conversation: str) -> list[str]:
    return [each.id for each in store.usage.given(conversation)]


def test_uses_are_counted_by_memory(store: OwnerStore, add: Make, clock: Callable[[datetime], None]) -> None:
    one, two, three = add(), add(), add()
    clock(NOON)
    store.usage.recalled([_use(one, 5), _use(two, 7)])
    clock(NOON + timedelta(hours=1))
    store.usage.injected("talk", [_use(one, 20)])
    store.usage.injected(None, [_use(one, 20)])
    assert store.usage.counts([one.id, two.id, three.id]) == {
        one.id: UseCount(one.id, 1, 2, 45, NOON + timedelta(hours=1)),
        two.id: UseCount(two.id, 1, 0, 7, NOON),
    }
    assert [count.id for count in store.usage.most_used()] == [one.id, two.id]
    assert [count.id for count in store.usage.most_used(1)] == [one.id]


def test_uses_are_counted_by_day(store: OwnerStore, add: Make, clock: Callable[[datetime], None]) -> None:
    one, two = add(), add()
    for days in (0, 0, 1, 9):
        clock(NOON + timedelta(days=days))
        store.usage.recalled([_use(one, 5), _use(two, 7)])
        store.usage.injected("talk", [_use(one, 20)])
    assert store.usage.days() == [
        ("2026-03-13", 2, 1, 32),
        ("2026-03-05", 2, 1, 32),
        ("2026-03-04", 4, 2, 64),
    ]
    assert [day.day for day in store.usage.days(1)] == ["2026-03-13"]


def test_given_lists_the_injections_of_a_conversation(
    store: OwnerStore, add: Make, clock: Callable[[datetime], None]
) -> None:
    one, two = add(), add()
    clock(NOON)
    store.usage.injected("talk", [_use(one)])
    clock(NOON + timedelta(hours=1))
    store.usage.injected("talk", [_use(two)])
    store.usage.injected("other", [_use(two)])
    store.usage.recalled([_use(one)])
    assert store.usage.given("talk") == [
        InjectedMemory(two.id, two.content_hash, NOON + timedelta(hours=1), False, 10),
        InjectedMemory(one.id, one.content_hash, NOON, False, 10),
    ]
    assert _given(store, "other") == [two.id]
    assert _given(store, "nobody") == []


def test_conversations_lists_tokens(store: OwnerStore, add: Make, clock: Callable[[datetime], None]) -> None:
    one, two = add(), add()
    clock(NOON)
    store.usage.injected("talk", [_use(one, 20), _use(two, 5)], client="claude-code", project="shop")
    clock(NOON + timedelta(hours=1))
    store.usage.injected("other", [_use(two, 7)])
    store.usage.injected(None, [_use(two, 7)], client="nobody")
    store.usage.recalled([_use(one, 3)])
    other = ConversationUse("other", NOON + timedelta(hours=1), "", "", 1, 7)
    assert store.usage.conversations() == [other, ConversationUse("talk", NOON, "claude-code", "shop", 2, 25)]
    store.usage.lose("talk")
    clock(NOON + timedelta(hours=2))
    store.usage.injected("talk", [_use(one, 20)], client="claude-code", project="garden")
    talk = ConversationUse("talk", NOON + timedelta(hours=2), "claude-code", "garden", 1, 45)
    assert store.usage.conversations() == [talk, other]
    assert store.usage.conversations(1) == [talk] and store.usage.conversations(1, 1) == [other]
    assert store.usage.conversations(key="talk") == [talk] and store.usage.conversations(key="nobody") == []
    store.erase([one.id], batch="gone")
    assert store.usage.conversations(1) == [replace(talk, memories=0, tokens=45)]
    store.usage.forget("talk")
    assert store.usage.conversations() == [other]


def test_lost_injections_end_with_the_next_injection(store: OwnerStore, add: Make) -> None:
    one, two, three = add(), add(), add()
    store.usage.injected("talk", [_use(one), _use(two)])
    store.usage.injected("other", [_use(one)])
    store.usage.lose("talk")
    assert {each.lost for each in store.usage.given("talk")} == {True}
    assert {each.lost for each in store.usage.given("other")} == {False}
    store.usage.injected("talk", [_use(two), _use(three)])
    assert {each.id: each.lost for each in store.usage.given("talk")} == {two.id: False, three.id: False}


def test_forgotten_conversation_starts_over(store: OwnerStore, add: Make) -> None:
    one = add()
    store.usage.injected("talk", [_use(one)])
    store.usage.injected("other", [_use(one)])
    store.usage.forget("talk")
    assert (_given(store, "talk"), _given(store, "other")) == ([], [one.id])


def test_store_holds_only_the_newest_conversations(
    store: OwnerStore, add: Make, clock: Callable[[datetime], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_CONVERSATIONS", 3)
    one, two = add(), add()
    clock(NOON)
    store.usage.injected("first", [_use(two, 1, "print")])
    for number in range(4):
        clock(NOON + timedelta(minutes=1 + number))
        store.usage.injected(f"talk {number}", [_use(one)])
    assert [_given(store, name) for name in ("first", "talk 0", "talk 1")] == [[], [], [one.id]]
    assert store.usage.echoed(["print"]) == {}
    assert store.usage.counts([two.id])[two.id].injected == 1


def test_a_clock_set_back_does_not_push_out_the_conversation_that_begins(
    store: OwnerStore, add: Make, clock: Callable[[datetime], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_CONVERSATIONS", 1)
    one = add()
    clock(NOON)
    store.usage.injected("before", [_use(one)])
    clock(NOON - timedelta(days=1))
    store.usage.injected("after", [_use(one)])
    assert _given(store, "after") == [one.id]


def test_old_conversations_go_and_those_that_are_over_go_sooner(
    store: OwnerStore, add: Make, clock: Callable[[datetime], None]
) -> None:
    one = add()
    clock(NOON)
    for name in ("open", "over", "taken up again"):
        store.usage.injected(name, [_use(one)])
    store.usage.end("over")
    store.usage.end("taken up again")
    store.usage.injected("taken up again", [_use(one)])
    assert _given(store, "over") == [one.id]
    clock(NOON + ledger.KEPT_WHEN_OVER + timedelta(days=1))
    store.usage.injected("new", [_use(one)])
    assert [_given(store, name) for name in ("open", "over", "taken up again")] == [[one.id], [], [one.id]]
    clock(NOON + ledger.KEPT + timedelta(days=1))
    store.usage.injected("newer", [_use(one)])
    assert [_given(store, name) for name in ("open", "taken up again", "new")] == [[], [], [one.id]]


def test_fingerprints_lead_to_injected_memories(store: OwnerStore, add: Make) -> None:
    one, two = add(), add()
    store.usage.injected("talk", [_use(one, 1, "a", "b"), _use(two, 1, "b")])
    store.usage.injected("talk", [_use(one, 1, "a")])
    store.usage.recalled([_use(two, 1, "c")])
    both = sorted([one.id, two.id])
    assert store.usage.echoed(["a", "b", "c", "d"]) == {"a": [one.id], "b": both, "c": [two.id]}


def test_an_erasing_leaves_the_totals_alone(store: OwnerStore, add: Make) -> None:
    one, two = add(), add()
    store.usage.injected("talk", [_use(one, 3, "a"), _use(two, 4, "b")])
    store.erase([one.id], batch="gone")
    assert [count.id for count in store.usage.most_used()] == [two.id]
    assert _given(store, "talk") == [two.id]
    assert store.usage.echoed(["a", "b"]) == {"b": [two.id]}
    assert [day[1:] for day in store.usage.days()] == [(0, 2, 7)]


def test_a_sealing_takes_everything_about_the_memory(store: OwnerStore, make_memory: Make, add: Make) -> None:
    one, two = add(), add()
    store.usage.injected("talk", [_use(one, 3, "a"), _use(two, 4, "b")])
    store.documents.put(VAULT, {"keys": Document("keys")})
    title = make_memory("a title", id=one.id, sensitivity=Sensitivity.SECRET)
    store.seal([(title, Sealed(b"blob", content_hash("keys")))], batch="sealed")
    assert store.usage.echoed(["a", "b"]) == {"b": [two.id]}
    assert _given(store, "talk") == [two.id]
    assert store.usage.counts([one.id]) == {}
    store.usage.injected("talk", [_use(one, 3, "a"), _use(title, 3, "c")])
    assert store.usage.echoed(["a", "c"]) == {}


def test_uses_after_an_erasure_are_dropped(store: OwnerStore, add: Make) -> None:
    one, two = add(), add()
    store.erase([one.id], batch="gone")
    store.usage.injected("talk", [_use(one, 1, "a"), _use(two, 1, "b")])
    store.usage.recalled([_use(one)])
    assert [count.id for count in store.usage.most_used()] == [two.id]
    assert _given(store, "talk") == [two.id]
    assert store.usage.echoed(["a", "b"]) == {"b": [two.id]}


def test_a_text_that_the_memory_no_longer_has_leaves_no_fingerprint(store: OwnerStore, add: Make) -> None:
    one = add()
    store.usage.injected("talk", [Use(one.id, 1, "another content", ("a",))])
    assert (store.usage.echoed(["a"]), _given(store, "talk")) == ({}, [])
    assert store.usage.counts([one.id])[one.id].injected == 1


def test_forgetting_keeps_the_counts(store: OwnerStore, add: Make, do: Callable[..., list[Outcome]]) -> None:
    one = add()
    store.usage.recalled([_use(one)])
    do(Forget(one.id))
    assert store.usage.counts([one.id])[one.id].recalled == 1


def test_a_backup_carries_the_ledger(
    store: OwnerStore,
    maintenance: Maintenance,
    open_store: Callable[..., OwnerStore],
    open_maintenance: Callable[..., Maintenance],
    add: Make,
    tmp_path: Path,
) -> None:
    one = add()
    store.usage.injected("talk", [_use(one, 2, "a")])
    maintenance.backup(tmp_path / "copy.db")
    store.usage.injected("talk", [_use(one, 2, "b")])
    other = open_store("second")
    open_maintenance("second").restore(tmp_path / "copy.db")
    count = other.usage.counts([one.id])[one.id]
    assert (count.recalled, count.injected, count.tokens) == (0, 1, 2)
    assert _given(other, "talk") == [one.id]
    assert other.usage.echoed(["a", "b"]) == {"a": [one.id]}


def test_counting_is_no_change_to_the_memories(store: OwnerStore, maintenance: Maintenance, add: Make) -> None:
    one = add()
    before = store.position()
    store.usage.injected("talk", [_use(one)])
    assert store.position() == before
    assert maintenance.check(deep=True) == []
