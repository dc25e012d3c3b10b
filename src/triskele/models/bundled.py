"""The bundled embedding model: loaded at the first encode, once per process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from triskele.models.embedders import Encoding
from triskele.models.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from triskele.models.inference import BundledRuntime

# onnxruntime sends usage reports unless this is set before it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

MODEL_FOLDER = Path(__file__).parent / "weights"
_lock = Lock()
_shared: BundledEmbedder | None = None


class BundledEmbedder:
    """An Embedder over a model folder; reads the manifest at once and the weights when first used."""

    # One thread: a second one made short queries slower.
    def __init__(self, folder: Path = MODEL_FOLDER, threads: int = 1) -> None:
        self._folder = folder
        self._threads = threads
        self._manifest: Manifest = read_manifest(folder)
        self._loading = Lock()
        self._loaded: BundledRuntime | None = None

    @property
    def fingerprint(self) -> str:
        """The model's name and a hash of its weights."""
        return self._manifest.fingerprint

    @property
    def dimensions(self) -> int:
        """Length of a sentence vector."""
        return self._manifest.dimensions

    @property
    def token_dimensions(self) -> int:
        """Length of a token vector."""
        return self._manifest.token_dimensions

    def encode_query(self, text: str) -> Encoding:
        """Encode one query; tokens beyond the first window are dropped."""
        return self._runtime().encode([text], most_windows=1)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order."""
        return self._runtime().encode(texts) if texts else []

    def _runtime(self) -> BundledRuntime:
        with self._loading:
            if self._loaded is None:
                # Imported here: loading numpy and onnxruntime takes longer than most commands run.
                from triskele.models.inference import BundledRuntime

                self._loaded = BundledRuntime.load(self._folder, self._manifest, self._threads)
            return self._loaded


def bundled() -> BundledEmbedder:
    """The embedder over the bundled model, shared by the whole process."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = BundledEmbedder()
        return _shared
