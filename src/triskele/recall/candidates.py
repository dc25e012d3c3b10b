"""Candidates: the pool that is scored closely, the weights of the legs, and their fusion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from triskele.index.corpus import Corpus, Facts, Floats, Ints
from triskele.index.token_vectors import distinct
from triskele.models.embedder import Encoding
from triskele.recall import evidence, fusion, graph_leg
from triskele.recall.evidence import SPEAKER, TIME
from triskele.recall.fusion import SHARES, Candidate, Column, Contribution, FusionConfig, ScoreTable
from triskele.recall.graph_leg import GRAPH, Surroundings, Title
from triskele.recall.late_interaction import LATE, LateScores, Turns, late
from triskele.recall.legs import DENSE, LEXICAL, EncodedQuery, Nearness
from triskele.recall.plan import OFF
from triskele.types import Agreement, Ranking

# The default's weight of each leg's share of its ceiling, for single memories and for turns of conversations
# (docs/decisions/0006).
ALONE: Mapping[str, float] = {LEXICAL: 0.12, DENSE: 0.41, LATE: 0.47}
IN_CONVERSATION: Mapping[str, float] = {LEXICAL: 0.04, DENSE: 0.10, LATE: 0.86}
# If the model splits the query's words into pieces, it has no vectors for them: the lexical leg counts most.
FOREIGN: Mapping[str, float] = {LEXICAL: 0.70, DENSE: 0.10, LATE: 0.20}
# The share of its score that a candidate gains from evidence in full. With named speakers nothing changes from .16 on,
# conversations with an assistant gain up to .35.
BY_EVIDENCE: Mapping[str, float] = {SPEAKER: 0.25, TIME: 0.2}
# What is added to that of time for the part of the query that names it: “what happened in June” asks for little else.
BY_TIME_WORDS = 0.8
# What a search for a speaker's name adds to the memories of that speaker: above what merely resembles the name, below a
# text that holds it.
BY_NAME = 0.4
# What vectors give a memory whose words match none of the query, and what they give it more if all match, in the mean:
# a memory without vectors gets that for them.
STAND_IN, STAND_IN_BY_WORDS = 0.35, 0.5
SMOOTHING = 0.2
_MORE_IN_CONVERSATION = 0.5
_FLUENT, _FRAGMENTED = 1.6, 3.0
_WORD = re.compile(r"\w+")
# A long text is stored as several memories: how many of them keep their scores, the factor of the others, and the
# number of candidates that are checked.
OF_ONE_TEXT = 2
REPEATED_SHARE = 0.5
_LOOKED_AT = 30


class Said(NamedTuple):
    """The rows in the words of the one speaker that a query names, and its token weights: 0 for what asks for them."""

    rows: frozenset[int]
    token_weights: Floats


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The scored candidates, best first; `seeds` are the rows whose connections the graph leg followed.

    `late` and `token_weights` are how each candidate matches the query's tokens, if late interaction ran.
    `elsewhere` is how much nearer to the query a memory of another project is than any of these.
    """

    fused: list[Candidate]
    missing: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    agreement: Agreement | None = None
    late: LateScores | None = None
    token_weights: Floats | None = None
    elsewhere: float = 0.0
    said: Said | None = None


def in_order(ranking: Ranking) -> list[Candidate]:
    """The candidates of a single leg with their scores unchanged."""
    return [
        Candidate(row, score, {ranking.leg: Contribution(rank, score, score, score)})
        for rank, (row, score) in enumerate(zip(ranking.rows, ranking.scores, strict=True), start=1)
    ]


def smoothed(ranking: Ranking, beside: Ints, corpus: Corpus) -> Ranking:
    """The ranking with a fifth of each turn's score added to the visible turns next to it."""
    has = beside >= 0
    if not has.any():
        return ranking
    has[has] = corpus.facts(beside[has]).is_visible
    rows, scores = np.array(ranking.rows, dtype=np.int64), np.array(ranking.scores)
    everyone, place = np.unique(np.concatenate([rows, beside[has]]), return_inverse=True)
    total = np.zeros(len(everyone))
    np.add.at(total, place, np.concatenate([scores, SMOOTHING * np.repeat(scores, has.sum(axis=1))]))
    order = np.lexsort((everyone, -total))
    return replace(ranking, rows=tuple(everyone[order].tolist()), scores=tuple(total[order].tolist()))


