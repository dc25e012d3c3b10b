"""Everything that knows meaning and connections: the model, what it said about a store, and who mentions what."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from triskele.config import BUNDLED
from triskele.errors import ModelUnavailable, StoreUnavailable
from triskele.index.catalog import Catalog
from triskele.index.dense import DenseIndex
from triskele.index.mentions import MentionIndex
from triskele.index.tokens import TokenIndex
from triskele.models.bundled import bundled
from triskele.models.embedders import Embedder
from triskele.stores.protocols import OwnerStore


@dataclass(frozen=True, slots=True)
class SemanticIndex:
    """A model with its indexes over one store."""

    embedder: Embedder
    catalog: Catalog
    dense: DenseIndex
    tokens: TokenIndex
    mentions: MentionIndex

    @staticmethod
    def open(folder: Path, store: OwnerStore, *, model: str = BUNDLED, tail_cap: int) -> SemanticIndex | None:
        """The model in force over a store, by its name in the settings; None where it is missing or damaged."""
        try:
            embedder = bundled() if model == BUNDLED else _other(model)
        except ModelUnavailable:
            return None
        # A store that cannot be written now is read as it is.
        with suppress(StoreUnavailable):
            store.vectors.queue_for(embedder.fingerprint)
        return SemanticIndex.of(embedder, folder, store, tail_cap=tail_cap)

    @staticmethod
    def of(embedder: Embedder, folder: Path, store: OwnerStore, *, tail_cap: int) -> SemanticIndex:
        """A model over a store, in force or not."""
        mark = embedder.fingerprint
        return SemanticIndex(
            embedder,
            Catalog(store, mark),
            DenseIndex(folder, store, mark, embedder.dimensions, tail_cap=tail_cap),
            TokenIndex(folder, store, mark, embedder.token_dimensions),
            MentionIndex(folder, store),
        )

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """What models have left in an index folder."""
        return [path for kind in ("dense", "tokens", "mentions") for path in folder.glob(f"{kind}-*")]

    @staticmethod
    def remove_files(folder: Path) -> None:
        """Leave nothing of any model in an index folder: without a model nothing can be told apart in them."""
        for path in SemanticIndex.files(folder):
            shutil.rmtree(path, ignore_errors=True)

    def damaged(self) -> int:
        """How many vectors are not what was written, or none at all."""
        return self.dense.damaged() + self.tokens.damaged() + self.mentions.damaged()

    def orphans(self) -> int:
        """How many vectors of the files belong to nothing in the store any more."""
        slots = self.catalog.columns().slots
        return self.dense.orphans(slots) + self.tokens.orphans(slots)

    def rebuild(self) -> None:
        """Write the files anew with what the store still holds."""
        self.catalog.forget()
        self.dense.rebuild()
        self.tokens.remove_others()
        self.tokens.keep_only(self.catalog.columns().slots)
        self.mentions.rebuild()

    def close(self) -> None:
        """Let go of the files."""
        self.dense.close()
        self.tokens.close()
        self.mentions.close()


def _other(model: str) -> Embedder:
    # Imported here: who stays with the bundled model does not pay for the ways to bring another.
    from triskele.models.local import local_embedder

    return local_embedder(model)
