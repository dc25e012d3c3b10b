"""Turn the graphs that ship back into weights, so that training can begin from them.

    python -m training.from_graph encoder src/triskele/models/weights/minilm.onnx OUT
    python -m training.from_graph cross src/triskele/models/weights/cross.onnx OUT

OUT gets model.safetensors and config.json, of the encoder also projection.npy, and trained.safetensors of the
cross-encoder. The weights are those of the integers in the graph, 7 bits and a scale per output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

HEADS, EPSILON, GELU_FLOOR = 12, 1e-12, 0.17
WORDS = "embeddings.word_embeddings.weight"
LINEAR = {"attention.output": "attention.output.dense", "intermediate": "intermediate.dense", "output": "output.dense"}


def constants(path: Path) -> dict[str, np.ndarray]:
    """The graph's constants by name."""
    return {value.name: numpy_helper.to_array(value) for value in onnx.load(str(path)).graph.initializer}


def linear(found: dict[str, np.ndarray], name: str, floor: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The weight (outputs, inputs) and the bias of one layer; `floor` was added to its inputs."""
    weight = found[f"{name}.weight"].T.astype(np.float32) * found[f"{name}.scale"][:, None]
    return weight, found[f"{name}.bias"] + floor * weight.sum(1)


def layers(found: dict[str, np.ndarray]) -> int:
    """The number of layers."""
    return sum(name.endswith(".qkv.weight") for name in found)


def state_of(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors under their published names."""
    positions = found["positions"]
    state = {name: value for name, value in found.items() if "LayerNorm" in name}
    state[WORDS] = found["words"].astype(np.float32) * found["words.scale"]
    state["embeddings.position_embeddings.weight"] = positions
    # The graph's positions hold the vector of segment 0 already.
    state["embeddings.token_type_embeddings.weight"] = np.zeros((2, positions.shape[1]), np.float32)
    for number in range(layers(found)):
        prefix = f"encoder.layer.{number}"
        weight, bias = linear(found, f"{prefix}.qkv")
        for head, own, shift in zip(("query", "key", "value"), np.split(weight, 3), np.split(bias, 3), strict=True):
            state |= {f"{prefix}.attention.self.{head}.weight": own, f"{prefix}.attention.self.{head}.bias": shift}
        for ours, theirs in LINEAR.items():
            weight, bias = linear(found, f"{prefix}.{ours}", GELU_FLOOR if ours == "output" else 0.0)
            state |= {f"{prefix}.{theirs}.weight": weight, f"{prefix}.{theirs}.bias": bias}
    return {name: np.ascontiguousarray(value, np.float32) for name, value in state.items()}


def config_of(found: dict[str, np.ndarray]) -> dict[str, object]:
    """What training reads of a config."""
    words, hidden = found["words"].shape
    wide = found["encoder.layer.0.intermediate.weight"].shape[1]
    return {
        "model_type": "bert", "hidden_size": hidden, "num_hidden_layers": layers(found), "num_attention_heads": HEADS,
        "intermediate_size": wide, "vocab_size": words, "layer_norm_eps": EPSILON,
        "max_position_embeddings": len(found["positions"]),
    }  # fmt: skip


def main() -> None:
    """Parse the command line and write the folder."""
    kind, path, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = constants(path)
    out.mkdir(parents=True, exist_ok=True)
    state = state_of(found)
    save_file(state, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config_of(found), indent=2) + "\n")
    if kind == "encoder":
        np.save(out / "projection.npy", found["projection"])
        return
    head = {f"head.{name}.weight": found[f"{name}.weight"].T for name in ("mix", "score")}
    head |= {f"head.{name}.bias": found[f"{name}.bias"] for name in ("mix", "score")}
    save_file(
        {name: np.ascontiguousarray(value) for name, value in (state | head).items()}, out / "trained.safetensors"
    )


if __name__ == "__main__":
    main()
