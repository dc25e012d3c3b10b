"""Counting, checking, erasing, copying and bringing back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from triskele.errors import BadInput, Conflict, NotFound, QuotaExceeded, StoreClosed, StoreUnavailable
from triskele.store.owner import Maintenance, OwnerStore, Store
from triskele.store.writer import MemoryLimits
from triskele.text import timestamps
from triskele.types import Action, Add, Connect, Forget, Link, LinkKind, Memory, Outcome, Revise

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]


def _everything(store: OwnerStore) -> tuple[object, ...]:
    return list(store.versions()), list(store.all_links()), store.journal(limit=10_000)


def _link(source: Memory, target: Memory, kind: LinkKind = LinkKind.SUPERSEDES) -> Link:
    return Link(source=source.id, kind=kind, target=target.id, known_from=timestamps.now())


@pytest.fixture
def filled(store: OwnerStore, do: Do, add: Make) -> list[Memory]:
    """Three memories: an edited one, its successor, and a forgotten one."""
    old, new, gone = add("old words", project="garden"), add("new words"), add("gone words", category="people")
    do(Revise(replace(old, tags=("edited",)), base=1), Connect(_link(new, old)))
    do(Connect(_link(gone, old, LinkKind.SEE_ALSO)), Forget(gone.id))
    return [old, new, gone]


def test_a_closed_store_refuses_everything(unbound: Store, store: OwnerStore, make_memory: Make) -> None:
    unbound.close()
    for use in (
        store.census,
        store.epoch,
        lambda: store.apply([Add(make_memory())], batch="late"),
        store.usage.days,
        store.snapshot().__enter__,
    ):
        with pytest.raises(StoreClosed, match="was closed: open it again"):
            use()
    unbound.close()


def test_census_counts_current_and_past_versions(store: OwnerStore, filled: list[Memory]) -> None:
    census = store.census()
    counted = (census.memories, census.forgotten, census.superseded, census.versions, census.links, census.journal)
    assert counted == (2, 1, 1, 4, 2, 7)
    assert (census.by_category, census.by_project) == ({"facts": 2}, {"": 1, "garden": 1})
    assert census.bytes > 0


def test_a_memory_whose_successor_is_forgotten_counts_as_not_superseded(
    store: OwnerStore, do: Do, filled: list[Memory]
) -> None:
    do(Forget(filled[1].id))
    assert store.census().superseded == 0


def test_an_empty_store_counts_nothing(store: OwnerStore) -> None:
    census = store.census()
    assert (census.memories, census.forgotten, census.links, census.journal, census.by_category) == (0, 0, 0, 0, {})


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_store_has_no_findings(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory], deep: bool
) -> None:
    assert maintenance.check(deep=deep) == []


def test_check_reports_content_with_a_wrong_hash(
    store: OwnerStore, maintenance: Maintenance, do: Do, make_memory: Make
) -> None:
    memory = replace(make_memory("true words"), content_hash="0" * 64)
    do(Add(memory))
    findings = maintenance.check(deep=True)
    assert [memory.id in finding.subject for finding in findings] == [True]


def test_an_erased_memory_is_gone_from_everywhere_but_its_journal_lines(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory]
) -> None:
    old, new, _ = filled
    [outcome] = store.erase([old.id], batch="gone")
    assert (outcome.action, outcome.id) == (Action.ERASED, old.id)
    assert store.history(old.id) == []
    assert store.find(old.id) == []
    assert store.memories([old.id], known_at=timestamps.now()) == {}
    assert list(store.all_links()) == []
    assert old.id not in {memory.id for _, memory in store.versions()}
    assert store.journal(id=old.id)[-1].action is Action.ERASED
    assert maintenance.is_scrubbed()
    assert store.memories([new.id]).keys() == {new.id}
    assert maintenance.check(deep=True) == []


def test_several_are_erased_together_or_not_at_all(store: OwnerStore, filled: list[Memory]) -> None:
    before = _everything(store)
    with pytest.raises(NotFound):
        store.erase([filled[0].id, "nobody"], batch="gone")
    assert _everything(store) == before
    assert len(store.erase([filled[0].id, filled[2].id, filled[0].id], batch="gone")) == 2
    assert [memory.id for _, memory in store.versions()] == [filled[1].id]


def test_the_row_numbers_of_erased_versions_are_not_used_again(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory("to be erased")
    do(Add(memory))
    [(row, _)] = store.versions()
    store.erase([memory.id], batch="gone")
    do(Add(make_memory("another")))
    assert store.rows([row]) == {}


def test_scrubbing_keeps_everything_that_stands(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory]
) -> None:
    before = _everything(store)
    maintenance.scrub()
    assert _everything(store) == before


def test_a_backup_brings_back_everything_as_it_was(
    store: OwnerStore, maintenance: Maintenance, do: Do, add: Make, filled: list[Memory], tmp_path: Path
) -> None:
    before = _everything(store)
    (tmp_path / "deep").mkdir()
    maintenance.backup(tmp_path / "deep" / "copy.backup")
    add("after the backup")
    do(Forget(filled[1].id))
    maintenance.restore(tmp_path / "deep" / "copy.backup")
    assert _everything(store) == before
    assert maintenance.check(deep=True) == []


def test_a_backup_fills_another_store(
    store: OwnerStore,
    maintenance: Maintenance,
    filled: list[Memory],
    open_store: Callable[..., OwnerStore],
    tmp_path: Path,
    open_maintenance: Callable[..., Maintenance],
) -> None:
    maintenance.backup(tmp_path / "copy.backup")
    second = open_store("second")
    open_maintenance("second").restore(tmp_path / "copy.backup")
    assert _everything(second) == _everything(store)


def test_a_restored_store_begins_a_epoch_and_goes_on(
    store: OwnerStore,
    maintenance: Maintenance,
    add: Make,
    filled: list[Memory],
    tmp_path: Path,
    open_store: Callable[..., OwnerStore],
) -> None:
    epoch = store.epoch()
    maintenance.backup(tmp_path / "copy.backup")
    assert store.epoch() == epoch
    watching = open_store()
    epochs = {epoch}
    for number in range(2):
        maintenance.restore(tmp_path / "copy.backup")
        epochs.add(watching.epoch())
        memory = add(f"after restore {number}")
        assert watching.memories([memory.id]).keys() == {memory.id}
    assert len(epochs) == 3


def test_restore_lets_the_limit_count_again(
    open_unbound: Callable[..., Store], make_memory: Make, tmp_path: Path
) -> None:
    unbound = open_unbound(limits=MemoryLimits(3))
    store, memories = unbound.for_owner("me"), [make_memory(f"fern {number}") for number in range(3)]
    assert unbound.maintenance is not None
    store.apply(list(map(Add, memories)), batch="ferns")
    unbound.maintenance.backup(tmp_path / "copy.backup")
    store.apply([Forget(each.id) for each in memories], batch="none")
    store.apply([Add(make_memory("moss"))], batch="moss")
    unbound.maintenance.restore(tmp_path / "copy.backup")
    with pytest.raises(QuotaExceeded):
        store.apply([Add(make_memory("one too many"))], batch="one")
    store.apply([Forget(memories[0].id)], batch="fewer")
    store.apply([Add(make_memory("the last one"))], batch="last")


def test_a_backup_never_overwrites(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory], tmp_path: Path
) -> None:
    target = tmp_path / "copy.backup"
    target.write_bytes(b"precious")
    with pytest.raises(BadInput):
        maintenance.backup(target)
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("content", [b"", b"no backup at all", bytes(8192)], ids=["empty", "text", "zeros"])
def test_restore_refuses_other_files_and_changes_nothing(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory], tmp_path: Path, content: bytes
) -> None:
    before = _everything(store), store.epoch()
    source = tmp_path / "copy.backup"
    source.write_bytes(content)
    with pytest.raises((BadInput, StoreUnavailable)):
        maintenance.restore(source)
    with pytest.raises(BadInput):
        maintenance.restore(tmp_path / "missing.backup")
    assert (_everything(store), store.epoch()) == before


def test_half_a_backup_is_refused_and_changes_nothing(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory], tmp_path: Path
) -> None:
    before = _everything(store)
    source = tmp_path / "copy.backup"
    maintenance.backup(source)
    source.write_bytes(source.read_bytes()[: source.stat().st_size // 2])
    with pytest.raises((BadInput, StoreUnavailable)):
        maintenance.restore(source)
    assert _everything(store) == before


def test_a_backup_with_a_flipped_bit_is_refused_or_the_flip_is_harmless(
    store: OwnerStore, maintenance: Maintenance, filled: list[Memory], tmp_path: Path
) -> None:
    before = _everything(store)
    source = tmp_path / "copy.backup"
    maintenance.backup(source)
    sound = source.read_bytes()
    places = Random(7).sample(range(8 * len(sound)), 30)
    # The text itself is hit for certain.
    places += [8 * sound.find(b"old words") + bit for bit in range(8)]
    for number in places:
        source.write_bytes(_flipped(sound, number))
        with suppress(BadInput, StoreUnavailable):
            maintenance.restore(source)
        assert _everything(store) == before


def _flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def test_a_damaged_store_gives_no_backup(
    store: OwnerStore, maintenance: Maintenance, do: Do, make_memory: Make, tmp_path: Path
) -> None:
    do(Add(replace(make_memory("true words"), content_hash="0" * 64)))
    with pytest.raises(StoreUnavailable):
        maintenance.backup(tmp_path / "copy.backup")
    assert not list(tmp_path.glob("copy*"))


def test_a_store_can_be_closed_twice(unbound: Store, filled: list[Memory]) -> None:
    unbound.close()
    unbound.close()


def test_a_conflict_leaves_the_store_usable(store: OwnerStore, do: Do, filled: list[Memory], add: Make) -> None:
    with pytest.raises(Conflict):
        do(Connect(_link(filled[0], filled[1])))
    memory = add("after the conflict")
    assert store.memories([memory.id]).keys() == {memory.id}
