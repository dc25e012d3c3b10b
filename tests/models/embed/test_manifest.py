"""A model folder must be whole before anything is read from it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from triskele.errors import ModelUnavailable
from triskele.models.embed.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.models.embed.manifest import GRAPH_FILE, TOKENIZER_FILE, read_manifest, read_verified


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(MODEL_FOLDER, copy)
    return copy


def test_the_bundled_files_are_the_ones_the_manifest_names() -> None:
    manifest = read_manifest(MODEL_FOLDER)
    assert len(read_verified(MODEL_FOLDER / GRAPH_FILE, manifest.graph_sha256)) <= 25_000_000
    read_verified(MODEL_FOLDER / TOKENIZER_FILE, manifest.tokenizer_sha256)


def test_the_card_names_the_checksum_of_the_weights() -> None:
    assert read_manifest(MODEL_FOLDER).graph_sha256 in (MODEL_FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_the_fingerprint_follows_name_and_weights_and_nothing_of_the_machine(folder: Path) -> None:
    assert BundledEmbedder(folder).fingerprint == BundledEmbedder().fingerprint
    path = folder / "manifest.json"
    changed = json.loads(path.read_text())
    changed["sha256"][GRAPH_FILE] = "0" * 64
    path.write_text(json.dumps(changed))
    assert BundledEmbedder(folder).fingerprint != BundledEmbedder().fingerprint


@pytest.mark.parametrize("file", [GRAPH_FILE, TOKENIZER_FILE])
def test_a_changed_file_is_refused_by_name(folder: Path, file: str) -> None:
    with (folder / file).open("r+b") as opened:
        opened.seek(-1, 2)
        last = opened.read(1)
        opened.seek(-1, 2)
        opened.write(bytes([last[0] ^ 1]))
    with pytest.raises(ModelUnavailable, match=file):
        BundledEmbedder(folder).encode_query("anything")


@pytest.mark.parametrize("file", [GRAPH_FILE, TOKENIZER_FILE])
def test_a_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ModelUnavailable, match=file):
        BundledEmbedder(folder).encode_query("anything")


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"name": "x", "dimensions": "many"}'])
def test_a_missing_or_damaged_manifest_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ModelUnavailable, match=r"manifest\.json"):
        BundledEmbedder(tmp_path)
