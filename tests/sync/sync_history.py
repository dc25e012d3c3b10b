"""Random histories of two laptops and a server: their operations, what they did, and what must hold at the end.

TRISKELE_SYNC_HISTORIES=5000 runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hypothesis import HealthCheck, event
from hypothesis import strategies as st
from sync_world import LAPTOPS, SIDES, Stores, World

from triskele.errors import Conflict
from triskele.sync import notes
from triskele.sync.notes import Notes
from triskele.types import Add, LinkKind, Memory, Sensitivity

HISTORIES = int(os.environ.get("TRISKELE_SYNC_HISTORIES", "300"))
# The same histories in every run of the suite; others with the flag.
UNHURRIED: dict[str, Any] = {
    "suppress_health_check": list(HealthCheck),
    "deadline": None,
    "derandomize": "TRISKELE_SYNC_HISTORIES" not in os.environ,
}


@dataclass
class Label:
    """One state that somebody gave a memory, and the states that were known to them when they did."""

    content: str
    stands: bool
    parents: frozenset[tuple[str, bool]] = frozenset()

    @property
    def key(self) -> tuple[str, bool]:
        return self.content, self.stands


@dataclass
class Ledger:
    """What was done to every memory, whichever side it was done on."""

    labels: dict[str, list[Label]] = field(default_factory=dict)
    erased: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)
    twins: set[str] = field(default_factory=set)


PLACE, STEP = st.integers(0, 7), st.integers(0, 14)
OPERATIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("twin"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("hide"), st.sampled_from(LAPTOPS), PLACE),
    st.tuples(st.just("edit"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("edit"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("forget"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("erase"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("close"), st.sampled_from(LAPTOPS), PLACE),
    st.tuples(st.just("open"), st.sampled_from(LAPTOPS), PLACE),
    st.tuples(st.just("link"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("supersede"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("unlink"), st.sampled_from(SIDES), PLACE),
    st.tuples(st.just("resolve"), st.sampled_from(LAPTOPS), PLACE),
    st.tuples(st.just("sync"), st.sampled_from(LAPTOPS), st.just(0)),
    st.tuples(st.just("sync"), st.sampled_from(LAPTOPS), st.just(0)),
    st.tuples(st.just("killed"), st.sampled_from(LAPTOPS), STEP),
    st.tuples(st.just("killed"), st.sampled_from(LAPTOPS), STEP),
    st.tuples(st.just("cut"), st.sampled_from(LAPTOPS), STEP),
    st.tuples(st.just("cut"), st.sampled_from(LAPTOPS), STEP),
)


class History:
    """Carries out operations on a world and keeps the ledger."""

    def __init__(self, world: World) -> None:
        self.world, self.ledger = world, Ledger()
        self._texts, self._ids = count(1), count(1)

    def run(self, operations: Sequence[tuple[str, str, int]]) -> None:
        for name, side, number in operations:
            if name == "sync":
                self.world.sync(side)
            elif name == "killed":
                self.world.sync(side, here=1 + number)
            elif name == "cut":
                self.world.sync(side, cut=1 + number)
            else:
                getattr(self, f"_{name}")(side, number)

    def _text(self) -> str:
        return f"note {next(self._texts)}"

    def _pick(self, side: str, number: int, *, closed: bool = False, gone: bool = False) -> Memory | None:
        memories = [
            each
            for id, each in sorted(self.world.latest(side).items())
            if (each.sensitivity is not Sensitivity.OPEN) is closed and (each.known_to is not None) is gone
        ]
        return memories[number % len(memories)] if memories else None

    def _note(self, side: str, id: str, content: str, *, stands: bool, before: Memory | None) -> None:
        parents = set() if before is None else {(before.content, before.known_to is None)}
        if side != "server":
            conflict = Notes(self.world.engines[side].store).conflicts([id]).get(id)
            # Who changes a memory that is in conflict answers to both versions.
            parents |= {(conflict["record"]["content"], not conflict["record"]["forgotten"])} if conflict else set()
        self.ledger.labels.setdefault(id, []).append(Label(content, stands, frozenset(parents)))

    def _remember(self, side: str, text: str, **details: Any) -> str:
        """Store a memory under an id that is the same whenever the history is repeated."""
        engine = self.world.engines[side]
        draft = replace(engine.draft(text, **details), id=f"{next(self._ids):016}")
        return engine.apply([Add(draft)])[0].id

    def _add(self, side: str, _: int) -> None:
        text = self._text()
        self._note(side, self._remember(side, text), text, stands=True, before=None)

    def _twin(self, side: str, number: int) -> None:
        """The text of a memory of another side, written here too."""
        memory = self._pick(SIDES[number % 3], number)
        # A text that came by an edit may be there twice, as in one store.
        if memory is not None and memory.version == 1:
            id = self._remember(side, memory.content)
            if id not in self.ledger.labels:
                self.ledger.twins |= {id, memory.id}
                self._note(side, id, memory.content, stands=True, before=None)

    def _hide(self, side: str, _: int) -> None:
        text = f"hidden {self._text()}"
        self.ledger.private.add(text)
        self._remember(side, text, sensitivity=Sensitivity.PRIVATE)

    def _edit(self, side: str, number: int) -> None:
        memory = self._pick(side, number)
        if memory is not None:
            text = self._text()
            self._note(side, memory.id, text, stands=True, before=memory)
            self.world.engines[side].edit(memory.id, content=text)

    def _forget(self, side: str, number: int) -> None:
        memory = self._pick(side, number)
        if memory is not None:
            self._note(side, memory.id, memory.content, stands=False, before=memory)
            self.world.engines[side].forget(memory.id)

    def _erase(self, side: str, number: int) -> None:
        memory = self._pick(side, number, gone=bool(number % 2))
        if memory is not None:
            self.ledger.erased.add(memory.id)
            self.world.engines[side].store.erase([memory.id], batch="erase")

    def _close(self, side: str, number: int) -> None:
        memory = self._pick(side, number)
        if memory is not None:
            self.ledger.closed.add(memory.id)
            self.world.engines[side].edit(memory.id, sensitivity=Sensitivity.PRIVATE)

    def _open(self, side: str, number: int) -> None:
        memory = self._pick(side, number, closed=True)
        if memory is not None and memory.content not in self.ledger.private:
            self.world.engines[side].edit(memory.id, sensitivity=Sensitivity.OPEN)

    def _ends(self, side: str, number: int) -> tuple[str, str] | None:
        one, two = self._pick(side, number), self._pick(side, number // 2 + 3)
        return (one.id, two.id) if one is not None and two is not None and one.id != two.id else None

    def _link(self, side: str, number: int, kind: LinkKind = LinkKind.SEE_ALSO) -> None:
        if ends := self._ends(side, number):
            try:
                self.world.engines[side].link(ends[0], kind, ends[1])
            except Conflict:
                return

    def _supersede(self, side: str, number: int) -> None:
        self._link(side, number, LinkKind.SUPERSEDES)

    def _unlink(self, side: str, number: int) -> None:
        if links := sorted(self.world.links(side)):
            source, kind, target = links[number % len(links)]
            self.world.engines[side].unlink(source, LinkKind(kind), target)

    def _resolve(self, side: str, number: int) -> None:
        engine = self.world.engines[side]
        conflicts = notes.conflicts(engine.store)
        if not conflicts:
            return
        chosen = conflicts[number % len(conflicts)]
        mine, theirs = chosen.old, chosen.new
        if mine is not None:
            both = {(each.content, each.known_to is None) for each in (mine, theirs)}
            kept = mine if number % 2 else theirs
            # The answer is a state of its own, or that of the version that is kept.
            label = Label(
                kept.content, kept.known_to is None, frozenset(both - {(kept.content, kept.known_to is None)})
            )
            self.ledger.labels.setdefault(chosen.id, []).append(label)
            notes.resolve(engine, chosen.id, keep_mine=bool(number % 2))

    # What must be true in the end

    def check(self) -> None:
        """Settle, and look for anything lost, doubled, hidden, or not the same everywhere."""
        self.world.settle()
        self._check_equal()
        self._check_links()
        self._check_erased_and_private()
        self._check_nothing_lost()
        for side in SIDES:
            texts = self.world.standing(side)
            assert len(texts) == len(set(texts)), f"doubled on {side}: {texts}"

    def _check_equal(self) -> None:
        open_ = {side: self.world.says(side) for side in SIDES}
        for side in LAPTOPS:
            own = {each.id for each in notes.conflicts(self.world.engines[side].store)}
            own |= Notes(self.world.engines[side].store).waiting().keys()
            for id in {*open_[side], *open_["server"]} - own - self.ledger.twins:
                here, there = open_[side].get(id), open_["server"].get(id)
                # What was forgotten before it came here, or closed here, need not be here.
                is_known = here is not None and there is not None
                assert here == there if is_known else not (here or there or (0, 0, 0, False))[3], (
                    side,
                    id,
                    here,
                    there,
                )

    def _check_links(self) -> None:
        server = self.world.links("server")
        both = self.world.latest("server").keys()
        for side in LAPTOPS:
            left = Notes(self.world.engines[side].store).waiting().keys() | self.world.conflicts()
            shared = both & self.world.says(side).keys()
            here = {each for each in self.world.links(side) if {each[0], each[2]} <= shared}
            there = {each for each in server if {each[0], each[2]} <= shared}
            different = {each for each in here ^ there if each[0] not in left and each[2] not in left}
            assert not different, (side, different)

    def _check_erased_and_private(self) -> None:
        for side in SIDES:
            assert not self.ledger.erased & self.world.latest(side).keys(), side
        heard = "\n".join(self.world.heard)
        assert not any(f"'{text}'" in heard for text in self.ledger.private)
        conflicts = self.world.conflicts()
        for side in LAPTOPS:
            for id, memory in self.world.latest(side).items():
                if memory.sensitivity is not Sensitivity.OPEN and id not in conflicts:
                    assert id not in self.world.latest("server"), (side, id)

    def _check_nothing_lost(self) -> None:
        """Every state that no later one answers to is somewhere; two of them are a conflict that is shown."""
        conflicts = self.world.conflicts()
        for id, labels in self.ledger.labels.items():
            if id in self.ledger.erased:
                continue
            current = {
                (memory.content, memory.known_to is None)
                for side in SIDES
                if (memory := self.world.latest(side).get(id)) is not None
            }
            assert current, f"{id} is gone"
            answered = {parent for label in labels for parent in label.parents}
            leaves = {label.key for label in labels} - answered
            state = current
            if id in self.ledger.closed:
                state = {(each.content, True) for side in SIDES for each in self.world.engines[side].store.history(id)}
                leaves = {(content, True) for content, _ in leaves}
            gone = {leaf for leaf in leaves if not leaf[1]}
            if any(not stands for _, stands in current):
                # Forgotten on two sides, it is forgotten once.
                leaves = (leaves - gone) | set(sorted(gone & current)[:1])
            if id in self.ledger.twins:
                continue
            assert leaves <= state, (id, leaves, state)
            if id not in self.ledger.closed:
                assert (id in conflicts) is (len(leaves) > 1), (id, leaves)


def live(stores: Stores, operations: Sequence[tuple[str, str, int]]) -> History:
    """Go through a history, and check its end."""
    history = History(World(stores))
    # Something that all sides know, so that changes meet.
    history.run([*[("add", "a", 0)] * 3, ("sync", "a", 0), ("sync", "b", 0)])
    history.run(operations)
    history.check()
    return history


def tell(history: History) -> None:
    """What happened in a history, shown by --hypothesis-show-statistics."""
    for name, problems in {"conflict": history.world.conflicts(), **vars(history.ledger)}.items():
        event(f"{name}: {'some' if problems else 'none'}")
