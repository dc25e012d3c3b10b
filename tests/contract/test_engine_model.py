"""An engine and a plain model get the same random changes and must agree after every step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, NotFound
from triskele.text import timestamps
from triskele.types import Action, LinkKind, Memory

IS_LONG = "TRISKELE_STATEFUL_STEPS" in os.environ
STEPS_PER_STORY = 25
STORIES = max(1, int(os.environ.get("TRISKELE_STATEFUL_STEPS", "300")) // STEPS_PER_STORY)
WORDS = ("zorblax", "quimfle", "vandoop", "hestrig")
YEARS = (2020, 2021, 2022, 2023)
PLACES = st.integers(0, 10_000)

Triple = tuple[str, LinkKind, str]
Period = tuple[int | None, int | None]

ALWAYS: Period = (None, None)


@dataclass(frozen=True)
class Said:
    """What one version says: its words, a number that makes it unique, and the years it holds for."""

    words: tuple[str, ...]
    number: int
    born: int
    period: Period = ALWAYS

    @classmethod
    def new(cls, words: Iterable[str], number: int, period: Period = ALWAYS) -> Said:
        return cls(tuple(words), number, number, period)

    @property
    def content(self) -> str:
        return " ".join((*self.words, f"note{self.number}"))

    @property
    def begins(self) -> tuple[int, int]:
        """Without a period a memory begins when it is made, which is after all the years used here."""
        return self.period[0] or 9999, self.born

    def holds_in(self, year: int) -> bool:
        begin, end = self.period
        return (begin is None or begin <= year) and (end is None or year < end)


@dataclass(frozen=True)
class State:
    """All that stands at one moment."""

    current: dict[str, Said] = field(default_factory=dict)
    links: frozenset[Triple] = frozenset()

    def without(self, id: str) -> State:
        links = frozenset(link for link in self.links if id not in (link[0], link[2]))
        return State({key: said for key, said in self.current.items() if key != id}, links)

    def finds(self, word: str) -> set[str]:
        """The memories to serve today: of each that holds the word, the last of its successors."""
        return {self._head(id) for id, said in self.current.items() if word in said.words and said.period == ALWAYS}

    def holds_in(self, year: int) -> set[str]:
        return {id for id, said in self.current.items() if said.holds_in(year)}

    def is_replaced_by(self, id: str, suspect: str) -> bool:
        """Whether `suspect` stands above `id` in the chain of successors, forgotten ones included."""
        above, fringe = {id}, {id}
        while fringe:
            fringe = {s for s, kind, t in self.links if kind is LinkKind.SUPERSEDES and t in fringe} - above
            above |= fringe
        return suspect in above

    def _head(self, id: str) -> str:
        """The last successor that still holds today; those whose years are over lead on to the next."""
        reached = served = id
        while successors := self._successors(reached):
            reached = max(successors, key=lambda successor: self.current[successor].begins)
            served = reached if self.current[reached].period == ALWAYS else served
        return served

    def _successors(self, id: str) -> list[str]:
        return [s for s, kind, t in self.links if (kind, t) == (LinkKind.SUPERSEDES, id) and s in self.current]


@dataclass(frozen=True)
class Step:
    """A change that can be taken back: the world before and after it."""

    before: State
    after: State


class Story(RuleBasedStateMachine):
    """Random changes and readings; the model knows nothing of rows, journals or indexes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="triskele-story-"))
        self.state = State()
        self.histories: dict[str, list[Said]] = {}
        self.steps: list[Step] = []
        self.undone: Step | None = None
        self.has_erased = False
        self.known: list[tuple[datetime, State]] = []
        self.numbers = iter(range(1, 10_000))

    @initialize(tail_cap=st.sampled_from([1, 3, 100]))
    def open(self, tail_cap: int) -> None:
        self.tail_cap = tail_cap
        environment = {
            "TRISKELE_HOME": str(self.folder),
            "TRISKELE_PROJECT": "story",
            "TRISKELE_RECALL_MODEL": "none",
        }
        self.engine = LocalEngine(config.load(environment), self.folder)
        self.engine.lexical.tail_cap = tail_cap

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        # tantivy may still create a lock file in a folder that was just opened.
        shutil.rmtree(self.folder, ignore_errors=True)

    # Changing

    @rule(words=st.lists(st.sampled_from(WORDS), max_size=2), begin=st.sampled_from([None, None, None, *YEARS]))
    def add(self, words: list[str], begin: int | None) -> None:
        said = Said.new(words, next(self.numbers), (begin, begin and begin + 2))
        outcome = self.engine.remember(said.content, valid_from=_january(begin), valid_to=_january(said.period[1]))
        assert outcome.action is Action.ADDED
        self._took_place(self._with(outcome.id, said))

    @precondition(lambda self: self.state.current)
    @rule(place=PLACES)
    def add_again(self, place: int) -> None:
        id = self._standing(place)
        said = self.state.current[id]
        begin, end = said.period
        outcome = self.engine.remember(said.content, valid_from=_january(begin), valid_to=_january(end))
        assert outcome.action is Action.DUPLICATE
        # An edit may have given several memories the same words.
        assert self.state.current[outcome.id].content == said.content

    @precondition(lambda self: self.state.current)
    @rule(place=PLACES, word=st.sampled_from(WORDS))
    def supersede(self, place: int, word: str) -> None:
        older = self._standing(place)
        said = Said.new([word], next(self.numbers))
        outcome = self.engine.remember(said.content, supersedes=older)
        added = self._with(outcome.id, said)
        self._took_place(State(added.current, added.links | {(outcome.id, LinkKind.SUPERSEDES, older)}))

    @precondition(lambda self: self.state.current)
    @rule(place=PLACES, words=st.lists(st.sampled_from(WORDS), max_size=2))
    def edit(self, place: int, words: list[str]) -> None:
        id = self._standing(place)
        said = replace(self.state.current[id], words=tuple(words), number=next(self.numbers))
        assert self.engine.edit(id, content=said.content)[0].action is Action.EDITED
        self._took_place(self._with(id, said))

    @precondition(lambda self: self.state.current)
    @rule(place=PLACES)
    def edit_nothing(self, place: int) -> None:
        id = self._standing(place)
        assert self.engine.edit(id, content=self.state.current[id].content)[0].action is Action.UNCHANGED

    @precondition(lambda self: self.histories)
    @rule(place=PLACES)
    def forget(self, place: int) -> None:
        id = self._anyone(place)
        [outcome] = self.engine.forget(id)
        assert outcome.action is (Action.FORGOTTEN if id in self.state.current else Action.UNCHANGED)
        self._took_place(State({key: s for key, s in self.state.current.items() if key != id}, self.state.links))

    @precondition(lambda self: self.histories)
    @rule(one=PLACES, other=PLACES, kind=st.sampled_from([LinkKind.SUPERSEDES, LinkKind.SEE_ALSO]))
    def link(self, one: int, other: int, kind: LinkKind) -> None:
        source, target = self._anyone(one), self._anyone(other)
        link = (source, kind, target)
        goes_round = kind is LinkKind.SUPERSEDES and self.state.is_replaced_by(source, target)
        if source == target or (goes_round and link not in self.state.links):
            with pytest.raises(Conflict):
                self.engine.link(*link)
            return
        outcome = self.engine.link(*link)
        assert outcome.action is (Action.UNCHANGED if link in self.state.links else Action.LINKED)
        self._took_place(State(self.state.current, self.state.links | {link}))

    @precondition(lambda self: self.state.links)
    @rule(place=PLACES)
    def unlink(self, place: int) -> None:
        links = sorted(self.state.links)
        link = links[place % len(links)]
        assert self.engine.unlink(*link).action is Action.UNLINKED
        self._took_place(State(self.state.current, self.state.links - {link}))

    @rule()
    def undo(self) -> None:
        if not self.steps:
            # Nothing older is undone in the place of an erasure.
            with pytest.raises(Conflict if self.has_erased else NotFound):
                self.engine.undo()
            return
        self.engine.undo()
        step = self.steps.pop()
        self._move_to(step.before)
        self.undone = step

    @precondition(lambda self: self.undone is not None)
    @rule()
    def undo_the_undoing(self) -> None:
        assert self.undone is not None
        self.engine.undo(self.engine.store.newest_entries()[0].batch)
        self._move_to(self.undone.after)
        self.steps.append(self.undone)
        self.undone = None

    @precondition(lambda self: len(self.histories) > 3)
    @rule(place=PLACES)
    def erase(self, place: int) -> None:
        id = self._anyone(place)
        batch = self.engine.store.journal(id=id)[0].batch
        self.engine.erase(id)
        del self.histories[id]
        self.state = self.state.without(id)
        self.known = [(moment, state.without(id)) for moment, state in self.known]
        self.steps = []
        self.has_erased = True
        self.undone = None
        with pytest.raises(NotFound):
            self.engine.get(id)
        if all(entry.id == id for entry in self.engine.store.journal(batch=batch)):
            with pytest.raises(BadInput):
                self.engine.undo(batch)

    @rule()
    def catch_up(self) -> None:
        assert self.engine.lexical.catch_up()

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.open(self.tail_cap)

    # Reading

    def _listed(self, *, any_time: bool = True, **moments: Any) -> list[Memory]:
        scope = replace(self.engine.scope(**moments), any_time=any_time)
        return self.engine.store.browse(scope, limit=1000)

    @precondition(lambda self: self.known)
    @rule(place=PLACES, word=st.sampled_from(WORDS))
    def read_as_known_then(self, place: int, word: str) -> None:
        moment, state = self.known[place % len(self.known)]
        current = {m.id: m.content for m in self._listed(known_at=moment)}
        assert current == {id: said.content for id, said in state.current.items()}
        links = self.engine.store.links(sorted(self.histories), known_at=moment)
        assert {(link.source, link.kind, link.target) for link in links} == state.links
        hits = self.engine.recall(word, known_at=moment, limit=200).hits
        assert {hit.memory.id for hit in hits} == state.finds(word)
        assert all(hit.memory.content == state.current[hit.memory.id].content for hit in hits)

    @rule(year=st.sampled_from([YEARS[0] - 1, *YEARS, YEARS[-1] + 3]), word=st.sampled_from(WORDS))
    def read_as_of(self, year: int, word: str) -> None:
        expected = self.state.holds_in(year)
        assert {m.id for m in self._listed(as_of=f"{year}-07-01", any_time=False)} == expected
        hits = self.engine.recall(word, as_of=f"{year}-07-01", limit=200, show_superseded=True).hits
        assert {hit.memory.id for hit in hits} == {i for i in expected if word in self.state.current[i].words}

    @invariant()
    def the_same_memories_stand(self) -> None:
        browsed = {memory.id: memory.content for memory in self.engine.browse(limit=1000).memories}
        assert browsed == {id: said.content for id, said in self.state.current.items()}
        census = self.engine.store.census()
        assert (census.memories, census.links) == (len(self.state.current), len(self.state.links))
        assert census.forgotten == len(self.histories) - len(self.state.current)

    @invariant()
    def the_same_versions_are_remembered(self) -> None:
        for id, history in self.histories.items():
            versions = self.engine.store.history(id)
            assert [version.content for version in versions] == [said.content for said in history]
            assert [version.version for version in versions] == list(range(1, len(history) + 1))
            assert all(one.known_to is not None and one.known_to <= two.known_from for one, two in pairwise(versions))
            assert (versions[-1].known_to is None) == (id in self.state.current)

    @invariant()
    def the_same_links_stand(self) -> None:
        links = self.engine.store.links(sorted(self.histories))
        assert {(link.source, link.kind, link.target) for link in links} == self.state.links

    @invariant()
    def every_word_finds_the_same_memories(self) -> None:
        for word in WORDS:
            hits = self.engine.recall(word, limit=200).hits
            assert {hit.memory.id for hit in hits} == self.state.finds(word)

    # The model's own bookkeeping

    def _with(self, id: str, said: Said) -> State:
        return State({**self.state.current, id: said}, self.state.links)

    def _took_place(self, after: State) -> None:
        before = self.state
        if after != before:
            self._move_to(after)
            self.steps.append(Step(before, after))
            self.undone = None

    def _move_to(self, after: State) -> None:
        for id, said in after.current.items():
            if self.state.current.get(id) != said:
                self.histories.setdefault(id, []).append(said)
        self.state = after
        self.known.append((timestamps.now(), after))

    def _standing(self, place: int) -> str:
        ids = sorted(self.state.current)
        return ids[place % len(ids)]

    def _anyone(self, place: int) -> str:
        ids = sorted(self.histories)
        return ids[place % len(ids)]


def _january(year: int | None) -> datetime | None:
    return None if year is None else datetime(year, 1, 1, tzinfo=UTC)


TestStory = Story.TestCase
TestStory.settings = settings(
    max_examples=STORIES,
    stateful_step_count=STEPS_PER_STORY,
    deadline=None,
    # The short run is the same everywhere and fails at once; the long one looks elsewhere each time and simplifies.
    derandomize=not IS_LONG,
    phases=[Phase.generate, Phase.shrink] if IS_LONG else [Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestStory.pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if IS_LONG else 300)]
