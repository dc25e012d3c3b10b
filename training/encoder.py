"""Train the encoder with two outputs: a sentence vector and 96-d token vectors for late interaction.

    python -m training.encoder DATA.npz SCORED_FOLDER MINILM_FOLDER OUT [--seed 1] [--seconds 200]

MINILM_FOLDER also holds projection.npy, the projection of the model that ships. OUT gets trained.safetensors.
Turns are encoded alone or behind their two previous turns, whose tokens only the attention sees.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training import lists, loop, store, transformer
from training.columns import CLS, SEP

BATCH, NEGATIVES, SHARED, RATE, HEAD_RATE = 256, 6, 3, 2e-4, 1e-3
LATE_TEMPERATURE, DENSE_TEMPERATURE = 0.02, 0.05
DENSE_WEIGHT, KEEP_WEIGHT, TAUGHT_WEIGHT = 0.5, 0.5, 1.0
QUERY_TOKENS, TEXT_TOKENS, BUDGET = 32, 144, 131_072
# The two turns before, in the order of the conversation, then the turn itself.
ENCODED = (lists.SPEAKER2, lists.BEFORE2, lists.SPEAKER1, lists.BEFORE1, lists.SPEAKER, lists.TEXT)
OWN = (0, 5, 6, 7)  # the columns whose tokens are kept: [CLS], speaker, text, [SEP]


class Encoder(nn.Module):
    """Token ids and the tokens to keep, to unit sentence and token vectors."""

    def __init__(self, body: transformer.Transformer, projection: Tensor) -> None:
        super().__init__()
        self.body = body
        self.projection = nn.Parameter(projection.clone())

    def forward(self, ids: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Sentence vectors over the kept tokens, and every token's vector (zero where it is not kept)."""
        hidden = self.body(ids)
        mask = kept.unsqueeze(-1).to(hidden.dtype)
        sentence = F.normalize((hidden * mask).sum(1).float(), dim=-1)
        tokens = F.normalize((hidden @ self.projection).float(), dim=-1).to(hidden.dtype) * mask
        return sentence, tokens


def frame(columns: Tensor) -> Tensor:
    """Rows of text ids between [CLS] and [SEP]."""
    edge = torch.ones_like(columns[:, :1])
    return torch.cat([edge * CLS, columns, edge * SEP], 1)


def encode(
    model: nn.Module, texts: store.TextStore, rows: Tensor, own: tuple[int, ...], cap: int
) -> tuple[Tensor, Tensor]:
    """Sentence vectors, and token vectors moved to the front and padded with zeros to `cap` (+2 marks)."""
    caps = torch.full((rows.shape[1],), 40, device=rows.device)
    caps[own[-2]] = cap
    numbers, sentences, tokens = [], [], []
    width = cap + 8
    for number, ids, column in texts.batches(rows, caps, BUDGET):
        kept = torch.isin(column, torch.tensor(own, device=rows.device))
        sentence, vectors = model(ids, kept)
        inner = kept & (column != 0) & (column != own[-1])
        order = (~inner).to(torch.int8).sort(dim=1, stable=True).indices[:, :width]
        vectors = vectors.masked_fill(~inner.unsqueeze(-1), 0).gather(
            1, order.unsqueeze(-1).expand(-1, -1, vectors.shape[-1])
        )
        numbers.append(number)
        sentences.append(sentence)
        tokens.append(F.pad(vectors, (0, 0, 0, width - vectors.shape[1])))
    back = torch.cat(numbers).argsort()
    return torch.cat(sentences)[back], torch.cat(tokens)[back]


