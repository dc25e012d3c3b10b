"""Find a local model by name: bundled, a folder, or the hub."""

from __future__ import annotations

from pathlib import Path

from triskele.config import BUNDLED
from triskele.errors import BadInput
from triskele.models.bundled import bundled, bundled_cross_encoder, embedder_in
from triskele.models.cross_encoder import CrossEncoder, ExportedCrossEncoder
from triskele.models.embedder import Embedder, PairedEmbedder
from triskele.models.hub import HubCrossEncoder, HubEmbedder, fetched
from triskele.models.manifest import MANIFEST_FILE
from triskele.models.onnx_folder import GRAPHS, ExportedEmbedder

_FORMS = f"{BUNDLED}, a folder's absolute path, or owner/name on the hub"


def local_embedder(name: str, *, may_download: bool = False) -> Embedder:
    """The embedder named `bundled`, by absolute path, or owner/name.

    If it has no token vectors, the bundled model makes them.
    """
    if name == BUNDLED:
        return bundled()
    # Relative folders depend on the process.
    folder = Path(name).expanduser()
    if folder.is_absolute() and not folder.is_dir():
        raise BadInput(f"unknown model {name!r}: there is no such folder")
    if folder.is_absolute():
        embedder = _of_folder(folder)
    elif name.startswith(".") or name.count("/") != 1:
        raise BadInput(f"unknown model {name!r}: write {_FORMS}")
    else:
        embedder = HubEmbedder(fetched(name, may_download=may_download), name)
    return embedder if embedder.token_dimensions else PairedEmbedder(embedder, bundled())


def _of_folder(folder: Path) -> Embedder:
    if (folder / MANIFEST_FILE).is_file():
        return embedder_in(folder)
    if any((folder / place).is_file() for place in GRAPHS):
        return ExportedEmbedder(folder)
    if any(folder.glob("*.safetensors")):
        return HubEmbedder(folder, folder.resolve().name)
    raise BadInput(f"no model in {folder}: expected {' or '.join(GRAPHS)}, or *.safetensors with the extra `hub`")


def local_cross_encoder(name: str) -> CrossEncoder[str]:
    """The cross-encoder named `bundled`, by absolute path, or owner/name."""
    if name == BUNDLED:
        return bundled_cross_encoder()
    folder = Path(name).expanduser()
    if not folder.is_absolute() and not name.startswith(".") and name.count("/") == 1:
        return HubCrossEncoder(fetched(name, may_download=False), name)
    if not folder.is_absolute() or not folder.is_dir():
        raise BadInput(f"unknown cross-encoder {name!r}: write {_FORMS}")
    if any((folder / place).is_file() for place in GRAPHS):
        return ExportedCrossEncoder(folder)
    if any(folder.glob("*.safetensors")):
        return HubCrossEncoder(folder, folder.resolve().name)
    raise BadInput(f"no cross-encoder in {folder}: expected {' or '.join(GRAPHS)}, or *.safetensors with the extra hub")
