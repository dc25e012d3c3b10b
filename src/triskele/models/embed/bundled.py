"""The model that ships with the package: loaded at the first encode, once per process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from triskele.models.embed.manifest import Manifest, read_manifest
from triskele.models.embed.protocol import Encoding

if TYPE_CHECKING:
    from triskele.models.embed.runtime import Runtime

# onnxruntime reports its use to its maker unless told not to before it is loaded; nothing leaves this machine.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

MODEL_FOLDER = Path(__file__).parent.parent / "weights"
_lock = Lock()
_shared: BundledEmbedder | None = None


class BundledEmbedder:
    """An Embedder over a model folder; reads the manifest at once and the weights when first used."""

    # One thread: on questions of a few words a second one cost more than it brought.
    def __init__(self, folder: Path = MODEL_FOLDER, threads: int = 1) -> None:
        self._folder = folder
        self._threads = threads
        self._manifest: Manifest = read_manifest(folder)
        self._loading = Lock()
        self._loaded: Runtime | None = None

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
        """Encode one question; what goes beyond one window of tokens is not read."""
        return self._runtime().encode([text], most_windows=1)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts to be found, in their order."""
        return self._runtime().encode(texts) if texts else []

    def _runtime(self) -> Runtime:
        with self._loading:
            if self._loaded is None:
                # Imported here: numpy and onnxruntime cost more than most commands do.
                from triskele.models.embed.runtime import Runtime

                self._loaded = Runtime.load(self._folder, self._manifest, self._threads)
            return self._loaded


def bundled() -> BundledEmbedder:
    """The process's one embedder over the bundled model."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = BundledEmbedder()
        return _shared
