"""Work per batch does not grow with the store: counted in steps of SQLite's virtual machine, not in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from triskele.models.egress import Departure
from triskele.recall.hosted.egress_log import StoreLedger, sent
from triskele.store.owner import OwnerStore
from triskele.store.sqlite.store import SqliteStore
from triskele.text import timestamps
from triskele.types import Add, Memory

MEMORIES, BATCH = 2_000, 64
FINGERPRINT = "hosted-far-2d@0123"
VECTOR = b"\0" * 8


@pytest.fixture
def store(tmp_path: Path, make_memory: Callable[..., Memory]) -> Iterator[OwnerStore]:
    opened = SqliteStore(tmp_path / "memories.db")
    opened.for_owner("me").apply(
        [Add(make_memory(f"fact number {number}")) for number in range(MEMORIES)], batch="import"
    )
    yield opened.for_owner("me")
    opened.close()


class Steps:
    """How many steps the statements of a block took."""

    total = 0

    @contextmanager
    def counted(self, store: OwnerStore) -> Iterator[None]:
        before = self.total
        connection = store._database.connection()  # type: ignore[attr-defined]
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._add)
        try:
            yield
        finally:
            connection.trace_v2(0)
        assert self.total > before

    def _add(self, event: dict[str, object]) -> None:
        status = event["stmt_status"]
        assert isinstance(status, dict)
        self.total += status["SQLITE_STMTSTATUS_VM_STEP"]


def _worst_growth(steps: list[int]) -> float:
    return max(steps[1:]) / steps[0]


def test_reading_and_keeping_a_batch_costs_the_same_at_every_place(store: OwnerStore) -> None:
    steps: list[int] = []
    after = done = 0
    while True:
        count = Steps()
        with count.counted(store):
            batch = store.models.clear_for(FINGERPRINT, BATCH, after=after)
            store.models.save(FINGERPRINT, {each.content_hash: VECTOR for _, each in batch})
        if not batch:
            break
        steps.append(count.total)
        after = batch[-1][0]
        done += len(batch)
    assert done == MEMORIES and store.models.clear_for(FINGERPRINT) == []
    # A scan of the whole store took 160,000 steps for each batch.
    assert steps[0] < 20_000, steps
    assert _worst_growth(steps) < 2, steps


def test_the_account_of_a_batch_reads_its_own_memories_alone(store: OwnerStore) -> None:
    ledger = StoreLedger(store)
    ids = [memory.id for _, memory in store.versions()]
    steps: list[int] = []
    for start in range(0, MEMORIES, BATCH):
        part = frozenset(ids[start : start + BATCH])
        count = Steps()
        with count.counted(store):
            ledger.leaving(Departure("hosted", "far", timestamps.now(), 1, len(part), 100, part))
        steps.append(count.total)
    assert len(sent(store, ids[0])) == 1
    assert _worst_growth(steps) < 2, steps
