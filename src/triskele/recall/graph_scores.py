"""What the graph adds to a ranking: memories that a name connects with the best ones, and what they say beyond them.

A memory gains where a walk from the best two arrives, and where it says what a linked one leaves unsaid of the
question. All of it counts only as far as the best memory leaves something open (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from triskele.graph.bipartite import Bools
from triskele.graph.canonical import parts
from triskele.graph.gazetteer import MAX_PARTS
from triskele.graph.vocabulary import COMMON
from triskele.graph.walk import WALKS, Edged, Edges, Floats, Ints
from triskele.index.mentions import Layers
from triskele.recall import fusion
from triskele.recall.fusion import Candidate, FusionConfig
from triskele.recall.legs import dense, graph
from triskele.recall.legs.graph import MAX_OWNERS, Both, Explored, Shared, Titles
from triskele.recall.plan import OFF
from triskele.recall.question import LEAST_SIMILARITY, Question
from triskele.types import Ranking

# How many of the best memories are looked around at, how many a walk begins at, and how far it goes.
SEEDS = 3
WALKERS = 2
HOPS = 2
SHARED_IN_WALK = 0.3
# What a title in the question adds, and what it adds to a memory's claim to be a seed.
BY_TITLE = 0.3
BY_TITLE_AS_SEED = 1.0
BY_TITLE_WALK = 1.25
BY_WALK = 0.5
BY_GAIN = 0.5
# A word of the question whose best match lies below this is open; with this share open the graph counts in full.
OPEN_BELOW = 0.6
FULLY_OPEN = 0.4
_MOST_NEIGHBOURS = 30
_SHORTEST_TITLE = 3
_ALL = 2**31


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """Where the graph led from: the best memories without it, and who mentions what."""

    layers: Layers
    seeds: Ints

    def shared(self, row: int) -> tuple[int, int] | None:
        """The first of the best memories that a memory shares a name with, and the rarest such name's concept."""
        # A walk began at the best one: it was found without it.
        if row == self.seeds[0]:
            return None
        _, own, _ = self.layers.concepts(np.array([row]))
        for seed in self.seeds.tolist():
            _, theirs, _ = self.layers.concepts(np.array([seed]))
            both = np.intersect1d(own, theirs)
            if seed != row and len(both):
                return seed, int(both[np.argmin(self.layers.frequency(both))])
        return None


def connected(
    question: Question, rankings: Sequence[Ranking], shares: Mapping[str, float]
) -> tuple[list[Candidate], Trail | None]:
    """The legs' rankings fused by their shares, with what titles and connections between memories add."""
    layers = question.meaning.mentions.layers()
    titles = _titles(question, layers)
    weighing = FusionConfig(weights=shares, depth=_ALL)
    rankings = _with_more(question, rankings, list(titles))
    rows, scores = fusion.ordered("share", rankings, weighing)
    added = {row: BY_TITLE * cover for row, cover in titles.items()}
    trail = None
    if question.plan.walk != OFF and len(rows):
        around = _Around.look(question, layers, _seeds(rows, scores, titles))
        trail = Trail(layers, around.seeds)
        rankings = _with_more(question, rankings, around.nearest(question))
        rows, scores = fusion.ordered("share", rankings, weighing)
        for row, value in zip(rows.tolist(), _added(question, around, rows, scores).tolist(), strict=True):
            added[row] = added.get(row, 0.0) + value
    named = sorted((row for row, value in added.items() if value > 0), key=lambda row: (-added[row], row))
    by_graph = Ranking(graph.NAME, tuple(named), tuple(added[row] for row in named))
    # What the graph adds is told in the scale of the best score without it.
    weight = (question.plan.weights or {}).get(graph.NAME, 1.0)
    weights = {**shares, graph.NAME: weight * float(scores.max(initial=0.0))}
    return fusion.fuse("share", [*rankings, by_graph], FusionConfig(weights=weights, depth=_ALL)), trail


