"""Why a memory was not found: the stages it passed, the one that stopped it, and the smallest change that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from triskele.base import timestamps
from triskele.index.lexical import LexicalIndex
from triskele.recall.supersession import visible
from triskele.types import Answer, LinkKind, Memory, Scope

MAX_LIMIT = 200
MAX_WORDS = 3

Options = Mapping[str, Any]
Ask = Callable[[str, Options], Answer]


@dataclass(frozen=True, slots=True)
class Stage:
    """One gate on the way to the answer."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The verdict on a memory that was expected; `smallest_change` was tried and surfaces it."""

    verdict: str
    stages: tuple[Stage, ...]
    smallest_change: str | None


@dataclass(frozen=True, slots=True)
class _Change:
    """Another way to ask: in words, and as options or as a longer question."""

    said: str
    options: Mapping[str, Any]
    words: str = ""


def why_not(memory: Memory, text: str, options: Options, scope: Scope, ask: Ask, index: LexicalIndex) -> WhyNot:
    """Walk the stages for one memory and try changes until one surfaces it; the options name a limit."""
    answer = ask(text, options)
    place = _place(memory, answer)
    if place is not None:
        return WhyNot(f"it is hit number {place}", (Stage("answer", True, f"rank {place}"),), None)
    opened = {**options, "limit": MAX_LIMIT, **_opened(memory, scope)}
    wide = ask(text, opened)
    stages = (
        *_filter_stages(memory, scope),
        *_succession_stages(memory, wide, ask(text, {**opened, "show_superseded": True})),
        *_ranking_stages(memory, text, wide, int(options["limit"]), index),
    )
    # Sharing no word is told, but stops nobody whom another leg brings up.
    stopped = next((stage for stage in stages if not stage.passed and stage.name != "words"), stages[-1])
    tries = _changes(memory, text, options, scope, index, _place(memory, wide))
    change = next((tried for tried in tries if _helps(tried, memory, ask)), None)
    return WhyNot(f"{stopped.name}: {stopped.detail}", stages, change[0].said if change else None)


def _place(memory: Memory, answer: Answer) -> int | None:
    ids = [hit.memory.id for hit in answer.hits]
    return ids.index(memory.id) + 1 if memory.id in ids else None


def _filter_stages(memory: Memory, scope: Scope) -> Iterator[Stage]:
    is_known = _is_known(memory, scope)
    yield Stage("known", is_known, "it is known" if is_known else "it is forgotten, or was not known then")
    is_visible = visible(memory, scope)
    where = memory.project or "everywhere"
    yield Stage("project", is_visible, f"it belongs to {where}")
    is_kind = scope.category in (None, memory.category)
    yield Stage("category", is_kind, f"its category is {memory.category}")
    is_tagged = scope.tags <= set(memory.tags)
    yield Stage("tags", is_tagged, f"its tags are {', '.join(memory.tags) or 'none'}")
    begun = memory.valid_from is None or memory.valid_from <= scope.as_of
    ended = memory.valid_to is not None and memory.valid_to <= scope.as_of
    period = "it was true then" if begun and not ended else "it was not true at the moment asked for"
    yield Stage("time", begun and not ended, period)


def _is_known(memory: Memory, scope: Scope) -> bool:
    if scope.known_at is None:
        return memory.known_to is None
    return memory.known_from <= scope.known_at and (memory.known_to is None or scope.known_at < memory.known_to)


def _succession_stages(memory: Memory, wide: Answer, with_superseded: Answer) -> Iterator[Stage]:
    """Whether a successor is served instead, which may have matched by itself."""
    own = next((hit for hit in with_superseded.hits if hit.memory.id == memory.id), None)
    if own is not None and own.superseded and _place(memory, wide) is None:
        served = [hit.memory.id for hit in wide.hits if hit.stands_for == memory.id]
        newer = [link.source for link in own.links if (link.kind, link.target) == (LinkKind.SUPERSEDES, memory.id)]
        yield Stage("succession", False, f"it was replaced: {[*served, *newer][0]} is served in its place")


