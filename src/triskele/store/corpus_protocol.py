"""The protocol of a store that ranks inside its database: words and vectors of one owner, by row number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from triskele.types import Memory, Scope, Sort


class WordCounts(NamedTuple):
    """How often a version has each term in content and labels; lengths as counted, and as BM25 rounds them."""

    terms: Mapping[str, tuple[int, int]]
    lengths: tuple[int, int]
    norms: tuple[int, int]


class TermStatistics(NamedTuple):
    """The BM25 statistics of an owner: versions, the sum of their lengths, and how many have a term, per field."""

    documents: int
    lengths: tuple[int, int]
    frequencies: Mapping[str, tuple[int, int]]


class ScopeSize(NamedTuple):
    """How many versions a scope contains, and about how many vectors of all owners the index that finds them has."""

    versions: int
    vectors: int


@dataclass(frozen=True, slots=True)
class WeightedTerms:
    """Terms with a weight for each field; `norms` are, per field, what a length of 0 and each further term add."""

    weights: Mapping[str, tuple[float, float]]
    norms: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A vector as text, and how to find the nearest: by the index with a list of `search_list`, or exactly."""

    text: str
    dimensions: int
    search_list: int
    is_exact: bool


class CandidateRow(NamedTuple):
    """A row that a leg found, with its BM25 score and its cosine; None if the leg did not find it."""

    row: int
    score: float | None
    importance: float | None
    updated_at: int | None
    similarity: float | None


class FactRow(NamedTuple):
    """The facts of a row; `before` and `after` are its neighbouring turns, the nearest first, -1 if unreadable.

    `vector` and `tokens` are what a model made of its content, as the store keeps them, if they were requested.
    """

    row: int
    is_visible: bool
    is_readable: bool
    importance: float
    project: str
    session: str | None
    speaker: str | None
    role: str | None
    time: int
    before: Sequence[int]
    after: Sequence[int]
    vector: bytes | None = None
    tokens: bytes | None = None


class CorpusStore(Protocol):
    """Words, vectors and facts of one owner inside the database."""

    @property
    def problem(self) -> str:
        """Why the database cannot rank; empty if it can."""

    @property
    def warning(self) -> str:
        """A warning about a database that can rank."""

    def prepare(self, fingerprint: str, dimensions: int) -> None:
        """Make what the vectors of a model need, unless it is there."""

    def is_behind(self, analyzer: str, fingerprint: str) -> bool:
        """Whether versions have no words yet, or vectors of a model are in no index."""

    def index_words(self, analyzer: str, count: Callable[[Memory], WordCounts], limit: int) -> int:
        """Write the words of the next versions, without the words of another analyzer; returns how many."""

    def index_vectors(self, fingerprint: str, convert: Callable[[bytes], str | None], limit: int) -> int:
        """Write the next vectors of a model into the index; returns how many. None means an invalid vector."""

    def statistics(self, terms: Iterable[str]) -> TermStatistics:
        """Counts over every version of the owner, and for some terms."""

    def count(self, scope: Scope) -> ScopeSize:
        """How many versions a scope contains, and how many vectors the index has."""

    def candidates(
        self,
        scope: Scope,
        fingerprint: str,
        words: WeightedTerms | None,
        vector: VectorQuery | None,
        *,
        limit: int,
        sort: Sort = Sort.RELEVANCE,
        cut: int | None = None,
        is_narrow: bool = False,
    ) -> list[CandidateRow]:
        """The best rows of both legs in one statement; only the best `cut` by words are looked up in the scope.

        A narrow scope is read first, and nothing is cut.
        """

    def facts(self, rows: Sequence[int], scope: Scope, reach: int, fingerprint: str = "") -> list[FactRow]:
        """The facts of some rows, in any order; unknown ones are left out. With a model, its vectors too."""

    def speakers(self, scope: Scope) -> list[str]:
        """The names of those who speak in a scope."""

    def rows_of_speaker(self, speakers: Sequence[str], scope: Scope, most: int) -> list[int]:
        """The newest rows of some speakers."""

    def vectors(self, fingerprint: str, rows: Sequence[int]) -> dict[int, bytes]:
        """The sentence vectors of some rows; those without are left out."""

    def tokens(self, fingerprint: str, rows: Sequence[int]) -> dict[int, bytes]:
        """The token vectors of some rows, as the store keeps them; those without are left out."""
