"""A finished ranking in another order, where somebody asks for one: more varied, more talked about, or nearer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from triskele.index.catalog import Ints
from triskele.index.dense import Floats
from triskele.index.mentions import Layers
from triskele.index.semantic import SemanticIndex
from triskele.recall.candidates import CandidateSet, moved
from triskele.recall.diversity import diverse, most_mentioned, nearest
from triskele.recall.legs.graph import hub
from triskele.recall.plan import DIVERSE, MENTIONED

DEPTH = 50
_STEPS = 3


def in_order(pool: CandidateSet, order: str, meaning: SemanticIndex, near: Sequence[int] = ()) -> CandidateSet:
    """The head of a pool in another order; whoever takes a place takes the score that stood there."""
    head = pool.fused[:DEPTH]
    rows = [candidate.row for candidate in head]
    if not rows:
        return pool
    if order == DIVERSE:
        chosen = diverse(rows, [candidate.score for candidate in head], _vectors(rows, meaning))
    elif order == MENTIONED:
        chosen = most_mentioned(rows, _mentions(rows, meaning.mentions.layers()))
    else:
        chosen = nearest(rows, _distances(np.array(near, dtype=np.int64), meaning))
    before = {candidate.row: candidate for candidate in head}
    placed = [moved(before[row], head[place].score, "order", place + 1) for place, row in enumerate(chosen)]
    return replace(pool, fused=[*placed, *pool.fused[DEPTH:]])


def _vectors(rows: Sequence[int], meaning: SemanticIndex) -> dict[int, Floats]:
    columns = meaning.catalog.columns()
    known = np.array(rows, dtype=np.int64)[columns.holds(np.array(rows, dtype=np.int64))]
    found = meaning.dense.vectors(columns, columns.find(known))
    return {row: vector for row, vector in zip(known.tolist(), found, strict=True) if np.isfinite(vector).all()}


def _mentions(rows: Sequence[int], layers: Layers) -> dict[int, int]:
    """How many memories mention what each memory is about."""
    place, concepts, is_subject = layers.concepts(np.array(rows, dtype=np.int64))
    counts = np.zeros(len(rows), dtype=np.int64)
    np.maximum.at(counts, place[is_subject], layers.frequency(concepts[is_subject]))
    return dict(zip(rows, counts.tolist(), strict=True))


def _distances(start: Ints, meaning: SemanticIndex) -> dict[int, int]:
    """How many shared names lie between the start and other memories; names that everybody has connect nobody."""
    layers, most = meaning.mentions.layers(), hub(len(meaning.catalog.columns().rows))
    found = dict.fromkeys(start.tolist(), 0)
    fringe = start
    for step in range(1, _STEPS + 1):
        concepts = np.unique(layers.concepts(fringe)[1])
        rows = np.unique(layers.holders(concepts[layers.frequency(concepts) <= most])[1])
        fringe = rows[~np.isin(rows, list(found))]
        found |= dict.fromkeys(fringe.tolist(), step)
    return found
