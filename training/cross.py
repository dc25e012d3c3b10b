"""The cross-encoder: a transformer with one score on top."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training import lists, transformer
from training.store import TextStore
from training.transformer import Transformer

# Word vectors, and MPNet's bias of relative positions, stay as they were.
FROZEN = ("body.words", "body.bias")


class CrossEncoder(nn.Module):
    """Scores [CLS] query [SEP] text [SEP] context [SEP]."""

    def __init__(self, body: Transformer) -> None:
        super().__init__()
        self.body = body
        size = body.shape.hidden
        self.mix, self.score = nn.Linear(2 * size, size), nn.Linear(size, 1)

    def forward(self, ids: Tensor) -> Tensor:
        """One logit per row."""
        hidden = self.body(ids)
        mask = (ids != 0).unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        features = torch.tanh(self.mix(torch.cat([hidden[:, 0], mean], -1)))
        return self.score(features).squeeze(-1).float()


def score(
    model: CrossEncoder, texts: TextStore, candidates: Tensor, budget: int, limits: tuple[int, ...] = lists.CAPS
) -> Tensor:
    """Logits for lists (lists, candidates, columns); `limits` cuts each column's texts."""
    rows = candidates.flatten(0, 1)
    caps = torch.tensor(limits, device=rows.device)
    numbers, values = [], []
    for numbers_, ids, _ in texts.batches(rows, caps, budget):
        numbers.append(numbers_)
        values.append(model(ids))
    back = torch.cat(numbers).argsort()
    return torch.cat(values)[back].view(candidates.shape[:2])


def save(model: CrossEncoder, folder: Path, base: Path) -> None:
    """Weights under their published names in half precision, without the frozen word vectors, and the config."""
    folder.mkdir(parents=True, exist_ok=True)
    state = transformer.to_state(model.body)
    state = {name: tensor for name, tensor in state.items() if "word" not in name}
    state |= {f"head.{name}": value for name, value in model.state_dict().items() if not name.startswith("body.")}
    half = {name: tensor.detach().half().cpu().contiguous() for name, tensor in state.items()}
    save_file(half, folder / "trained.safetensors")
    config = json.loads((base / "config.json").read_text()) | {"num_hidden_layers": model.body.shape.layers}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load(folder: Path, base: Path) -> CrossEncoder:
    """A trained cross-encoder; its word vectors come from the base model."""
    state = {name: tensor.float() for name, tensor in load_file(folder / "trained.safetensors").items()}
    words = "embeddings.word_embeddings.weight"
    state[words] = load_file(base / "model.safetensors")[words].float()
    config = json.loads((folder / "config.json").read_text())
    model = CrossEncoder(transformer.from_state(state, config))
    head = {name.removeprefix("head."): tensor for name, tensor in state.items() if name.startswith("head.")}
    model.load_state_dict(head, strict=False)
    return model
