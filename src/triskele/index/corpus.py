"""The protocol that ranking reads: memories of one scope as terms, vectors, facts and mentions, by row number.

A corpus is a view: it belongs to one scope and one moment, and every call answers for these. The suite in
`tests/contract` runs over every implementation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from triskele.store.name_rows import NameStore
from triskele.types import Memory, Sort

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Bits = NDArray[np.uint8]
Bools = NDArray[np.bool_]
_WORDS = re.compile(r"\w+").findall


def is_called(speaker: str, name: str) -> bool:
    """Whether a speaker has a name, in full or as the first name, in any case."""
    words, asked = _WORDS(speaker.casefold()), _WORDS(name.casefold())
    return bool(asked) and asked in (words, words[:1])


def is_said_by(memory: Memory, name: str) -> bool:
    """Whether a speaker with this name said what a memory holds."""
    return memory.speaker is not None and is_called(memory.speaker, name)


class LexicalHit(Protocol):
    """A row that contains query terms, with its BM25 score and its importance."""

    @property
    def row(self) -> int:
        """The row number."""

    @property
    def score(self) -> float:
        """The BM25 score."""

    @property
    def importance(self) -> float:
        """The importance of the memory, 0 to 1."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known of some rows: one entry per row, in the order of the request.

    A row outside the scope, or unknown, is not visible. `sessions` are codes, -1 outside conversations. `neighbours`
    are rows of the same conversation, the nearest first: one before, one after, two before, …; -1 for no row.
    `speakers` are codes that `Corpus.speakers` names, `roles` are places in `Role`; -1 if a row has none.
    `times` say when it happened or was said, in microseconds.
    """

    is_visible: Bools
    importance: NDArray[np.float64]
    sessions: Ints
    neighbours: Ints
    speakers: Ints
    roles: Ints
    times: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Mentions:
    """Concepts that some rows mention: one entry per mention, `position` is the row's position in the request.

    `frequency` counts the memories that mention the concept, `subject_of` those that it is the subject of, and `reach`
    the texts that contain its terms at all.
    """

    position: Ints
    concepts: Ints
    is_subject: Bools
    frequency: Ints
    subject_of: Ints
    reach: Ints


class CorpusQuestion(Protocol):
    """What a corpus is asked for one question: its terms, its sentence vector, and how many rows of each leg."""

    @property
    def terms(self) -> Sequence[str]:
        """The terms to search."""

    @property
    def vector(self) -> Floats | None:
        """The sentence vector; None if no model reads the question."""

    @property
    def depth(self) -> int:
        """The number of rows that a leg returns."""

    @property
    def is_hybrid(self) -> bool:
        """Whether words and vectors both rank, so that one statement may answer for both."""


class Vectors(Protocol):
    """The cosines of one model between one question and the memories of a scope."""

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        """The rows with the highest cosines, best first, ties by row; and their cosines."""

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; NaN if a row has no vector."""


class Words(Protocol):
    """What the lexical leg reads: rows by their terms."""

    def search(self, terms: Sequence[str], *, limit: int, sort: Sort = Sort.RELEVANCE) -> Sequence[LexicalHit]:
        """The rows that contain any of the terms, in the order asked for."""

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The inverse document frequency of each term over the whole corpus."""


class Corpus(Words, Vectors, Protocol):
    """What ranking reads of the memories of one scope at one moment; cosines are those with the question asked."""

    def asking(self, question: CorpusQuestion) -> Corpus:
        """The same corpus for one question, so that it may read for both legs at once."""

    def closest_anywhere(self) -> float:
        """The highest cosine in all projects of the owner; -1 if there are no others, or nothing has a vector."""

    @property
    def names(self) -> NameStore:
        """The names that memories mention, inside the scope or not."""

    @property
    def waiting(self) -> int:
        """How many contents wait for their vectors."""

    @property
    def size(self) -> int:
        """The number of versions, inside the scope or not: statistics go by it."""

    def vectors(self, rows: Ints) -> Floats:
        """The sentence vectors of some rows; NaN if a row has none."""

    def tokens(self, rows: Ints) -> tuple[Bits, Ints]:
        """The token vectors of some rows in one array, two bits per dimension, and how many each row has."""

    def facts(self, rows: Ints, *, reach: int = 0) -> Facts:
        """Visibility, importance, session and speaker of some rows, with the neighbours up to `reach` turns away."""

    def speakers(self, codes: Iterable[int]) -> dict[int, str]:
        """The names of some speakers, by the codes of `Facts.speakers`; -1 has no name."""

    def rows_of_speaker(self, name: str, most: int) -> Ints:
        """The newest rows of those who are called by a name; none where looking for them would take long."""

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        """The concepts that some rows mention, up to a limit for each row."""

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place of the concept in the request, a row that mentions it, and whether it is the row's subject.

        Rows of other projects and times are included, rows that the scope's reader may not read are not.
        """
