"""Conditions on the rows of `versions`, with their bindings: what a scope contains, and what its reader may read."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from triskele.base import timestamps
from triskele.stores.sqlite.rows import VERSION_COLUMNS
from triskele.types import Scope

# A version as a reader sees it.
READ_COLUMNS = f"{VERSION_COLUMNS}, shared_by"


def standing(known_at: datetime | None) -> tuple[str, list[Any]]:
    """Versions that stand now, or stood at a moment."""
    if known_at is None:
        return "known_to IS NULL", []
    moment = timestamps.to_micros(known_at)
    return "known_from <= %s AND (known_to IS NULL OR known_to > %s)", [moment, moment]


def in_scope(scope: Scope) -> tuple[str, list[Any]]:
    """Versions that a scope contains."""
    condition, bindings = standing(scope.known_at)
    conditions, bindings = [condition, "owner = %s"], [*bindings, scope.owner]
    if scope.projects is not None:
        conditions.append("project = ANY(%s)")
        bindings.append(sorted(scope.projects))
    readable, allowed = may_read(scope)
    conditions += [readable] if allowed else []
    bindings += allowed
    if scope.category is not None:
        conditions.append("category = %s")
        bindings.append(scope.category)
    for tag in sorted(scope.tags):
        # Most rows have other tags: looking for its text costs far less than reading them as JSON.
        conditions.append("strpos(tags, %s) > 0 AND jsonb_exists(tags::jsonb, %s)")
        bindings += [json.dumps(tag, ensure_ascii=False), tag]
    if not scope.any_time:
        moment = timestamps.to_micros(scope.as_of)
        conditions.append("coalesce(valid_from, %s) <= %s AND (valid_to IS NULL OR valid_to > %s)")
        bindings += [moment, moment, moment]
    for sign, bound in ((">=", scope.since), ("<", scope.until)):
        if bound is not None:
            conditions.append(f"coalesce(valid_from, created_at) {sign} %s")
            bindings.append(timestamps.to_micros(bound))
    return " AND ".join(conditions), bindings


def may_read(scope: Scope) -> tuple[str, list[Any]]:
    """Versions that the reader of a scope may read at all."""
    given = {"sensitivity": scope.sensitivities, "origin": scope.origins}
    limits = {column: sorted(map(str, allowed)) for column, allowed in given.items() if allowed is not None}
    return " AND ".join(f"{column} = ANY(%s)" for column in limits) or "true", list(limits.values())
