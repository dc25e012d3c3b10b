"""A model folder's manifest, and the check of its files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from triskele.errors import ModelUnavailable

MANIFEST_FILE = "manifest.json"
GRAPH_FILE = "minilm.onnx"
TOKENIZER_FILE = "tokenizer.json"
CROSS_FILE = "cross.onnx"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The name, sizes and checksums of the model in a folder."""

    name: str
    dimensions: int
    token_dimensions: int
    max_tokens: int
    graph_sha256: str
    tokenizer_sha256: str
    # Only the bundled folder has a cross-encoder in addition to its embedding model.
    cross_name: str = ""
    cross_sha256: str = ""

    @property
    def fingerprint(self) -> str:
        """The model's name and a hash of its weights."""
        return f"{self.name}@{self.graph_sha256[:16]}"


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a model folder."""
    path = folder / MANIFEST_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(
            name=str(document["name"]),
            dimensions=int(document["dimensions"]),
            token_dimensions=int(document["token_dimensions"]),
            max_tokens=int(document["max_tokens"]),
            graph_sha256=str(document["sha256"][GRAPH_FILE]),
            tokenizer_sha256=str(document["sha256"][TOKENIZER_FILE]),
            cross_name=str(document.get("cross", "")),
            cross_sha256=str(document["sha256"].get(CROSS_FILE, "")),
        )
    except OSError as error:
        raise ModelUnavailable(f"The model's manifest cannot be read: {path} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelUnavailable(f"The model's manifest is damaged: {path} ({error!r})") from error


def read_verified(path: Path, sha256: str) -> bytes:
    """The file's bytes, after their checksum was verified."""
    content = read_file(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ModelUnavailable(f"A model file does not match its checksum: {path}. Reinstall triskele.")
    return content


def read_file(path: Path) -> bytes:
    """The bytes of a model file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelUnavailable(f"A model file cannot be read: {path} ({error.strerror})") from error
