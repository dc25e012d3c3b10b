"""Distil the teacher into a small cross-encoder.

python -m training.student DATA.npz SCORED_FOLDER MINILM_FOLDER OUT [--seed 1] [--layers 0,1,2,3,4,5]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import cross, loop, store, transformer

BATCH, RATE = 256, 2e-4
LOGIT_WEIGHT, HARD_WEIGHT = 0.05, 0.2
BUDGET = 131_072


def loss_of(scores: Tensor, taught: Tensor) -> Tensor:
    """The teacher's distribution over the list, its logits, and the positive, which comes first."""
    ranked = F.kl_div(scores.log_softmax(1), taught.log_softmax(1), reduction="batchmean", log_target=True)
    hard = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))
    return ranked + LOGIT_WEIGHT * F.mse_loss(scores, taught) + HARD_WEIGHT * hard


def train(
    model: cross.CrossEncoder, texts: store.TextStore, made: Tensor, taught: Tensor, args: argparse.Namespace
) -> loop.Optimizer:
    """Fit the student on the scored lists."""
    where = str(made.device)
    generator = torch.Generator(where).manual_seed(args.seed)
    optimizer = loop.Optimizer([(loop.trainable(model, cross.FROZEN), args.rate)], args.steps, args.seconds)
    batches = loop.epochs(len(made), min(args.batch, len(made)), generator, where)
    losses = []
    while optimizer.progress() < 1:
        rows = next(batches)
        loss = loss_of(cross.score(model, texts, made[rows].long(), BUDGET), taught[rows].float())
        loss.backward()
        optimizer.update()
        losses.append(loss.detach())
        if optimizer.step % 100 == 0 or optimizer.step in (1, 10, 30):
            mean = torch.stack(losses[-50:]).mean().item()
            print(f"student step {optimizer.step} of {optimizer.progress():.0%}: loss {mean:.3f}", flush=True)
    return optimizer


def main() -> None:
    """Parse the command line, train, save."""
    parser = argparse.ArgumentParser(description="Distil the teacher into a small cross-encoder.")
    for name in ("data", "scored", "base", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--layers", default="0,1,2,3,4,5", help="layers of the base that are kept")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = loop.device()
    texts = store.read(args.data, device).texts
    made = torch.from_numpy(np.load(args.scored / "lists.npy")).to(device)
    taught = torch.from_numpy(np.load(args.scored / "scores.npy")).to(device)
    body = transformer.load(args.base, [int(layer) for layer in args.layers.split(",")])
    model = cross.CrossEncoder(body).to(device, loop.dtype(device))
    loop.compile_layers(model.body)
    with loop.timed("student training"):
        optimizer = train(model, texts, made, taught, args)
    cross.save(optimizer.restored(model), args.out, args.base)


if __name__ == "__main__":
    main()
