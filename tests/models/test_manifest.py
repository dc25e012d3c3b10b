"""A model folder must be whole before anything is read from it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from triskele.errors import ModelUnavailable
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder, release
from triskele.models.manifest import GRAPH_FILE, TOKENIZER_FILE, read_manifest, read_verified

# The digest of the learned constants by the identity of the weights, which is the checksum of their first file.
LEARNED_SHA256 = {
    "triskele-minilm-l6-3@9bd567c11fd4abab": "59c4d23aec993be0923ce75a5d3450d10f00589f6cc186487c46896a2dac3ef0",
}


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
    changed["weights"] = changed["sha256"][GRAPH_FILE] = "0" * 64
    path.write_text(json.dumps(changed))
    assert BundledEmbedder(folder).fingerprint == f"{changed['name']}@{'0' * 16}"


def test_a_folder_cannot_claim_the_identity_of_other_weights(folder: Path) -> None:
    graph = (folder / GRAPH_FILE).read_bytes() + b"\x32\x01x"
    (folder / GRAPH_FILE).write_bytes(graph)
    path = folder / "manifest.json"
    changed = json.loads(path.read_text())
    changed["weights"] = "9bd567c11fd4abab"
    changed["sha256"][GRAPH_FILE] = hashlib.sha256(graph).hexdigest()
    path.write_text(json.dumps(changed))
    assert BundledEmbedder(folder).fingerprint == f"{changed['name']}@{changed['sha256'][GRAPH_FILE][:16]}"


def test_the_graph_holds_the_weights_whose_identity_it_keeps() -> None:
    graph = _fields((MODEL_FOLDER / GRAPH_FILE).read_bytes())[7][0]
    tensors = {fields[8][0].decode(): fields[9][0] for fields in map(_fields, _fields(graph)[5]) if 9 in fields}
    learned = sorted(name for name in tensors if "." in name or name in ("words", "positions", "projection"))
    digest = hashlib.sha256(b"".join(name.encode() + tensors[name] for name in learned))
    assert len(learned) == 102 and digest.hexdigest() == LEARNED_SHA256[BundledEmbedder().fingerprint]


def test_weights_that_ship_have_the_number_of_their_release() -> None:
    assert release(BundledEmbedder().fingerprint) == 3
    assert [release(name) for name in ("triskele-minilm-l6@1", "triskele-minilm-l6-12@1")] == [1, 12]
    assert [release(name) for name in ("triskele-minilm-l6", "my-model-3@1", "triskele-minilm-l6-x@1", "")] == [0] * 4


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """The fields of a protocol buffer that hold bytes, by number."""
    contents: dict[int, list[bytes]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (message[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if message[at - 1] < 128:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 2:
            size = number()
            contents.setdefault(key >> 3, []).append(message[at : at + size])
            at += size
        elif key & 7 == 0:
            number()
        else:
            at += 4
    return contents


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
