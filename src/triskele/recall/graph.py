"""Step 6, the graph leg: memories that a name connects with the best candidates, and what they add to them.

Title edges connect a memory with those that mention its subject; shared edges connect memories that mention the same
concept, the stronger the fewer do. A name that very many memories mention connects none of them. A candidate gains
if a walk from the best two reaches it, and if it matches query tokens that a linked one does not match. All of it
counts more the more query tokens the best candidate leaves unmatched (docs/decisions/0007). Then the list is built from
the top: a connected candidate gains by what it matches beyond all those above it, so that memories that repeat the
first one do not fill the list.

Walks are personalised PageRank, or the cheaper hop decay; edges are computed when a walk needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from triskele.index.corpus import Bools, Corpus, Floats, Ints
from triskele.index.mentions import COMMON_FROM
from triskele.recall.fusion import FusionConfig, textbook_fusion
from triskele.recall.late import with_rows
from triskele.recall.legs import LEAST_SIMILARITY
from triskele.recall.plan import DEFAULT, OFF
from triskele.recall.question import Question
from triskele.recall.scores import GRAPH, Column, Doubles, Ranking, Scores, conversation_share, step
from triskele.text.spellings import MAX_PARTS, parts
from triskele.text.words import COMMON_WORDS

MAX_OWNERS = 10
_HUB = 0.01
_MOST_HOLDERS = 200
_MOST_CONCEPTS = 64
_BEST_SHARED = 15

# How many of the best candidates have their edges followed, from how many a walk starts, and how far it goes.
SEEDS, WALKERS, HOPS = 3, 2, 2
SHARED_IN_WALK = 0.3
# What a title in the query adds to a score, and what it adds to a candidate's claim to be a seed.
BY_TITLE = 0.3
BY_TITLE_AS_SEED = 1.0
BY_TITLE_WALK = 1.25
BY_WALK = 0.75
# What a linked memory adds beyond the one that it is linked with sets it apart from those that repeat the first.
BY_GAIN = 4.0
# Connections add nothing to a memory whose cosine is below these, and count in full a little above. A title of few
# owners is a strong connection: the memory that it leads to may be further from the query.
_STRANGER, _STRANGER_BY_TITLE = 0.05, -0.05
_ACQUAINTED_WITHIN = 0.1
_FEW_OWNERS = 2
# A query token whose best match is below this is open; from this share of open weight on the graph counts in full.
OPEN_BELOW = 0.6
FULLY_OPEN = 0.4
LEAST_OPEN = 0.7
# What a connected candidate adds beyond those above it: its weight, how many are looked at, how many are placed so.
BY_NEWS = 3.0
# A query token counts as matched from this product on.
MATCHED = 0.6
# A second step needs a first that matches the query: below the one mean match connections add nothing, from the other
# on all; news needs more of it.
FOOTING = (0.3, 0.5)
FOOTING_OF_NEWS = (0.5, 0.65)
_LOOKED_AT, _PLACED = 30, 10
_LEAD = 0.001
_MOST_NEIGHBOURS = 30
_SHORTEST_TITLE = 3
# What a walk passes on at each hop; each hop continues from the heaviest nodes only.
DAMPING = 0.5
MAX_FRONTIER = 2_000

# The position of a node in the request, its neighbour, and the weight of the edge.
Edges = tuple[Ints, Ints, Floats]
# A memory whose subject occurs in a query, and where it starts and ends there.
Title = tuple[int, int, int]
# The edges of some nodes of a graph.
Around = Callable[[Ints], Edges]
Walk = Callable[..., tuple[Ints, Floats]]
_NO_EDGES: Edges = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))


@step
def graph(question: Question, corpus: Corpus, scores: Scores) -> Scores:
    """Step 6: what titles in the question and connections with the best rows add, also to rows that no leg returned."""
    plan = question.plan
    if GRAPH not in plan.legs or scores.order is not None:
        return scores
    if question.plan.fusion != DEFAULT:
        rankings = [*scores.rankings, graph_ranking(question, corpus, scores.rankings)]
        return textbook_fusion(plan.fusion, rankings, FusionConfig.of(question))
    if scores.late_weights is None or question.is_request:
        return scores
    # Names weigh as little here as in late interaction.
    question = replace(question, token_weights=scores.late_weights)
    named: dict[int, float] = {}
    for row, start, stop in titles(question.query.text, corpus):
        named[row] = max(named.get(row, 0.0), question.weight_between(start, stop))
    scores, seeds = with_rows(question, corpus, scores, named), ()
    places, sums = scores.ordered
    gained = np.zeros(len(places), dtype=np.float32)
    neighbours = None
    if plan.walk != OFF and len(places):
        neighbours = SeedNeighbours.of(best_seeds(scores.rows[places], sums, named), corpus)
        seeds = tuple(neighbours.seeds.tolist())
    # If nothing is connected with the seeds, a walk leads nowhere.
    if neighbours is not None and (len(neighbours.by_title[0]) or len(neighbours.by_shared[0])):
        scores = with_rows(question, corpus, scores, neighbours.nearest(corpus))
        places, sums = scores.ordered
        gained = connection_gains(question, corpus, scores, neighbours, named)
    added = by_title(named, scores.rows)
    added[places] += gained
    # What the graph adds is relative to the best score without it.
    weight = (plan.weights or {}).get(GRAPH, 1.0) * float(sums.max(initial=0.0))
    # Nothing counts as not scored.
    column = Column(GRAPH, np.where(added > 0, added, np.nan), weight)
    return replace(scores, columns=(*scores.columns, column), seeds=seeds)


def connection_gains(
    question: Question, corpus: Corpus, scores: Scores, neighbours: SeedNeighbours, named: Mapping[int, float]
) -> Floats:
    """What connections add to every candidate, best first, by walks and by what it matches beyond those above it."""
    places, sums = scores.ordered
    rows, matches, weights = scores.rows[places], scores.matches[places], question.token_weights
    turns = conversation_share(corpus.facts(rows, reach=min(question.reach, 1)).neighbours)
    gained = walk_gains(
        question.plan.walk, weights, neighbours, rows, sums, matches, scores.columns[1].raw[places], turns
    )
    total = sums + float(sums.max()) * (gained + by_title(named, rows))
    novelty = novelty_gains(weights, total, matches, gained)
    # Novelty is measured by the best score with the graph, what it adds by the best without.
    gained += (1 - turns) * novelty * np.float32(total.max() / max(float(sums.max()), 1e-9))
    return gained


@dataclass(frozen=True, slots=True, eq=False)
class _Adjacency:
    """Edges by node: node i has the edges from starts[i] on."""

    starts: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    others: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    weights: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def of(self, at: Ints) -> Edges:
        """The edges of some nodes."""
        begins = self.starts[at]
        counts = self.starts[at + 1] - begins
        places = np.repeat(np.arange(len(at)), counts)
        inside = np.arange(len(places)) + (begins - np.cumsum(counts) + counts)[places]
        return places, self.others[inside], self.weights[inside]

    def extended(self, edges: Edges, nodes: int) -> _Adjacency:
        """These edges and the edges of some more nodes, which come in the order of the nodes."""
        if not len(edges[0]):
            return _Adjacency(np.append(self.starts, self.starts[-1:].repeat(nodes)), self.others, self.weights)
        ends = self.starts[-1] + np.cumsum(np.bincount(edges[0], minlength=nodes))
        return _Adjacency(
            np.concatenate([self.starts, ends]),
            np.concatenate([self.others, edges[1]]),
            np.concatenate([self.weights, edges[2]]),
        )


class ConceptGraph:
    """Title edges and shared edges between memories, computed once per node: walks pass the same nodes again."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._most = max_concept_frequency(corpus.size)
        self._places: dict[int, int] = {}
        self._titles = self._shared = self._mixed = _Adjacency()

    def titles(self, nodes: Ints) -> Edges:
        """The title edges of some rows."""
        at = self._located(nodes)
        return self._titles.of(at)

    def shared(self, nodes: Ints) -> Edges:
        """The shared edges of some rows."""
        at = self._located(nodes)
        return self._shared.of(at)

    def mixed(self, nodes: Ints) -> Edges:
        """The title edges of some rows, and their shared edges at a part of their weight."""
        at = self._located(nodes)
        return self._mixed.of(at)

    def _located(self, nodes: Ints) -> Ints:
        """The places of some rows in the lists of edges; what is new is computed."""
        listed = nodes.tolist()
        unknown = [node for node in dict.fromkeys(listed) if node not in self._places]
        if unknown:
            titles, shared = concept_edges(self._corpus, np.array(unknown, dtype=np.int64), self._most)
            self._titles = self._titles.extended(titles, len(unknown))
            self._shared = self._shared.extended(shared, len(unknown))
            self._mixed = self._mixed.extended(_mixed(titles, shared), len(unknown))
            self._places |= zip(unknown, range(len(self._places), len(self._places) + len(unknown)), strict=True)
        return np.array([self._places[node] for node in listed], dtype=np.int64)


