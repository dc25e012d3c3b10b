"""Lists without context, scored by trained cross-encoders or by nothing but which passage is the positive.

    python -m training.score_lists DATA.npz NEGATIVES.npy OUT [CROSS_FOLDER ...] [--lists 196608] [--limit PAIRS]

The mean of the logits is kept; without a cross-encoder the positive has all weight. Of sources made by rules a share
is left out, and pairs that only make sense behind their context all. A cross-encoder's folder holds its word vectors
too (training.from_graph).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training import cross, lists, loop, store
from training.columns import CHAIN

BY_RULES, KEPT_SHARE = ("_synth", "ict"), 0.6
LISTED, BUDGET = 9, 262_144
UNTAUGHT = 8.0  # the logit of the positive if nothing scores


def chosen(data: store.Data, sources: list[str], generator: torch.Generator) -> Tensor:
    """The numbers of the pairs that lists are made of."""
    made = torch.tensor([any(mark in name for mark in BY_RULES) for name in sources], device=data.pairs.device)
    drawn = torch.rand(len(data.pairs), generator=generator, device=data.pairs.device) < KEPT_SHARE
    return ((data.pairs[:, 8] != CHAIN) & (drawn | ~made[data.pairs[:, 7]])).nonzero().squeeze(1)


@torch.no_grad()
def scored(
    models: list[cross.CrossEncoder], builder: lists.Builder, rows: Tensor, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Lists and scores of some pairs in random order."""
    order = rows[torch.randperm(len(rows), generator=builder.generator, device=rows.device)][:count]
    made, scores = [], []
    for part in order.split(2048):
        candidates = builder.build(part, LISTED)
        logits = [cross.score(model, builder.data.texts, candidates, BUDGET) for model in models]
        if not models:
            logits = [torch.zeros(candidates.shape[:2])]
            logits[0][:, 0] = UNTAUGHT
        scores.append(torch.stack(logits).mean(0).half().cpu())
        made.append(candidates.to(torch.int32).cpu())
    return torch.cat(made).numpy(), torch.cat(scores).numpy()


def main() -> None:
    """Parse the command line, score, save."""
    parser = argparse.ArgumentParser(description="Score lists by cross-encoders.")
    for name in ("data", "negatives", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--lists", type=int, default=196_608)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    device = loop.device()
    data = store.read(args.data, device, args.limit)
    sources = json.loads(args.data.with_suffix(".sources.json").read_text())
    generator = torch.Generator(device).manual_seed(args.seed)
    negatives = torch.from_numpy(np.load(args.negatives)).long().to(device)
    builder = lists.Builder(data, negatives, generator, lists.Chances(context=0.0))
    models = [cross.load(folder, folder).to(device, loop.dtype(device)).eval() for folder in args.models]
    rows = chosen(data, sources, generator)
    with loop.timed(f"scoring {min(args.lists, len(rows)):,} of {len(rows):,} lists"):
        made, scores = scored(models, builder, rows, args.lists)
    print(f"positive first in {(scores.argmax(1) == 0).mean():.3f}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "lists.npy", made)
    np.save(args.out / "scores.npy", scores)


if __name__ == "__main__":
    main()
