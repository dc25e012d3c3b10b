"""A benchmark as one HTML page that needs no other file and no network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.measure import LOOKED_AT, TOP, Measured
from triskele.evaluation.metrics import THRESHOLD
from triskele.evaluation.report.charts import forest, recall_curves
from triskele.evaluation.report.formatting import INTERVAL, Html, element, joined, metric_name, questions, signed
from triskele.evaluation.report.summary import HEADLINE, ReportView, facts, sentence
from triskele.evaluation.report.tables import confidence, costs, findings, has_legs, legs, manifest, quality

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
# The page may fetch and run nothing, whatever a text of the data set contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{title}
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def page(
    report: Mapping[str, Any],
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    public: bool = False,
) -> str:
    """The whole page; a public one holds aggregates only, with no text and no id of the data set."""
    view = ReportView.of(report)
    sections = _sections(view, queries, measured, public=public)
    body = element("main", _header(view, public=public), *sections)
    return _SHELL.format(
        policy=_POLICY,
        title=element("title", f"{view.dataset} · triskele bench"),
        style=resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        body=body,
    )


def _header(view: ReportView, *, public: bool) -> Html:
    form = "public form: aggregates only" if public else "private form: holds questions and ids of the data set"
    arms = f"{len(view.arms)} arm{'' if len(view.arms) == 1 else 's'}"
    version = view.manifest.get("versions", {}).get("triskele", "")
    items = (element("li", fact) for fact in facts(view))
    return element(
        "header",
        element("h1", f"Benchmark of {view.dataset}"),
        element("p", f"triskele {version} · {questions(view.n)} · {arms} · {form}", class_="quiet"),
        element("p", sentence(view), class_="lead"),
        element("ul", *items),
    )


def _sections(
    view: ReportView, queries: Sequence[BenchQuery], measured: Mapping[str, Measured], *, public: bool
) -> Iterator[Html]:
    name = metric_name(HEADLINE)
    against = f"difference to {view.baseline}"
    signs = (
        f"Under each value: the {against} and its {INTERVAL}; ▲ better, ▼ worse, ○ undecided "
        "(Holm-corrected p of 0.05 or more, or an interval that includes zero)."
    )
    has_comparisons = bool(view.compared)
    yield _section("Guards", findings(view, public=public))
    yield _section("Quality by kind of question", quality(view), note=signs if has_comparisons else "")
    if has_comparisons:
        dots = f"{name}: {against}, with its {INTERVAL}; a filled dot is decided, a hollow one is not."
        yield _section("Differences", forest(view, HEADLINE), note=dots)
    yield _section("Recall by depth", recall_curves(view), note="Recall among the first k memories, all questions.")
    bars = "The bar ends at the median, the line at the 95th percentile."
    yield _section("Time and space", costs(view), note=bars)
    if has_legs(view):
        yield _section("What each leg did", legs(view), note=_LEGS)
    if view.abstention:
        yield _section("Questions without an answer", confidence(view), note=_CONFIDENCE)
    if view.leading is not None:
        arms = (view.baseline, view.leading)
        depth = view.manifest["run_depth"]
        changes = per_query_changes(queries, measured, arms=arms, metric=HEADLINE, depth=depth, public=public)
        yield _section("Per-query changes", changes)
    yield element("section", manifest(view.manifest))


def _section(title: str, *children: Html, note: str = "") -> Html:
    about = element("p", note, class_="quiet") if note else Html()
    return element("section", element("h2", title), about, joined(children))


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
    if public:
        return element("p", text)
    note = f"Rank: that of the first relevant memory, – if it is not among the first {depth}."
    return joined(
        (
            element("p", text, " ", note),
            _change_table("Gained most", gains[:SHOWN], arms, metric),
            _change_table("Lost most", losses[:SHOWN], arms, metric),
        )
    )


def _change_table(title: str, changes: Sequence[QueryChange], arms: tuple[str, str], metric: str) -> Html:
    heading = element("h3", title)
    if not changes:
        return joined((heading, element("p", "None.", class_="quiet")))
    names = (("question", ""), ("rank", f"{arms[0]} → {arms[1]}"), ("change", metric_name(metric)))
    head = element("tr", *(element("th", name, element("small", unit), scope="col") for name, unit in names))
    rows = (_row(change) for change in changes)
    return joined((heading, element("table", element("thead", head), element("tbody", *rows), class_="movers")))


def _row(change: QueryChange) -> Html:
    before, after = change.before, change.after
    text = change.query.text
    clipped = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    details = (
        f"{change.query.id} · {change.query.type} · rank 1: {before.first or 'nothing'} → {after.first or 'nothing'}"
    )
    return element(
        "tr",
        element("td", element("bdi", clipped), element("small", details), element("small", change.why)),
        element("td", f"{before.rank or '–'} → {after.rank or '–'}"),
        element("td", signed(change.difference), class_="better" if change.difference > 0 else "worse"),
    )
