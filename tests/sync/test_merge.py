"""What a sync does with two states of a memory, rule by rule."""

from __future__ import annotations

from itertools import product

import pytest

from triskele.sync.merge import (
    ERASED,
    NEVER,
    Agreed,
    MergeStep,
    Mine,
    Push,
    Standing,
    Theirs,
    merge,
    merged_links,
    to_push,
)


@pytest.mark.parametrize(
    ("agreed", "mine", "theirs", "step"),
    [
        (NEVER, Mine(Standing.ABSENT), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.TAKE),
        (NEVER, Mine(Standing.ABSENT), Theirs(Standing.FORGOTTEN, "1.x", "x"), MergeStep.NOTHING),
        (NEVER, Mine(Standing.ABSENT), Theirs(Standing.ERASED, ERASED), MergeStep.SETTLE),
        (NEVER, Mine(Standing.OPEN, "x"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.SETTLE),
        (NEVER, Mine(Standing.OPEN, "y"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (NEVER, Mine(Standing.PRIVATE, "y"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.ABSORB),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "x"), Theirs(Standing.OPEN, "2.y", "y"), MergeStep.TAKE),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "y"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.PUSH),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "y"), Theirs(Standing.OPEN, "3.x", "x"), MergeStep.PUSH),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "z"), Theirs(Standing.OPEN, "2.y", "y"), MergeStep.CONFLICT),
        (Agreed("x", "1.x"), Mine(Standing.FORGOTTEN, "z"), Theirs(Standing.OPEN, "2.y", "y"), MergeStep.CONFLICT),
        (Agreed("x", "1.x"), Mine(Standing.FORGOTTEN, "z"), Theirs(Standing.FORGOTTEN, "2.y", "y"), MergeStep.TAKE),
        (Agreed("x", "1.x", ("w", "y")), Mine(Standing.OPEN, "z"), Theirs(Standing.OPEN, "2.y", "y"), MergeStep.PUSH),
        (Agreed("", "", ("y",)), Mine(Standing.ABSENT), Theirs(Standing.OPEN, "1.y", "y"), MergeStep.PUSH),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "z"), Theirs(Standing.ERASED, ERASED), MergeStep.ERASE),
        (Agreed("x", "1.x"), Mine(Standing.PRIVATE, "z"), Theirs(Standing.ERASED, ERASED), MergeStep.ERASE),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "z"), Theirs(Standing.PRIVATE, "private"), MergeStep.WITHDRAW),
        (Agreed("z", "private"), Mine(Standing.PRIVATE, "z"), Theirs(Standing.PRIVATE, "private"), MergeStep.NOTHING),
        (Agreed("z", "private"), Mine(Standing.OPEN, "x"), Theirs(Standing.PRIVATE, "private"), MergeStep.PUSH),
        (Agreed("z", "private"), Mine(Standing.PRIVATE, "z"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.TAKE),
        (Agreed("z", "secret"), Mine(Standing.SECRET, "z"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (Agreed("z", "private"), Mine(Standing.PRIVATE, "w"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.CONFLICT),
        (Agreed("x", "1.x"), Mine(Standing.PRIVATE, "z"), Theirs(Standing.OPEN, "1.x", "x"), MergeStep.PUSH),
        (Agreed("x", "1.x"), Mine(Standing.PRIVATE, "z"), Theirs(Standing.OPEN, "2.y", "y"), MergeStep.ABSORB),
    ],
)
def test_what_a_state_of_the_server_means_here(agreed: Agreed, mine: Mine, theirs: Theirs, step: MergeStep) -> None:
    assert merge(agreed, mine, theirs)[0] is step


@pytest.mark.parametrize(
    ("agreed", "mine", "push"),
    [
        (NEVER, Mine(Standing.OPEN, "x"), Push.RECORD),
        (NEVER, Mine(Standing.FORGOTTEN, "x"), Push.NOTHING),
        (NEVER, Mine(Standing.PRIVATE, "x"), Push.NOTHING),
        (NEVER, Mine(Standing.ABSENT), Push.NOTHING),
        (Agreed(sent=("x",)), Mine(Standing.PRIVATE, "p"), Push.WITHDRAWAL),
        (Agreed(sent=("x",)), Mine(Standing.ABSENT), Push.ERASURE),
        (Agreed(sent=("x",)), Mine(Standing.FORGOTTEN, "f"), Push.RECORD),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "x"), Push.NOTHING),
        (Agreed("x", "1.x"), Mine(Standing.OPEN, "y"), Push.RECORD),
        (Agreed("x", "1.x"), Mine(Standing.FORGOTTEN, "f"), Push.RECORD),
        (Agreed("x", "1.x"), Mine(Standing.SECRET, "s"), Push.WITHDRAWAL),
        (Agreed("x", "1.x"), Mine(Standing.ABSENT), Push.ERASURE),
        (Agreed("p", "private"), Mine(Standing.ABSENT), Push.ERASURE),
        (Agreed("p", "private"), Mine(Standing.PRIVATE, "q"), Push.NOTHING),
        (Agreed("p", "private"), Mine(Standing.OPEN, "x"), Push.RECORD),
        (Agreed(theirs=ERASED), Mine(Standing.ABSENT), Push.NOTHING),
    ],
)
def test_what_the_server_has_to_learn(agreed: Agreed, mine: Mine, push: Push) -> None:
    assert to_push(agreed, mine) is push


@pytest.mark.parametrize(("agreed", "mine", "theirs"), list(product((False, True), repeat=3)))
def test_a_link_is_where_either_side_opened_it_and_gone_where_either_closed_it(
    agreed: bool, mine: bool, theirs: bool
) -> None:
    tie = ("see-also", "other")
    sets = [frozenset({tie} if each else ()) for each in (agreed, mine, theirs)]
    assert (tie in merged_links(*sets)) is ((mine and theirs) if agreed else (mine or theirs))
