"""A network that reads a question beside texts, in numpy: kernels over the likeness of words (Xiong et al. 2017).

Layer one turns every word by a learned matrix and counts, for each word of the question, how many words of the text
are how much alike; layer two weighs the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Ids = NDArray[np.int64]
Weights = dict[str, Floats]

CENTRES = np.array([1.0, 0.9, 0.7, 0.5, 0.3, 0.1], dtype=np.float32)
WIDTHS = np.array([0.02, 0.1, 0.1, 0.1, 0.1, 0.1], dtype=np.float32)
HIDDEN = 8
# Keeps the marks around a text, which have no vector, and questions of unknown words away from 0 / 0.
LEAST = 1e-6


class _Seen(NamedTuple):
    """What the way back needs to know of the way there."""

    asked: Floats
    asked_size: Floats
    read: Floats
    read_size: Floats
    away: Floats
    kernels: Floats
    counts: Floats
    votes: Floats
    features: Floats
    hidden: Floats


@dataclass(frozen=True, slots=True)
class Network:
    """Words with their vectors and how much each tells (0: it is not read at all), and what is learned."""

    table: Floats
    gates: Floats
    weights: Weights

    @staticmethod
    def untrained(table: Floats, gates: Floats, seed: int) -> Network:
        """One that has not learned anything yet: to it all texts are the same."""
        chance, size = np.random.default_rng(seed), table.shape[1]
        weights: Weights = {
            "turn": np.eye(size, dtype=np.float32),
            "mix": chance.normal(0, 0.5, (len(CENTRES), HIDDEN)).astype(np.float32),
            "shift": np.zeros(HIDDEN, dtype=np.float32),
            "out": np.zeros((HIDDEN, 1), dtype=np.float32),
        }
        return Network(table, gates, weights)

    def learned(self, weights: Weights) -> Network:
        """The same words with other weights."""
        return replace(self, weights=weights)

    def scores(self, question: Ids, texts: Ids) -> Floats:
        """One number for each row of texts, which are as long as the longest, with zeros behind."""
        return self._forward(question, texts)[0]

    def gradients(self, question: Ids, texts: Ids, wanted: Floats) -> Weights:
        """Of the cross-entropy between the shares that are wanted and the softmax of the scores."""
        scores, seen = self._forward(question, texts)
        return self._backward(question, texts, (softmax(scores) - wanted)[:, None], seen)

    def _forward(self, question: Ids, texts: Ids) -> tuple[Floats, _Seen]:
        w = self.weights
        asked, asked_size = _unit(self.table[question] @ w["turn"])
        read, read_size = _unit(self.table[texts] @ w["turn"])
        alike = asked @ read.transpose(0, 2, 1)
        away = (alike[..., None] - CENTRES) / WIDTHS
        kernels = np.exp(-0.5 * away**2) * np.sign(self.gates[texts])[:, None, :, None]
        counts = kernels.sum(axis=2)
        votes = self.gates[question] / (self.gates[question].sum() + LEAST)
        features = np.einsum("twk,w->tk", np.log1p(counts), votes)
        hidden = np.tanh(features @ w["mix"] + w["shift"])
        seen = _Seen(asked, asked_size, read, read_size, away, kernels, counts, votes, features, hidden)
        return (hidden @ w["out"])[:, 0], seen

    def _backward(self, question: Ids, texts: Ids, error: Floats, seen: _Seen) -> Weights:
        w = self.weights
        to_hidden = error @ w["out"].T * (1 - seen.hidden**2)
        to_counts = (to_hidden @ w["mix"].T)[:, None, :] * seen.votes[:, None] / (1 + seen.counts)
        to_alike = -(to_counts[:, :, None, :] * seen.kernels * seen.away / WIDTHS).sum(axis=3)
        to_asked = _through_unit((to_alike @ seen.read).sum(axis=0), seen.asked, seen.asked_size)
        to_read = _through_unit(to_alike.transpose(0, 2, 1) @ seen.asked, seen.read, seen.read_size)
        return {
            "turn": self.table[question].T @ to_asked + np.tensordot(self.table[texts], to_read, ((0, 1), (0, 1))),
            "mix": seen.features.T @ to_hidden,
            "shift": to_hidden.sum(axis=0),
            "out": seen.hidden.T @ error,
        }


def softmax(scores: Floats) -> Floats:
    """Shares of one, from scores."""
    raised = np.exp(scores - scores.max())
    shares: Floats = raised / raised.sum()
    return shares


def padded(texts: Sequence[Sequence[int]]) -> Ids:
    """Texts of different lengths as one array."""
    rows = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
    for place, text in enumerate(texts):
        rows[place, : len(text)] = text
    return rows


def _unit(vectors: Floats) -> tuple[Floats, Floats]:
    """Vectors of length one, and how long they were."""
    sizes = np.sqrt((vectors**2).sum(axis=-1, keepdims=True) + LEAST)
    return vectors / sizes, sizes


def _through_unit(error: Floats, unit: Floats, sizes: Floats) -> Floats:
    """The gradient before `_unit`, from the one behind it."""
    across: Floats = error - unit * (error * unit).sum(axis=-1, keepdims=True)
    return across / sizes
