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


def local_embedder(name: str, *, may_download: bool = False) -> Embedder:
    """The embedder named `bundled`, by absolute path, or owner/name.

    If it has no token vectors, the bundled model makes them.
    """
    if name == BUNDLED:
        return bundled()
    embedder = _named(name, may_download=may_download)
    return embedder if embedder.token_dimensions else PairedEmbedder(embedder, bundled())


def _named(name: str, *, may_download: bool) -> Embedder:
    folder = _absolute(name)
    if folder is not None and folder.is_dir():
        return _of_folder(folder)
    if folder is not None:
        raise BadInput(f"unknown model {name!r}: there is no such folder")
    if name.startswith(".") or name.count("/") != 1:
        raise BadInput(f"unknown model {name!r}: write {BUNDLED}, a folder's absolute path, or owner/name on the hub")
    return HubEmbedder(fetched(name, may_download=may_download), name)


def _absolute(name: str) -> Path | None:
    """The folder of an absolute path; relative ones depend on the process."""
    folder = Path(name).expanduser()
    return folder if folder.is_absolute() else None


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
    folder = _absolute(name)
    if folder is None or not folder.is_dir():
        if folder is not None or name.startswith(".") or name.count("/") != 1:
            forms = f"{BUNDLED}, a folder's absolute path, or owner/name on the hub"
            raise BadInput(f"unknown cross-encoder {name!r}: write {forms}")
        return HubCrossEncoder(fetched(name, may_download=False), name)
    if any((folder / place).is_file() for place in GRAPHS):
        return ExportedCrossEncoder(folder)
    if any(folder.glob("*.safetensors")):
        return HubCrossEncoder(folder, folder.resolve().name)
    raise BadInput(f"no cross-encoder in {folder}: expected {' or '.join(GRAPHS)}, or *.safetensors with the extra hub")
