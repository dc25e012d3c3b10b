"""A benchmark as one HTML page, with its tables, that needs no other file and no network."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from triskele.bench.datasets import BenchQuery
from triskele.bench.measure import LOOKED_AT, TOP, Measured
from triskele.bench.metrics import THRESHOLD
from triskele.bench.report.charts import forest, recall_curves, spans
from triskele.bench.report.formatting import INTERVAL, metric_name, questions, signed
from triskele.bench.report.summary import HEADLINE, ReportView, facts, sentence
from triskele.bench.report.templating import Html, environment, table

_CONFIDENCE_HEAD = ("arm", "against", "n", "AUROC", "precision", "answerable kept")
_TIMES = ("p50", "p95", "mean", "max")
_SCORES = {"scores": "n", "mean": "mean", "σ": "sd", "skew": "skew"}
_LEGS_HEAD = ("arm", "leg", *_SCORES, "changed", "right", "only here")
_MAX_SHOWN = 4
SHOWN = 10
_MAX_CHARACTERS = 400
_TOLERANCE = 1e-9
_LEGS = (
    f"Scores of the leg over the first {LOOKED_AT} results of each question. Changed: the share of questions whose "
    f"first {TOP} hold other documents without the leg. Right: relevant documents among the first {TOP} that the leg "
    f"itself ranks among its first {TOP}; only here: that no other leg ranks there."
)
_CONFIDENCE = (
    f"Above the threshold of {THRESHOLD} an answer is given; precision assumes that both kinds are equally frequent."
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its title; the note says how to read it."""

    title: str
    body: Html
    note: str = ""


def _costs(view: ReportView) -> Html:
    """Latency and size of every arm."""
    times = [(arm["latency_ms"]["p50"], arm["latency_ms"]["p95"]) for arm in view.arms.values()]
    return table("costs", view.arms, spans(times), _TIMES)


def _legs(view: ReportView) -> Html:
    """A row for each leg of each arm."""
    rows = [row for name, arm in view.arms.items() for row in _leg_rows(name, arm["legs"])]
    return table("legs", rows, _LEGS_HEAD, list(_overlaps(view)))


def _has_legs(view: ReportView) -> bool:
    return any(arm["legs"]["legs"] for arm in view.arms.values())


def _leg_rows(name: str, counted: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for leg, did in counted["legs"].items():
        scores = did["scores"]
        yield (
            name,
            (
                leg,
                f"{scores['n']:,}",
                *(f"{scores[key]:.3f}" for key in ("mean", "sd", "skew")),
                "–" if did["changed"] is None else f"{did['changed']:.0%}",
                f"{did['right']:,}",
                f"{did['right_alone']:,}",
            ),
        )


def _overlaps(view: ReportView) -> Iterator[tuple[str, str]]:
    """Which legs share their top results, by arm, most frequent first."""
    for name, arm in view.arms.items():
        shares = sorted(arm["legs"]["overlap"].items(), key=lambda item: (-item[1], item[0]))
        if len(arm["legs"]["legs"]) > 1:
            yield name, ", ".join(f"{by.replace('+', ' and ')} {share:.0%}" for by, share in shares[:_MAX_SHOWN])


def page(
    report: Mapping[str, Any],
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    public: bool = False,
) -> str:
    """The whole page; a public one holds aggregates only, with no text and no id of the data set."""
    view = ReportView.of(report)
    return (
        environment()
        .get_template("report.html")
        .render(
            style=Html(resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")),
            view=view,
            public=public,
            version=view.manifest.get("versions", {}).get("triskele", ""),
            asked=questions(view.n),
            lead=sentence(view),
            facts=facts(view),
            sections=_sections(view, queries, measured, public=public),
            manifest=json.dumps(view.manifest, ensure_ascii=False, indent=2),
        )
    )


def _sections(
    view: ReportView, queries: Sequence[BenchQuery], measured: Mapping[str, Measured], *, public: bool
) -> Iterator[Section]:
    name = metric_name(HEADLINE)
    against = f"difference to {view.baseline}"
    signs = (
        f"Under each value: the {against} and its {INTERVAL}; ▲ better, ▼ worse, ○ undecided "
        "(Holm-corrected p of 0.05 or more, or an interval that includes zero)."
    )
    has_comparisons = bool(view.compared)
    yield Section("Guards", table("findings", view.findings, public))
    yield Section("Quality by kind of question", table("quality", view), note=signs if has_comparisons else "")
    if has_comparisons:
        dots = f"{name}: {against}, with its {INTERVAL}; a filled dot is decided, a hollow one is not."
        yield Section("Differences", forest(view, HEADLINE), note=dots)
    yield Section("Recall by depth", recall_curves(view), note="Recall among the first k memories, all questions.")
    bars = "The bar ends at the median, the line at the 95th percentile."
    yield Section("Time and space", _costs(view), note=bars)
    if _has_legs(view):
        yield Section("What each leg did", _legs(view), note=_LEGS)
    if view.abstention:
        yield Section(
            "Questions without an answer", table("confidence", view.abstention, _CONFIDENCE_HEAD), note=_CONFIDENCE
        )
    if view.leading is not None:
        arms = (view.baseline, view.leading)
        depth = view.manifest["run_depth"]
        changes = per_query_changes(queries, measured, arms=arms, metric=HEADLINE, depth=depth, public=public)
        yield Section("Per-query changes", changes)


@dataclass(frozen=True, slots=True)
class BestRank:
    """The rank of the first relevant document under an arm, and the document at rank 1."""

    rank: int | None
    first: str | None

    @staticmethod
    def of(measured: Measured, query: BenchQuery, place: int) -> BestRank:
        """The best rank of one question, from its reciprocal rank."""
        reciprocal = float(measured.scores["mrr"][place])
        found = measured.run[query.id]
        return BestRank(round(1 / reciprocal) if reciprocal else None, found[0][0] if found else None)


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


def changed_queries(queries: Sequence[BenchQuery], before: Measured, after: Measured, metric: str) -> list[QueryChange]:
    """Every question whose metric changed, largest gain first."""
    found = []
    for place, query in enumerate(queries):
        difference = float(after.scores[metric][place] - before.scores[metric][place])
        if abs(difference) > _TOLERANCE:
            old, new = (BestRank.of(arm, query, place) for arm in (before, after))
            found.append(QueryChange(query, difference, old, new, explained(query.id, before, after)))
    return sorted(found, key=lambda change: (-change.difference, change.query.id))


def explained(query: str, before: Measured, after: Measured) -> str:
    """What each leg added to the best ranked relevant document, under one arm and under the other."""
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
    if all(document != found for found, _ in arm.run[query]):
        return "not retrieved"
    legs = arm.relevant.get(query, {}).get(document, {})
    parts = (f"{leg} rank {given.rank} {signed(given.contribution)}" for leg, given in legs.items())
    return ", ".join(parts) or "retrieved by words"


def per_query_changes(
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    arms: tuple[str, str],
    metric: str,
    depth: int,
    public: bool,
) -> Html:
    """How many questions gained and lost and, unless the page is public, which changed most."""
    before, after = arms
    found = changed_queries(queries, measured[before], measured[after], metric)
    gains = [change for change in found if change.difference > 0]
    losses = [change for change in reversed(found) if change.difference < 0]
    text = (
        f"From {before} to {after}, {metric_name(metric)} rises for {questions(len(gains))}, "
        f"falls for {len(losses):,} and is unchanged for {len(queries) - len(found):,}."
    )
    note = f"Rank: that of the first relevant memory, – if it is not among the first {depth}."
    return table("changes", text, note, gains[:SHOWN], losses[:SHOWN], arms, metric, public)