def concept_edges(corpus: Corpus, nodes: Ints, most: int) -> tuple[Edges, Edges]:
    """The title edges and the shared edges of some rows: the place of the row in the list, the other row, the weight.

    A title edge joins a memory, in both directions, with those that mention its subject. A shared edge joins memories
    that mention the same concept; each memory keeps its best ones. A concept of more than `most` memories joins none.
    """
    mentions = corpus.mentions(nodes, _MOST_CONCEPTS)
    is_title = (mentions.subject_of > 0) & (mentions.subject_of <= MAX_OWNERS) & (mentions.reach <= most)
    is_shared = (mentions.frequency >= 2) & (mentions.frequency <= most)
    usable = np.flatnonzero(is_title | is_shared)
    if not len(usable):
        return _NO_EDGES, _NO_EDGES
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
        _best(*_summed(position[shared], ends[shared], by_shared, np.add)),
    )


def max_concept_frequency(memories: int) -> int:
    """The most memories that a name may connect."""
    return min(_MOST_HOLDERS, max(COMMON_FROM, int(_HUB * memories)))


def _mixed(titles: Edges, shared: Edges) -> Edges:
    """Title edges and a part of shared edges as one."""
    position, ends = np.concatenate([titles[0], shared[0]]), np.concatenate([titles[1], shared[1]])
    weights = np.concatenate([titles[2], np.float32(SHARED_IN_WALK) * shared[2]])
    return _summed(position, ends, weights, np.add)


