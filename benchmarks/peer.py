"""A peer to compare with: LanceDB's hybrid search with its RRF reranker, if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME = "LanceDB hybrid, RRF"


class HybridPeer:
    """The same contents and vectors in a LanceDB table with its full-text index; vectors are scanned exactly."""

    def __init__(self, folder: Path, contents: Sequence[str], vectors: NDArray[np.float32]) -> None:
        import lancedb
        import pyarrow
        from lancedb.rerankers import RRFReranker

        flat = pyarrow.array(vectors.ravel())
        columns = {
            "id": pyarrow.array(range(len(contents))),
            "text": pyarrow.array(contents),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        self.version = lancedb.__version__
        self._table = lancedb.connect(str(folder)).create_table("memories", pyarrow.table(columns))
        self._table.create_fts_index("text")
        self._reranker = RRFReranker()

    def search(self, text: str, vector: NDArray[np.float32], limit: int = 10) -> list[dict[str, Any]]:
        """The best rows for a question and its vector."""
        asked = self._table.search(query_type="hybrid").vector(vector).text(text)
        found: list[dict[str, Any]] = asked.rerank(self._reranker).limit(limit).to_list()
        return found


def open_peer(folder: Path, contents: Sequence[str], vectors: NDArray[np.float32]) -> HybridPeer | None:
    """The peer, or None if it is not installed."""
    try:
        return HybridPeer(folder, contents, vectors)
    except ImportError:
        return None
