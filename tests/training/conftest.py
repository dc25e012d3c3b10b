"""Tiny models and data for the training scripts."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
# PyTorch is no dependency of triskele: what needs it is collected where it is installed.
NEEDED = ("torch", "safetensors", "onnx")
collect_ignore = [] if all(map(importlib.util.find_spec, NEEDED)) else [
    "test_runs.py", "test_export.py", "test_recalled.py",
]  # fmt: skip
TOKENIZER = ROOT / "src/triskele/models/weights/tokenizer.json"
CONFIG = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30527,
    "max_position_embeddings": 514, "layer_norm_eps": 1e-5, "type_vocab_size": 2,
}  # fmt: skip
TOPICS = (
    "hiking in the Alps",
    "a red bicycle",
    "learning the cello",
    "baking rye bread",
    "a trip to Lisbon",
    "two cats",
)


def write_model(folder: Path, mpnet: bool) -> Path:
    """A random model under the published names, and a projection."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from training import transformer

    config = CONFIG | {"model_type": "mpnet" if mpnet else "bert"}
    torch.manual_seed(0)
    own = transformer.Transformer(transformer.Shape.read(config)).state_dict()
    state = {}
    for key, name in transformer.embedding_names(mpnet).items():
        state[name] = torch.randn(2, 16) * 0.02 if key == "token" else own[key]
    for layer in range(config["num_hidden_layers"]):
        for key, names in transformer.layer_names(layer, mpnet).items():
            state |= dict(zip(names, own[f"layers.{layer}.{key}"].chunk(len(names)), strict=True))
    folder.mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in state.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    np.save(folder / "projection.npy", np.linalg.qr(np.random.default_rng(0).normal(size=(16, 8)))[0].astype("float32"))
    (folder / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    return folder


def rows() -> list[dict[str, str]]:
    """Published pairs as they are read."""
    made = []
    for i, topic in enumerate(TOPICS):
        said = f"I had a long week. Yesterday I spoke with my friend about {topic}."
        made.append({"q": f"What did Ann say about {topic}?", "d": f"Ann: {said}", "source": "topicalchat_synthq"})
        made.append(
            {
                "q": f"Do you know anything on {topic}?",
                "d": f"Bob: Yes, {topic} is my hobby.",
                "source": "topicalchat_next",
            }
        )
        made.append(
            {"q": f"what is known of {topic}?", "d": f"Much is known of {topic}.", "source": "squad_nqg_sentences"}
        )
        made.append(
            {
                "q": f"{topic} configuration",
                "d": f"To configure {topic}, run the command with {i}.",
                "source": "k8s_docs",
                "licence": "CC-BY-4.0",
            }
        )
    return made


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT."""
    return write_model(tmp_path_factory.mktemp("models") / "bert", mpnet=False)


@pytest.fixture(scope="session")
def mpnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny MPNet."""
    return write_model(tmp_path_factory.mktemp("models") / "mpnet", mpnet=True)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared training data."""
    from training import prepare

    folder = tmp_path_factory.mktemp("data")
    with gzip.open(folder / "pairs.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows())
    prepare.write(folder / "pairs.jsonl.gz", TOKENIZER, folder / "data.npz")
    return folder / "data.npz"