def _ranking_stages(memory: Memory, text: str, wide: Answer, limit: int, index: LexicalIndex) -> Iterator[Stage]:
    asked = set(index.analyzer.query_terms(text))
    shared = asked & set(index.analyzer.terms(" ".join((memory.content, memory.keywords, *memory.tags))))
    yield Stage("words", bool(shared), f"shares {len(shared)} of {len(asked)} telling words")
    place = _place(memory, wide)
    if place is None:
        yield Stage("candidates", False, "no leg brought it among its candidates")
    else:
        yield Stage("cut", place <= limit, f"it ranks {place}, the answer was cut at {limit}")


def _opened(memory: Memory, scope: Scope) -> dict[str, Any]:
    """Options under which no filter stands in the memory's way."""
    opened: dict[str, Any] = {}
    if not visible(memory, scope):
        opened["project"] = memory.project
        opened["all_projects"] = False
    if scope.category not in (None, memory.category):
        opened["category"] = None
    if not scope.tags <= set(memory.tags):
        opened["tags"] = ()
    if memory.valid_to is not None and memory.valid_to <= scope.as_of:
        opened["as_of"] = memory.valid_to - timedelta(microseconds=1)
    elif memory.valid_from is not None and memory.valid_from > scope.as_of:
        opened["as_of"] = memory.valid_from
    if not _is_known(memory, scope):
        opened["known_at"] = None if memory.known_to is None else memory.known_to - timedelta(microseconds=1)
        opened.setdefault("as_of", scope.as_of)
    return opened


_SAID: Mapping[str, Callable[[Any], str]] = {
    "project": lambda value: f"--project {value}" if value else "--project ''",
    "category": lambda _: "leave out --category",
    "tags": lambda _: "leave out --tag",
    "as_of": lambda value: f"--as-of {timestamps.to_text(value)}",
    "known_at": lambda value: f"--known-at {timestamps.to_text(value)}" if value else "leave out --known-at",
    "show_superseded": lambda _: "--superseded",
    "limit": lambda value: f"--limit {value}",
}


def _changes(
    memory: Memory, text: str, options: Options, scope: Scope, index: LexicalIndex, place: int | None
) -> Iterator[tuple[_Change, str, Options]]:
    """Ways to ask otherwise, smallest first: one option, the answer's length, more words, then all together."""
    opened = _opened(memory, scope)
    single: list[dict[str, Any]] = [{name: value} for name, value in opened.items() if name != "all_projects"]
    longer = {"limit": place or MAX_LIMIT}
    # A longer answer is drawn from more candidates, which may move the ranks.
    single += [{"show_superseded": True}, longer, {"limit": MAX_LIMIT}]
    together = [opened, {**opened, **longer}, {**opened, "show_superseded": True, "limit": MAX_LIMIT}]
    for more in (*single, *together):
        said = " ".join(_SAID[name](value) for name, value in more.items() if name in _SAID)
        if said:
            yield _Change(said, more), text, {**options, **more}
    for more in (opened, {**opened, "show_superseded": True}):
        for words in _telling_words(memory, text, index):
            said = " ".join([f"ask also for “{words}”", *(_SAID[n](v) for n, v in more.items() if n in _SAID)])
            yield _Change(said, more, words), f"{text} {words}", {**options, **more}


def _telling_words(memory: Memory, text: str, index: LexicalIndex) -> Iterator[str]:
    """The memory's rarest words that the question lacks, one, two, then three of them."""
    analyzer = index.analyzer
    asked = set(analyzer.terms(text))
    words = {token.text: memory.content[token.start : token.end] for token in analyzer.tokens(memory.content)}
    rarity = index.rarity(term for term in words if term not in asked and len(term) > 1)
    ranked = sorted(rarity, key=lambda term: (-rarity[term], term))
    for count in range(1, min(MAX_WORDS, len(ranked)) + 1):
        yield " ".join(dict.fromkeys(words[term] for term in ranked[:count]))


def _helps(tried: tuple[_Change, str, Options], memory: Memory, ask: Ask) -> bool:
    _, text, options = tried
    return _place(memory, ask(text, options)) is not None
