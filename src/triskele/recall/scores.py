"""The values of a recall: rankings, scores of several legs in columns, candidates, and what is served.

At the end: how long the steps take, measured on request in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import repeat
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from triskele.index.corpus import Bools, Facts, Floats, Ints
from triskele.text.words import tokens_of
from triskele.types import Agreement, Answer, Memory

LEXICAL, DENSE, LATE, GRAPH = "lexical", "dense", "late", "graph"
# Contributions besides the legs.
SPEAKER, TIME, REVIEW = "speaker", "time", "review"
# A span of scores below this counts as no span.
LEAST_SPAN = 1e-9
# A text repeats another if more than this share of its words is in the other.
REPEATED = 0.8

Doubles = NDArray[np.float64]
_Parameters = ParamSpec("_Parameters")
_Value = TypeVar("_Value")
_seconds: ContextVar[dict[str, float] | None] = ContextVar("seconds", default=None)
# Scores further rows for the dense leg: NaN for a row without a vector.
Nearness = Callable[[Ints], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The rows that one leg returns, best first, with their scores; `ceiling` is the best score possible."""

    leg: str
    rows: Ints = field(default_factory=np.empty(0, dtype=np.int64).copy)
    scores: Doubles = field(default_factory=np.empty(0).copy)
    ceiling: float = 1.0
    nearness: Nearness | None = None

    def restricted_to(self, places: Bools | slice) -> Ranking:
        """The ranking of some of its rows."""
        return Ranking(self.leg, self.rows[places], self.scores[places], self.ceiling, self.nearness)


class Contribution(NamedTuple):
    """What one leg adds to a candidate."""

    rank: int
    raw: float
    normalised: float
    contribution: float


class Candidate(NamedTuple):
    """A candidate whose score is the sum of its parts' contributions."""

    row: int
    score: float
    parts: Mapping[str, Contribution]


@dataclass(frozen=True, eq=False)
class Column:
    """The scores of one leg over the rows of a table, NaN for a row that it has not scored.

    They count by their share of the ceiling, or by `shares` and `places` that a fusion method has made of them.
    """

    name: str
    raw: Doubles
    weight: float
    ceiling: float = 1.0
    shares: Doubles | None = None
    places: Ints | None = None

    @cached_property
    def normalised(self) -> Doubles:
        """The shares of the ceiling; 0 for a row without a score."""
        if self.shares is not None:
            return self.shares
        if self.ceiling <= LEAST_SPAN:
            return np.zeros(len(self.raw))
        above: Doubles = np.fmax(self.raw, 0.0)
        return above if self.ceiling == 1 else above / self.ceiling

    @cached_property
    def is_scored(self) -> Bools:
        """Which rows the leg has scored."""
        return ~np.isnan(self.raw)

    @cached_property
    def ranks(self) -> Ints:
        """The rank of each row from 0, ties by row; rows without a score share the last one."""
        if self.places is not None:
            return self.places
        ranks = np.empty(len(self.raw), dtype=np.int64)
        ranks[np.argsort(-self.raw, kind="stable")] = np.arange(len(self.raw))
        return np.where(self.is_scored, ranks, len(self.raw))

    def contribution(self, place: int, *, is_ranked: bool = True) -> Contribution:
        """What the leg adds to the row at a place, which it has scored."""
        normalised = self.normalised.item(place)
        rank = self.ranks.item(place) + 1 if is_ranked else 0
        return Contribution(rank, self.raw.item(place), normalised, self.weight * normalised)


class SpeakerRows(NamedTuple):
    """The rows in the words of the one speaker that a question names; its token weights: 0 for what asks for them."""

    rows: frozenset[int]
    token_weights: Floats