def _summed(position: Ints, ends: Ints, weights: Floats, by: np.ufunc) -> Edges:
    """Every pair once, in their order.

    Weights are a few powers of two apart: in double precision their sums are exact, so that equal ones stay equal
    whatever the order of their terms.
    """
    order, begins = _runs(position * (int(ends.max(initial=-1)) + 1) + ends)
    firsts = order[begins]
    return position[firsts], ends[firsts], by.reduceat(weights[order], begins, dtype=np.float64).astype(np.float32)


def _runs(values: Ints) -> tuple[Ints, Ints]:
    """The places of some values in the order of the values, and where in it each value begins."""
    order = values.argsort(kind="stable")
    values = values[order]
    is_first = np.empty(len(values), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return order, is_first.nonzero()[0]


def _best(position: Ints, ends: Ints, weights: Floats) -> Edges:
    """The heaviest edges of each place; the others of a place come in their order, which a stable sort keeps."""
    order = np.lexsort((-weights, position))
    position, ends, weights = position[order], ends[order], weights[order]
    begins = np.searchsorted(position, position)
    is_best = np.arange(len(position)) - begins < _BEST_SHARED
    return position[is_best], ends[is_best], weights[is_best]


def pagerank(
    around: Around, seeds: Ints, weights: Floats, *, hops: int, damping: float = DAMPING
) -> tuple[Ints, Floats]:
    """The nodes near the seeds, sorted by number, and their share of the mass that starts at the seeds.

    p ← (1 − damping)·seeds + damping·Wᵀp, hops times; the rows of W sum to 1 over the edges that a node may use. A node
    without edges keeps its mass, so that the shares always sum to 1.
    """
    begin, start = _gathered(seeds, weights)
    total = float(start.sum())
    if not len(begin) or total <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    start = start / np.float32(total)
    nodes, mass = begin, start
    for _ in range(hops):
        passed = _passed_on(around, nodes, mass)
        nodes, mass = _gathered(
            np.concatenate([begin, passed[0]]), np.concatenate([(1 - damping) * start, damping * passed[1]])
        )
    return nodes, mass


def hop_decay(
    around: Around, seeds: Ints, weights: Floats, *, hops: int, decay: float = DAMPING
) -> tuple[Ints, Floats]:
    """The nodes within some hops, each with the weight of its best seed times decay per hop."""
    nodes, worth = _largest(seeds, weights)
    for _ in range(hops):
        owner, targets, _weights = around(nodes)
        nodes, worth = _largest(np.concatenate([nodes, targets]), np.concatenate([worth, decay * worth[owner]]))
    return nodes, worth


def _passed_on(around: Around, nodes: Ints, mass: Floats) -> tuple[Ints, Floats]:
    """Where the mass of some nodes goes in one hop; the lightest nodes of a large frontier keep theirs."""
    if len(nodes) > MAX_FRONTIER:
        order = np.argsort(-mass, kind="stable")
        moving, resting = order[:MAX_FRONTIER], order[MAX_FRONTIER:]
        stays, moved = _passed_on(around, nodes[moving], mass[moving])
        return np.concatenate([stays, nodes[resting]]), np.concatenate([moved, mass[resting]])
    owner, targets, weights = around(nodes)
    sums = np.bincount(owner, weights, len(nodes))
    ending = sums <= 0
    share = (mass[owner] * weights / sums[owner]).astype(np.float32)
    return np.concatenate([targets, nodes[ending]]), np.concatenate([share, mass[ending]])


def _gathered(nodes: Ints, mass: Floats) -> tuple[Ints, Floats]:
    """Each node once, with the sum of its mass."""
    order, begins = _runs(nodes)
    return nodes[order[begins]], np.add.reduceat(mass[order], begins, dtype=np.float64).astype(np.float32)


def _largest(nodes: Ints, worth: Floats) -> tuple[Ints, Floats]:
    """Each node once, with its largest value."""
    distinct, position = np.unique(nodes, return_inverse=True)
    best = np.zeros(len(distinct), dtype=np.float32)
    np.maximum.at(best, position, worth)
    return distinct, best


WALKS: Mapping[str, Walk] = {"pagerank": pagerank, "hops": hop_decay}


def graph_ranking(question: Question, corpus: Corpus, rankings: Sequence[Ranking]) -> Ranking:
    """The graph as a separate leg, for the textbook fusions: the rows that a walk from the best of others reaches."""
    starts: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking.rows[:SEEDS].tolist(), start=1):
            starts[row] = starts.get(row, 0.0) + 1 / rank
    if not starts or question.plan.walk == OFF:
        return Ranking(GRAPH)
    seeds = np.array(list(starts), dtype=np.int64)
    # A memory with very many mentions says little about each concept.
    mentioned = np.bincount(corpus.mentions(seeds).position, minlength=len(seeds))
    weights = np.array(list(starts.values())) * corpus.facts(seeds).importance / np.sqrt(np.maximum(mentioned, 1))
    rows, mass = WALKS[question.plan.walk](ConceptGraph(corpus).mixed, seeds, weights.astype(np.float32), hops=HOPS)
    is_visible = corpus.facts(rows).is_visible
    rows, mass = rows[is_visible], mass[is_visible]
    order = np.lexsort((rows, -mass))[: question.query.depth]
    return Ranking(GRAPH, rows[order], mass[order].astype(np.float64))


