"""Weights in the form of the bundled ones that know words and no meaning: each word has a random vector."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import tiny_onnx

from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.models.manifest import GRAPH_FILE, MANIFEST_FILE, TOKENIZER_FILE

WORDS, SIZE, TOKEN_SIZE = 30_522, 16, 8


def noise_weights(folder: Path, name: str = "noise", *, common: float = 20) -> BundledEmbedder:
    """A folder like that of the bundled embedder, whose vectors mean nothing."""
    rng = np.random.default_rng(5)
    # With a large common part every sentence is nearly the same to it: what is nearest is chance.
    sentence = rng.normal(size=(WORDS, SIZE)).astype(np.float32) + np.float32(common)
    tokens = rng.normal(size=(WORDS, TOKEN_SIZE)).astype(np.float32)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    nodes = [
        tiny_onnx.node("Gather", ["token_table", "input_ids"], "tokens"),
        tiny_onnx.node("Gather", ["table", "input_ids"], "words"),
        tiny_onnx.node("ReduceMean", ["words"], "mean", axes=[1], keepdims=0),
        tiny_onnx.node("ReduceL2", ["mean"], "length", axes=[1], keepdims=1),
        tiny_onnx.node("Div", ["mean", "length"], "sentence"),
    ]
    shapes = {"sentence": ("batch", SIZE), "tokens": ("batch", "length", TOKEN_SIZE)}
    tiny_onnx.write(folder / GRAPH_FILE, nodes, {"table": sentence, "token_table": tokens}, shapes, ("input_ids",))
    shutil.copy(MODEL_FOLDER / TOKENIZER_FILE, folder)
    manifest = json.loads((MODEL_FOLDER / MANIFEST_FILE).read_text())
    sums = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in (GRAPH_FILE, TOKENIZER_FILE)}
    sizes = {"dimensions": SIZE, "token_dimensions": TOKEN_SIZE}
    (folder / MANIFEST_FILE).write_text(json.dumps({**manifest, **sizes, "name": name, "sha256": sums}))
    return BundledEmbedder(folder)
