"""Explain why a memory is not among the hits: its stages, the one that stopped it, the smallest change that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from triskele import requests
from triskele.recall.legs import dense, lexical
from triskele.recall.plan import Plan, candidates_per_leg
from triskele.recall.question import Sources, read
from triskele.recall.scores import DENSE, LEXICAL
from triskele.recall.supersession import is_within
from triskele.text import periods
from triskele.text.analysis import Analyzer
from triskele.types import Answer, LinkKind, Memory, Query, Scope, SmallestChange, Stage, WhyNot

MAX_LIMIT = 200
MAX_WORDS = 3
# How deep the legs are searched for the rank of a memory.
_DEEPEST = 1000
_SCOPE_OPTIONS = requests.Filters.__optional_keys__ | {"as_of", "known_at"}

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LegRanks:
    """The rank of a memory in each leg, None if the leg does not find it; `depth` is how deep recall looks."""

    ranks: Mapping[str, int | None]
    depth: int

    @property
    def is_retrieved(self) -> bool:
        """Whether any leg finds it within the depth."""
        return any(rank is not None and rank <= self.depth for rank in self.ranks.values())

    def __str__(self) -> str:
        """The ranks in words: rank 131 lexical, 240 dense (cut at 50)."""
        ranked = [f"{rank} {leg}" for leg, rank in self.ranks.items() if rank is not None]
        unmatched = [f"no {leg} match" for leg, rank in self.ranks.items() if rank is None]
        ranks = [f"rank {', '.join(ranked)} (cut at {self.depth})"] if ranked else []
        return ", ".join([*unmatched, *ranks])


@dataclass(frozen=True, slots=True)
class Recall:
    """What why-not calls: recall and scopes by options, and what recall reads by a plan."""

    recall: Callable[..., Answer]
    scope: Callable[..., Scope]
    sources: Callable[..., Sources]
    plan: Plan
    limit: int

    def answer(self, text: str, options: Options) -> Answer:
        """The answer to a query."""
        return self.recall(text, **options)

    def scope_of(self, options: Options) -> Scope:
        """The scope that some options of recall give."""
        return self.scope(**{name: value for name, value in options.items() if name in _SCOPE_OPTIONS})

    def ranks(self, id: str, text: str, options: Options) -> LegRanks:
        """The rank of a memory in each leg."""
        query = Query(text=text, scope=self.scope_of(options), depth=_DEEPEST)
        ranks = leg_ranks(id, query, self.plan, self.sources(query, self.plan, local_only=True))
        return LegRanks(ranks, candidates_per_leg(options["limit"]))


def leg_ranks(id: str, query: Query, plan: Plan, sources: Sources) -> dict[str, int | None]:
    """The rank of a memory in each retrieving leg of a plan, within the query's depth; None if a leg lacks it."""
    with sources.store.snapshot():
        corpus = sources.open_corpus(query.scope)
        question = read(query, plan, corpus, sources)
        corpus = corpus.asking(question)
        by_words = lexical(question, corpus)
        by_meaning = dense(question, corpus, by_words)
        own = {row for row, _ in sources.store.versions([id])}
    ran = {LEXICAL: LEXICAL in plan.legs, DENSE: DENSE in plan.legs and question.encoding is not None}
    return {
        ranking.leg: next((rank for rank, row in enumerate(ranking.rows.tolist(), start=1) if row in own), None)
        for ranking in (by_words, by_meaning)
        if ran[ranking.leg]
    }


def why_not(memory: Memory, text: str, options: Options, recall: Recall) -> WhyNot:
    """Check the stages for one memory and try changes until one brings it up; options as for recall."""
    if options.get("limit") is None:
        options = {**options, "limit": recall.limit}
    scope = recall.scope_of(options)
    sources = recall.sources(Query(text=text, scope=scope), recall.plan, local_only=True)
    memory = sources.store.memories([memory.id], known_at=scope.known_at).get(memory.id, memory)
    rank = _rank(memory, recall.answer(text, options))
    if rank is not None:
        return WhyNot(rank, f"it is hit number {rank}", (Stage("answer", True, f"rank {rank}"),))
    opened = {**options, **_opened(memory, scope)}
    wide = recall.answer(text, {**opened, "limit": MAX_LIMIT})
    superseded = list(
        _supersession(memory, wide, recall.answer(text, {**opened, "limit": MAX_LIMIT, "show_superseded": True}))
    )
    stages = [*_scope_stages(memory, scope), *superseded, _terms_stage(memory, text, sources.analyzer)]
    ranks = recall.ranks(memory.id, text, opened)
    stages.append(Stage("candidates", ranks.is_retrieved, f"{'' if ranks.is_retrieved else 'not '}retrieved: {ranks}"))
    if ranks.is_retrieved and not superseded:
        stages.append(_cut_stage(_rank(memory, wide), int(options["limit"]), wide))
    tries = _changes(memory, text, scope, sources, _rank(memory, wide))
    change = next((tried for tried in tries if _helps(tried, memory, text, options, recall)), None)
    explained = WhyNot(None, "", tuple(stages), change)
    stopped_by = explained.stopped_by
    return replace(explained, verdict=f"{stopped_by.name}: {stopped_by.detail}")


def _rank(memory: Memory, answer: Answer) -> int | None:
    ids = [hit.memory.id for hit in answer.hits]
    return ids.index(memory.id) + 1 if memory.id in ids else None