def titles(text: str, corpus: Corpus) -> list[Title]:
    """The memories whose subject occurs in a query."""
    listed = parts(text)
    words = " ".join([part.text for part in listed])
    ends = list(accumulate([len(part.text) + 1 for part in listed], initial=0))
    count = len(listed)
    runs = [
        [words[begin : end - 1] for end in ends[at + 1 : at + 1 + MAX_PARTS]] for at, begin in enumerate(ends[:count])
    ]
    concepts = corpus.named({run for each in runs for run in each if len(run) >= _SHORTEST_TITLE} - COMMON_WORDS)
    # The longest from each place: they come in order of length.
    longest = {at: at + size for at, each in enumerate(runs) for size, run in enumerate(each, 1) if run in concepts}
    spans, at = list[tuple[int, int, int]](), 0
    while longest and at < count:
        if (end := longest.get(at)) is not None:
            start, stop = listed[at].start, listed[end - 1].end
            concept, any_case = concepts[runs[at][end - at - 1]]
            # The query may write a common word alike.
            if any_case or not all(word[0].islower() for word in text[start:stop].split()):
                spans.append((concept, start, stop))
        at = end or at + 1
    owners = _owners(corpus, [concept for concept, _, _ in spans]) if spans else ()
    return [(row, *spans[position][1:]) for row, position in owners]


