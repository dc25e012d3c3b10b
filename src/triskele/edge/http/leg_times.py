"""How long each leg of a recall takes: what the pipeline reads is wrapped, and the time of each read is added up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from triskele.engine.local import LocalEngine
from triskele.index.corpus import Corpus
from triskele.recall.pipeline import Sources
from triskele.server.corpus import DatabaseCorpus

# What the pipeline calls for each leg.
_LEG_OF = {
    "search": "lexical",
    "rarity": "lexical",
    "encode_query": "dense",
    "nearest": "dense",
    "cosines": "dense",
    "vectors": "dense",
    "tokens": "late",
    "mentions": "graph",
    "holders": "graph",
    "named": "graph",
}
# A corpus inside the database fetches for both legs what they will ask, in one statement; any other fetches nothing.
_FETCHING = {**_LEG_OF, "prefetch": "both"}

_spent_s: ContextVar[dict[str, float] | None] = ContextVar("spent_s", default=None)


@contextmanager
def timed(engine: LocalEngine | None) -> Iterator[dict[str, float]]:
    """The seconds that each leg takes while the block runs, in this thread; none without an engine."""
    if engine is not None:
        engine.runtime.watch = _watched
    spent: dict[str, float] = {}
    token = _spent_s.set(spent)
    try:
        yield spent
    finally:
        _spent_s.reset(token)


def _watched(sources: Sources) -> Sources:
    if _spent_s.get() is None:
        return sources
    embedder: Any = None if sources.embedder is None else _Timed(sources.embedder)
    return replace(sources, corpus=lambda scope: _timed_corpus(sources.corpus(scope)), embedder=embedder)


def _timed_corpus(corpus: Corpus) -> Any:
    return _Timed(corpus, _FETCHING if isinstance(corpus, DatabaseCorpus) else _LEG_OF)


class _Timed:
    """Passes everything on, and adds up the time of the calls of a leg."""

    def __init__(self, inner: object, legs: Mapping[str, str] = _LEG_OF) -> None:
        self._inner = inner
        self._legs = legs

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        leg = self._legs.get(name)
        if leg is None or not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            spent = _spent_s.get()
            started, before = time.perf_counter(), sum((spent or {}).values())
            try:
                return value(*arguments, **options)
            finally:
                if spent is not None:
                    # A corpus that fetches for both legs has the query encoded meanwhile: that is counted there.
                    inside = sum(spent.values()) - before
                    spent[leg] = spent.get(leg, 0.0) + time.perf_counter() - started - inside

        return call
