"""A benchmark as one HTML page without other files or network."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from triskele.bench.comparison import Decision, decision
from triskele.bench.datasets import BenchQuery
from triskele.bench.measure import LOOKED_AT, TOP, Measured
from triskele.bench.metrics import THRESHOLD
from triskele.bench.report import charts, summary
from triskele.bench.report.summary import HEADLINE, ReportView, signed

_SIGNS = {Decision.BETTER: "▲", Decision.WORSE: "▼", Decision.UNDECIDED: "○"}
_MAX_CHARACTERS = 400
_TOLERANCE = 1e-9


@cache
def _environment() -> Environment:
    loader = PackageLoader("triskele.bench.report", "templates")
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    numbers = (summary.metric_name, summary.value, summary.signed, summary.interval, summary.questions)
    drawings = (charts.forest, charts.recall_curves, charts.time_scale)
    filters = (*numbers, summary.detectable, summary.p_value, *drawings, decision, summary.facts, summary.sentence)
    jinja.filters |= {function.__name__: function for function in filters}
    jinja.filters |= {"meaning": summary.MEANINGS.__getitem__, "sign": _SIGNS.__getitem__, "count": "{:,}".format}
    jinja.globals |= {"interval": summary.INTERVAL, "threshold": THRESHOLD, "looked_at": LOOKED_AT, "top": TOP}
    jinja.globals |= {"headline": HEADLINE}
    return jinja


def page(
    report: Mapping[str, Any], queries: Sequence[BenchQuery], measured: Mapping[str, Measured], *, public: bool = False
) -> str:
    """The whole page; a public one holds aggregates only."""
    view = ReportView.of(report)
    moved = Moves.between(queries, measured, view.baseline, view.leading) if view.leading is not None else None
    return (
        _environment()
        .get_template("report.html")
        .render(
            style=Markup(resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")),
            view=view,
            public=public,
            version=view.manifest.get("versions", {}).get("triskele", ""),
            moved=moved,
            manifest=json.dumps(view.manifest, ensure_ascii=False, indent=2),
        )
    )


@dataclass(frozen=True, slots=True)
class BestRank:
    """Rank of the first relevant document, and the document at rank 1."""

    rank: int | None
    first: str | None

    @staticmethod
    def of(measured: Measured, query: BenchQuery, position: int) -> BestRank:
        """The best rank of one question, from its reciprocal rank."""
        reciprocal = float(measured.scores["mrr"][position])
        ranking = measured.run[query.id]
        return BestRank(round(1 / reciprocal) if reciprocal else None, ranking[0][0] if ranking else None)


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One question under two arms."""

    query: BenchQuery
    difference: float
    before: BestRank
    after: BestRank
    why: str

    @property
    def clipped(self) -> str:
        """The question; a long one is cut."""
        text = self.query.text
        return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


@dataclass(frozen=True, slots=True)
class Moves:
    """Questions whose headline metric differs between two arms, largest moves first."""

    before: str
    after: str
    gains: Sequence[QueryChange]
    losses: Sequence[QueryChange]
    unchanged: int

    @staticmethod
    def between(queries: Sequence[BenchQuery], measured: Mapping[str, Measured], before: str, after: str) -> Moves:
        """Compare two arms question by question."""
        arms, changes = (measured[before], measured[after]), list[QueryChange]()
        differences = (arms[1].scores[HEADLINE] - arms[0].scores[HEADLINE]).tolist()
        for position, (query, difference) in enumerate(zip(queries, differences, strict=True)):
            if abs(difference) > _TOLERANCE:
                old, new = (BestRank.of(arm, query, position) for arm in arms)
                changes.append(QueryChange(query, difference, old, new, explained(query.id, *arms)))
        changes.sort(key=lambda change: (-change.difference, change.query.id))
        gains = [change for change in changes if change.difference > 0]
        losses = [change for change in reversed(changes) if change.difference < 0]
        return Moves(before, after, gains, losses, len(queries) - len(changes))


def explained(query: str, before: Measured, after: Measured) -> str:
    """What legs added to the best relevant document under both arms."""
    relevant = {**before.relevant.get(query, {}), **after.relevant.get(query, {})}
    ranks = {
        document: rank
        for arm in (before, after)
        for rank, (document, _) in enumerate(arm.run[query], start=1)
        if document in relevant
    }
    if not ranks:
        return ""
    document = min(relevant, key=lambda id: (ranks.get(id, math.inf), id))
    return f"{document}: {_legs_of(query, document, before)} → {_legs_of(query, document, after)}"


def _legs_of(query: str, document: str, arm: Measured) -> str:
    if all(document != retrieved for retrieved, _ in arm.run[query]):
        return "not retrieved"
    legs = arm.relevant.get(query, {}).get(document, {})
    parts = (f"{leg} rank {share.rank} {signed(share.contribution)}" for leg, share in legs.items())
    return ", ".join(parts) or "retrieved by words"
