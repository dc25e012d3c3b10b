"""From a question to scored candidates: the legs in turn, their fusion, and late interaction over the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from triskele import fusion, rerank
from triskele.embed.protocol import Encoding
from triskele.errors import BadInput, ModelUnavailable
from triskele.fusion import SHARES, Fused, Part, Weighing
from triskele.index.catalog import Columns, Ints
from triskele.index.lexical import LexicalIndex
from triskele.legs import dense, lexical
from triskele.meaning import Meaning
from triskele.types import Query, Ranking, Sort

DEFAULT = "default"
LEGS = (lexical.NAME, dense.NAME)
FUSIONS = (DEFAULT, *fusion.METHODS)
RERANKS = (DEFAULT, "off", "late")
# What the default counts of each leg's share of its ceiling, for memories that stand alone and for those of a talk.
ALONE: Mapping[str, float] = {"lexical": 0.12, "dense": 0.41, "late": 0.47}
IN_TALK: Mapping[str, float] = {"lexical": 0.08, "dense": 0.05, "late": 0.87}
# Where the model breaks the question's words into fragments, it does not know them: the words themselves count.
FOREIGN: Mapping[str, float] = {"lexical": 0.70, "dense": 0.10, "late": 0.20}
# A memory without vectors yet is judged by its words alone, a little below those that were fully judged.
STAND_IN = 0.75
SMOOTHING = 0.2
_FLUENT, _FRAGMENTED = 1.6, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to rank: which legs, how they are fused, whether late interaction rescores the head."""

    legs: frozenset[str] = frozenset({"lexical", "dense"})
    fusion: str = DEFAULT
    rerank: str = DEFAULT
    weights: Mapping[str, float] | None = None
    k: Mapping[str, float] = field(default_factory=dict)
    rescored: int = 150
    context: bool = True
    prior: float = 0.3

    def __post_init__(self) -> None:
        """Refuse names that nobody answers to: a misspelt leg would silently find nothing."""
        for given, known in ((self.legs, LEGS), ({self.fusion}, FUSIONS), ({self.rerank}, RERANKS)):
            if unknown := sorted(given - set(known)):
                raise BadInput(f"no way to rank is called {unknown[0]!r}: choose one of {', '.join(known)}")

    @property
    def asks_meaning(self) -> bool:
        """Whether the model is needed: words alone keep their exact order unless late interaction is asked for."""
        return "dense" in self.legs or self.rerank == "late"


@dataclass(frozen=True, slots=True)
class Pool:
    """The scored candidates, best first, and what could not be asked."""

    fused: list[Fused]
    missing: tuple[str, ...] = ()


def candidates(query: Query, plan: Plan, words: LexicalIndex, meaning: Meaning | None) -> Pool:
    """Score the memories that any leg brings up."""
    if not any(character.isalnum() for character in query.text):
        return Pool([])
    by_words = lexical.rank(query, words) if "lexical" in plan.legs else Ranking(lexical.NAME)
    if query.sort is not Sort.RELEVANCE or not plan.asks_meaning:
        return Pool(_in_order(by_words))
    if meaning is None:
        return Pool(_in_order(by_words), ("no model is installed",))
    try:
        asked = meaning.embedder.encode_query(query.text)
    except ModelUnavailable as error:
        return Pool(_in_order(by_words), (str(error),))
    columns = meaning.catalog.columns()
    mask = columns.mask(query.scope)
    near = Ranking(dense.NAME)
    if "dense" in plan.legs:
        near = dense.rank(query, asked, meaning.dense, columns, mask)
    if plan.fusion != DEFAULT:
        rankings = [_known(by_words, columns), near]
        return Pool(_named_fusion(query, plan, words, meaning, columns, asked, rankings))
    if "dense" in plan.legs and not near.rows:
        return Pool(_in_order(by_words))
    by_words = _known(by_words, columns)
    if plan.context:
        by_words = _smoothed(by_words, columns, mask)
    return Pool(_default(query, plan, words, meaning, columns, asked, by_words, near))


def _default(
    query: Query,
    plan: Plan,
    words: LexicalIndex,
    meaning: Meaning,
    columns: Columns,
    asked: Encoding,
    by_words: Ranking,
    near: Ranking,
) -> list[Fused]:
    """Each leg's share of what was possible, weighed by the kind of memory and of question."""
    rows = _head(by_words, near, max(plan.rescored, query.limit))
    if near.rows:
        near = dense.complete(near, rows, asked, meaning.dense, columns)
    rankings = [_only(by_words, rows), _only(near, rows)]
    if plan.rerank != "off":
        weights = rerank.token_weights(query.text, asked, words.analyzer, _rarity(query.text, words))
        rankings.append(rerank.late(asked, weights, rows, columns, meaning.tokens, with_context=plan.context))
    shares = dict(plan.weights or _shares(query.text, asked, rows, columns, plan))
    weighing = Weighing(weights=shares, depth=len(rows))
    judged = {row for ranking in rankings[1:] for row in ranking.rows}
    return _stand_in(fusion.fuse("share", rankings, weighing), shares, judged)


