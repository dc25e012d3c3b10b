"""The queue of jobs: written with the version, claimed under a lease, given up after the last try."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from triskele.errors import NotFound
from triskele.replies import JobCounts
from triskele.store.owner import OwnerStore
from triskele.store.values import EMBED, MOST_TRIES, NAMES, Job
from triskele.text import timestamps
from triskele.types import Add, Forget, Memory, Outcome, Revise

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock forward."""
    now = [timestamps.now()]
    monkeypatch.setattr(timestamps, "now", lambda: now[0])

    def forward(seconds: float) -> None:
        moment: datetime = now[0]
        now[0] = moment + timedelta(seconds=seconds)

    return forward


def _claimed(store: OwnerStore, kind: str = "sweep", **options: float) -> list[str]:
    return [job.key for job in store.jobs.claim(kind, **options)]  # type: ignore[arg-type]


def test_a_version_queues_its_jobs_with_the_write(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory("the heron fishes at dawn")
    with pytest.raises(NotFound):
        do(Add(memory), Forget("nobody"))
    assert [store.jobs.count(kind) for kind in (EMBED, NAMES)] == [0, 0]
    do(Add(memory))
    do(Revise(replace(memory, tags=("grey",)), base=1))
    assert _claimed(store, EMBED) == [memory.content_hash]
    assert _claimed(store, NAMES) == [str(row) for row, _ in store.versions()]


def test_jobs_are_claimed_oldest_first_and_once(store: OwnerStore) -> None:
    store.jobs.add("sweep", ["c", "a", "b"])
    store.jobs.add("sweep", ["a", "d"])
    assert _claimed(store, limit=2) == ["c", "a"]
    assert _claimed(store) == ["b", "d"]
    assert _claimed(store) == _claimed(store, "other") == []
    assert store.jobs.count("sweep") == 4


def test_a_lease_ends(store: OwnerStore, pass_time: Callable[[float], None]) -> None:
    store.jobs.add("sweep", ["a"])
    assert _claimed(store, lease_s=30.0) == ["a"]
    pass_time(29)
    assert _claimed(store) == []
    pass_time(1)
    assert _claimed(store) == ["a"]


def test_complete_removes_the_job(store: OwnerStore) -> None:
    store.jobs.add("sweep", ["a", "b"])
    store.jobs.add("other", ["a"])
    store.jobs.complete("sweep", ["a", "nobody"])
    assert (store.jobs.count("sweep"), store.jobs.count("other")) == (1, 1)
    store.jobs.add("sweep", ["a"])
    assert _claimed(store) == ["b", "a"]


def test_failed_job_waits_until_its_last_try(store: OwnerStore) -> None:
    store.jobs.add("sweep", ["a", "b"])
    for number in range(MOST_TRIES):
        assert store.jobs.claim("sweep", 1) == [Job("sweep", "a", number, f"error {number - 1}" if number else "")]
        assert store.jobs.failed("sweep") == []
        store.jobs.fail("sweep", ["a"], f"error {number}")
    assert _claimed(store) == ["b"]
    assert store.jobs.count("sweep") == 1
    assert store.jobs.failed("sweep") == [Job("sweep", "a", MOST_TRIES, f"error {MOST_TRIES - 1}")]


def test_another_model_gets_another_try(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memory = make_memory("the heron fishes at dawn")
    do(Add(memory))
    for _ in range(MOST_TRIES):
        store.jobs.fail(EMBED, [memory.content_hash], "no room")
    assert store.vectors.waiting() == []
    store.vectors.use_model("another")
    assert store.vectors.waiting() == [(memory.content_hash, memory.content)]


def test_leases_and_failures_are_of_one_owner(open_store: Callable[..., OwnerStore]) -> None:
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    for store in (alice, bob):
        store.jobs.add("sweep", ["a"])
    for _ in range(MOST_TRIES):
        bob.jobs.fail("sweep", ["a"], "no room")
    assert (alice.jobs.failed("sweep"), len(bob.jobs.failed("sweep"))) == ([], 1)
    bob.jobs.complete("sweep", ["a"])
    bob.jobs.add("sweep", ["a"])
    assert (_claimed(bob), _claimed(alice)) == (["a"], ["a"])


def test_an_erasing_takes_the_jobs_along(store: OwnerStore, do: Do, add: Make) -> None:
    gone, remaining = add("gone"), add("kept")
    store.erase([gone.id], batch="gone")
    assert _claimed(store, EMBED) == [remaining.content_hash]
    assert _claimed(store, NAMES) == [str(row) for row, _ in store.versions()]


def test_a_released_job_waits_again_and_has_lost_no_try(store: OwnerStore) -> None:
    store.jobs.add("kind", ["one", "two"])
    store.jobs.claim("kind")
    store.jobs.release("kind", ["two"])
    assert [(job.key, job.tries) for job in store.jobs.claim("kind")] == [("two", 0)]


def test_failed_jobs_can_be_retried_with_their_error(store: OwnerStore) -> None:
    store.jobs.add(EMBED, ["one", "two"])
    for _ in range(MOST_TRIES):
        store.jobs.fail(EMBED, ["one"], "refused")
    assert store.jobs.counts() == JobCounts(embed=1, names=0, given_up=1, last_error="refused")
    store.jobs.retry(EMBED)
    assert store.jobs.counts() == JobCounts(embed=2, names=0, given_up=0, last_error="refused")
    store.jobs.complete(EMBED, ["one"])
    assert store.jobs.counts() == JobCounts(embed=1, names=0, given_up=0, last_error="")