def _scope_stages(memory: Memory, scope: Scope) -> Iterator[Stage]:
    is_known = _is_known(memory, scope)
    yield Stage("known", is_known, "it is known" if is_known else "it is forgotten, or was not known at that time")
    yield Stage("project", _is_in_project(memory, scope), f"it belongs to {memory.project or 'every project'}")
    if scope.sensitivities is not None:
        yield Stage("sensitivity", memory.sensitivity in scope.sensitivities, f"it is {memory.sensitivity}")
    if scope.origins is not None:
        yield Stage("origin", memory.origin in scope.origins, f"its origin is {memory.origin}")
    yield Stage("category", scope.category in (None, memory.category), f"its category is {memory.category}")
    yield Stage("tags", scope.tags <= set(memory.tags), f"its tags are {', '.join(memory.tags) or 'none'}")
    begun = memory.valid_from is None or memory.valid_from <= scope.as_of
    ended = memory.valid_to is not None and memory.valid_to <= scope.as_of
    is_valid = begun and not ended
    if scope.since is not None or scope.until is not None:
        yield Stage("period", is_within(memory, scope), f"it is about {periods.memory_time(memory):%Y-%m-%d}")
    yield Stage("time", is_valid, f"it was {'' if is_valid else 'not '}valid at that time")


def _is_in_project(memory: Memory, scope: Scope) -> bool:
    return memory.owner == scope.owner and (scope.projects is None or memory.project in scope.projects)


def _is_known(memory: Memory, scope: Scope) -> bool:
    if scope.known_at is None:
        return memory.known_to is None
    return memory.known_from <= scope.known_at and (memory.known_to is None or scope.known_at < memory.known_to)


def _supersession(memory: Memory, wide: Answer, with_superseded: Answer) -> Iterator[Stage]:
    """Whether a successor is served instead, which may also match the query."""
    own = next((hit for hit in with_superseded.hits if hit.memory.id == memory.id), None)
    if own is not None and own.superseded and _rank(memory, wide) is None:
        served = [hit.memory.id for hit in wide.hits if hit.stands_for == memory.id]
        newer = [link.source for link in own.links if (link.kind, link.target) == (LinkKind.SUPERSEDES, memory.id)]
        yield Stage("succession", False, f"it was superseded: {[*served, *newer][0]} is served instead")


def _terms_stage(memory: Memory, text: str, analyzer: Analyzer) -> Stage:
    asked = set(analyzer.query_terms(text))
    shared = asked & set(analyzer.terms(" ".join((memory.content, memory.keywords, *memory.tags))))
    of = f"{len(asked)} rare query term{'' if len(asked) == 1 else 's'}"
    return Stage("words", bool(shared), f"matches {len(shared)} of {of}")


def _cut_stage(rank: int | None, limit: int, wide: Answer) -> Stage:
    at = f"rank {rank}" if rank is not None else f"below rank {MAX_LIMIT}"
    decay = wide.hits[rank - 1].decay if rank is not None else 1.0
    aged = f"; its age leaves ×{decay:.2f} of its importance" if decay < 1 else ""
    return Stage("cut", rank is not None and rank <= limit, f"{at}; the answer ends at rank {limit}{aged}")


def _opened(memory: Memory, scope: Scope) -> dict[str, Any]:
    """Options under which no filter of the query excludes the memory."""
    opened: dict[str, Any] = {}
    if not _is_in_project(memory, scope):
        opened["project"] = memory.project
        opened["all_projects"] = False
    if scope.category not in (None, memory.category):
        opened["category"] = None
    if not scope.tags <= set(memory.tags):
        opened["tags"] = ()
    if not is_within(memory, scope):
        opened |= {"since": None, "until": None}
    if memory.valid_to is not None and memory.valid_to <= scope.as_of:
        opened["as_of"] = memory.valid_to - timedelta(microseconds=1)
    elif memory.valid_from is not None and memory.valid_from > scope.as_of:
        opened["as_of"] = memory.valid_from
    if not _is_known(memory, scope):
        opened["known_at"] = None if memory.known_to is None else memory.known_to - timedelta(microseconds=1)
        opened.setdefault("as_of", scope.as_of)
    return opened


def _changes(memory: Memory, text: str, scope: Scope, sources: Sources, rank: int | None) -> Iterator[SmallestChange]:
    """Changes of the query, smallest first: one option, the answer's length, more words, then all together."""
    opened = _opened(memory, scope)
    single: list[dict[str, Any]] = [{name: value} for name, value in opened.items() if name != "all_projects"]
    longer = {"limit": rank or MAX_LIMIT}
    # A longer answer comes from more candidates, which may change the ranks.
    single += [{"show_superseded": True}, longer, {"limit": MAX_LIMIT}]
    together = [opened, {**opened, **longer}, {**opened, "show_superseded": True, "limit": MAX_LIMIT}]
    yield from (SmallestChange(more) for more in (*single, *together) if more)
    for more in (opened, {**opened, "show_superseded": True}):
        for words in _rare_words(memory, text, scope, sources):
            yield SmallestChange(more, words)


def _rare_words(memory: Memory, text: str, scope: Scope, sources: Sources) -> Iterator[str]:
    """The memory's rarest words that the query lacks, one, two, then three of them."""
    asked = set(sources.analyzer.terms(text))
    words = {token.text: memory.content[token.start : token.end] for token in sources.analyzer.tokens(memory.content)}
    rarity = sources.open_corpus(scope).rarity(term for term in words if term not in asked and len(term) > 1)
    ranked = sorted(rarity, key=lambda term: (-rarity[term], term))
    for count in range(1, min(MAX_WORDS, len(ranked)) + 1):
        yield " ".join(dict.fromkeys(words[term] for term in ranked[:count]))


def _helps(change: SmallestChange, memory: Memory, text: str, options: Options, recall: Recall) -> bool:
    longer = f"{text} {change.words}" if change.words else text
    return _rank(memory, recall.answer(longer, {**options, **change.options})) is not None