def pool(encoded: EncodedQuery, corpus: Corpus, lexical: Ranking, dense: Ranking) -> tuple[Ints, Turns]:
    """The rows that late interaction scores, the best of both legs, in order of rows; and their turns."""
    most, reach = encoded.rescored, encoded.reach
    rows = distinct(np.array(lexical.rows + dense.rows, dtype=np.int64))
    if len(rows) <= most:
        # All of them, whatever their order.
        facts = corpus.facts(rows, reach=reach)
        return rows, Turns(facts.sessions, facts.neighbours, facts.speakers)
    rows = fusion.by_standard_score(rows, [lexical, dense])[: round(most * (1 + _MORE_IN_CONVERSATION))]
    facts = corpus.facts(rows, reach=reach)
    sessions, neighbours, speakers = facts.sessions, facts.neighbours, facts.speakers
    # A single turn says little: its neighbours may raise it from further below.
    share = conversation_share(neighbours[:most])
    order = np.argsort(rows[: round(most * (1 + _MORE_IN_CONVERSATION * share))])
    return rows[order], Turns(sessions[order], neighbours[order], speakers[order])


def conversation_share(neighbours: Ints) -> float:
    """The share of some rows that have a neighbouring turn."""
    return np.count_nonzero((neighbours[:, :2] >= 0).any(axis=1)) / len(neighbours) if len(neighbours) else 0.0


def without_names(encoded: EncodedQuery, corpus: Corpus, turns: Turns) -> EncodedQuery:
    """The query as late interaction matches it: in conversations the names of those who speak weigh little."""
    share = conversation_share(turns.neighbours)
    if SPEAKER not in encoded.plan.evidence or not share or turns.speakers.max(initial=-1) < 0:
        return encoded
    spans = evidence.name_spans(encoded.query.text, corpus.speakers(distinct(turns.speakers).tolist()))
    return encoded.with_less(spans, 1 - share * (1 - evidence.NAME_SHARE)) if spans else encoded


def said(encoded: EncodedQuery, corpus: Corpus, rows: Ints) -> Said | None:
    """What the one speaker said that a query names; None if it names none of these, or several."""
    if SPEAKER not in encoded.plan.evidence or (speakers := corpus.facts(rows).speakers).max(initial=-1) < 0:
        return None
    names, text = corpus.speakers(distinct(speakers).tolist()), encoded.query.text
    if (speaker := evidence.speaker_asked(text, names)) is None:
        return None
    rest = encoded.with_less(evidence.asking_spans(text, {speaker: names[speaker]}), 0.0)
    return Said(frozenset(rows[speakers == speaker].tolist()), rest.token_weights)


def leg_weights(encoded: EncodedQuery, turns: float) -> Mapping[str, float]:
    """The weights of the legs: those of the plan, or by the share of turns and of words foreign to the model."""
    given = {leg: weight for leg, weight in (encoded.plan.weights or {}).items() if leg != GRAPH}
    if given:
        return given
    foreign = _foreignness(encoded.query.text, encoded.encoding)
    weights = {
        leg: (1 - foreign) * ((1 - turns) * ALONE[leg] + turns * IN_CONVERSATION[leg]) + foreign * FOREIGN[leg]
        for leg in ALONE
    }
    if encoded.plan.rerank == OFF:
        del weights[LATE]
    total = sum(weights.values())
    return {leg: weight / total for leg, weight in weights.items()}


