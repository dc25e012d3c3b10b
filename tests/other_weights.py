"""The bundled weights in another file: another model as far as a store can tell, with the same vectors."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.models.manifest import GRAPH_FILE, MANIFEST_FILE


def other_weights(folder: Path, letter: str = "x", name: str = "") -> BundledEmbedder:
    """A copy of the bundled embedder in a folder, whose fingerprint a letter and a name of its own make another."""
    shutil.copytree(MODEL_FOLDER, folder)
    # The last field of the file, a remark on the model: it changes the checksum and nothing else.
    graph = (folder / GRAPH_FILE).read_bytes() + b"\x32\x01" + letter.encode()
    (folder / GRAPH_FILE).write_bytes(graph)
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    manifest["sha256"][GRAPH_FILE] = hashlib.sha256(graph).hexdigest()
    (folder / MANIFEST_FILE).write_text(json.dumps({**manifest, "name": name or manifest["name"]}))
    return BundledEmbedder(folder)
