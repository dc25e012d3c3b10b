"""The embedded corpus: lexical index, catalog, sentence vectors, token vectors and mentions, read as one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from triskele.config import BUNDLED
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index.catalog import Catalog, Columns, ScopeView
from triskele.index.corpus import Bits, Bools, CorpusQuestion, Facts, Floats, Ints, LexicalHit, Mentions, is_called
from triskele.index.dense import EXACT_LIMIT, DenseIndex, PlacedVectors, highest
from triskele.index.lexical import LexicalIndex, Shards
from triskele.index.lifecycle import DerivedIndex, DiskIndex
from triskele.index.mentions import Layers, MentionIndex, allowed
from triskele.index.token_vectors import TokenIndex, TokenVectors
from triskele.models.bundled import bundled
from triskele.models.embedder import Embedder
from triskele.models.local import local_embedder
from triskele.store.owner import OwnerStore
from triskele.store.values import Heads
from triskele.types import Scope, Sort

_NONE = np.empty(0, dtype=np.int64)


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
        return LocalCorpus(self, scope, self.store.heads(self.catalog.fingerprint))


class LocalVectors:
    """The cosines of one model between a question and the memories of a scope, as of one moment."""

    def __init__(
        self,
        catalog: Catalog,
        dense: DenseIndex | None,
        scope: Scope,
        heads: Heads | None = None,
        vector: Floats | None = None,
    ) -> None:
        self._catalog = catalog
        self._dense = dense
        self._heads = heads
        self._vector = vector
        self.scope = scope

    @cached_property
    def columns(self) -> Columns:
        """One entry per version."""
        return self._catalog.view(self._heads)

    @cached_property
    def _scoped(self) -> ScopeView:
        return self.columns.scoped(self.scope)

    @cached_property
    def _placed(self) -> PlacedVectors | None:
        return None if self._dense is None else self._dense.over(self.columns, self._heads)

    def nearest(self, limit: int) -> tuple[Ints, Floats]:
        """The rows with the highest cosines, best first, ties by row; and their cosines."""
        if self._placed is None or self._vector is None:
            return _NONE, np.empty(0, dtype=np.float32)
        mask = self._scoped.is_visible
        if self._scan is None:
            entries, nearest = self._placed.nearest(self._vector, mask, limit)
        else:
            allowed = self._scan if mask.all() else np.where(mask, self._scan, np.float32(np.nan))
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
        if self._placed is None or self._vector is None or self._is_everything:
            return -1.0
        anywhere = self.columns.scoped(replace(self.scope, projects=None)).is_visible
        if self._scan is None:
            _, nearest = self._placed.nearest(self._vector, anywhere, 1)
            return float(nearest[0]) if len(nearest) else -1.0
        return float(np.fmax.reduce(self._scan, where=anywhere, initial=-1.0))

    @cached_property
    def _is_everything(self) -> bool:
        return self.columns.is_everything(self.scope)

    @cached_property
    def _scan(self) -> Floats | None:
        """The cosines of all entries; None if it is cheaper to read a part of the vectors."""
        if self._placed is None or self._vector is None:
            return None
        count = len(self._placed.vectors.slots)
        # The search for a nearer memory elsewhere reads other projects, if there are any.
        is_most = not self._is_everything or 2 * np.count_nonzero(self._scoped.is_visible) > count
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
    """The embedded corpus of one scope; the view of each index is taken when first needed, as of the same heads."""

    def __init__(self, indexes: LocalIndexes, scope: Scope, heads: Heads) -> None:
        super().__init__(indexes.catalog, indexes.dense, scope, heads)
        self._indexes = indexes
        self.waiting = heads.unembedded

    @cached_property
    def _shards(self) -> Shards:
        return self._indexes.lexical.view(self._heads)

    @cached_property
    def _tokens(self) -> TokenVectors | None:
        return None if self._indexes.tokens is None else self._indexes.tokens.view(self._heads)

    @cached_property
    def _layers(self) -> Layers:
        return self._indexes.mentions.view(self._heads)

    @property
    def size(self) -> int:
        """The number of versions, inside the scope or not."""
        return len(self.columns.rows)

    def asking(self, question: CorpusQuestion) -> LocalCorpus:
        """The same corpus for one question, which scans the vectors once."""
        if (vector := question.vector) is None:
            return self
        # Both share the views of the indexes.
        _ = self._scoped, self._placed, self._tokens, self._layers
        view = copy(self)
        view._vector = vector
        return view

    def search(self, terms: Sequence[str], *, limit: int, sort: Sort = Sort.RELEVANCE) -> Sequence[LexicalHit]:
        """The rows that contain any of the terms, in the order asked for."""
        return self._shards.search(terms, self.scope, limit=limit, sort=sort)

    def rarity(self, terms: Iterable[str]) -> dict[str, float]:
        """The inverse document frequency of each term over the whole corpus."""
        return self._shards.rarity(terms)

    def tokens(self, rows: Ints) -> tuple[Bits, Ints]:
        """The token vectors of some rows in one array, two bits per dimension, and how many each row has."""
        if self._tokens is None:
            return np.empty((0, 0), dtype=np.uint8), np.zeros(len(rows), dtype=np.int64)
        slots = np.full(len(rows), -1, dtype=np.int64)
        is_known, at = self.columns.locate(rows)
        slots[is_known] = self.columns.slots[at]
        return self._tokens.gather(slots)

    def facts(self, rows: Ints, *, reach: int = 0) -> Facts:
        """Visibility, importance, session and speaker of some rows, with the neighbours up to `reach` turns away."""
        return self.columns.facts(rows, self._scoped, reach)

    def speakers(self, codes: Iterable[int]) -> dict[int, str]:
        """The names of some speakers."""
        wanted = set(codes)
        # A copy: another thread may be adding names.
        return {code: name for name, code in self.columns.codes.speakers.copy().items() if code in wanted}

    def rows_of_speaker(self, name: str, most: int) -> Ints:
        """The newest rows of those who are called by a name."""
        columns = self.columns
        codes = [code for speaker, code in columns.codes.speakers.copy().items() if is_called(speaker, name)]
        if not codes:
            return _NONE
        at = np.flatnonzero(np.isin(columns.speakers, codes) & self._scoped.is_visible)
        return columns.rows[at[np.lexsort((-at, -columns.happened[at]))][:most]]

    def mentions(self, rows: Ints, most: int | None = None) -> Mentions:
        """The concepts that some rows mention, up to a limit for each row."""
        return self._layers.mentions(rows, most)

    def holders(self, concepts: Ints, most: int | None = None) -> tuple[Ints, Ints, Bools]:
        """The place of the concept in the request, a row that mentions it, and whether it is the row's subject."""
        if self._scoped.is_readable is None:
            return self._layers.holders(concepts, most)
        holders = self._layers.holders(concepts)
        is_allowed, at = self.columns.locate(holders[1])
        is_allowed[is_allowed] = self._scoped.is_readable[at]
        return allowed(holders, is_allowed, most)

    def named(self, keys: Iterable[str]) -> dict[str, tuple[int, bool]]:
        """The concepts known under some keys, and whether the name is written in any case."""
        found = self._indexes.store.names.find(keys)
        return {key: (name.concept, name.any_case) for key, name in found.items()}

    def names(self, concepts: Iterable[int]) -> dict[int, str]:
        """The names of some concepts."""
        return {number: name.text for number, name in self._indexes.store.names.numbered(concepts).items()}
