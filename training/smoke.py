"""Measure the speed of every training command on this machine with random weights of the real sizes.

python -m training.smoke DATA.npz FOLDER [--seconds 10]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from training import transformer

SIZES = {
    "bert": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536, "layer_norm_eps": 1e-12},
    "mpnet": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072, "layer_norm_eps": 1e-5},
}
COMMON = {"num_attention_heads": 12, "vocab_size": 30527, "max_position_embeddings": 514}


def write(folder: Path, kind: str) -> Path:
    """Random weights under the published names."""
    config = COMMON | SIZES[kind] | {"model_type": kind}
    own = transformer.Transformer(transformer.Shape.read(config)).state_dict()
    state = {}
    for key, name in transformer.embedding_names(kind == "mpnet").items():
        state[name] = torch.zeros(2, config["hidden_size"]) if key == "token" else own[key]
    for layer in range(config["num_hidden_layers"]):
        for key, names in transformer.layer_names(layer, kind == "mpnet").items():
            state |= dict(zip(names, own[f"layers.{layer}.{key}"].chunk(len(names)), strict=True))
    (folder / kind).mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone().contiguous() for name, value in state.items()}, folder / kind / "model.safetensors")
    (folder / kind / "config.json").write_text(json.dumps(config))
    projection = np.linalg.qr(np.random.default_rng(0).normal(size=(config["hidden_size"], 96)))[0]
    np.save(folder / kind / "projection.npy", projection.astype("float32"))
    return folder / kind


def main() -> None:
    """Write random models and run the commands."""
    data, folder = (Path(argument) for argument in sys.argv[1:3])
    seconds = sys.argv[3] if len(sys.argv) > 3 else "10"
    bert, mpnet = write(folder, "bert"), write(folder, "mpnet")
    scored = folder / "teacher"
    commands = [
        ["mine", data, bert, folder / "negatives.npy", "--limit", "20000"],
        [
            "teacher",
            data,
            folder / "negatives.npy",
            mpnet,
            scored,
            "--limit",
            "20000",
            "--seconds",
            seconds,
            "--lists",
            "8192",
        ],
        ["student", data, scored, bert, folder / "student", "--seconds", seconds],
        ["encoder", data, scored, bert, folder / "encoder", "--seconds", seconds],
    ]
    for name, *arguments in commands:
        begun = time.monotonic()
        done = subprocess.run([sys.executable, "-m", f"training.{name}", *map(str, arguments)])
        print(f"== {name}: exit {done.returncode}, {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
