"""Export trained weights to ONNX with integer arithmetic.

    python -m training.export cross TRAINED_FOLDER MINILM_FOLDER OUT [--name NAME]
    python -m training.export encoder MINILM_FOLDER OUT --weights FOLDER:SHARE [FOLDER:SHARE ...] [--name NAME]

Both use the graph builder of scripts/export_model.py. The cross-encoder takes `input_ids` and `attention_mask` and
gives `logits` (batch,). The encoder is averaged with the published weights (the rest of the shares) and exported
with the outputs of the model that ships, `sentence` and `tokens`; `--kept` adds an input of that name, which marks
the tokens that the sentence vector covers, for turns behind their context.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

SCRIPT = Path(__file__).parents[1] / "scripts" / "export_model.py"
WORDS = "embeddings.word_embeddings.weight"
CROSS_FILE = "model.onnx"


def builder() -> ModuleType:
    """The script that exports the model that ships, as a module."""
    spec = importlib.util.spec_from_file_location("export_model", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def trained_state(folder: Path, base: Path) -> dict[str, np.ndarray]:
    """Trained tensors in full precision, with the base model's word vectors."""
    state = {name: value.astype(np.float32) for name, value in load_file(folder / "trained.safetensors").items()}
    return state | {WORDS: load_file(base / "model.safetensors")[WORDS].astype(np.float32)}


def cross_graph(state: dict[str, np.ndarray], config: dict[str, Any], quantised: bool) -> onnx.ModelProto:
    """Token ids in, one logit out: the first token's vector and the mean, mixed."""
    script = builder()
    encoder = script.Encoder(state, config, quantised)
    hidden, g = encoder.hidden(), encoder.graph
    one, zero = g.const("i1", [1], np.int64), g.const("i0", [0], np.int64)
    mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), one)
    count = g.op("ReduceSum", mask, g.const("last axis", [2], np.int64), keepdims=1)
    mean = g.op("Squeeze", g.op("Div", g.op("MatMul", mask, hidden), count), one)
    first = g.op("Squeeze", g.op("Slice", hidden, zero, one, one), one)
    features = g.op("Concat", first, mean, axis=-1)
    for name in ("mix", "score"):
        weight = g.const(f"{name}.weight", state[f"head.{name}.weight"].T, np.float32)
        features = g.op(
            "Add", g.op("MatMul", features, weight), g.const(f"{name}.bias", state[f"head.{name}.bias"], np.float32)
        )
        features = g.op("Tanh", features) if name == "mix" else features
    g.op("Squeeze", features, g.const("i1", [1], np.int64), out="logits")
    info = helper.make_tensor_value_info
    inputs = [info(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "attention_mask")]
    graph = helper.make_graph(
        g.nodes, "cross", inputs, [info("logits", TensorProto.FLOAT, ["batch"])], list(g.constants.values())
    )
    return finished(graph, script)


def finished(graph: onnx.GraphProto, script: ModuleType) -> onnx.ModelProto:
    """A checked model around a graph."""
    domains = [helper.make_opsetid("", script.OPSET), helper.make_opsetid(script.FUSED, 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=script.IR_VERSION, producer_name="triskele")
    onnx.checker.check_model(model)
    return model


def with_kept(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let the sentence vector cover the tokens that a further input marks."""
    (cast,) = [
        n
        for n in model.graph.node
        if n.op_type == "Cast" and n.attribute[0].i == TensorProto.FLOAT and "attention_mask" in n.input
    ]
    cast.input[0] = "kept"
    model.graph.input.append(helper.make_tensor_value_info("kept", TensorProto.INT64, ["batch", "length"]))
    onnx.checker.check_model(model)
    return model


def export_cross(trained: Path, base: Path, out: Path, name: str, quantised: bool) -> None:
    """Write graph, tokenizer and manifest of a cross-encoder."""
    script = builder()
    config = json.loads((trained / "config.json").read_text())
    model = cross_graph(trained_state(trained, base), config, quantised)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    onnx.save(model, out / CROSS_FILE)
    sums = {file: hashlib.sha256((out / file).read_bytes()).hexdigest() for file in (CROSS_FILE, "tokenizer.json")}
    manifest = {"name": name, "layers": config["num_hidden_layers"], "max_tokens": script.MAX_TOKENS, "sha256": sums}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    # What `triskele.models.cross_encoders` reads of a model folder.
    runtime = {"max_position_embeddings": script.MAX_TOKENS, "pad_token_id": 0}
    (out / "config.json").write_text(json.dumps(runtime, indent=2) + "\n")
    print(f"{out / CROSS_FILE}: {(out / CROSS_FILE).stat().st_size / 1e6:.1f} MB")


def averaged(base: Path, weights: list[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The published weights and the trained ones by their shares; tensors and projection."""
    parts = [part.rpartition(":") for part in weights]
    rest = 1 - sum(float(share) for _, _, share in parts)
    published = load_file(base / "model.safetensors")
    state = {name: value.astype(np.float32) for name, value in published.items() if value.dtype.kind == "f"}
    mixed = {name: rest * value for name, value in state.items()}
    projection = rest * np.load(base / "projection.npy")
    for folder, _, share in parts:
        learned = trained_state(Path(folder), base)
        projection = projection + float(share) * learned.pop("projection")
        for name, value in mixed.items():
            mixed[name] = value + float(share) * learned.get(name, state[name])
    return mixed, projection.astype(np.float32)


def export_encoder(base: Path, out: Path, weights: list[str], name: str, kept: bool) -> None:
    """Average the weights, then run the script that exports the bundled model."""
    script = builder()
    state, projection = averaged(base, weights)
    source = out / "weights"
    source.mkdir(parents=True, exist_ok=True)
    save_file({key: value.astype(np.float32) for key, value in state.items()}, source / "model.safetensors")
    save_file({"projection": projection}, source / "projection.safetensors")
    for file in ("config.json", "tokenizer.json"):
        (source / file).write_bytes((base / file).read_bytes())
    script.export(source, out, [], name, "trained by training/, averaged with " + script.PACKAGE, True)
    if kept:
        onnx.save(with_kept(onnx.load(out / script.GRAPH_FILE)), out / script.GRAPH_FILE)
        manifest = json.loads((out / "manifest.json").read_text())
        manifest["sha256"][script.GRAPH_FILE] = script.sha256(out / script.GRAPH_FILE)
        (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description="Export trained weights to ONNX.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cross = verbs.add_parser("cross")
    cross.add_argument("trained", type=Path)
    encoder = verbs.add_parser("encoder")
    for verb, name in ((cross, "triskele-cross"), (encoder, "triskele-minilm-l6-2")):
        verb.add_argument("base", type=Path)
        verb.add_argument("out", type=Path)
        verb.add_argument("--name", default=name)
    cross.add_argument("--fp32", action="store_true")
    encoder.add_argument("--weights", nargs="+", required=True)
    encoder.add_argument("--kept", action="store_true")
    args = parser.parse_args()
    if args.verb == "cross":
        export_cross(args.trained, args.base, args.out, args.name, not args.fp32)
    else:
        export_encoder(args.base, args.out, args.weights, args.name, args.kept)


if __name__ == "__main__":
    main()
