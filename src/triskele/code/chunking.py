"""Cut a file along definitions, at statements, or by lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CHARACTERS = 1500
MAX_LINES = 500
WINDOW_LINES = 40
WINDOW_OVERLAP = 8
# Code nested deeper is cut by lines.
MAX_DEPTH = 64

Span = tuple[int, int]


def line_starts(source: bytes) -> list[int]:
    """The byte where each line begins; an empty file has one line."""
    starts = [0]
    at = source.find(b"\n")
    while at >= 0 and at + 1 < len(source):
        starts.append(at + 1)
        at = source.find(b"\n", at + 1)
    return starts


def line_of(starts: Sequence[int], byte: int) -> int:
    """The line of a byte, from 1."""
    return bisect_right(starts, byte)


def windows(source: bytes, starts: Sequence[int]) -> list[Span]:
    """Overlapping windows of 40 lines, for files without a grammar."""
    spans: list[Span] = []
    step = WINDOW_LINES - WINDOW_OVERLAP
    for first in range(0, max(len(starts) - WINDOW_OVERLAP, 1), step):
        last = first + WINDOW_LINES
        spans.append((starts[first], starts[last] if last < len(starts) else len(source)))
    return spans


def pieces(root: Node, source: bytes) -> list[Span]:
    """The chunks of a syntax tree, in order and without gaps."""
    if not source.strip():
        return []
    return [part for span in _merged(_units(root), source) for part in _cut(span, source)]


def _units(root: Node) -> Iterator[Span]:
    """The largest nodes that fit into a chunk, in order."""
    stack: list[tuple[Node, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        start, end = node.start_byte, node.end_byte
        if end - start <= MAX_CHARACTERS or not node.child_count or depth >= MAX_DEPTH:
            if end > start:
                yield start, end
        else:
            stack.extend((child, depth + 1) for child in reversed(node.children))


def _merged(units: Iterator[Span], source: bytes) -> list[Span]:
    """Join neighbours up to the size of a chunk."""
    spans: list[Span] = []
    begin, end = 0, 0
    for _, unit_end in units:
        if unit_end - begin > MAX_CHARACTERS and source[begin:end].strip():
            spans.append((begin, end))
            begin = end
        end = max(end, unit_end)
    if source[begin:].strip():
        spans.append((begin, len(source)))
    return [_trimmed(span, source) for span in spans]


def _trimmed(span: Span, source: bytes) -> Span:
    """The span without blank lines before it."""
    start, end = span
    text = source[start:end]
    blank = len(text) - len(text.lstrip())
    line = text.rfind(b"\n", 0, blank)
    return start + line + 1, end


def _cut(span: Span, source: bytes) -> Iterator[Span]:
    """Cut a span at line ends into parts of bounded size."""
    start, end = span
    while end - start > 2 * MAX_CHARACTERS or source.count(b"\n", start, end) > MAX_LINES:
        stop = _line_end(source, start, min(end, start + MAX_CHARACTERS))
        yield start, stop
        start = stop
    yield start, end


def _line_end(source: bytes, start: int, limit: int) -> int:
    at = start
    for _ in range(MAX_LINES):
        line = source.find(b"\n", at, limit)
        if line < 0:
            break
        at = line + 1
    return at if at > start else limit