def _foreignness(text: str, encoding: Encoding) -> float:
    """From 0, words that are whole tokens of the model, to 1, words that it splits into pieces or lacks."""
    if not any(character.isalpha() for character in text):
        return 0.0
    if not text.isascii():
        letters = [character for character in text if character.isalpha()]
        if sum(character > "\u024f" for character in letters) * 2 > len(letters):
            return 1.0
    words = len(_WORD.findall(text))
    # Punctuation is a separate token without meaning.
    pieces = sum(_WORD.match(text, start) is not None for start in encoding.spans[:, 0].tolist())
    return min(max((pieces / words - _FLUENT) / (_FRAGMENTED - _FLUENT), 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of the legs over the same rows, which are in order; `nearness` scores further rows for the dense leg.

    NaN where a leg has not scored a row. `matches` are those of late interaction, where it ran.
    """

    rows: Ints
    scores: Mapping[str, fusion.Floats]
    weights: Mapping[str, float]
    ceiling: float
    nearness: Nearness | None
    matches: Floats = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    @staticmethod
    def of(
        rows: Ints, lexical: Ranking, dense: Ranking, weights: Mapping[str, float], nearness: Nearness | None
    ) -> Scored:
        """The rows of a pool with the scores of both legs, and the cosines of what the dense leg has not found."""
        cosines = _scattered(dense, rows)
        if nearness is not None and len(others := np.flatnonzero(np.isnan(cosines))):
            cosines[others] = nearness.cosines(rows[others])
        return Scored(rows, {LEXICAL: _scattered(lexical, rows), DENSE: cosines}, weights, lexical.ceiling, nearness)

    @cached_property
    def table(self) -> ScoreTable:
        """The legs with their weights."""
        ceilings = {LEXICAL: self.ceiling}
        return ScoreTable(
            self.rows,
            tuple(
                Column(leg, scores, self.weights.get(leg, 0.0), ceilings.get(leg, 1.0))
                for leg, scores in self.scores.items()
            ),
        )

    @property
    def late(self) -> LateScores | None:
        """What late interaction found, where it ran."""
        scores = self.scores.get(LATE)
        return None if scores is None else LateScores(self.rows, scores.astype(np.float32), self.matches)

    @property
    def waiting(self) -> Ints:
        """The rows that have no vectors yet."""
        unscored = [np.isnan(scores) for leg, scores in self.scores.items() if leg != LEXICAL]
        return self.rows[np.logical_and.reduce(unscored)]

    def with_late(self, found: LateScores) -> Scored:
        """The same rows with late interaction."""
        scores = _completed(found.scores.astype(np.float64), self.scores[DENSE])
        return replace(self, scores={**self.scores, LATE: scores}, matches=found.matches)

    def with_rows(self, encoded: EncodedQuery, corpus: Corpus, rows: Collection[int]) -> Scored:
        """More rows, scored by the dense leg and by late interaction."""
        fresh_rows = set(rows).difference(self.rows.tolist()) if rows else ()
        if not fresh_rows:
            return self
        more = np.array(sorted(fresh_rows), dtype=np.int64)
        found, nowhere = late(encoded, more, corpus), np.full(len(more), np.nan)
        cosines = self.nearness.cosines(more) if self.nearness is not None else nowhere
        fresh = {LEXICAL: nowhere, DENSE: cosines, LATE: found.scores}
        order = np.argsort(everyone := np.concatenate([self.rows, more]))
        scores = {leg: np.concatenate([scores, fresh[leg]])[order] for leg, scores in self.scores.items()}
        return replace(
            self,
            rows=everyone[order],
            scores=scores | {LATE: _completed(scores[LATE], scores[DENSE])},
            matches=np.concatenate([self.matches, found.matches])[order],
        )


def _completed(late: fusion.Floats, cosines: fusion.Floats) -> fusion.Floats:
    """The scores of late interaction; of a memory whose token vectors are lost, what its cosine lets expect.

    Otherwise those that have theirs again would stand above all others (after a restore, until all are encoded).
    """
    is_lost = np.isnan(late) & ~np.isnan(cosines)
    if not is_lost.any():
        return late
    difference = (late - cosines)[~np.isnan(late) & ~np.isnan(cosines)]
    late[is_lost] = cosines[is_lost] + (float(np.median(difference)) if len(difference) else 0.0)
    return late


def _scattered(ranking: Ranking, rows: Ints) -> fusion.Floats:
    """The scores of a ranking by some rows, which are in order; NaN for a row that it does not have."""
    own, scores = np.array(ranking.rows, dtype=np.int64), np.array(ranking.scores)
    at = np.searchsorted(rows, own)
    is_there = rows.take(at, mode="clip") == own if len(rows) else np.zeros(len(own), dtype=np.bool_)
    found = np.full(len(rows), np.nan)
    found[at[is_there]] = scores[is_there]
    return found


def with_evidence(encoded: EncodedQuery, corpus: Corpus, table: ScoreTable) -> ScoreTable:
    """What speaker and time add: a share of the score that a candidate has without them."""
    if not encoded.plan.evidence:
        return table
    query, facts = encoded.query, corpus.facts(table.rows)
    has_speakers = max(facts.speakers.max(initial=-1), facts.roles.max(initial=-1)) >= 0
    if query.period is None and not has_speakers:
        return table
    places, scores = table.ordered
    facts = corpus.facts(table.rows[places])
    shares = {
        SPEAKER: lambda: evidence.by_speaker(query.text, facts, corpus),
        TIME: lambda: evidence.by_time(query.period, facts),
    }
    for name in sorted(encoded.plan.evidence):
        if (share := shares[name]()) is not None:
            added = np.zeros(len(table.rows))
            added[places] = share * scores
            table = table.joined(_positive(name, added, _evidence_weight(name, encoded)))
    return table


def _positive(name: str, added: fusion.Floats, weight: float) -> Column:
    """What is added to each row; nothing counts as not scored."""
    return Column(name, np.where(added > 0, added, np.nan), weight)


def _evidence_weight(name: str, encoded: EncodedQuery) -> float:
    """The weight of full evidence; time weighs more the more of the query is about it."""
    period = encoded.query.period
    if name != TIME or period is None:
        return BY_EVIDENCE[name]
    start = max(encoded.query.text.find(period.words), 0)
    return BY_EVIDENCE[TIME] + BY_TIME_WORDS * encoded.weight_between(start, start + len(period.words))


def with_graph(
    encoded: EncodedQuery, corpus: Corpus, scored: Scored, titles: Iterable[Title]
) -> tuple[Scored, ScoreTable, tuple[int, ...]]:
    """The scores with further rows, what titles in the query and connections add to them, and the seeds of the walk."""
    named: dict[int, float] = {}
    for row, start, stop in titles:
        named[row] = max(named.get(row, 0.0), encoded.weight_between(start, stop))
    scored, starts = scored.with_rows(encoded, corpus, named), ()
    places, scores = scored.table.ordered
    gained = np.zeros(len(places), dtype=np.float32)
    surroundings = None
    if encoded.plan.walk != OFF and len(places):
        surroundings = Surroundings.of(graph_leg.seeds(scored.rows[places], scores, named), corpus)
        starts = tuple(surroundings.seeds.tolist())
    # Where nothing is connected with the seeds, a walk leads nowhere.
    if surroundings is not None and (len(surroundings.by_title[0]) or len(surroundings.by_shared[0])):
        scored = scored.with_rows(encoded, corpus, surroundings.nearest(encoded, corpus))
        places, scores = scored.table.ordered
        rows, matches = scored.rows[places], scored.matches[places]
        turns = conversation_share(corpus.facts(rows, reach=min(encoded.reach, 1)).neighbours)
        cosines = scored.scores[DENSE][places]
        gained = graph_leg.gains(encoded, surroundings, rows, scores, matches, cosines, turns)
        total = scores + float(scores.max()) * (gained + graph_leg.by_title(named, rows))
        fresh = graph_leg.news(encoded.token_weights, total, matches, gained)
        # News is measured by the best score with the graph, what it adds by the best without.
        gained += (1 - turns) * fresh * np.float32(total.max() / max(float(scores.max()), 1e-9))
    added = graph_leg.by_title(named, scored.rows)
    added[places] += gained
    # What the graph adds is relative to the best score without it.
    weight = (encoded.plan.weights or {}).get(GRAPH, 1.0) * float(scores.max(initial=0.0))
    return scored, scored.table.joined(_positive(GRAPH, added, weight)), starts


def by_method(encoded: EncodedQuery, corpus: Corpus, rankings: Sequence[Ranking]) -> list[Candidate]:
    """One of the textbook fusions, with late interaction mixed into the best candidates if the plan says so."""
    plan = encoded.plan
    config = FusionConfig(weights=plan.weights or SHARES[plan.fusion], k=plan.k, depth=encoded.query.depth)
    if GRAPH in plan.legs:
        rankings = [*rankings, graph_leg.walked(encoded, corpus, rankings)]
    fused = fusion.fuse(plan.fusion, rankings, config)
    if plan.rerank != LATE or not fused:
        return fused
    # Candidates below have scores of another kind, which are not comparable.
    top = fused[: encoded.rescored]
    rows = np.array([candidate.row for candidate in top], dtype=np.int64)
    first = Ranking("fused", tuple(rows.tolist()), tuple(candidate.score for candidate in top))
    both = FusionConfig(weights={"fused": 0.5, LATE: 0.5}, depth=len(top))
    mixed = fusion.fuse("zscore", [first, late(encoded, rows, corpus).ranking], both)
    before = {candidate.row: candidate for candidate in top}
    return [_with_parts(candidate, before[candidate.row]) for candidate in mixed]


def _with_parts(mixed: Candidate, before: Candidate) -> Candidate:
    """The mixed score split into the contributions of the legs, in proportion to what they gave before."""
    parts = with_contribution(before, mixed.parts["fused"].contribution if "fused" in mixed.parts else 0.0)
    if LATE in mixed.parts:
        parts[LATE] = mixed.parts[LATE]
    return Candidate(mixed.row, mixed.score, parts)


def with_contribution(candidate: Candidate, given: float) -> dict[str, Contribution]:
    """A candidate's contributions, scaled to a sum."""
    scale = given / candidate.score if candidate.score > 0 else 0.0
    return {leg: part._replace(contribution=part.contribution * scale) for leg, part in candidate.parts.items()}


def stand_in(fused: list[Candidate], weights: Mapping[str, float], waiting: Set[int]) -> list[Candidate]:
    """Score memories that no other leg could score yet as memories with such words score on average."""
    others = [candidate for candidate in fused if candidate.row in waiting and LEXICAL in candidate.parts]
    if not others:
        return fused
    raised, by_words = {candidate.row: candidate for candidate in fused}, weights.get(LEXICAL, 0.0)
    by_vectors = sum(weights.values()) - by_words
    for candidate in others:
        part = candidate.parts[LEXICAL]
        expected = STAND_IN + STAND_IN_BY_WORDS * min(part.normalised, 1.0)
        share = by_words * part.normalised + by_vectors * expected
        raised[candidate.row] = Candidate(candidate.row, share, {LEXICAL: part._replace(contribution=share)})
    return sorted(raised.values(), key=lambda candidate: (-candidate.score, candidate.row))


def with_spoken(fused: list[Candidate], rows: Ints) -> list[Candidate]:
    """The candidates with the memories of a speaker whose name was searched for, newest first; evidence, no filter."""
    known = {candidate.row: candidate for candidate in fused}
    spoken = [_said(known.pop(row, Candidate(row, 0.0, {})), rank) for rank, row in enumerate(rows.tolist(), start=1)]
    return sorted([*spoken, *known.values()], key=lambda candidate: -candidate.score)


def _said(candidate: Candidate, rank: int) -> Candidate:
    parts = dict(candidate.parts)
    before = parts[SPEAKER].contribution if SPEAKER in parts else 0.0
    parts[SPEAKER] = Contribution(rank, 1.0, 1.0, before + BY_NAME)
    return Candidate(candidate.row, candidate.score + BY_NAME, parts)


def few_of_each_text(fused: list[Candidate], corpus: Corpus) -> list[Candidate]:
    """Lower the third best piece of a long text and those after it, so that one text does not fill the list."""
    top = fused[:_LOOKED_AT]
    rows = np.array([each.row for each in top], dtype=np.int64)
    facts = corpus.facts(rows, reach=1)
    if max(Counter(_sources(facts)).values(), default=0) <= OF_ONE_TEXT:
        return fused
    counts: Counter[int] = Counter()
    kept = []
    for candidate, text in zip(top, _texts(rows, facts.neighbours, corpus), strict=True):
        counts[text] += 1
        if counts[text] > OF_ONE_TEXT:
            score = REPEATED_SHARE * candidate.score
            candidate = Candidate(candidate.row, score, with_contribution(candidate, score))
        kept.append(candidate)
    return sorted([*kept, *fused[_LOOKED_AT:]], key=lambda candidate: -candidate.score)


def _texts(rows: Ints, beside: Ints, corpus: Corpus) -> list[int]:
    """Per row the first known piece of the text that it was cut from.

    Adjacent turns of one speaker or role with the same time are pieces of one text.
    """
    everyone = distinct(np.concatenate([rows, beside[beside >= 0]]))
    facts = corpus.facts(everyone, reach=1)
    source = dict(zip(everyone.tolist(), _sources(facts), strict=True))
    before = dict(zip(everyone.tolist(), facts.neighbours[:, 0].tolist(), strict=True))
    before = {row: previous for row, previous in before.items() if _is_continued(source.get(previous), source[row])}
    return [_first(row, before) for row in rows.tolist()]


def _sources(facts: Facts) -> list[tuple[int, ...]]:
    """Session, time, speaker and role of each row."""
    columns = (facts.sessions, facts.times, facts.speakers, facts.roles)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _is_continued(previous: tuple[int, ...] | None, source: tuple[int, ...]) -> bool:
    """Whether a turn has the source of the one before it, and a speaker or role is known."""
    return previous == source and max(source[2:]) >= 0


def _first(row: int, before: Mapping[int, int]) -> int:
    while row in before:
        row = before[row]
    return row