def _named_fusion(
    query: Query,
    plan: Plan,
    words: LexicalIndex,
    meaning: Meaning,
    columns: Columns,
    asked: Encoding,
    rankings: Sequence[Ranking],
) -> list[Fused]:
    """One of the textbook methods, with late interaction mixed into its head if asked for."""
    weighing = Weighing(weights=plan.weights or SHARES[plan.fusion], k=plan.k, depth=query.depth)
    fused = fusion.fuse(plan.fusion, rankings, weighing)
    if plan.rerank in ("off", DEFAULT) or not fused:
        return fused
    # What lies below has scores of another kind, which would not compare.
    head = fused[: max(plan.rescored, query.limit)]
    rows = np.array([candidate.row for candidate in head], dtype=np.int64)
    weights = rerank.token_weights(query.text, asked, words.analyzer, _rarity(query.text, words))
    late = rerank.late(asked, weights, rows, columns, meaning.tokens, with_context=plan.context)
    first = Ranking("fused", tuple(rows.tolist()), tuple(candidate.score for candidate in head))
    mixed = fusion.fuse("zscore", [first, late], Weighing(weights={"fused": 0.5, "late": 0.5}, depth=len(head)))
    before = {candidate.row: candidate for candidate in head}
    return [_with_parts(candidate, before[candidate.row]) for candidate in mixed]


def _with_parts(mixed: Fused, before: Fused) -> Fused:
    """The mixed score told in the parts of the legs: what the fusion gave is shared out as they gave it."""
    given = mixed.parts["fused"].contribution if "fused" in mixed.parts else 0.0
    scale = given / before.score if before.score > 0 else 0.0
    parts = {leg: part._replace(contribution=part.contribution * scale) for leg, part in before.parts.items()}
    if "late" in mixed.parts:
        parts["late"] = mixed.parts["late"]
    return Fused(mixed.row, mixed.score, parts)


def _in_order(ranking: Ranking) -> list[Fused]:
    """The ranking of a single leg as it is, score for score."""
    return [
        Fused(row, score, {ranking.leg: Part(rank, score, score, score)})
        for rank, (row, score) in enumerate(zip(ranking.rows, ranking.scores, strict=True), start=1)
    ]


def _known(ranking: Ranking, columns: Columns) -> Ranking:
    """Without rows that were written after the catalog was read."""
    rows = np.asarray(ranking.rows, dtype=np.int64)
    is_known = columns.holds(rows)
    return ranking if is_known.all() else _only(ranking, rows[is_known])


def _only(ranking: Ranking, rows: Ints) -> Ranking:
    wanted = set(rows.tolist())
    pairs = [(row, score) for row, score in zip(ranking.rows, ranking.scores, strict=True) if row in wanted]
    return replace(ranking, rows=tuple(row for row, _ in pairs), scores=tuple(score for _, score in pairs))


def _smoothed(ranking: Ranking, columns: Columns, mask: NDArray[np.bool_]) -> Ranking:
    """Turns of a conversation lend a fifth of their score to the turns beside them that may be seen."""
    if not len(ranking.rows):
        return ranking
    at = columns.find(ranking.rows)
    beside = columns.neighbours(at, (-1, 1))
    beside = np.where((beside >= 0) & mask[beside], beside, -1)
    if not (beside >= 0).any():
        return ranking
    scores = dict(zip(ranking.rows, ranking.scores, strict=True))
    lent: dict[int, float] = dict(scores)
    for row, places in zip(ranking.rows, beside, strict=True):
        for place in places[places >= 0]:
            other = int(columns.rows[place])
            lent[other] = lent.get(other, 0.0) + SMOOTHING * scores[row]
    ordered = sorted(lent, key=lambda row: (-lent[row], row))
    return replace(ranking, rows=tuple(ordered), scores=tuple(lent[row] for row in ordered))


def _head(by_words: Ranking, near: Ranking, most: int) -> Ints:
    """The rows worth the finer look: the best of both legs together."""
    weighing = Weighing(weights=SHARES["zscore"], depth=max(len(by_words.rows), len(near.rows), 1))
    rows = fusion.fused_rows("zscore", [by_words, near], weighing)[:most]
    return np.array(sorted(rows), dtype=np.int64)


def _rarity(text: str, words: LexicalIndex) -> dict[str, float]:
    return words.rarity(dict.fromkeys(words.analyzer.terms(text)))


def _shares(text: str, asked: Encoding, rows: Ints, columns: Columns, plan: Plan) -> Mapping[str, float]:
    """The weights of the legs between standing alone and being part of a talk, and between fluent and foreign."""
    talk = 0.0
    if plan.context and len(rows):
        talk = float((columns.neighbours(columns.find(rows), (-1, 1)) >= 0).any(axis=1).mean())
    foreign = _foreignness(text, asked)
    shares = {
        leg: (1 - foreign) * ((1 - talk) * ALONE[leg] + talk * IN_TALK[leg]) + foreign * FOREIGN[leg] for leg in ALONE
    }
    if plan.rerank == "off":
        del shares["late"]
    total = sum(shares.values())
    return {leg: share / total for leg, share in shares.items()}


def _foreignness(text: str, asked: Encoding) -> float:
    """From 0, words that the model knows whole, to 1, words that it sees in fragments or not at all."""
    letters = [character for character in text if character.isalpha()]
    if not letters:
        return 0.0
    if sum(character > "\u024f" for character in letters) * 2 > len(letters):
        return 1.0
    words = len(text.split())
    pieces = len(asked.token_ids)
    return float(np.clip((pieces / max(1, words) - _FLUENT) / (_FRAGMENTED - _FLUENT), 0.0, 1.0))


def _stand_in(fused: list[Fused], shares: Mapping[str, float], judged: Set[int]) -> list[Fused]:
    """Let words speak for the legs that have not seen a memory yet."""
    if all(candidate.row in judged for candidate in fused):
        return fused
    raised = []
    for candidate in fused:
        if candidate.row not in judged and lexical.NAME in candidate.parts:
            part = candidate.parts[lexical.NAME]
            share = STAND_IN * sum(shares.values()) * min(part.normalised, 1.0)
            candidate = Fused(candidate.row, share, {"lexical": part._replace(contribution=share)})
        raised.append(candidate)
    return sorted(raised, key=lambda candidate: (-candidate.score, candidate.row))