def queries(model: nn.Module, texts: store.TextStore, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Both outputs for questions."""
    return encode(model, texts, frame(numbers[:, None]), (0, 1, 2), QUERY_TOKENS)


def late_scores(query: Tensor, passage: Tensor) -> Tensor:
    """Mean over the query's tokens of the best match in each passage: (queries, passages)."""
    present = query.abs().sum(-1) > 0
    filled = passage.abs().sum(-1) > 0
    similar = torch.einsum("qid,pjd->qpij", query, passage)
    similar = similar.masked_fill(~filled[None, :, None, :], -1)
    best = similar.max(-1).values * present[:, None, :]
    return best.float().sum(-1) / present.sum(1).clamp(min=1)[:, None]


def late_all(query: Tensor, passages: Tensor, chunk: int = 32) -> Tensor:
    """The same for many queries, a few at a time, computed again in the backward pass."""
    parts = [
        torch.utils.checkpoint.checkpoint(late_scores, query[i : i + chunk], passages, use_reentrant=False)
        for i in range(0, len(query), chunk)
    ]
    return torch.cat(parts)


def own_late(query: Tensor, passages: Tensor) -> Tensor:
    """Each query against its own list: (queries, list)."""
    present, filled = query.abs().sum(-1) > 0, passages.abs().sum(-1) > 0
    similar = torch.einsum("qid,qpjd->qpij", query, passages).masked_fill(~filled[:, :, None, :], -1)
    best = similar.max(-1).values * present[:, None, :]
    return best.float().sum(-1) / present.sum(1).clamp(min=1)[:, None]


def contrast(scores: Tensor, passages: Tensor, temperature: float) -> Tensor:
    """InfoNCE over the batch: query i's passage is at i * SHARED; the same text elsewhere does not count."""
    target = torch.arange(len(scores), device=scores.device) * SHARED
    same = passages[target][:, None] == passages[None, :]
    same[torch.arange(len(scores), device=scores.device), target] = False
    return F.cross_entropy((scores / temperature).masked_fill(same, -1e4), target)


def taught(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """How far the list's distribution is from the teacher's."""
    return F.kl_div(
        (scores / temperature).log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True
    )


def loss_of(model: Encoder, original: Encoder, texts: store.TextStore, made: Tensor, teacher: Tensor) -> Tensor:
    """All parts of the loss for lists (lists, 1 + NEGATIVES, columns)."""
    sentence, tokens = queries(model, texts, made[:, 0, lists.QUERY])
    rows = frame(made[..., ENCODED].flatten(0, 1))
    passage_sentence, passage_tokens = encode(model, texts, rows, OWN, TEXT_TOKENS)
    with torch.no_grad():
        plain = torch.cat([made[:, 0, lists.SPEAKER, None], made[:, 0, lists.TEXT, None]], 1)
        before, _ = encode(original, texts, frame(plain), (0, 1, 2, 3), TEXT_TOKENS)
        before_query, _ = queries(original, texts, made[:, 0, lists.QUERY])
    count, listed = made.shape[:2]
    own_sentence = passage_sentence.view(count, listed, -1)
    own_tokens = passage_tokens.view(count, listed, *passage_tokens.shape[1:])
    shared = slice(0, SHARED)
    numbers = made[:, shared, lists.TEXT].flatten()
    late = contrast(late_all(tokens, own_tokens[:, shared].flatten(0, 1)), numbers, LATE_TEMPERATURE)
    dense = contrast(sentence @ own_sentence[:, shared].flatten(0, 1).T, numbers, DENSE_TEMPERATURE)
    late_taught = taught(own_late(tokens, own_tokens), teacher, LATE_TEMPERATURE)
    dense_taught = taught(torch.einsum("qd,qpd->qp", sentence, own_sentence), teacher, DENSE_TEMPERATURE)
    kept = 2 - (own_sentence[:, 0] * before).sum(-1).mean() - (sentence * before_query).sum(-1).mean()
    return (
        late
        + DENSE_WEIGHT * dense
        + TAUGHT_WEIGHT * (late_taught + DENSE_WEIGHT * dense_taught)
        + KEEP_WEIGHT * kept / 2
    )


def train(
    model: Encoder, original: Encoder, texts: store.TextStore, made: Tensor, scores: Tensor, args: argparse.Namespace
) -> Encoder:
    """Fit the encoder on the teacher's lists."""
    where = str(made.device)
    generator = torch.Generator(where).manual_seed(args.seed)
    body = loop.trainable(model.body, ("words",))
    optimizer = loop.Optimizer([(body, RATE), ([model.projection], HEAD_RATE)], args.steps, args.seconds)
    batches = loop.epochs(len(made), min(args.batch, len(made)), generator, where)
    losses = []
    while optimizer.progress() < 1:
        rows = next(batches)
        # The positive and as many of its negatives, drawn again.
        columns = 1 + torch.randperm(made.shape[1] - 1, generator=generator, device=where)[:NEGATIVES]
        columns = torch.cat([torch.zeros(1, dtype=torch.long, device=where), columns])
        loss = loss_of(model, original, texts, made[rows][:, columns].long(), scores[rows][:, columns].float())
        loss.backward()
        optimizer.update()
        losses.append(loss.detach())
        if optimizer.step % 50 == 0 or optimizer.step in (1, 10):
            mean = torch.stack(losses[-50:]).mean().item()
            print(f"encoder step {optimizer.step} of {optimizer.progress():.0%}: loss {mean:.3f}", flush=True)
    return optimizer.restored(model)


def save(model: Encoder, folder: Path) -> None:
    """Weights under their published names in half precision, without the frozen word vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value for name, value in transformer.to_state(model.body).items() if "word" not in name}
    state["projection"] = model.projection.detach().cpu()
    save_file({name: value.half().contiguous() for name, value in state.items()}, folder / "trained.safetensors")


def learned_state(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder of trained or of whole weights, with the projection, in full precision."""
    if (folder / "trained.safetensors").exists():
        return {name: value.float() for name, value in load_file(folder / "trained.safetensors").items()}
    state = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    return state | {"projection": torch.from_numpy(np.load(folder / "projection.npy"))}


def load(base: Path, parts: Sequence[tuple[Path, float]] = ()) -> Encoder:
    """The published weights averaged with trained ones, each with its share."""
    state = {name: value.float() for name, value in load_file(base / "model.safetensors").items()}
    projection = torch.from_numpy(np.load(base / "projection.npy"))
    rest = 1 - sum(share for _, share in parts)
    mixed, mixed_projection = dict(state), rest * projection
    for folder, share in parts:
        learned = learned_state(folder)
        mixed_projection = mixed_projection + share * learned.pop("projection")
        mixed |= {name: mixed[name] + share * (value - state[name]) for name, value in learned.items()}
    config = json.loads((base / "config.json").read_text())
    return Encoder(transformer.from_state(mixed, config), mixed_projection)


def main() -> None:
    """Parse the command line, train, save."""
    parser = argparse.ArgumentParser(description="Train the encoder with two outputs.")
    for name in ("data", "scored", "base", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = loop.device()
    texts = store.read(args.data, device).texts
    made = torch.from_numpy(np.load(args.scored / "lists.npy")).to(device)
    scores = torch.from_numpy(np.load(args.scored / "scores.npy")).to(device)
    model, original = (load(args.base).to(device, loop.dtype(device)) for _ in range(2))
    loop.compile_layers(model.body)
    with loop.timed("encoder training"):
        trained = train(model, original, texts, made, scores, args)
    save(trained, args.out)


if __name__ == "__main__":
    main()
