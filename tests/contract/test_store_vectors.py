"""Vectors: what waits for one, what the models said, and the columns that filters read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triskele.errors import NotFound, StoreUnavailable
from triskele.store import derived_rows
from triskele.store.owner import Maintenance, OwnerStore
from triskele.store.values import EMBED
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import Add, Change, Forget, Memory, Outcome, Revise, Role

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]

ONE, OTHER = "one-model@1", "other-model@2"


def _waiting(store: OwnerStore) -> list[str]:
    return [text for _, text in store.vectors.waiting()]


def _embed(store: OwnerStore, fingerprint: str = ONE, *, only: int = 256) -> dict[str, int]:
    """Give every content that waits the vector of a made-up model."""
    vectors = {digest: f"{fingerprint} on {text}".encode() for digest, text in store.vectors.waiting(only)}
    return store.vectors.save(fingerprint, vectors)


def _anew(memory: Memory, content: str, **details: Any) -> Memory:
    return replace(memory, content=content, content_hash=content_hash(content), **details)


def _said(store: OwnerStore, fingerprint: str = ONE) -> list[bytes]:
    return [vector for _, _, vector in store.vectors.page(fingerprint)]


def test_contents_wait_oldest_first_with_their_hashes(store: OwnerStore, add: Make) -> None:
    memories = [add(f"number {number}") for number in range(5)]
    assert store.vectors.waiting() == [(memory.content_hash, memory.content) for memory in memories]
    assert [text for _, text in store.vectors.waiting(2)] == ["number 0", "number 1"]
    assert store.jobs.count(EMBED) == 5


def test_a_text_that_several_memories_say_waits_once(store: OwnerStore, add: Make) -> None:
    add("said twice", project="garden")
    add("said twice", project="kitchen")
    assert _waiting(store) == ["said twice"]


def test_the_queue_moves_with_the_write_or_not_at_all(store: OwnerStore, do: Do, make_memory: Make) -> None:
    with pytest.raises(NotFound):
        do(Add(make_memory("never committed")), Forget("nobody"))
    assert _waiting(store) == []


def test_an_edit_queues_the_new_content_and_the_old_vector_stays(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("old words")
    _embed(store)
    do(Revise(_anew(memory, "new words"), base=1))
    assert _waiting(store) == ["new words"]
    assert _said(store) == [b"one-model@1 on old words"]


def test_labels_alone_queue_nothing_that_the_model_has_seen(store: OwnerStore, do: Do, add: Make) -> None:
    store.vectors.use_model(ONE)
    memory = add("same words")
    _embed(store)
    do(Revise(replace(memory, tags=("new",)), base=1))
    do(Forget(memory.id))
    do(Revise(memory, base=2))
    assert _waiting(store) == []
    slots = {entry[-1] for entry in store.vectors.catalog(ONE)}
    assert slots == {store.heads(ONE).slot}


def test_keeping_vectors_takes_their_contents_off_the_queue(store: OwnerStore, add: Make) -> None:
    for number in range(5):
        add(f"number {number}")
    slots = _embed(store, only=2)
    assert len(slots) == 2
    assert _waiting(store) == ["number 2", "number 3", "number 4"]
    assert store.jobs.count(EMBED) == 3
    assert store.vectors.save(ONE, {}) == {}


def test_vectors_can_be_saved_before_their_jobs_complete(store: OwnerStore, add: Make) -> None:
    store.vectors.use_model(ONE)
    first, second = add("number 1"), add("number 2")
    found = {memory.content_hash: b"a vector" for memory in (first, second)}
    slots = store.vectors.save(ONE, found, completes=False)
    saved = store.vectors.save(OTHER, found, completes=False)
    numbers = list(slots.values())
    assert _waiting(store) == ["number 1", "number 2"]
    assert store.vectors.contents(numbers, queued=False) == {}
    # Queued for one model, the contents are done for others.
    assert len(store.vectors.contents(list(saved.values()), queued=False)) == 2
    store.vectors.complete(OTHER, [first.content_hash])
    assert _waiting(store) == ["number 1", "number 2"]
    store.vectors.complete(ONE, [first.content_hash])
    assert _waiting(store) == ["number 2"]
    assert store.vectors.contents(numbers, queued=False) == {slots[first.content_hash]: "number 1"}


def test_slots_only_rise_and_name_texts(store: OwnerStore, do: Do, add: Make) -> None:
    memories = [add(f"number {number}") for number in range(3)]
    slots = _embed(store)
    numbers = [slots[memory.content_hash] for memory in memories]
    assert numbers == sorted(numbers)
    assert store.heads(ONE).slot == numbers[-1]
    assert store.vectors.contents(numbers[1:]) == {numbers[1]: "number 1", numbers[2]: "number 2"}
    assert store.vectors.contents([99_999]) == store.vectors.contents([]) == {}
    store.erase([memories[2].id], batch="erase")
    add("number 3")
    [slot] = _embed(store).values()
    assert slot > numbers[-1]


def test_the_first_vector_of_a_content_stays(store: OwnerStore, add: Make) -> None:
    memory = add("one content")
    first = _embed(store)
    again = store.vectors.save(ONE, {memory.content_hash: b"another answer"})
    assert again == first
    assert _said(store) == [b"one-model@1 on one content"]


def test_models_stand_side_by_side(store: OwnerStore, add: Make) -> None:
    add("seen by both")
    _embed(store, ONE)
    store.vectors.use_model(OTHER)
    _embed(store, OTHER)
    add("seen by the other alone")
    _embed(store, OTHER)
    assert _said(store, ONE) == [b"one-model@1 on seen by both"]
    assert _said(store, OTHER) == [b"other-model@2 on seen by both", b"other-model@2 on seen by the other alone"]
    assert 0 < store.heads(ONE).slot < store.heads(OTHER).slot
    assert store.heads("nobody").slot == 0
    assert [entry[-1] for entry in store.vectors.catalog(ONE)] == [store.heads(ONE).slot, -1]


def test_a_new_model_finds_everything_waiting_that_it_has_not_seen(store: OwnerStore, do: Do, add: Make) -> None:
    store.vectors.use_model(ONE)
    unchanged, edited = add("kept"), add("edited once")
    do(Revise(_anew(edited, "edited twice"), base=1))
    _embed(store)
    store.vectors.use_model(ONE)
    assert _waiting(store) == []
    store.vectors.use_model(OTHER)
    assert set(_waiting(store)) == {"kept", "edited once", "edited twice"}
    store.vectors.save(OTHER, {unchanged.content_hash: b"seen"})
    store.vectors.use_model(ONE)
    assert _waiting(store) == []
    store.vectors.use_model(OTHER)
    assert set(_waiting(store)) == {"edited once", "edited twice"}


def _nobody(_: str) -> bool:
    return False


def test_a_queue_is_taken_only_from_the_models_that_are_named(store: OwnerStore, add: Make) -> None:
    add("one content")
    assert store.vectors.use_model(ONE, replacing=OTHER.__eq__), "a queue of no model is anybody's"
    assert store.vectors.use_model(ONE)
    _embed(store)
    assert not store.vectors.use_model(OTHER, replacing="third-model@3".__eq__)
    assert _waiting(store) == [] and store.vectors.use_model(ONE, replacing=_nobody)
    assert store.vectors.use_model(OTHER, replacing=ONE.__eq__) and _waiting(store) == ["one content"]
    assert store.vectors.use_model(OTHER, replacing=_nobody) and not store.vectors.use_model(ONE, replacing=_nobody)


def test_vectors_come_in_pages_in_the_order_of_slots(
    store: OwnerStore, add: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_rows, "_PAGE", 2)
    for number in range(5):
        add(f"number {number}")
    slots = sorted(_embed(store).values())
    pages, last = [], 0
    while page := store.vectors.page(ONE, after=last):
        pages.append([slot for slot, _, _ in page])
        last = page[-1][0]
    assert pages == [slots[:2], slots[2:4], slots[4:]]


def test_an_erased_text_leaves_neither_vector_nor_place_in_the_queue(store: OwnerStore, add: Make) -> None:
    embedded, waiting, kept = add("embedded"), add("waiting"), add("kept")
    store.vectors.save(ONE, {memory.content_hash: memory.content.encode() for memory in (embedded, kept)})
    store.vectors.save(OTHER, {embedded.content_hash: b"embedded too"})
    store.erase([embedded.id, waiting.id], batch="erase")
    assert _said(store, ONE) == [b"kept"]
    assert _said(store, OTHER) == []
    assert _waiting(store) == []


def test_a_text_that_another_memory_still_says_keeps_its_vector(store: OwnerStore, add: Make) -> None:
    gone, _ = add("said twice", project="garden"), add("said twice", project="kitchen")
    _embed(store)
    store.erase([gone.id], batch="erase")
    assert _said(store) == [b"one-model@1 on said twice"]


def test_vector_of_an_erased_text_is_dropped(store: OwnerStore, add: Make) -> None:
    memory, other = add("erased while it was being embedded"), add("still there")
    under_way = {digest: text.encode() for digest, text in store.vectors.waiting()}
    store.erase([memory.id], batch="erase")
    assert set(store.vectors.save(ONE, under_way)) == {other.content_hash}
    assert _said(store) == [b"still there"]
    assert store.jobs.count(EMBED) == 0


def test_vectors_thrown_away_wait_again(store: OwnerStore, add: Make) -> None:
    bad, good = add("bad"), add("good")
    slots = _embed(store)
    store.vectors.drop([slots[bad.content_hash]])
    assert _said(store) == [b"one-model@1 on good"]
    assert _waiting(store) == ["bad"]
    store.vectors.drop([])
    assert store.vectors.contents(list(slots.values())) == {slots[good.content_hash]: "good"}


def test_the_catalog_holds_every_version_in_the_order_of_rows(store: OwnerStore, do: Do, add: Make) -> None:
    begin, end = timestamps.parse("2026-01-01"), timestamps.parse("2027-01-01")
    memory = add(
        "first words",
        category="people",
        tags=("red", "very green"),
        importance=0.75,
        project="garden",
        session="talk",
        position=3,
        speaker="Nate",
        role=Role.USER,
        valid_from=begin,
        valid_to=end,
    )
    plain = add("plain")
    do(Revise(_anew(memory, "second words", tags=()), base=1))
    slots = _embed(store)
    rows = {(row_values.content, row_values.version): (row, row_values) for row, row_values in store.versions()}
    expected = []
    for name in (("first words", 1), ("plain", 1), ("second words", 2)):
        row, row_values = rows[name]
        times = (
            row_values.valid_from or row_values.created_at,
            row_values.valid_from,
            row_values.valid_to,
            row_values.known_from,
            row_values.known_to,
        )
        micros = [None if time is None else timestamps.to_micros(time) for time in times]
        access = (row_values.owner, row_values.project, str(row_values.sensitivity), str(row_values.origin))
        labels = (*access, row_values.category, row_values.tags, row_values.importance)
        turn = (row_values.session, row_values.position, row_values.speaker, row_values.role)
        expected.append((row, *labels, *turn, *micros, slots[row_values.content_hash]))
    assert list(store.vectors.catalog(ONE)) == expected
    assert [entry[0] for entry in store.vectors.catalog(ONE, ids=[plain.id])] == [rows["plain", 1][0]]
    assert list(store.vectors.catalog(ONE, ids=[])) == []


def test_the_catalog_of_many_memories_is_in_the_order_of_rows_too(
    store: OwnerStore, do: Do, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_rows, "_PAGE", 2)
    ids = [f"{letter}000" for letter in "edcba"]
    do(*(Add(make_memory(f"words of {id}", id=id)) for id in ids))
    rows = [entry[0] for entry in store.vectors.catalog(ONE, ids=sorted(ids))]
    assert len(rows) == 5
    assert rows == sorted(rows)


def test_newly_placed_names_every_version_of_a_content(store: OwnerStore, do: Do, add: Make) -> None:
    memory = add("same words")
    do(Revise(replace(memory, tags=("new",)), base=1))
    first = max(_embed(store).values())
    add("later words")
    second = max(_embed(store).values())
    rows = {version.content: [] for _, version in store.versions()}
    for row, version in store.versions():
        rows[version.content].append(row)
    assert len(rows["same words"]) == 2
    assert sorted(store.vectors.newly_placed(ONE, after=0)) == sorted(
        [(row, first) for row in rows["same words"]] + [(row, second) for row in rows["later words"]]
    )
    assert store.vectors.newly_placed(ONE, after=first) == [(rows["later words"][0], second)]
    assert store.vectors.newly_placed(ONE, after=second) == store.vectors.newly_placed(OTHER, after=0) == []


def test_a_backup_holds_vectors_and_queue(
    store: OwnerStore,
    maintenance: Maintenance,
    open_store: Callable[..., OwnerStore],
    open_maintenance: Callable[..., Maintenance],
    add: Make,
    tmp_path: Path,
) -> None:
    add("embedded")
    _embed(store)
    add("waiting")
    maintenance.backup(tmp_path / "copy.db")
    other = open_store("second")
    open_maintenance("second").restore(tmp_path / "copy.db")
    assert other.vectors.page(ONE) == store.vectors.page(ONE)
    assert _waiting(other) == ["waiting"]
    assert open_maintenance("second").check(deep=True) == []


def test_without_waiting_a_store_that_is_being_written_refuses_vectors_at_once(
    open_store: Callable[..., OwnerStore], make_memory: Make
) -> None:
    store = open_store()
    memory = make_memory("a kestrel hovers")
    store.vectors.use_model(ONE)
    store.apply([Add(memory)], batch="one")
    refused: list[type[Exception]] = []

    def write_meanwhile() -> Iterator[Change]:
        try:
            open_store().vectors.save(ONE, {memory.content_hash: b"a vector"}, wait=False)
        except StoreUnavailable as error:
            refused.append(type(error))
        yield Add(make_memory("a marmot whistles"))

    store.apply(write_meanwhile(), batch="two")  # type: ignore[arg-type]
    assert refused == [StoreUnavailable]
    assert store.jobs.count(EMBED) == 2


def test_token_vectors_come_back_by_slot_where_the_store_keeps_them(store: OwnerStore, add: Make) -> None:
    one, two, three = (add(text) for text in ("one", "two", "three"))
    vectors = {memory.content_hash: b"sentence" for memory in (one, two, three)}
    tokens = {memory.content_hash: memory.content.encode() for memory in (one, two)}
    slots = store.vectors.save(ONE, vectors, tokens=tokens)
    kept = [(slots[memory.content_hash], memory.content.encode()) for memory in (one, two)]
    expected = sorted(kept) if store.vectors.keeps_tokens else []
    assert store.vectors.token_page(ONE) == expected
    assert store.vectors.token_page(ONE, after=kept[0][0]) == expected[1:]
    assert store.vectors.token_page(OTHER) == []
    store.erase([one.id], batch="gone")
    assert store.vectors.token_page(ONE) == expected[1:]
