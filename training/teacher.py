"""Train the teacher, a cross-encoder on all-mpnet-base-v2, and keep its scores over lists.

    python -m training.teacher DATA.npz NEGATIVES.npy MPNET_FOLDER OUT [--seconds 300] [--lists 300000]

OUT gets trained.safetensors, and lists.npy with scores.npy for the student and the encoder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import cross, lists, loop, store, transformer

BATCH, NEGATIVES, RATE = 64, 7, 4e-5
LISTED = 9
BUDGET, SCORING_BUDGET = 32_768, 131_072


def loss_of(scores: Tensor) -> Tensor:
    """The positive, which comes first, against its list; and each against a threshold."""
    target = torch.zeros_like(scores)
    target[:, 0] = 1
    ranked = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))
    weight = torch.where(target > 0, float(scores.shape[1] - 1), 1.0)
    return ranked + 0.5 * F.binary_cross_entropy_with_logits(scores, target, weight / weight.mean())


def train(model: cross.CrossEncoder, builder: lists.Builder, args: argparse.Namespace) -> loop.Optimizer:
    """Fit the teacher on new lists at each step."""
    body = loop.trainable(model, cross.FROZEN)
    optimizer = loop.Optimizer([(body, RATE)], args.steps, args.seconds)
    where = str(builder.device)
    batches = loop.epochs(len(builder.data.pairs), min(args.batch, len(builder.data.pairs)), builder.generator, where)
    losses = []
    while optimizer.progress() < 1:
        scores = cross.score(model, builder.data.texts, builder.build(next(batches), NEGATIVES), BUDGET)
        loss = loss_of(scores)
        loss.backward()
        optimizer.update()
        losses.append((loss.detach(), (scores.argmax(1) == 0).float().mean()))
        if optimizer.step % 100 == 0 or optimizer.step in (1, 10, 30):
            mean = torch.tensor(losses[-50:]).mean(0).tolist()
            print(
                f"teacher step {optimizer.step} of {optimizer.progress():.0%}: loss {mean[0]:.3f}, first {mean[1]:.3f}",
                flush=True,
            )
    return optimizer


@torch.no_grad()
def score_lists(model: cross.CrossEncoder, builder: lists.Builder, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Lists and the teacher's scores for them; pairs in random order, repeated if more lists are requested."""
    made, scores = [], []
    where = str(builder.device)
    size = min(1024, count, len(builder.data.pairs))
    for rows in loop.epochs(len(builder.data.pairs), size, builder.generator, where):
        candidates = builder.build(rows, LISTED)
        scores.append(cross.score(model, builder.data.texts, candidates, SCORING_BUDGET).half().cpu())
        made.append(candidates.to(torch.int32).cpu())
        if len(made) % 50 == 0:
            print(f"scored {len(made) * size:,} of {count:,} lists", flush=True)
        if len(made) * size >= count:
            break
    return torch.cat(made).numpy(), torch.cat(scores).numpy()


def main() -> None:
    """Parse the command line, train, score."""
    parser = argparse.ArgumentParser(description="Train the teacher and keep its scores.")
    for name in ("data", "negatives", "base", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--lists", type=int, default=300_000)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = loop.device()
    data = store.read(args.data, device, args.limit)
    negatives = torch.from_numpy(np.load(args.negatives)).long().to(device)
    generator = torch.Generator(device).manual_seed(args.seed)
    builder = lists.Builder(data, negatives, generator)
    model = cross.CrossEncoder(transformer.load(args.base)).to(device, loop.dtype(device))
    loop.compile_layers(model.body)
    with loop.timed("teacher training"):
        optimizer = train(model, builder, args)
    cross.save(optimizer.restored(model), args.out, args.base)
    loop.compile_layers(model.body)
    with loop.timed("teacher scoring"):
        made, scores = score_lists(model.eval(), builder, args.lists)
    print(f"{len(scores):,} lists, positive first in {(scores.argmax(1) == 0).mean():.3f}", flush=True)
    np.save(args.out / "lists.npy", made)
    np.save(args.out / "scores.npy", scores)


if __name__ == "__main__":
    main()
