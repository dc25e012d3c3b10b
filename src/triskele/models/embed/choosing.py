"""From a name in the settings to a local model: the bundled one, a folder, or one of the hub."""

from __future__ import annotations

from pathlib import Path

from triskele.config import BUNDLED
from triskele.errors import BadInput
from triskele.models.embed.bundled import BundledEmbedder, bundled
from triskele.models.embed.exported import GRAPHS, ExportedEmbedder
from triskele.models.embed.families import Family
from triskele.models.embed.hub import HubEmbedder, fetched
from triskele.models.embed.manifest import MANIFEST_FILE
from triskele.models.embed.paired import PairedEmbedder
from triskele.models.embed.protocol import Embedder


def local_embedder(name: str, settings: Family | None = None, *, may_download: bool = False) -> Embedder:
    """The model that a name means: `bundled`, a folder's path, or owner/name on the hub.

    Where it has no token vectors, the bundled one gives them.
    """
    if name == BUNDLED:
        return bundled()
    found = _named(name, settings, may_download=may_download)
    return found if found.token_dimensions else PairedEmbedder(found, bundled())


def _named(name: str, settings: Family | None, *, may_download: bool) -> Embedder:
    folder = whole_path(name)
    if folder is not None and folder.is_dir():
        return _of_folder(folder, settings)
    if folder is not None or name.startswith(".") or name.count("/") != 1:
        raise BadInput(f"no model is called {name!r}: write {BUNDLED}, a folder's whole path, or owner/name of the hub")
    return HubEmbedder(fetched(name, may_download=may_download), name, settings)


def whole_path(name: str) -> Path | None:
    """The folder that a name means; a part of a path means none, for it would be another one in every folder."""
    folder = Path(name).expanduser()
    return folder if folder.is_absolute() else None


def _of_folder(folder: Path, settings: Family | None) -> Embedder:
    if (folder / MANIFEST_FILE).is_file():
        return BundledEmbedder(folder)
    if any((folder / place).is_file() for place in GRAPHS):
        return ExportedEmbedder(folder, settings)
    if any(folder.glob("*.safetensors")):
        return HubEmbedder(folder, folder.resolve().name, settings)
    raise BadInput(f"no model in {folder}: expected {' or '.join(GRAPHS)}, or *.safetensors with the extra `hub`")
