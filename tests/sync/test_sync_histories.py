"""Random histories with cuts and kills at every step: all sides agree in the end, and nothing is lost or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync_history import HISTORIES, OPERATIONS, UNHURRIED, History, live, tell
from sync_world import Stores, World

# Histories that failed once.
FAILED_ONCE = [
    # A forget whose reply was lost, and an edit elsewhere that answers to it.
    [
        *[("add", "a", 0), ("add", "a", 0), ("sync", "a", 0), ("add", "a", 0), ("edit", "a", 1), ("forget", "b", 1)],
        *[("cut", "b", 4), ("sync", "a", 0), *[("add", "a", 0)] * 3, ("edit", "a", 1)],
    ],
    # A link to a memory that was taken back and given again.
    [("link", "a", 3), ("sync", "a", 0), ("close", "a", 1), ("sync", "a", 0), ("open", "a", 0)],
    # A withdrawal stopped between its mark and its erasure; then the memory was erased on the server.
    [
        *[("add", "a", 0), ("forget", "a", 0), ("close", "b", 2), ("sync", "a", 0), ("add", "a", 0)],
        *[("edit", "b", 0), ("forget", "server", 1), ("cut", "b", 14), ("erase", "server", 1)],
    ],
]


@pytest.mark.parametrize("operations", FAILED_ONCE)
def test_earlier_failures_converge(stores: Stores, operations: list[tuple[str, str, int]]) -> None:
    live(stores, operations)


@pytest.mark.slow
@pytest.mark.timeout(300 + HISTORIES)
@settings(max_examples=HISTORIES, **UNHURRIED)
@given(operations=st.lists(OPERATIONS, min_size=12, max_size=30))
def test_histories_converge_and_nothing_is_lost_or_doubled(
    stores: Stores, operations: list[tuple[str, str, int]]
) -> None:
    tell(live(stores, operations))


@settings(max_examples=max(10, HISTORIES // 30), **UNHURRIED)
@given(operations=st.lists(OPERATIONS, min_size=12, max_size=30))
def test_histories_converge_over_postgres(server_stores: Stores, operations: list[tuple[str, str, int]]) -> None:
    tell(live(server_stores, operations))


# One that passes through every rule: new, edited, forgotten, linked, taken back, opened again, erased, conflict, twin.
EVENTFUL = (
    *(("edit", "a", 0), ("edit", "b", 0), ("link", "a", 1), ("close", "b", 1), ("add", "b", 0), ("twin", "a", 3)),
    *(("sync", "a", 0), ("forget", "b", 1), ("edit", "server", 2)),
)


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_stop_at_any_step_changes_nothing_in_the_end(stores: Stores, where: str) -> None:
    step = 1
    while True:
        history = History(World(stores))
        history.run([*[("add", "a", 0)] * 3, ("sync", "a", 0), ("sync", "b", 0), *EVENTFUL])
        is_done = history.world.sync("b", **{where: step}) is not None
        history.check()
        if is_done:
            break
        step += 1
    assert step > 10
