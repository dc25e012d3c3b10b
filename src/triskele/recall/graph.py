"""Step 6, the graph leg: memories that a name connects with the best candidates, and what they add to them.

Seeds are the best candidates. A title link joins a memory with those that mention its subject; a shared link joins
memories that mention the same concept, the heavier the fewer do. A name that very many memories mention links none.
A candidate gains by the links that lead to it from the first seeds, and by what it matches beyond a seed that is
linked with it. Then the list is built from the top: what a linked candidate matches beyond all those above it is
novelty, so that memories that repeat the first one do not fill the list. The gate scales all of this by how well the
best candidate matches the question (docs/decisions/0007).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from triskele.index.corpus import Bools, Corpus, Floats, Ints
from triskele.index.mentions import COMMON_FROM
from triskele.recall.fusion import FusionConfig, textbook_fusion
from triskele.recall.late import with_rows
from triskele.recall.plan import DEFAULT
from triskele.recall.question import MAX_OWNERS, Question, titles
from triskele.recall.scores import GRAPH, Column, Doubles, Ranking, Scores, step

_HUB = 0.01
_MOST_HOLDERS = 200
_MOST_CONCEPTS = 64
# How many candidates are seeds, and how many of these pass on mass along their links.
SEEDS, FIRST_SEEDS = 3, 2
# What the graph adds, in shares of the best score: for a title in the query, which adds more to a candidate's claim to
# be a seed, for links, for what a linked memory matches beyond its seed, and for novelty.
GAINS: Mapping[str, float] = {"title": 0.3, "title as seed": 1.0, "link": 0.7, "match": 4.0, "novelty": 3.0}
# How many candidates novelty looks at, and how many it places.
_LOOKED_AT, _PLACED = 30, 10
_LEAD = 0.001
# The gate: the mean match of the best candidate below which links add nothing, and the one from which they add all.
GATE = (0.3, 0.5)
_MOST_NEIGHBOURS = 30

# The place of a seed, the row that it is linked with, and the weight of the link.
Links = tuple[Ints, Ints, Floats]
_NO_LINKS: Links = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))


@step
def graph(question: Question, corpus: Corpus, scores: Scores) -> Scores:
    """Step 6: what titles in the question and connections with the best rows add, also to rows that no leg returned."""
    plan = question.plan
    if GRAPH not in plan.legs or scores.order is not None:
        return scores
    if question.plan.fusion != DEFAULT:
        rankings = [*scores.rankings, graph_ranking(question, corpus, scores.rankings)]
        return textbook_fusion(plan.fusion, rankings, FusionConfig.of(question))
    # What asks nothing names what it is about, not whom to look for.
    if scores.late_weights is None or (question.form.is_request and not question.form.asks):
        return scores
    # Names of speakers count as in late interaction.
    question = replace(question, token_weights=scores.late_weights)
    named: dict[int, float] = {}
    for row, start, stop in titles(question.query.text, corpus):
        named[row] = max(named.get(row, 0.0), question.weight_between(start, stop))
    scores, seeds = with_rows(question, corpus, scores, named), ()
    places, sums = scores.ordered
    gained = np.zeros(len(places), dtype=np.float32)
    if len(places):
        neighbours = SeedNeighbours.of(best_seeds(scores.rows[places], sums, named), corpus)
        seeds = tuple(neighbours.seeds.tolist())
        if len(neighbours.links[0]):
            scores = with_rows(question, corpus, scores, neighbours.nearest(corpus))
            places, sums = scores.ordered
            gained = connection_gains(question, scores, neighbours, named)
    added = by_title(named, scores.rows)
    added[places] += gained
    # What the graph adds is relative to the best score without it.
    weight = (plan.weights or {}).get(GRAPH, 1.0) * float(sums.max(initial=0.0))
    # A gain of 0 counts as not scored.
    column = Column(GRAPH, np.where(added > 0, added, np.nan), weight)
    return replace(scores, columns=(*scores.columns, column), seeds=seeds)


def connection_gains(
    question: Question, scores: Scores, neighbours: SeedNeighbours, named: Mapping[int, float]
) -> Floats:
    """What links add to every candidate, best first, and what it matches beyond those above it."""
    places, sums = scores.ordered
    rows, matches, weights = scores.rows[places], scores.matches[places], question.token_weights
    gained = link_gains(neighbours, rows, sums, matches) * gate(matches[0], weights)
    # Turns of a conversation are connected by their neighbours already.
    gained *= 1 - (float(np.mean(scores.facts.sessions >= 0)) if scores.facts is not None else 0.0)
    total = sums + float(sums.max()) * (gained + by_title(named, rows))
    novelty = novelty_gains(weights, total, matches, gained)
    # Novelty is measured by the best score with the graph, what it adds by the best without.
    gained += novelty * np.float32(total.max() / max(float(sums.max()), 1e-9))
    return gained


def concept_links(corpus: Corpus, nodes: Ints) -> tuple[Links, Links]:
    """The title links and the shared links of some rows: place in the list, other row, weight."""
    most = max_concept_frequency(corpus.size)
    mentions = corpus.mentions(nodes, _MOST_CONCEPTS)
    is_title = (mentions.subject_of > 0) & (mentions.subject_of <= MAX_OWNERS) & (mentions.reach <= most)
    is_shared = (mentions.frequency >= 2) & (mentions.frequency <= most)
    usable = np.flatnonzero(is_title | is_shared)
    if not len(usable):
        return _NO_LINKS, _NO_LINKS
    at, ends, is_theirs = corpus.holders(mentions.concepts[usable], _MOST_HOLDERS)
    # One entry per mention and other row that mentions the same concept.
    own = usable[at]
    position, is_other = mentions.position[own], ends != nodes[mentions.position[own]]
    titled = is_title[own] & (mentions.is_subject[own] | is_theirs) & is_other
    by_title = (1 / mentions.subject_of[own[titled]]).astype(np.float32)
    shared = is_shared[own] & is_other
    by_shared = (1 / (mentions.frequency[own[shared]] - 1)).astype(np.float32)
    return (
        _summed(position[titled], ends[titled], by_title, np.maximum),
        _summed(position[shared], ends[shared], by_shared, np.add),
    )


def max_concept_frequency(memories: int) -> int:
    """The most memories that a name may connect."""
    return min(_MOST_HOLDERS, max(COMMON_FROM, int(_HUB * memories)))


def _summed(position: Ints, ends: Ints, weights: Floats, by: np.ufunc) -> Links:
    """Every pair once, in their order.

    Weights are a few powers of two apart: in double precision their sums are exact, so that equal ones stay equal
    whatever the order of their terms.
    """
    pairs = position * (int(ends.max(initial=-1)) + 1) + ends
    order = pairs.argsort(kind="stable")
    pairs = pairs[order]
    is_first = np.empty(len(pairs), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(pairs[1:], pairs[:-1], out=is_first[1:])
    begins = is_first.nonzero()[0]
    firsts = order[begins]
    return position[firsts], ends[firsts], by.reduceat(weights[order], begins, dtype=np.float64).astype(np.float32)


def passed_on(links: Links, mass: Floats) -> tuple[Ints, Floats]:
    """The rows that some seeds are linked with, and what they receive if each seed passes on its mass by weight."""
    places, ends, weights = links
    sums = np.bincount(places, weights, len(mass))
    return _added(ends, (mass[places] * weights / sums[places]).astype(np.float32))


def _added(rows: Ints, amounts: Floats) -> tuple[Ints, Floats]:
    """Each row once, with the sum of its amounts: in double precision, so that it does not depend on their order."""
    unique_rows, at = np.unique(rows, return_inverse=True)
    return unique_rows, np.bincount(at, amounts, len(unique_rows)).astype(np.float32)


def _some(links: Links, is_wanted: Bools) -> Links:
    return links[0][is_wanted], links[1][is_wanted], links[2][is_wanted]


def graph_ranking(question: Question, corpus: Corpus, rankings: Sequence[Ranking]) -> Ranking:
    """The graph as a separate leg, for the textbook fusions: the rows that links from the best of others reach."""
    starts: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.rows[:SEEDS].tolist(), start=1):
            starts[row] = starts.get(row, 0.0) + 1 / rank
    if not starts:
        return Ranking(GRAPH)
    seeds = np.array(list(starts), dtype=np.int64)
    # A memory with very many mentions says little about each concept.
    mentioned = np.bincount(corpus.mentions(seeds).position, minlength=len(seeds))
    weights = np.array(list(starts.values())) * corpus.facts(seeds).importance / np.sqrt(np.maximum(mentioned, 1))
    start_mass = weights.astype(np.float32)
    linked, passed = passed_on(SeedNeighbours.of(seeds, corpus).links, start_mass)
    rows, mass = _added(np.concatenate([seeds, linked]), np.concatenate([start_mass, passed]))
    order = np.lexsort((rows, -mass))[: question.query.depth]
    return Ranking(GRAPH, rows[order], mass[order].astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class SeedNeighbours:
    """The best candidates, and the links that lead away from them: those by title, and all."""

    seeds: Ints
    by_title: Links
    links: Links

    @staticmethod
    def of(seeds: Ints, corpus: Corpus) -> SeedNeighbours:
        """Find the links of some rows."""
        by_title, shared = concept_links(corpus, seeds)
        ends = np.concatenate([by_title[1], shared[1]])
        # A row outside the scope must not take part of what a seed passes on.
        is_visible = corpus.facts(ends).is_visible
        by_title, shared = (
            _some(by_title, is_visible[: len(by_title[1])]),
            _some(shared, is_visible[len(by_title[1]) :]),
        )
        places, ends = np.concatenate([by_title[0], shared[0]]), np.concatenate([by_title[1], shared[1]])
        links = _summed(places, ends, np.concatenate([by_title[2], shared[2]]), np.add)
        return SeedNeighbours(seeds, by_title, links)

    def nearest(self, corpus: Corpus) -> list[int]:
        """The rows nearest to the query among those that each seed is linked with, by title and by any name."""
        linked = np.unique(self.links[1])
        cosines = corpus.cosines(linked)
        nearest: list[int] = []
        for places, rows, _ in (self.by_title, self.links):
            order = np.lexsort((-cosines[np.searchsorted(linked, rows)], places))
            rank = np.arange(len(order)) - np.searchsorted(places[order], places[order])
            nearest += rows[order][rank < _MOST_NEIGHBOURS].tolist()
        return nearest


def best_seeds(rows: Ints, scores: Doubles, named: Mapping[int, float]) -> Ints:
    """The best candidates, those first whose subject the query names."""
    worth = scores / max(float(scores.max()), 1e-9)
    worth += GAINS["title as seed"] / GAINS["title"] * by_title(named, rows)
    return rows[np.lexsort((rows, -worth))[:SEEDS]]


def link_gains(neighbours: SeedNeighbours, rows: Ints, scores: Doubles, matches: Floats) -> Floats:
    """What links add to every candidate, as a share of the best score; the candidates come best first."""
    order = np.argsort(rows)
    ordered = rows[order]
    places = order[ordered.searchsorted(neighbours.seeds)]
    claims = (scores[places] / max(float(scores[0]), 1e-9)).astype(np.float32)
    more = np.maximum(matches[:, None, :] - matches[None, places, :], 0).mean(axis=2) * claims
    beyond = np.zeros(len(rows), dtype=np.float32)
    seeds, ends, _ = neighbours.links
    at = ordered.searchsorted(ends)
    is_there = ordered.take(at, mode="clip") == ends
    linked = order[at[is_there]]
    # The most that a candidate matches beyond a seed that is linked with it.
    np.maximum.at(beyond, linked, more[linked, seeds[is_there]])
    first = places[:FIRST_SEEDS]
    received = [np.sqrt(_received(links, rows, len(first))) for links in (neighbours.by_title, neighbours.links)]
    gained: Floats = (GAINS["match"] * beyond + GAINS["link"] * sum(received)).astype(np.float32)
    # They must not lose by being found first.
    gained[first] = np.delete(gained, first).max(initial=0.0)
    return gained


def _received(links: Links, rows: Ints, first: int) -> Floats:
    """The share that each row receives of the mass that the first seeds pass on."""
    is_first = links[0] < first
    mass = (1 / np.arange(1, first + 1)).astype(np.float32)
    linked, passed = passed_on((links[0][is_first], links[1][is_first], links[2][is_first]), mass / mass.sum())
    if not len(linked):
        return np.zeros(len(rows), dtype=np.float32)
    at = np.minimum(np.searchsorted(linked, rows), len(linked) - 1)
    received: Floats = np.where(linked[at] == rows, passed[at], np.float32(0))
    return received


def novelty_gains(weights: Floats, scores: Doubles, matches: Floats, gained: Floats) -> Floats:
    """What connected candidates match beyond those above them, as a share of the best score.

    The list is built greedily: each next candidate has the highest sum of its score and its news. The first has none;
    it gains what the second one would overtake it by, for it is not worse for having been found first.
    """
    added = np.zeros(len(scores), dtype=np.float32)
    order = np.argsort(-scores, kind="stable")[:_LOOKED_AT]
    best = float(scores[order[0]]) if len(order) else 0.0
    if best <= 0 or not gained[order[1:]].any():
        return added
    first, left = order[0], order[1:]
    weight = GAINS["novelty"] * gate(matches[first], weights)
    covered, highest = matches[first], 0.0
    is_connected, alone = gained[left] > 0, scores[left] / best
    for _ in range(min(_PLACED - 1, len(left))):
        fresh = weight * (np.maximum(matches[left] - covered, 0) @ weights) * is_connected
        worth = alone + fresh
        at = int(worth.argmax())
        chosen, added[left[at]] = left[at], fresh[at]
        covered, highest = np.maximum(covered, matches[chosen]), max(highest, float(worth[at]))
        # It is placed.
        alone[at] = -np.inf
    added[first] = max(highest + _LEAD - 1.0, 0.0)
    return added


def gate(matches: Floats, weights: Floats) -> float:
    """From 0 to 1, how far the best candidate matches the question."""
    low, high = GATE
    return min(max((float(matches @ weights) - low) / (high - low), 0.0), 1.0)


def by_title(named: Mapping[int, float], rows: Ints) -> Doubles:
    """What titles in the query add to some rows."""
    added = np.zeros(len(rows))
    for row, cover in named.items():
        added[rows == row] = GAINS["title"] * cover
    return added