def _owners(corpus: Corpus, concepts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The visible memories that concepts of few owners are the subject of, each with the place of the concept."""
    position, rows, is_subject = corpus.holders(np.array(concepts, dtype=np.int64))
    is_wanted = is_subject & (np.bincount(position, is_subject, len(concepts)) <= MAX_OWNERS)[position]
    is_wanted[is_wanted] = corpus.facts(rows[is_wanted]).is_visible
    return zip(rows[is_wanted].tolist(), position[is_wanted].tolist(), strict=True)


@dataclass(frozen=True, slots=True, eq=False)
class SeedNeighbours:
    """The best candidates, and the edges that lead away from them."""

    seeds: Ints
    graph: ConceptGraph
    by_title: Edges
    by_shared: Edges

    @staticmethod
    def of(seeds: Ints, corpus: Corpus) -> SeedNeighbours:
        """Follow the edges of some rows."""
        graph = ConceptGraph(corpus)
        return SeedNeighbours(seeds, graph, graph.titles(seeds), graph.shared(seeds))

    def nearest(self, corpus: Corpus) -> list[int]:
        """The rows nearest to the query among those that an edge connects with each seed."""
        nearest: list[int] = []
        for (places, rows, _), least in ((self.by_title, -1.0), (self.by_shared, LEAST_SIMILARITY)):
            is_visible = corpus.facts(rows).is_visible
            places, rows = places[is_visible], rows[is_visible]
            cosines = corpus.cosines(rows)
            # A memory that shares a concept with a near one may still have nothing to do with the query.
            near = np.flatnonzero(cosines >= least)
            order = near[np.lexsort((-cosines[near], places[near]))]
            rank = np.arange(len(order)) - np.searchsorted(places[order], places[order])
            nearest += rows[order][rank < _MOST_NEIGHBOURS].tolist()
        return nearest


def best_seeds(rows: Ints, scores: Doubles, named: Mapping[int, float]) -> Ints:
    """The best candidates, those first whose subject the query names."""
    worth = scores / max(float(scores.max()), 1e-9)
    worth += BY_TITLE_AS_SEED / BY_TITLE * by_title(named, rows)
    return rows[np.lexsort((rows, -worth))[:SEEDS]]


def walk_gains(
    walk: str,
    weights: Floats,
    neighbours: SeedNeighbours,
    rows: Ints,
    scores: Doubles,
    matches: Floats,
    cosines: Doubles,
    in_conversation: float,
) -> Floats:
    """What connections add to every candidate, as a share of the best score; the candidates come best first."""
    uncovered_share = max(LEAST_OPEN, min(1.0, float(weights @ (matches[0] < OPEN_BELOW)) / FULLY_OPEN))
    # Turns of a conversation are connected by their neighbours already.
    uncovered_share *= (1 - in_conversation) * _seed_match(matches[0], weights, FOOTING)
    order = np.argsort(rows)
    ordered = rows[order]
    places = order[ordered.searchsorted(neighbours.seeds)]
    claims = (scores[places] / max(float(scores[0]), 1e-9)).astype(np.float32)
    more = np.maximum(matches[:, None, :] - matches[None, places, :], 0).mean(axis=2) * claims
    gained = np.zeros(len(rows), dtype=np.float32)
    for seeds, ends, _ in (neighbours.by_title, neighbours.by_shared):
        is_there, linked = _known(ends, ordered, order)
        # The most that a candidate matches beyond a seed that an edge connects it with.
        np.maximum.at(gained, linked, more[linked, seeds[is_there]])
    # The mixed walk first: it passes every node of the other, whose edges are then known.
    mixed, titled = (
        _arriving(walk, around, neighbours.seeds, rows) for around in (neighbours.graph.mixed, neighbours.graph.titles)
    )
    extra = BY_TITLE_WALK * np.sqrt(titled) + BY_WALK * np.sqrt(mixed) + BY_GAIN * gained
    _, named = _known(_named_rows(neighbours.by_title), ordered, order)
    extra *= _relevance_gate(cosines, named)
    # A walk starts at these: they must not lose by being found first.
    starts = places[:WALKERS]
    extra[starts] = np.delete(extra, starts).max(initial=0.0)
    return np.asarray(extra * uncovered_share, dtype=np.float32)


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
    footing = _seed_match(matches[first], weights, FOOTING_OF_NEWS)
    covered, highest = matches[first], 0.0
    matched = np.where(matches[left] >= MATCHED, matches[left], -np.inf)
    is_connected, alone = gained[left] > 0, scores[left] / best
    for _ in range(min(_PLACED - 1, len(left))):
        fresh = BY_NEWS * footing * (np.maximum(matched - covered, 0) @ weights) * is_connected
        worth = alone + fresh
        at = int(worth.argmax())
        chosen, added[left[at]] = left[at], fresh[at]
        covered, highest = np.maximum(covered, matches[chosen]), max(highest, float(worth[at]))
        # It is placed.
        alone[at] = -np.inf
    added[first] = max(highest + _LEAD - 1.0, 0.0)
    return added


def _seed_match(matches: Floats, weights: Floats, between: tuple[float, float]) -> float:
    """From 0 to 1, the position of the first candidate's mean match between two values."""
    low, high = between
    return min(max((float(matches @ weights) - low) / (high - low), 0.0), 1.0)


def _relevance_gate(cosines: Doubles, named: Ints) -> Floats:
    """From 0, unrelated to the query, to 1; a memory without a vector, whose cosine is NaN, counts as related.

    What a seed names by its own title (`named`, by place) may be further from the query than what shares its names.
    """
    stranger = np.full(len(cosines), _STRANGER, dtype=np.float32)
    stranger[named] = _STRANGER_BY_TITLE
    nearness: Floats = np.clip((cosines.astype(np.float32) - stranger) / _ACQUAINTED_WITHIN, 0, 1)
    return np.where(np.isnan(cosines), np.float32(1), nearness)


def _named_rows(by_title: Edges) -> Ints:
    """The rows that a title edge of few owners connects with a seed."""
    _, ends, weights = by_title
    return ends[weights >= 1 / _FEW_OWNERS]


def _known(wanted: Ints, ordered: Ints, order: Ints) -> tuple[Bools, Ints]:
    """Which of some rows are among the candidates, and the places of these; the candidates are in order of rows."""
    at = ordered.searchsorted(wanted)
    is_there = ordered.take(at, mode="clip") == wanted
    return is_there, order[at[is_there]]


def _arriving(walk: str, around: Around, starts: Ints, rows: Ints) -> Floats:
    """The share of a walk's mass that arrives at each row; the rows where it started get none."""
    walkers = starts[:WALKERS]
    if not len(around(walkers)[0]):
        return np.zeros(len(rows), dtype=np.float32)
    weights = (1 / np.arange(1, len(walkers) + 1)).astype(np.float32)
    nodes, mass = WALKS[walk](around, walkers, weights / weights.sum(), hops=HOPS)
    at = np.minimum(np.searchsorted(nodes, rows), len(nodes) - 1)
    return np.where(nodes[at] == rows, mass[at], 0).astype(np.float32)


def by_title(named: Mapping[int, float], rows: Ints) -> Doubles:
    """What titles in the query add to some rows."""
    added = np.zeros(len(rows))
    for row, cover in named.items():
        added[rows == row] = BY_TITLE * cover
    return added


def shared_concepts(corpus: Corpus, starts: Sequence[int], rows: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Per row the first seed that it shares a concept with, and the rarest such concept."""
    # A walk starts at the best one: no path led to it.
    wanted = [row for row in rows if row != starts[0]] if starts else []
    if not wanted:
        return {}
    mentions = corpus.mentions(np.array([*starts, *wanted], dtype=np.int64))
    frequency = dict(zip(mentions.concepts.tolist(), mentions.frequency.tolist(), strict=True))
    concepts: list[set[int]] = [set() for _ in (*starts, *wanted)]
    for position, concept in zip(mentions.position.tolist(), mentions.concepts.tolist(), strict=True):
        concepts[position].add(concept)
    shared: dict[int, tuple[int, int]] = {}
    for row, own in zip(wanted, concepts[len(starts) :], strict=True):
        for seed, theirs in zip(starts, concepts, strict=False):
            if seed != row and (both := own & theirs):
                shared[row] = seed, min(both, key=lambda concept: (frequency[concept], concept))
                break
    return shared
