"""The embedded corpus: lexical index, catalog, sentence vectors, token vectors and mentions, read as one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from triskele.config import BUNDLED
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index.catalog import Catalog, Columns, ScopedColumns
from triskele.index.corpus import Bits, Bools, CorpusQuestion, Floats, Ints, LexicalHit
from triskele.index.dense import EXACT_LIMIT, DenseIndex, PlacedVectors, highest
from triskele.index.lexical import LexicalIndex, Shards
from triskele.index.lifecycle import DerivedIndex, DiskIndex
from triskele.index.mentions import Layers, MentionIndex, allowed
from triskele.index.token_vectors import TokenIndex, TokenVectors
from triskele.models.bundled import bundled
from triskele.models.embedder import Embedder
from triskele.models.local import local_embedder
from triskele.store.name_rows import NameStore
from triskele.store.owner import OwnerStore
from triskele.types import Scope, Sort


@dataclass(frozen=True, slots=True)
class ModelIndexes:
    """A model with its indexes over one store; they share one lifecycle, a further one joins `indexes`."""

    embedder: Embedder
    catalog: Catalog
    dense: DenseIndex
    tokens: TokenIndex
    mentions: MentionIndex

    @staticmethod
    def open(folder: Path, store: OwnerStore, *, model: str = BUNDLED) -> ModelIndexes | None:
        """The model in force over a store, by its name in the settings; None if it is missing or damaged."""
        try:
            embedder = bundled() if model == BUNDLED else local_embedder(model)
        except ModelUnavailable:
            return None
        # A store that cannot be written now is read as it is.
        with suppress(StoreUnavailable):
            store.vectors.use_model(embedder.fingerprint)
        return ModelIndexes.of(embedder, folder, store)

    @staticmethod
    def of(embedder: Embedder, folder: Path, store: OwnerStore) -> ModelIndexes:
        """A model over a store, in force or not."""
        fingerprint = embedder.fingerprint
        return ModelIndexes(
            embedder,
            Catalog(store, fingerprint),
            DenseIndex(folder, store, fingerprint, embedder.dimensions),
            TokenIndex(folder, store, fingerprint, embedder.token_dimensions),
            MentionIndex(folder, store),
        )

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """The files of all models in an index folder."""
        return [path for index in (DenseIndex, TokenIndex, MentionIndex) for path in index.files(folder)]

    @staticmethod
    def remove_files(folder: Path) -> None:
        """Remove the files of all models: without a model it is unknown which of their records are still valid."""
        for path in ModelIndexes.files(folder):
            shutil.rmtree(path, ignore_errors=True)

    @property
    def indexes(self) -> tuple[DerivedIndex[Any, Any, Any], ...]:
        """The indexes in the order of a rebuild: the dense one drops unsound vectors, the others follow the rest."""
        return (self.dense, self.catalog, self.tokens, self.mentions)

    @property
    def on_disk(self) -> tuple[DiskIndex[Any, Any, Any], ...]:
        """The indexes that have files."""
        return (self.dense, self.tokens, self.mentions)

    def damaged(self) -> int:
        """The number of records that differ from what was written, and of unsound vectors."""
        return sum(index.damaged() for index in self.indexes)

    def orphans(self) -> int:
        """The number of records that belong to nothing in the store."""
        slots = self.catalog.view().slots
        return sum(index.orphans(slots) for index in self.indexes)

    def rebuild(self) -> None:
        """Write the files again with what the store still holds."""
        for index in self.indexes:
            index.rebuild()

    def close(self) -> None:
        """Release files and memory."""
        for index in self.indexes:
            index.close()


@dataclass(frozen=True, slots=True)
class LocalIndexes:
    """The indexes of one store; without a model there are no vectors."""

    store: OwnerStore
    lexical: LexicalIndex
    catalog: Catalog
    mentions: MentionIndex
    dense: DenseIndex | None = None
    tokens: TokenIndex | None = None

    def open_corpus(self, scope: Scope) -> LocalCorpus:
        """What a scope may read, from now on unchanged: take it inside a snapshot of the store."""
        heads = self.store.heads(self.catalog.fingerprint)
        columns, words, layers = self.catalog.view(heads), self.lexical.view(heads), self.mentions.view(heads)
        tokens = None if self.tokens is None else self.tokens.view(heads)
        placed = None if self.dense is None else self.dense.over(columns, heads)
        return LocalCorpus(columns, scope, placed, words, tokens, layers, self.store.names, heads.unembedded)


class LocalVectors(ScopedColumns):
    """The cosines of one model between a question and the memories of a scope."""

    def __init__(
        self, columns: Columns, scope: Scope, placed: PlacedVectors | None, vector: Floats | None = None
    ) -> None:
        super().__init__(columns, scope)
        self._placed = placed
        self._vector = vector

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        """The rows with the highest cosines, best first, ties by row; and their cosines."""
        if self._placed is None or self._vector is None:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        if self._scan is None:
            entries, nearest = self._placed.nearest(self._vector, self.is_visible, limit)
        else:
            allowed = self._scan if self.is_visible.all() else np.where(self.is_visible, self._scan, np.float32(np.nan))
            entries, nearest = highest(allowed, limit)
        return self.columns.rows[entries], nearest

    def cosines(self, rows: Ints) -> Floats:
        """The cosines of some rows; NaN if a row has no vector."""
        is_known, entries = self.columns.locate(rows)
        cosines = np.full(len(rows), np.nan, dtype=np.float32)
        if self._placed is not None and self._vector is not None:
            scan = self._scan
            cosines[is_known] = self._placed.cosines(self._vector, entries) if scan is None else scan[entries]
        return cosines

    def closest_anywhere(self) -> float:
        """The highest cosine in all projects of the owner; -1 if there are no others, or nothing has a vector."""
        if self._placed is None or self._vector is None or self.is_everything:
            return -1.0
        anywhere = self.columns.scoped(replace(self.scope, projects=None)).is_visible
        if self._scan is None:
            _, nearest = self._placed.nearest(self._vector, anywhere, 1)
            return float(nearest[0]) if len(nearest) else -1.0
        return float(np.fmax.reduce(self._scan, where=anywhere, initial=-1.0))

    @cached_property
    def _scan(self) -> Floats | None:
        """The cosines of all entries; None if it is cheaper to read a part of the vectors."""
        if self._placed is None or self._vector is None:
            return None
        count = len(self._placed.vectors.slots)
        # The search for a nearer memory elsewhere reads other projects, if there are any.
        is_most = not self.is_everything or 2 * np.count_nonzero(self.is_visible) > count
        return self._placed.scan(self._vector) if count <= EXACT_LIMIT and is_most else None

    def vectors(self, rows: Ints) -> Floats:
        """The sentence vectors of some rows; NaN if a row has none."""
        if self._placed is None:
            return np.empty((len(rows), 0), dtype=np.float32)
        is_known, at = self.columns.locate(rows)
        known = self._placed.gather(at)
        found = np.full((len(rows), known.shape[1]), np.nan, dtype=np.float32)
        found[is_known] = known
        return found


class LocalCorpus(LocalVectors):
    """The embedded corpus of one scope: what every index holds at one moment."""

    def __init__(
        self,
        columns: Columns,
        scope: Scope,
        placed: PlacedVectors | None,
        words: Shards,
        tokens: TokenVectors | None,
        layers: Layers,
        names: NameStore,
        waiting: int,
    ) -> None:
        super().__init__(columns, scope, placed)
        self._words = words
        self._tokens = tokens
        self._layers = layers
        self.names = names
        self.waiting = waiting
        self.rarity, self.mentions = words.rarity, layers.mentions

    def asking(self, question: CorpusQuestion) -> LocalCorpus:
        """The same corpus for one question, which scans the vectors once."""
        view = copy(self)
        view._vector = question.vector
        return view

    def search(self, terms: Sequence[str], *, limit: int, sort: Sort = Sort.RELEVANCE) -> Sequence[LexicalHit]:
        """The rows that contain any of the terms, in the order asked for."""
        return self._words.search(terms, self.scope, limit=limit, sort=sort)

    def tokens(self, rows: Ints) -> tuple[Bits, Ints]:
        """The token vectors of some rows in one array, two bits per dimension, and how many each row has."""
        if self._tokens is None:
            return np.empty((0, 0), dtype=np.uint8), np.zeros(len(rows), dtype=np.int64)
        slots = np.full(len(rows), -1, dtype=np.int64)
        is_known, at = self.columns.locate(rows)
        slots[is_known] = self.columns.slots[at]
        return self._tokens.gather(slots)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place of the concept in the request, a row that mentions it, and whether it is the row's subject."""
        if self.is_readable is None:
            return self._layers.holders(concepts, most)
        holders = self._layers.holders(concepts)
        is_allowed, at = self.columns.locate(holders[1])
        is_allowed[is_allowed] = self.is_readable[at]
        return allowed(holders, is_allowed, most)
