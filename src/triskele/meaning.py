"""Everything that knows meaning: the model, and what it said about a store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from triskele.embed import Embedder, bundled
from triskele.errors import ModelUnavailable
from triskele.index.catalog import Catalog
from triskele.index.dense import DenseIndex
from triskele.index.tokens import TokenIndex
from triskele.stores.protocol import Store


@dataclass(frozen=True, slots=True)
class Meaning:
    """A model with its indexes over one store."""

    embedder: Embedder
    catalog: Catalog
    dense: DenseIndex
    tokens: TokenIndex

    @staticmethod
    def open(folder: Path, store: Store, *, tail_cap: int) -> Meaning | None:
        """The bundled model over a store; None where the model is missing or damaged."""
        try:
            embedder = bundled()
        except ModelUnavailable:
            return None
        mark = embedder.fingerprint
        return Meaning(
            embedder,
            Catalog(store, mark),
            DenseIndex(folder, store, mark, embedder.dimensions, tail_cap=tail_cap),
            TokenIndex(folder, store, mark, embedder.token_dimensions),
        )

    @staticmethod
    def has_files(folder: Path) -> bool:
        """Whether a model has left anything in an index folder."""
        return any(folder.glob("dense-*")) or any(folder.glob("tokens-*"))

    def rebuild(self) -> None:
        """Write the files anew with what the store still holds."""
        self.catalog.forget()
        self.dense.rebuild()
        self.tokens.keep_only(self.catalog.columns().slots)

    def close(self) -> None:
        """Let go of the files."""
        self.dense.close()
        self.tokens.close()
