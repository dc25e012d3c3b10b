"""All texts as token ids on one device, and the assembling of model inputs from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ROUND = 16  # lengths are padded to multiples of this


@dataclass(slots=True)
class TextStore:
    """Tokens of every text in a row, and where each begins."""

    tokens: Tensor
    offsets: Tensor
    lengths: Tensor

    @staticmethod
    def make(tokens: np.ndarray, offsets: np.ndarray, device: str) -> TextStore:
        """From the arrays that training.prepare writes."""
        begins = torch.from_numpy(offsets.astype(np.int64)).to(device)
        # One token more, so that an empty text at the end has something to point at.
        ids = torch.from_numpy(np.append(tokens.astype(np.int32), 0).astype(np.int32)).to(device)
        return TextStore(ids, begins[:-1], begins[1:] - begins[:-1])

    def assemble(self, segments: Tensor, caps: Tensor) -> tuple[Tensor, Tensor]:
        """Join texts (rows of text ids) into padded token ids; also the column each token came from, -1 for padding."""
        lengths = torch.minimum(self.lengths[segments], caps)
        ends = lengths.cumsum(1)
        width = -(-int(ends[:, -1].max()) // ROUND) * ROUND
        place = torch.arange(width, device=segments.device)[None]
        ids = torch.zeros(len(segments), width, dtype=torch.long, device=segments.device)
        column = torch.full_like(ids, -1)
        for i in range(segments.shape[1]):
            start = ends[:, i : i + 1] - lengths[:, i : i + 1]
            inside = (place >= start) & (place < ends[:, i : i + 1])
            source = self.offsets[segments[:, i : i + 1]] + place - start
            ids = torch.where(inside, self.tokens[source.clamp(0, len(self.tokens) - 1)].long(), ids)
            column = torch.where(inside, i, column)
        return ids, column

    def batches(self, segments: Tensor, caps: Tensor, budget: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Row numbers, ids and columns in batches of similar length, at most `budget` padded tokens each."""
        total = torch.minimum(self.lengths[segments], caps).sum(1)
        order = total.argsort()
        sizes = total[order].tolist()
        start = 0
        while start < len(sizes):
            end = batch_end(sizes, start, budget)
            rows = order[start:end]
            ids, column = self.assemble(segments[rows], caps)
            yield rows, ids, column
            start = end


def batch_end(sizes: list[int], start: int, budget: int) -> int:
    """The end of the longest batch from `start` whose padded size stays within the budget (sizes ascend)."""
    low, high = start + 1, len(sizes)
    while low < high:
        middle = (low + high + 1) // 2
        padded = -(-sizes[middle - 1] // ROUND) * ROUND
        low, high = (middle, high) if padded * (middle - start) <= budget else (low, middle - 1)
    return low


@dataclass(slots=True)
class Data:
    """The prepared training data on one device."""

    texts: TextStore
    pairs: Tensor
    pool: Tensor
    dates: Tensor
    names: Tensor
    roles: Tensor


def read(path: Path, device: str, limit: int | None = None) -> Data:
    """Load what training.prepare wrote; `limit` is the number of pairs to take, spread over the file."""
    arrays = np.load(path)
    texts = TextStore.make(arrays["tokens"], arrays["offsets"], device)
    pairs = arrays["pairs"]
    if limit:
        pairs = pairs[np.linspace(0, len(pairs) - 1, limit).astype(int)]
    on = {
        name: torch.from_numpy(arrays[name].astype(np.int64)).to(device) for name in ("pool", "dates", "names", "roles")
    }
    return Data(texts, torch.from_numpy(pairs.astype(np.int64)).to(device), **on)
