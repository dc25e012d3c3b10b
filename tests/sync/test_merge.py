"""What a sync does with two states of a memory, rule by rule."""

from __future__ import annotations

from itertools import product

import pytest

from triskele.sync.merge import (
    ERASED,
    NEVER,
    LocalState,
    MergeStep,
    Push,
    ServerState,
    Standing,
    SyncedState,
    merge,
    merged_links,
    to_push,
)

ABSENT, OPEN, FORGOTTEN, PRIVATE, SECRET, GONE = Standing


@pytest.mark.parametrize(
    ("agreed", "mine", "theirs", "step"),
    [
        (NEVER, LocalState(ABSENT), ServerState(OPEN, "1.x", "x"), MergeStep.TAKE),
        (NEVER, LocalState(ABSENT), ServerState(FORGOTTEN, "1.x", "x"), MergeStep.NOTHING),
        (NEVER, LocalState(ABSENT), ServerState(GONE, ERASED), MergeStep.SETTLE),
        (NEVER, LocalState(OPEN, "x"), ServerState(OPEN, "1.x", "x"), MergeStep.SETTLE),
        (NEVER, LocalState(OPEN, "y"), ServerState(OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (NEVER, LocalState(PRIVATE, "y"), ServerState(OPEN, "1.x", "x"), MergeStep.ABSORB),
        (SyncedState("x", "1.x"), LocalState(OPEN, "x"), ServerState(OPEN, "2.y", "y"), MergeStep.TAKE),
        (SyncedState("x", "1.x"), LocalState(OPEN, "y"), ServerState(OPEN, "1.x", "x"), MergeStep.PUSH),
        (SyncedState("x", "1.x"), LocalState(OPEN, "y"), ServerState(OPEN, "3.x", "x"), MergeStep.PUSH),
        (SyncedState("x", "1.x"), LocalState(OPEN, "z"), ServerState(OPEN, "2.y", "y"), MergeStep.CONFLICT),
        (SyncedState("x", "1.x"), LocalState(FORGOTTEN, "z"), ServerState(OPEN, "2.y", "y"), MergeStep.CONFLICT),
        (SyncedState("x", "1.x"), LocalState(FORGOTTEN, "z"), ServerState(FORGOTTEN, "2.y", "y"), MergeStep.TAKE),
        (SyncedState("x", "1.x", ("w", "y")), LocalState(OPEN, "z"), ServerState(OPEN, "2.y", "y"), MergeStep.PUSH),
        (SyncedState("", "", ("y",)), LocalState(ABSENT), ServerState(OPEN, "1.y", "y"), MergeStep.PUSH),
        (SyncedState("x", "1.x"), LocalState(OPEN, "z"), ServerState(GONE, ERASED), MergeStep.ERASE),
        (SyncedState("x", "1.x"), LocalState(PRIVATE, "z"), ServerState(GONE, ERASED), MergeStep.ERASE),
        (SyncedState("x", "1.x"), LocalState(OPEN, "z"), ServerState(PRIVATE, "private"), MergeStep.WITHDRAW),
        (SyncedState("z", "private"), LocalState(PRIVATE, "z"), ServerState(PRIVATE, "private"), MergeStep.NOTHING),
        (SyncedState("z", "private"), LocalState(OPEN, "x"), ServerState(PRIVATE, "private"), MergeStep.PUSH),
        (SyncedState("z", "private"), LocalState(PRIVATE, "z"), ServerState(OPEN, "1.x", "x"), MergeStep.TAKE),
        (SyncedState("z", "secret"), LocalState(SECRET, "z"), ServerState(OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (SyncedState("z", "private"), LocalState(PRIVATE, "w"), ServerState(OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (SyncedState("x", "1.x"), LocalState(PRIVATE, "z"), ServerState(OPEN, "1.x", "x"), MergeStep.PUSH),
        (SyncedState("x", "1.x"), LocalState(PRIVATE, "z"), ServerState(OPEN, "2.y", "y"), MergeStep.ABSORB),
    ],
)
def test_merge_decides_for_every_state_of_the_server(
    agreed: SyncedState, mine: LocalState, theirs: ServerState, step: MergeStep
) -> None:
    assert merge(agreed, mine, theirs)[0] is step


@pytest.mark.parametrize(
    ("agreed", "mine", "push"),
    [
        (NEVER, LocalState(OPEN, "x"), Push.RECORD),
        (NEVER, LocalState(FORGOTTEN, "x"), Push.NOTHING),
        (NEVER, LocalState(PRIVATE, "x"), Push.NOTHING),
        (NEVER, LocalState(ABSENT), Push.NOTHING),
        (SyncedState(sent=("x",)), LocalState(PRIVATE, "p"), Push.WITHDRAWAL),
        (SyncedState(sent=("x",)), LocalState(ABSENT), Push.ERASURE),
        (SyncedState(sent=("x",)), LocalState(FORGOTTEN, "f"), Push.RECORD),
        (SyncedState("x", "1.x"), LocalState(OPEN, "x"), Push.NOTHING),
        (SyncedState("x", "1.x"), LocalState(OPEN, "y"), Push.RECORD),
        (SyncedState("x", "1.x"), LocalState(FORGOTTEN, "f"), Push.RECORD),
        (SyncedState("x", "1.x"), LocalState(SECRET, "s"), Push.WITHDRAWAL),
        (SyncedState("x", "1.x"), LocalState(ABSENT), Push.ERASURE),
        (SyncedState("p", "private"), LocalState(ABSENT), Push.ERASURE),
        (SyncedState("p", "private"), LocalState(PRIVATE, "q"), Push.NOTHING),
        (SyncedState("p", "private"), LocalState(OPEN, "x"), Push.RECORD),
        (SyncedState(theirs=ERASED), LocalState(ABSENT), Push.NOTHING),
    ],
)
def test_to_push_lists_changes_for_the_server(agreed: SyncedState, mine: LocalState, push: Push) -> None:
    assert to_push(agreed, mine) is push


@pytest.mark.parametrize(("agreed", "mine", "theirs"), list(product((False, True), repeat=3)))
def test_a_link_is_where_either_side_opened_it_and_gone_where_either_closed_it(
    agreed: bool, mine: bool, theirs: bool
) -> None:
    tie = ("see-also", "other")
    sets = [frozenset({tie} if each else ()) for each in (agreed, mine, theirs)]
    assert (tie in merged_links(*sets)) is ((mine and theirs) if agreed else (mine or theirs))
