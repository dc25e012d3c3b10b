"""The bundled embedder and cross-encoder, loaded once per process at first use."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from triskele.config import BUNDLED
from triskele.errors import ModelUnavailable
from triskele.models.deadlines import Limited
from triskele.models.embedder import Encoding, LazyModel, LocalEmbedder
from triskele.models.manifest import (
    CROSS_FILE,
    GRAPH_FILE,
    MANIFEST_FILE,
    TOKENIZER_FILE,
    read_manifest,
    read_verified,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from triskele.models.cross_encoder import Context
    from triskele.models.inference import BundledRuntime, CrossRuntime

# onnxruntime sends usage reports unless this is set before it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

MODEL_FOLDER = Path(__file__).parent / "weights"
# The name of the weights of a release; the first has no number.
_RELEASE = re.compile(r"triskele-minilm-l6(?:-([0-9]+))?@")
_lock = Lock()
_shared: BundledEmbedder | None = None
_shared_cross: BundledCrossEncoder | None = None
_others: WeakValueDictionary[tuple[Path, str], BundledEmbedder] = WeakValueDictionary()
# Copies leave so much of a disk free: the memories are written there too.
_SPARE_BYTES = 64 << 20
# A batch of ten candidates is large enough for two threads to share.
_CROSS_THREADS = 2
_AT_ONCE = 2


class BundledEmbedder(LocalEmbedder["BundledRuntime"]):
    """An embedder over a folder of weights that triskele shipped."""

    def __init__(self, folder: Path = MODEL_FOLDER) -> None:
        self._folder = folder
        self._manifest = manifest = read_manifest(folder)
        super().__init__(manifest.fingerprint, manifest.dimensions, manifest.token_dimensions)

    def encode_query(self, text: str) -> Encoding:
        """Encode one query; tokens beyond the first window are dropped."""
        return self._runtime().encode([text], most_windows=1)[0]

    def encode_documents(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode documents, in their order."""
        return self._runtime().encode(texts) if texts else []

    def _load(self) -> BundledRuntime:
        from triskele.models.inference import BundledRuntime

        return BundledRuntime.load(self._folder, self._manifest)


def keep_weights(home: Path) -> None:
    """Keep the bundled embedder in the data folder, for later versions.

    Links need no space until an update removes the files of the package; where there can be none, the files are copied.
    Nothing is left of what cannot be kept whole.
    """
    target = _kept_folder(home, bundled().fingerprint)
    if (target / MANIFEST_FILE).exists():
        return
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # The manifest comes last: with it, the folder is whole.
        for name in (GRAPH_FILE, TOKENIZER_FILE, MANIFEST_FILE):
            part = target / f"{name}.part"
            part.unlink(missing_ok=True)
            _link_or_copy(MODEL_FOLDER / name, part)
            part.replace(target / name)
    except OSError:
        if not (target / MANIFEST_FILE).exists():
            shutil.rmtree(target, ignore_errors=True)
        raise


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        if shutil.disk_usage(target.parent).free < source.stat().st_size + _SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from None
        shutil.copyfile(source, target)


def release(fingerprint: str) -> int:
    """Number of the release that shipped some weights; otherwise 0."""
    match = _RELEASE.match(fingerprint)
    return int(match[1] or 1) if match else 0


def kept_names(home: Path) -> list[str]:
    """Fingerprints of kept earlier weights, latest first; some may be incomplete."""
    names = {folder.name for folder in (home / "models").glob("*")} - {bundled().fingerprint}
    return sorted(filter(release, names), key=release, reverse=True)


def kept_weights(home: Path, fingerprint: str) -> Path | None:
    """The folder with kept weights, if they are whole."""
    folder = _kept_folder(home, fingerprint)
    with suppress(ModelUnavailable):
        # What was linked may have been written over in place.
        if release(fingerprint) and (manifest := read_manifest(folder)).fingerprint == fingerprint:
            read_verified(folder / GRAPH_FILE, manifest.graph_sha256)
            read_verified(folder / TOKENIZER_FILE, manifest.tokenizer_sha256)
            return folder
    return None


def place_of(name: str, home: Path) -> str:
    """Where a model lies: shipped weights are named by their fingerprint."""
    with suppress(ModelUnavailable):
        # As after a rollback, and then a return to the version that ships them.
        if name == bundled().fingerprint:
            return BUNDLED
    return str(_kept_folder(home, name)) if release(name) else name


def _kept_folder(home: Path, fingerprint: str) -> Path:
    return home / "models" / fingerprint


def embedder_in(folder: Path) -> BundledEmbedder:
    """The embedder over a folder of weights, shared by concurrent users."""
    embedder = BundledEmbedder(folder)
    with _lock:
        return _others.setdefault((folder, embedder.fingerprint), embedder)


def bundled() -> BundledEmbedder:
    """The embedder over the bundled model, shared by the whole process."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = BundledEmbedder()
        return _shared


class BundledCrossEncoder(LazyModel["CrossRuntime"]):
    """The cross-encoder that ships; a logit of 0 means even odds."""

    def __init__(self, folder: Path = MODEL_FOLDER) -> None:
        super().__init__()
        self._folder = folder
        self._manifest = read_manifest(folder)
        if not self._manifest.cross_sha256:
            raise ModelUnavailable(f"The model's manifest names no {CROSS_FILE}: {folder}")
        self._within = Limited(_AT_ONCE)

    @property
    def name(self) -> str:
        """The name shown in explanations."""
        return self._manifest.cross_name

    def score(self, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()) -> NDArray[np.float32]:
        """One logit per text; `contexts` belong to short turns of conversations."""
        return self._runtime().logits(question, texts, contexts)

    def score_within(
        self, seconds: float, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()
    ) -> NDArray[np.float32]:
        """One logit per text, or TimeoutError when the time is up."""
        return self._within(seconds, lambda: self.score(question, texts, contexts))

    def _load(self) -> CrossRuntime:
        from triskele.models.inference import CrossRuntime

        return CrossRuntime.load(self._folder, self._manifest, min(_CROSS_THREADS, os.cpu_count() or 1))


def bundled_cross_encoder() -> BundledCrossEncoder:
    """The bundled cross-encoder, shared by the whole process."""
    global _shared_cross
    with _lock:
        if _shared_cross is None:
            _shared_cross = BundledCrossEncoder()
        return _shared_cross