def walked(question: Question, rankings: Sequence[Ranking]) -> Ranking:
    """The graph as a leg of its own: where a walk from the best of the other legs arrives."""
    starts: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.rows[:SEEDS], start=1):
            starts[row] = starts.get(row, 0.0) + 1 / rank
    if not starts or question.plan.walk == OFF:
        return Ranking(graph.NAME)
    layers = question.meaning.mentions.layers()
    seeds = np.array(list(starts), dtype=np.int64)
    importance = question.columns.importance[question.columns.find(seeds)]
    # Who mentions very much says little about each of it.
    mentioned = np.bincount(layers.concepts(seeds)[0], minlength=len(seeds))
    weights = np.array(list(starts.values())) * importance / np.sqrt(np.maximum(mentioned, 1))
    rows, mass = WALKS[question.plan.walk](_both(question, layers), seeds, weights.astype(np.float32), hops=HOPS)
    seen = _may_be_seen(question, rows)
    order = np.lexsort((rows[seen], -mass[seen]))[: question.query.depth]
    return Ranking(graph.NAME, tuple(rows[seen][order].tolist()), tuple(mass[seen][order].tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """The best memories, and the edges that lead away from them."""

    seeds: Ints
    titles: Edged
    both: Both
    by_title: Edges
    by_shared: Edges

    @staticmethod
    def look(question: Question, layers: Layers, seeds: Ints) -> _Around:
        """Follow the edges of some memories."""
        both = _both(question, layers)
        return _Around(seeds, both.titles, both, both.titles.around(seeds), both.shared.around(seeds))

    def nearest(self, question: Question) -> list[int]:
        """The nearest in meaning to the question among those that an edge connects with each seed."""
        found: list[int] = []
        for (places, rows, _), least in ((self.by_title, -1.0), (self.by_shared, LEAST_SIMILARITY)):
            seen = _may_be_seen(question, rows)
            places, rows = places[seen], rows[seen]
            at = question.columns.find(rows)
            cosines = question.meaning.dense.cosines(question.encoding.sentence, question.columns, at)
            # Who mentions the same as something near may still be a stranger to the question.
            near = np.flatnonzero(cosines >= least)
            order = near[np.lexsort((-cosines[near], places[near]))]
            rank = np.arange(len(order)) - np.searchsorted(places[order], places[order])
            found += rows[order][rank < _MOST_NEIGHBOURS].tolist()
        return found


def _titles(question: Question, layers: Layers) -> dict[int, float]:
    """Memories whose subject stands in the question, and how much of the question its words carry."""
    text, listed = question.query.text, parts(question.query.text)
    texts = [part.text for part in listed]
    runs = {
        (at, size): " ".join(texts[at : at + size])
        for at in range(len(texts))
        for size in range(1, min(MAX_PARTS, len(texts) - at) + 1)
    }
    telling = {run for run in runs.values() if len(run) >= _SHORTEST_TITLE and run not in COMMON}
    known = question.meaning.mentions.find(question.query.scope.owner, telling)
    found: dict[int, float] = {}
    at = 0
    while at < len(texts):
        size = next((n for n in range(min(MAX_PARTS, len(texts) - at), 0, -1) if runs[at, n] in known), 0)
        if size:
            start, stop = listed[at].start, listed[at + size - 1].end
            for row in _owners(question, layers, known[runs[at, size]], text[start:stop]):
                found[row] = max(found.get(row, 0.0), question.weight_between(start, stop))
        at += max(size, 1)
    return found


def _owners(question: Question, layers: Layers, name: tuple[int, bool], written: str) -> list[int]:
    """The few memories that a concept is the subject of, unless the question writes a common word alike."""
    concept, any_case = name
    if not any_case and all(word[0].islower() for word in written.split()):
        return []
    _, rows, is_subject = layers.holders(np.array([concept]))
    owners = rows[is_subject]
    return owners[_may_be_seen(question, owners)].tolist() if len(owners) <= MAX_OWNERS else []


def _seeds(rows: Ints, scores: fusion.Floats, titles: Mapping[int, float]) -> Ints:
    """The best memories, those first that the question names."""
    worth = scores / max(float(scores.max()), 1e-9)
    worth += BY_TITLE_AS_SEED * np.array([titles.get(row, 0.0) for row in rows.tolist()])
    return rows[np.lexsort((rows, -worth))[:SEEDS]]


def _added(question: Question, around: _Around, rows: Ints, scores: fusion.Floats) -> Floats:
    """What connections add to every candidate, as a share of the best score; the candidates come best first."""
    matches = question.matches(rows)
    is_open = matches[0] < OPEN_BELOW
    openness = min(1.0, float(question.token_weights @ is_open) / FULLY_OPEN)
    # Turns of a conversation are connected by their neighbours already.
    openness *= 1 - question.talk(rows)
    order = np.argsort(rows)
    places = order[np.searchsorted(rows[order], around.seeds)]
    claims = (scores[places] / max(float(scores[0]), 1e-9)).astype(np.float32)
    more = np.maximum(matches[:, None, :] - matches[None, places, :], 0).mean(axis=2) * claims
    gained = np.maximum(*(_linked(more, edges, rows, order) for edges in (around.by_title, around.by_shared)))
    titled, both = (_arriving(question, edges, around.seeds, rows) for edges in (around.titles, around.both))
    extra = BY_TITLE_WALK * np.sqrt(titled) + BY_WALK * np.sqrt(both) + BY_GAIN * gained
    # A walk begins at these: they are not worse for having been found first.
    begun = places[:WALKERS]
    extra[begun] = np.delete(extra, begun).max(initial=0.0)
    return np.asarray(extra * openness, dtype=np.float32)


def _linked(more: Floats, edges: Edges, rows: Ints, order: Ints) -> Floats:
    """The most that a memory says beyond a seed that an edge connects it with."""
    places, others, _ = edges
    at = np.minimum(np.searchsorted(rows[order], others), len(rows) - 1)
    is_there = rows[order][at] == others
    best = np.zeros(len(rows), dtype=np.float32)
    candidates = order[at[is_there]]
    np.maximum.at(best, candidates, more[candidates, places[is_there]])
    return best


def _arriving(question: Question, edges: Edged, seeds: Ints, rows: Ints) -> Floats:
    """The share of a walk's mass that arrives at each row."""
    walkers = seeds[:WALKERS]
    weights = (1 / np.arange(1, len(walkers) + 1)).astype(np.float32)
    nodes, mass = WALKS[question.plan.walk](edges, walkers, weights / weights.sum(), hops=HOPS)
    at = np.minimum(np.searchsorted(nodes, rows), len(nodes) - 1)
    return np.where(nodes[at] == rows, mass[at], 0).astype(np.float32)


def _both(question: Question, layers: Layers) -> Both:
    memories = len(question.columns.rows)
    return Both(Explored(Titles(layers, memories)), Explored(Shared(layers, memories)), SHARED_IN_WALK)


def _may_be_seen(question: Question, rows: Ints) -> Bools:
    """Which rows the question's scope allows."""
    seen = question.columns.holds(rows)
    seen[seen] = question.mask[question.columns.find(rows[seen])]
    return seen


def _with_more(question: Question, rankings: Sequence[Ranking], rows: Sequence[int]) -> list[Ranking]:
    """The rankings by meaning with more candidates in them."""
    known = {row for ranking in rankings for row in ranking.rows}
    more = np.array(sorted(set(rows) - known), dtype=np.int64)
    found = []
    for ranking in rankings:
        if len(more) and ranking.leg == dense.NAME and "dense" in question.plan.legs:
            ranking = question.nearness.complete(ranking, more)
        elif len(more) and ranking.leg == "late":
            ranking = _merged(ranking, question.late(more))
        found.append(ranking)
    return found


def _merged(first: Ranking, second: Ranking) -> Ranking:
    rows, scores = (*first.rows, *second.rows), (*first.scores, *second.scores)
    order = np.lexsort((np.array(rows), -np.array(scores))).tolist()
    return replace(first, rows=tuple(rows[place] for place in order), scores=tuple(scores[place] for place in order))
