"""Conditions on the rows of `versions` in the words of Postgres: what a scope contains, what its reader may read."""

from __future__ import annotations

import json

from triskele.server.postgres.truth_rows import marked
from triskele.store import reads
from triskele.store.reads import Condition, Wording
from triskele.store.rows import VERSION_COLUMNS
from triskele.types import Scope

# A version as a reader sees it.
READ_COLUMNS = f"{VERSION_COLUMNS}, shared_by"


def _has_tag(tag: str) -> Condition:
    # Most rows have other tags: looking for its text costs far less than reading them as JSON.
    return "strpos(tags, ?) > 0 AND jsonb_exists(tags::jsonb, ?)", [json.dumps(tag, ensure_ascii=False), tag]


WORDING = Wording(lambda column, values: (f"{column} = ANY(?)", [list(values)]), _has_tag)


def in_scope(scope: Scope) -> Condition:
    """Versions that a scope contains."""
    condition, bindings = reads.in_scope(scope, WORDING)
    return marked(condition), bindings


def may_read(scope: Scope) -> Condition:
    """Versions that the reader of a scope may read at all."""
    given = {"sensitivity": scope.sensitivities, "origin": scope.origins}
    limits = {column: sorted(map(str, allowed)) for column, allowed in given.items() if allowed is not None}
    return " AND ".join(f"{column} = ANY(%s)" for column in limits) or "true", list(limits.values())
