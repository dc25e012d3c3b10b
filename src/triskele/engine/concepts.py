"""The concept graph of an engine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from triskele import requests, validation
from triskele.errors import Unavailable
from triskele.graph import grouping, lookup
from triskele.graph.neighbourhood import neighbourhood
from triskele.graph.view import View
from triskele.index.name_linking import read_names
from triskele.replies.rooms import ConceptDetails, ConceptOverview, ConceptPath, Neighbourhood, Regrouped
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.requests import Moment, Place
    from triskele.types import Scope

MAX_NODES = 300
_MAX_LISTED = 1000
# New memories are read at once up to this number; more are left to `reindex` or the background.
_READ_FIRST = 500


class LocalConcepts:
    """The concepts of one memory."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self._store = engine.store

    def show(self, name: str, *, limit: int = 10, closed: bool = False, **place: Unpack[Place]) -> ConceptDetails:
        """Read a concept with its memories, neighbours and edges."""
        requests.refuse_unknown("concepts.show", place, requests.Place)
        most = validation.check_whole(limit, "limit", most=_MAX_LISTED)
        return lookup.details(self._view(self._engine.scope(**place)), name, limit=most, closed=closed)

    def path(self, start: str, end: str, **place: Unpack[Place]) -> ConceptPath:
        """Find the shortest path between two concepts."""
        requests.refuse_unknown("concepts.path", place, requests.Place)
        return lookup.path(self._view(self._engine.scope(**place)), start, end)

    def overview(self) -> ConceptOverview:
        """Count the graph, and list the concepts that most memories mention."""
        scope = replace(self._engine.scope(all_projects=True), any_time=True)
        indexes = self._engine.models.open_indexes()
        happened = indexes.catalog.view().happened
        first = timestamps.from_micros(int(happened.min())) if len(happened) else None
        return replace(lookup.overview(self._view(scope), indexes.mentions), first=first)

    def neighbourhood(
        self, *, concept: str = "", memory: str = "", at: Moment | None = None, most: int = 60
    ) -> Neighbourhood:
        """Draw what is connected with a concept or a memory, as of now or of a moment."""
        moment = validation.check_when(at)
        scope = self._engine.scope(all_projects=True)
        scope = replace(scope, any_time=True) if moment is None else replace(scope, as_of=moment, until=moment)
        id = self._engine.resolve(memory) if memory else ""
        nodes = validation.check_whole(most, "most", most=MAX_NODES)
        return neighbourhood(self._view(scope), name=concept, id=id, most=nodes)

    def merge(self, name: str, into: str) -> Regrouped:
        """Merge the names of one concept into another."""
        return grouping.merge(self._view(self._engine.scope(all_projects=True)), name, into)

    def split(self, name: str) -> Regrouped:
        """Split a name from its concept."""
        return grouping.split(self._view(self._engine.scope(all_projects=True)), name)

    def _view(self, scope: Scope) -> View:
        """The graph in a scope, with the newest memories."""
        # A store that cannot be written still shows what was read before.
        with suppress(Unavailable, OSError):
            read_names(self._store, self._engine.lexical, limit=_READ_FIRST, wait=False)
        indexes = self._engine.models.open_indexes()
        return View.open(self._store, indexes.mentions, indexes.catalog.view(), scope)
