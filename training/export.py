"""Export trained weights to ONNX with integer arithmetic.

    python -m training.export cross TRAINED_FOLDER MINILM_FOLDER OUT [--name NAME]
    python -m training.export encoder MINILM_FOLDER OUT --weights FOLDER:SHARE [FOLDER:SHARE ...] [--name NAME]
    python -m training.export rewrite FOLDER

The first two use the graph builder of scripts/export_model.py. The cross-encoder takes `input_ids` and
`attention_mask` and gives `logits` (batch,). The encoder is averaged with the published weights (the rest of the
shares) and exported with the outputs of the model that ships, `sentence` and `tokens`; `--kept` adds an input of that
name, which marks the tokens that the sentence vector covers, for turns behind their context.

`rewrite` writes the graphs of a model folder again around the constants that they hold, without `attention_mask`, as
they ship; the manifest keeps the identity of the weights, so that stores keep their vectors.
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
# What is learned is named after its layer, with a dot; the rest (shapes, steps, zero points) is the form of the graph.
TABLES = ("words", "positions", "projection")


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


def cross_graph(encoder: Any, head: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Token ids in, one logit out: the first token's vector and the mean, mixed."""
    hidden, g = encoder.hidden(), encoder.graph
    one, zero = g.const("i1", [1], np.int64), g.const("i0", [0], np.int64)
    mask = encoder.present()
    count = g.op("ReduceSum", mask, g.const("last axis", [2], np.int64), keepdims=1)
    mean = g.op("Squeeze", g.op("Div", g.op("MatMul", mask, hidden), count), one)
    first = g.op("Squeeze", g.op("Slice", hidden, zero, one, one), one)
    features = g.op("Concat", first, mean, axis=-1)
    for name in ("mix", "score"):
        weight, bias = (g.const(f"{name}.{kind}", head[f"{name}.{kind}"], np.float32) for kind in ("weight", "bias"))
        features = g.op("Add", g.op("MatMul", features, weight), bias)
        features = g.op("Tanh", features) if name == "mix" else features
    g.op("Squeeze", features, one, out="logits")
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch"])
    graph = helper.make_graph(g.nodes, "cross", encoder.inputs(), [output], list(g.constants.values()))
    return builder().finished(graph)


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
    state = trained_state(trained, base)
    head = {f"{name}.weight": state[f"head.{name}.weight"].T for name in ("mix", "score")}
    head |= {f"{name}.bias": state[f"head.{name}.bias"] for name in ("mix", "score")}
    model = cross_graph(script.Encoder(script.constants(state, config, quantised), config, quantised), head)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    onnx.save(model, out / CROSS_FILE)
    sums = {file: hashlib.sha256((out / file).read_bytes()).hexdigest() for file in (CROSS_FILE, "tokenizer.json")}
    manifest = {"name": name, "layers": config["num_hidden_layers"], "max_tokens": script.MAX_TOKENS, "sha256": sums}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    # What `triskele.models.cross_encoder` reads of a model folder.
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
    script.export(source, out, [], name, f"trained by training/, averaged with the weights of {base.name}", True)
    if kept:
        onnx.save(with_kept(onnx.load(out / script.GRAPH_FILE)), out / script.GRAPH_FILE)
        manifest = json.loads((out / "manifest.json").read_text())
        manifest["sha256"][script.GRAPH_FILE] = script.sha256(out / script.GRAPH_FILE)
        (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def config_of(model: onnx.ModelProto) -> dict[str, Any]:
    """Sizes of an encoder, as its graph shows them."""
    options = {
        (node.op_type, option.name): helper.get_attribute_value(option)
        for node in model.graph.node
        for option in node.attribute
    }
    held = {value.name: value for value in model.graph.initializer}
    return {
        "hidden_size": held["positions"].dims[1],
        "num_hidden_layers": sum(name.endswith(".qkv.weight") for name in held),
        "num_attention_heads": options["MultiHeadAttention", "num_heads"],
        "layer_norm_eps": options["LayerNormalization", "epsilon"],
    }


def rewritten(path: Path) -> onnx.ModelProto:
    """The graph in a file, written again without a mask around the same constants."""
    script, old = builder(), onnx.load(path)
    if any(entry.name == "kept" for entry in old.graph.input):
        raise SystemExit(f"{path}: a graph with an input of kept tokens is not rewritten")
    held = script.constants_of(old)
    encoder = script.Encoder(held, config_of(old), quantised=True, masked=False)
    model = script.build(encoder) if "projection" in held else cross_graph(encoder, held)
    lost = {value.name: value for value in old.graph.initializer if "." in value.name or value.name in TABLES}
    for value in model.graph.initializer:
        if lost.pop(value.name, value) != value:
            raise SystemExit(f"{path}: {value.name} would change")
    if lost:
        raise SystemExit(f"{path}: {', '.join(lost)} would be lost")
    return model


def rewrite(folder: Path) -> None:
    """Write the graphs of a model folder again, with their checksums; `SAME_WEIGHTS` gets the line that is printed."""
    manifest_file = folder / "manifest.json"
    manifest = json.loads(manifest_file.read_text())
    first = manifest["sha256"][builder().GRAPH_FILE]
    for file in (name for name in manifest["sha256"] if name.endswith(".onnx")):
        onnx.save(rewritten(folder / file), folder / file)
        manifest["sha256"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        print(f"{folder / file}: {(folder / file).stat().st_size / 1e6:.1f} MB")
    manifest_file.write_text(json.dumps(manifest, indent=2) + "\n")
    print(f'"{manifest["sha256"][builder().GRAPH_FILE]}": "{first[:16]}"')


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description="Export trained weights to ONNX.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cross = verbs.add_parser("cross")
    cross.add_argument("trained", type=Path)
    encoder = verbs.add_parser("encoder")
    for verb, name in ((cross, "triskele-cross"), (encoder, "triskele-minilm-l6-3")):
        verb.add_argument("base", type=Path)
        verb.add_argument("out", type=Path)
        verb.add_argument("--name", default=name)
    cross.add_argument("--fp32", action="store_true")
    encoder.add_argument("--weights", nargs="+", required=True)
    encoder.add_argument("--kept", action="store_true")
    verbs.add_parser("rewrite").add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.verb == "rewrite":
        rewrite(args.folder)
    elif args.verb == "cross":
        export_cross(args.trained, args.base, args.out, args.name, not args.fp32)
    else:
        export_encoder(args.base, args.out, args.weights, args.name, args.kept)


if __name__ == "__main__":
    main()
