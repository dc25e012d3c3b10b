"""A question with everything that the ranking of its candidates looks at."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from triskele.index.catalog import Columns, Ints
from triskele.index.lexical import LexicalIndex
from triskele.index.semantic import SemanticIndex
from triskele.models.embed.protocol import Encoding
from triskele.recall import late_interaction
from triskele.recall.late_interaction import Floats
from triskele.recall.legs.dense import HostedVectors, Nearness
from triskele.recall.plan import Plan
from triskele.types import Query, Ranking

# Below this a cosine says nothing.
LEAST_SIMILARITY = 0.1


@dataclass(frozen=True, eq=False)
class Question:
    """The question, how it is to be answered, and what is read for that."""

    query: Query
    plan: Plan
    encoding: Encoding
    words: LexicalIndex
    meaning: SemanticIndex
    columns: Columns
    mask: NDArray[np.bool_]
    elsewhere: HostedVectors | None = None
    _matched: dict[int, Floats] = field(default_factory=dict)

    @property
    def rescored(self) -> int:
        """How many candidates get the finer look."""
        return self.plan.rescored

    @cached_property
    def nearness(self) -> Nearness:
        """How near memories lie to the question."""
        return Nearness(self.query, self.encoding, self.meaning.dense, self.columns, self.mask, self.elsewhere)

    @cached_property
    def token_weights(self) -> Floats:
        """How much each token of the question counts."""
        rarity = self.words.rarity(dict.fromkeys(self.words.analyzer.terms(self.query.text)))
        return late_interaction.token_weights(self.query.text, self.encoding, self.words.analyzer, rarity)

    def weight_between(self, start: int, stop: int) -> float:
        """How much of the question the tokens of a stretch of its text carry."""
        spans = self.encoding.spans
        return float(self.token_weights[(spans[:, 0] >= start) & (spans[:, 1] <= stop)].sum())

    def talk(self, rows: Ints) -> float:
        """The share of some candidates that have a neighbour in a conversation."""
        if not self.plan.context or not len(rows):
            return 0.0
        beside = self.columns.neighbours(self.columns.find(rows), (-1, 1))
        return float((beside >= 0).any(axis=1).mean())

    def late(self, rows: Ints) -> Ranking:
        """Some candidates by late interaction."""
        tokens, is_in_context = self.meaning.tokens, self.plan.context
        found = late_interaction.late(
            self.encoding, self.token_weights, rows, self.columns, tokens, with_context=is_in_context
        )
        self._matched.update(zip(rows.tolist(), found[1], strict=True))
        return found[0]

    def matches(self, rows: Ints) -> Floats:
        """Per candidate and token of the question the best match in the candidate itself."""
        unknown = np.array([row for row in rows.tolist() if row not in self._matched], dtype=np.int64)
        if len(unknown):
            self.late(unknown)
        return np.stack([self._matched[row] for row in rows.tolist()])
