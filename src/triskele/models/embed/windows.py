"""Long texts as windows, windows as batches: pure plans over token counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

MAX_WINDOWS = 64
BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens start to stop of one text."""

    text: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many tokens it holds, special ones not counted."""
        return self.stop - self.start


def cut(text: int, tokens: int, capacity: int, most: int = MAX_WINDOWS) -> list[Window]:
    """Cut a text into consecutive windows; what lies beyond the last is dropped."""
    kept = min(tokens, most * capacity)
    return [Window(text, start, min(start + capacity, kept)) for start in range(0, max(1, kept), capacity)]


def batches(windows: Sequence[Window], budget: int = BATCH_TOKENS) -> Iterator[list[Window]]:
    """Group windows of equal length, longest first, within a budget of tokens.

    Equal lengths need no padding: no work is lost, and no text's vectors depend on its neighbours.
    """
    length = attrgetter("length")
    for size, same in groupby(sorted(windows, key=length, reverse=True), key=length):
        group = list(same)
        step = max(1, budget // max(1, size))
        yield from (group[i : i + step] for i in range(0, len(group), step))