@dataclass(frozen=True, eq=False)
class Scores:
    """Columns over the same rows, which ascend; a column of weight 0 is the same as none.

    `rankings` come from the lexical and the dense leg. `order` has the places best first if one leg alone ranks.
    `facts` describe the pool, without rows that later steps add; `in_conversation` is the share of the pool with a
    neighbouring turn, 0 for a request. `matches` and `late_weights` are the best match of each query token per row, and
    the weight of each token there. `seeds` are the rows whose connections the graph followed.
    """

    rows: Ints
    columns: tuple[Column, ...]
    rankings: tuple[Ranking, ...] = ()
    order: Ints | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    facts: Facts | None = None
    in_conversation: float = 0.0
    matches: Floats = field(default_factory=np.empty((0, 0), dtype=np.float32).copy)
    late_weights: Floats | None = None
    seeds: tuple[int, ...] = ()
    by_speaker: SpeakerRows | None = None

    @staticmethod
    def of_one(ranking: Ranking) -> Scores:
        """The scores of a leg that ranks alone, in its own order."""
        by_row = np.argsort(ranking.rows)
        scores = ranking.scores[by_row]
        column = Column(ranking.leg, scores, 1.0, shares=scores, places=by_row)
        return Scores(ranking.rows[by_row], (column,), (ranking,), np.argsort(by_row))

    @cached_property
    def ordered(self) -> tuple[Ints, Doubles]:
        """The places of the rows that any leg has scored, best first, and their sums; ties by best rank, then row."""
        if self.order is not None:
            return self.order, self.columns[0].raw[self.order]
        totals, is_scored = np.zeros(len(self.rows)), np.zeros(len(self.rows), dtype=np.bool_)
        # In the order of their names: a floating-point sum depends on the order of its terms.
        counted = sorted(self._counted, key=lambda column: column.name)
        for column in counted:
            totals += column.weight * column.normalised
            is_scored |= column.is_scored
        places = np.argsort(-totals, kind="stable")
        sums = totals[places]
        if counted and (sums[1:] == sums[:-1]).any():
            places = np.lexsort((np.min([column.ranks for column in counted], axis=0), -totals))
        if is_scored.all():
            return places, sums
        is_kept = is_scored[places]
        return places[is_kept], sums[is_kept]

    @property
    def _counted(self) -> list[Column]:
        return [column for column in self.columns if column.weight > 0]

    def ranked(self) -> list[Candidate]:
        """The candidates, best first."""
        (places, sums), columns = self.ordered, self._counted
        parts = map(_Contributions, repeat(columns), places.tolist())
        return list(map(Candidate._make, zip(self.rows[places].tolist(), sums.tolist(), parts, strict=True)))


class _Contributions(Mapping[str, Contribution]):
    """The contributions to a candidate, computed on access: most candidates are never explained."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: Sequence[Column], place: int) -> None:
        self._columns = columns
        self._place = place

    def __getitem__(self, name: str) -> Contribution:
        for column in self._columns:
            if column.name == name and column.is_scored.item(self._place):
                return column.contribution(self._place)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(column.name == name and column.is_scored.item(self._place) for column in self._columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.plain())

    def __len__(self) -> int:
        return len(self.plain())

    def plain(self, *, is_ranked: bool = True) -> dict[str, Contribution]:
        """All contributions."""
        columns = [column for column in self._columns if column.is_scored.item(self._place)]
        return {column.name: column.contribution(self._place, is_ranked=is_ranked) for column in columns}


def unranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates without ranks per leg, which cost more than the rest."""
    return [
        Candidate(row, score, parts.plain(is_ranked=False) if isinstance(parts, _Contributions) else parts)
        for row, score, parts in candidates
    ]


def scaled_parts(candidate: Candidate, total: float) -> dict[str, Contribution]:
    """A candidate's contributions, scaled to a sum."""
    scale = total / candidate.score if candidate.score > 0 else 0.0
    return {leg: part._replace(contribution=part.contribution * scale) for leg, part in candidate.parts.items()}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates, best first, and what their confidence and reasons rest on.

    `matches` has the best match of each query token by row. `nearer_elsewhere` is how much nearer to the question a
    memory of another project is than any of these.
    """

    ranked: list[Candidate]
    missing: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    matches: Mapping[int, Floats] = field(default_factory=dict)
    token_weights: Floats | None = None
    nearer_elsewhere: float = 0.0
    by_speaker: SpeakerRows | None = None
    agreement: Agreement | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A memory to serve, with the candidate that led to it; `stands_for` is the older memory that matched.

    `chain_rows` are the rows of other candidates that lead to the same memory.
    """

    memory: Memory
    matched: Memory
    candidate: Candidate
    score: float
    prior: float
    superseded: bool
    stands_for: str | None
    decay: float = 1.0
    chain_rows: frozenset[int] = frozenset()


def pack(answer: Answer, budget: int) -> Answer:
    """The hits and resolutions that fit into a budget of tokens, without texts that repeat others."""
    seen: list[set[str]] = []
    left = budget

    def fits(memory: Memory) -> bool:
        nonlocal left
        words = set(memory.content.lower().split())
        cost = tokens_of(memory.content)
        # A longer text that contains a shorter one adds something, and stays.
        if cost > left or any(len(words & other) > REPEATED * len(words) for other in seen):
            return False
        seen.append(words)
        left -= cost
        return True

    hits = tuple(hit for hit in answer.hits if fits(hit.memory))
    return replace(answer, hits=hits, resolutions=tuple(memory for memory in answer.resolutions if fits(memory)))


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """The seconds of each step while the block runs, by the name of its function."""
    seconds: dict[str, float] = {}
    token = _seconds.set(seconds)
    try:
        yield seconds
    finally:
        _seconds.reset(token)


def step(run: Callable[_Parameters, _Value]) -> Callable[_Parameters, _Value]:
    """Add up the time of a step."""

    @wraps(run)
    def measured(*arguments: _Parameters.args, **options: _Parameters.kwargs) -> _Value:
        if (seconds := _seconds.get()) is None:
            return run(*arguments, **options)
        started = time.perf_counter()
        try:
            return run(*arguments, **options)
        finally:
            seconds[run.__name__] = seconds.get(run.__name__, 0.0) + time.perf_counter() - started

    return measured
