"""The concept graph of an engine, as the command line, the API and the pages read it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from triskele.errors import Unavailable

if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.index.mentions import MentionIndex
    from triskele.recall.concepts.view import View

# New memories are read at once up to this number; more are left to `reindex` or the background.
_READ_FIRST = 500


def graph_view(engine: Engine, *, any_time: bool = False, **place: Any) -> View:
    """The graph in a scope, with the newest memories."""
    from triskele.index.entity_linking import read_names
    from triskele.recall.concepts.view import View

    # A store that cannot be written still shows what was read before.
    with suppress(Unavailable, OSError):
        read_names(engine.store, engine.lexical, limit=_READ_FIRST, wait=False)
    scope = replace(engine.scope(**place), any_time=any_time)
    return View.open(engine.store, mentions_of(engine), scope)


def mentions_of(engine: Engine) -> MentionIndex:
    """The index of mentions; it needs no model."""
    from triskele.index.mentions import MentionIndex

    return MentionIndex(engine.lexical.path.parent, engine.store)
