"""Hard negatives: the nearest passages of each question by the base encoder and by BM25.

python -m training.mine DATA.npz MINILM_FOLDER OUT.npy [--limit PAIRS]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training import loop, store, transformer
from training.columns import CLS, SEP
from training.store import Data

DENSE, LEXICAL = 40, 24
CLOSEST = 0.98  # of the positive's cosine; what is nearer may be an answer too
K1, B = 0.9, 0.4
CHUNK, BUDGET = 1024, 262_144


@torch.no_grad()
def embed(model: transformer.Transformer, data: Data, segments: Tensor, cap: int) -> Tensor:
    """Unit sentence vectors of rows of text ids."""
    caps = torch.full((segments.shape[1],), cap, device=segments.device)
    vectors = torch.zeros(len(segments), model.shape.hidden, dtype=loop.dtype(segments.device), device=segments.device)
    for start in range(0, len(segments), 65_536):
        part = segments[start : start + 65_536]
        for rows, ids, _ in data.texts.batches(part, caps, BUDGET):
            hidden = model(ids)
            mask = (ids != 0).unsqueeze(-1).to(hidden.dtype)
            vectors[start + rows] = F.normalize((hidden * mask).sum(1).float(), dim=-1).to(vectors.dtype)
    return vectors


def framed(*columns: Tensor) -> Tensor:
    """Rows of text ids between [CLS] and [SEP]."""
    first = torch.full_like(columns[0], CLS)
    return torch.stack([first, *columns, torch.full_like(first, SEP)], 1)


def lexical_matrix(data: Data) -> Tensor:
    """BM25 weights of every passage's tokens as a sparse matrix."""
    texts, device = data.texts, data.pool.device
    lengths = texts.lengths[data.pool[:, 0]]
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
    place = torch.arange(len(rows), device=device) - (lengths.cumsum(0) - lengths)[rows]
    words = texts.tokens[texts.offsets[data.pool[:, 0]][rows] + place].long()
    size = (len(lengths), 30_522)
    counts = sparse(rows, words, torch.ones(len(rows), device=device), size)
    rows, words = counts.indices()
    found = torch.bincount(words, minlength=size[1]).float()
    weight = torch.log(1 + (size[0] - found + 0.5) / (found + 0.5))[words]
    norm = K1 * (1 - B + B * lengths.float() / lengths.float().mean())[rows]
    values = weight * counts.values() * (K1 + 1) / (counts.values() + norm)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return sparse(rows, words, values, size).to_sparse_csr()


def sparse(rows: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    """A sparse matrix; values of the same place are added."""
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, size, check_invariants=False).coalesce()


@torch.no_grad()
def mine(data: Data, model: transformer.Transformer) -> Tensor:
    """Candidates (pairs, DENSE + LEXICAL) as pool rows, -1 if one is too near or repeated."""
    passages = embed(model, data, framed(data.pool[:, 1], data.pool[:, 0]), 128)
    queries = embed(model, data, framed(data.pairs[:, 0]), 48)
    matrix, mined = lexical_matrix(data), []
    for start in range(0, len(queries), CHUNK):
        pairs, asked = data.pairs[start : start + CHUNK], queries[start : start + CHUNK]
        cosine = asked @ passages.T
        dense = cosine.topk(min(DENSE, len(passages)), sorted=True).indices
        ids, _ = data.texts.assemble(pairs[:, :1], torch.tensor([48], device=pairs.device))
        bags = torch.zeros(30_522, len(pairs), device=pairs.device)
        bags.scatter_(0, ids.T, 1.0)
        bags[0] = 0
        lexical = (matrix @ bags).T.topk(min(LEXICAL, len(passages))).indices
        # Interleaved, so that the front of the list is hard in both ways.
        repeated = (lexical[:, :, None] == dense[:, None]).any(2)
        found = torch.cat([dense, torch.where(repeated, -1, lexical)], 1)
        order = torch.cat([torch.arange(dense.shape[1]), torch.arange(lexical.shape[1]) * 1.5]).argsort()
        found = found[:, order.to(found.device)]
        near = cosine.gather(1, found.clamp(min=0)) > CLOSEST * cosine.gather(1, pairs[:, 6:7])
        wrong = near | (found == pairs[:, 6:7]) | (data.pool[found.clamp(min=0), 0] == pairs[:, 1:2])
        mined.append(torch.where(wrong, -1, found).to(torch.int32))
    return torch.cat(mined)


def main() -> None:
    """Parse the command line and mine."""
    parser = argparse.ArgumentParser(description="Mine hard negatives.")
    parser.add_argument("data", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    device = loop.device()
    data = store.read(args.data, device, args.limit)
    model = transformer.load(args.model).to(device, loop.dtype(device)).eval()
    with loop.timed("mining"):
        mined = mine(data, model)
    kept = (mined >= 0).sum(1)
    print(f"{len(mined):,} pairs, {kept.float().mean():.1f} candidates each, fewest {kept.min()}", flush=True)
    np.save(args.out, mined.cpu().numpy())


if __name__ == "__main__":
    main()
