"""From a name in the settings to a local cross-encoder: a folder, or one of the hub."""

from __future__ import annotations

from triskele.errors import BadInput
from triskele.models.cross_encoder.exported import ExportedCrossEncoder
from triskele.models.cross_encoder.hub import HubCrossEncoder
from triskele.models.cross_encoder.protocol import CrossEncoder
from triskele.models.embed.choosing import whole_path
from triskele.models.embed.exported import GRAPHS
from triskele.models.embed.hub import fetched


def local_cross_encoder(name: str) -> CrossEncoder[str]:
    """The model that a name means: the path of a folder, or owner/name of a model that the hub's cache holds."""
    folder = whole_path(name)
    if folder is None or not folder.is_dir():
        if folder is not None or name.startswith(".") or name.count("/") != 1:
            raise BadInput(
                f"no cross-encoder is called {name!r}: write a folder's whole path, or owner/name of the hub"
            )
        return HubCrossEncoder(fetched(name, may_download=False), name)
    if any((folder / place).is_file() for place in GRAPHS):
        return ExportedCrossEncoder(folder)
    if any(folder.glob("*.safetensors")):
        return HubCrossEncoder(folder, folder.resolve().name)
    raise BadInput(f"no cross-encoder in {folder}: expected {' or '.join(GRAPHS)}, or *.safetensors with the extra hub")
