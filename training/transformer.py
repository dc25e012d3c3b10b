"""BERT and MPNet encoders in one small module, written for throughput on one GPU."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

# Token ids are BERT's everywhere; MPNet's vocabulary is the same list behind four markers of its own.
CLS, SEP, PAD = 101, 102, 0
MPNET_OFFSET, MPNET_CLS, MPNET_SEP, MPNET_PAD = 4, 0, 2, 1
MPNET_POSITIONS = 2  # the first position's row


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of an encoder."""

    hidden: int
    layers: int
    heads: int
    wide: int
    words: int
    positions: int
    epsilon: float
    mpnet: bool = False

    @staticmethod
    def read(config: dict) -> Shape:
        """From a model's config.json."""
        return Shape(
            config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"],
            config["intermediate_size"], config["vocab_size"], config["max_position_embeddings"],
            config["layer_norm_eps"], config["model_type"] == "mpnet",
        )  # fmt: skip


class Layer(nn.Module):
    """Attention and feed-forward, each with its residual and norm behind it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.hidden, 3 * shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.hidden)
        self.norm1 = nn.LayerNorm(shape.hidden, shape.epsilon)
        self.up = nn.Linear(shape.hidden, shape.wide)
        self.down = nn.Linear(shape.wide, shape.hidden)
        self.norm2 = nn.LayerNorm(shape.hidden, shape.epsilon)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, length, hidden); mask: added to the attention scores."""
        batch, length, hidden = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        heard = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        heard = heard.transpose(1, 2).reshape(batch * length, hidden)
        return self.rest(x.reshape(batch * length, hidden), heard).view(batch, length, hidden)

    def rest(self, x: Tensor, heard: Tensor) -> Tensor:
        """Everything behind the attention, token by token; what is worth compiling."""
        x = self.norm1(x + self.out(heard))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Transformer(nn.Module):
    """Token ids (0 pads) to the last layer's vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.words, shape.hidden)
        self.positions = nn.Embedding(shape.positions, shape.hidden)
        self.segment = nn.Parameter(torch.zeros(shape.hidden))
        self.norm = nn.LayerNorm(shape.hidden, shape.epsilon)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.bias = nn.Embedding(32, shape.heads) if shape.mpnet else None

    def forward(self, ids: Tensor) -> Tensor:
        """ids: (batch, length) of BERT's vocabulary."""
        padding = ids == PAD
        words, first = (mpnet_ids(ids), MPNET_POSITIONS) if self.shape.mpnet else (ids, 0)
        places = self.positions.weight[first : first + ids.shape[1]]
        x = self.norm(self.words(words) + places + self.segment)
        mask = self.attention_mask(padding, x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def attention_mask(self, padding: Tensor, dtype: torch.dtype) -> Tensor:
        """Minus infinity at padded keys, plus the relative position bias if there is one."""
        batch, length = padding.shape
        mask = torch.zeros(batch, 1, 1, length, dtype=dtype, device=padding.device)
        mask = mask.masked_fill(padding[:, None, None, :], torch.finfo(dtype).min)
        if self.bias is None:
            return mask.expand(batch, 1, length, length)
        bias = self.bias(relative_buckets(length, padding.device)).permute(2, 0, 1)
        return bias.to(dtype)[None] + mask


def mpnet_ids(ids: Tensor) -> Tensor:
    """BERT's token ids as MPNet's."""
    shifted = ids + MPNET_OFFSET
    for ours, theirs in ((CLS, MPNET_CLS), (SEP, MPNET_SEP), (PAD, MPNET_PAD)):
        shifted = torch.where(ids == ours, theirs, shifted)
    return shifted


def relative_buckets(length: int, device: torch.device) -> Tensor:
    """MPNet's 32 buckets of distance, as (query, key)."""
    place = torch.arange(length, device=device)
    distance = place[:, None] - place[None, :]
    sign = (distance < 0).long() * 16
    distance = distance.abs()
    far = 8 + (torch.log(distance.float().clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
    return sign + torch.where(distance < 8, distance, far.clamp(max=15))


def load(folder: Path, layers: list[int] | None = None) -> Transformer:
    """An encoder from config.json and model.safetensors; `layers` keeps only those."""
    config = json.loads((folder / "config.json").read_text())
    return from_state(load_file(folder / "model.safetensors"), config, layers)


def from_state(state: dict[str, Tensor], config: dict, layers: list[int] | None = None) -> Transformer:
    """An encoder from the published tensors."""
    layers = list(range(config["num_hidden_layers"])) if layers is None else layers
    model = Transformer(Shape.read(config | {"num_hidden_layers": len(layers)}))
    own = {key: state[theirs].float() for key, theirs in embedding_names(model.shape.mpnet).items()}
    if "token" in own:
        own["segment"] = own.pop("token")[0]
    for number, layer in enumerate(layers):
        names = layer_names(layer, model.shape.mpnet)
        for key, theirs in names.items():
            own[f"layers.{number}.{key}"] = torch.cat([state[name].float() for name in theirs])
    if model.shape.mpnet:
        own["segment"] = torch.zeros(model.shape.hidden)
    model.load_state_dict(own)
    return model


def to_state(model: Transformer) -> dict[str, Tensor]:
    """The tensors of an encoder under their published names."""
    own, state, mpnet = model.state_dict(), {}, model.shape.mpnet
    for key, theirs in embedding_names(mpnet).items():
        state[theirs] = own["segment"].expand(2, -1) if key == "token" else own[key]
    for number in range(model.shape.layers):
        for key, theirs in layer_names(number, mpnet).items():
            parts = own[f"layers.{number}.{key}"].chunk(len(theirs))
            state |= dict(zip(theirs, parts, strict=True))
    return {name: tensor.detach().float().cpu().contiguous().clone() for name, tensor in state.items()}


def embedding_names(mpnet: bool) -> dict[str, str]:
    """Our names of the tensors before the first layer, and the published ones."""
    names = {
        "words.weight": "embeddings.word_embeddings.weight",
        "positions.weight": "embeddings.position_embeddings.weight",
        "norm.weight": "embeddings.LayerNorm.weight",
        "norm.bias": "embeddings.LayerNorm.bias",
    }
    more = {"bias.weight": "encoder.relative_attention_bias.weight"} if mpnet else {}
    return names | (more or {"token": "embeddings.token_type_embeddings.weight"})


def layer_names(number: int, mpnet: bool) -> dict[str, list[str]]:
    """Our names of one layer's tensors, and the published ones they join."""
    prefix = f"encoder.layer.{number}"
    heads = (
        [f"attention.attn.{h}" for h in "qkv"] if mpnet else [f"attention.self.{h}" for h in ("query", "key", "value")]
    )
    out = "attention.attn.o" if mpnet else "attention.output.dense"
    norm = "attention.LayerNorm" if mpnet else "attention.output.LayerNorm"
    parts = {"qkv": heads, "out": [out], "norm1": [norm], "up": ["intermediate.dense"], "down": ["output.dense"]}
    parts["norm2"] = ["output.LayerNorm"]
    return {
        f"{ours}.{kind}": [f"{prefix}.{name}.{kind}" for name in theirs]
        for ours, theirs in parts.items()
        for kind in ("weight", "bias")
    }
