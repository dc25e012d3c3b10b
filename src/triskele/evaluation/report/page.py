"""A benchmark as one HTML page, with its tables, that needs no other file and no network."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from triskele.evaluation.comparison import Decision, decision
from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.measure import LOOKED_AT, TOP, Measured
from triskele.evaluation.metrics import THRESHOLD
from triskele.evaluation.report.charts import forest, recall_curves, spans
from triskele.evaluation.report.formatting import (
    INTERVAL,
    MEANINGS,
    Html,
    detectable,
    element,
    interval,
    joined,
    metric_name,
    p_value,
    questions,
    scrolling,
    signed,
    underpowered,
    value,
)
from triskele.evaluation.report.summary import HEADLINE, Group, ReportView, facts, sentence

_SIGNS = {Decision.BETTER: "▲", Decision.WORSE: "▼", Decision.UNDECIDED: "○"}
_CONFIDENCE_HEAD = ("arm", "against", "n", "AUROC", "precision", "answerable kept")
_TIMES = ("p50", "p95", "mean", "max")
_COSTS_HEAD = {"arm": None, **{f"{name} ms": None for name in _TIMES}, "": "plot", "bytes per memory": None}
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


def quality(view: ReportView) -> Html:
    """Arms by groups for the headline metric; each other metric is folded."""
    first, *others = view.metrics()
    folded = (
        element(
            "details",
            element("summary", f"{metric_name(metric)}: {MEANINGS[metric]}"),
            _by_group(view, metric),
        )
        for metric in others
    )
    return joined((element("p", f"{metric_name(first)}: {MEANINGS[first]}."), _by_group(view, first), *folded))


def _by_group(view: ReportView, metric: str) -> Html:
    groups = view.groups()
    head = element("tr", element("th", "arm", scope="col"), *(_heading(group) for group in groups))
    rows = (
        element("tr", _arm(view, name), *(_cell(view, name, group, metric) for group in groups)) for name in view.arms
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="quality")
    return scrolling(made, f"{metric_name(metric)} by arm and kind of question")


def _heading(group: Group) -> Html:
    return element(
        "th", group.label, element("small", f"n = {group.n:,}"), underpowered(group.is_underpowered), scope="col"
    )


def _arm(view: ReportView, name: str) -> Html:
    mark = element("small", "baseline") if name == view.baseline else Html()
    return element("th", name, mark, scope="row")


def _cell(view: ReportView, name: str, group: Group, metric: str) -> Html:
    best = "best" if name in view.best(group, metric) else None
    number = element("b" if best else "span", value(view.value(name, group, metric)))
    found = view.comparison(name, group, metric)
    return element("td", number, _difference(found) if found else Html(), class_=best)


def _difference(found: Mapping[str, Any]) -> Html:
    decided = decision(found)
    delta = element("span", f"{_SIGNS[decided]} {signed(found['delta'])}", class_=decided)
    title = f"{decided}, {p_value(found['p_holm'])} after Holm"
    least = element("small", detectable(found), class_="interval") if decided is Decision.UNDECIDED else Html()
    ends = element("small", interval(found), class_="interval")
    return joined((element("small", delta, title=title), ends, least))


def findings(view: ReportView, *, public: bool) -> Html:
    """Alarms in red, then notes; examples show the data set, so a public page has none."""
    if not view.findings:
        return element("p", "The guards found no problem.", class_="quiet")
    return element("ul", *(_finding(each, public=public) for each in view.findings), class_="findings")


def _finding(found: Mapping[str, Any], *, public: bool) -> Html:
    shown = () if public else found.get("examples", ())
    examples = element("small", f" For example: {', '.join(shown)}") if shown else Html()
    return element("li", found["said"], examples, class_=found["severity"])


def costs(view: ReportView) -> Html:
    """Latency and size of every arm."""
    times = [(arm["latency_ms"]["p50"], arm["latency_ms"]["p95"]) for arm in view.arms.values()]
    head = element("tr", *(element("th", title, scope="col", class_=class_) for title, class_ in _COSTS_HEAD.items()))
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            *(element("td", f"{arm['latency_ms'][key]:,.2f}") for key in _TIMES),
            element("td", span, class_="plot"),
            element("td", f"{arm['bytes_per_memory']:,.0f}"),
        )
        for (name, arm), span in zip(view.arms.items(), spans(times), strict=True)
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="costs")
    return scrolling(made, "latency and bytes per memory")


def legs(view: ReportView) -> Html:
    """A row for each leg of each arm."""
    head = element("tr", *(element("th", title, scope="col") for title in _LEGS_HEAD))
    rows = [row for name, arm in view.arms.items() for row in _leg_rows(name, arm["legs"])]
    made = element("table", element("thead", head), element("tbody", *rows), class_="legs")
    return joined((scrolling(made, "what each leg did"), *_overlaps(view)))


def has_legs(view: ReportView) -> bool:
    """Whether any arm has legs."""
    return any(arm["legs"]["legs"] for arm in view.arms.values())


def _leg_rows(name: str, counted: Mapping[str, Any]) -> Iterator[Html]:
    for leg, did in counted["legs"].items():
        scores = did["scores"]
        cells = (
            leg,
            f"{scores['n']:,}",
            *(f"{scores[key]:.3f}" for key in ("mean", "sd", "skew")),
            "–" if did["changed"] is None else f"{did['changed']:.0%}",
            f"{did['right']:,}",
            f"{did['right_alone']:,}",
        )
        yield element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in cells))


def _overlaps(view: ReportView) -> Iterator[Html]:
    """Which legs share their top results, by arm, most frequent first."""
    for name, arm in view.arms.items():
        shares = sorted(arm["legs"]["overlap"].items(), key=lambda item: (-item[1], item[0]))
        if len(arm["legs"]["legs"]) > 1:
            text = ", ".join(f"{by.replace('+', ' and ')} {share:.0%}" for by, share in shares[:_MAX_SHOWN])
            yield element("p", f"{name}, top results by the legs that rank them at the top: {text}.", class_="quiet")


def confidence(view: ReportView) -> Html:
    """AUROC, and what the threshold keeps, for each arm that has a confidence."""
    head = element("tr", *(element("th", title, scope="col") for title in _CONFIDENCE_HEAD))
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", kind),
            element("td", f"{separation['answerable']:,} + {found['n']:,}"),
            *(element("td", value(found[key])) for key in ("auroc", "precision", "coverage")),
        )
        for name, separation in view.abstention.items()
        for kind, found in separation["kinds"].items()
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="confidence")
    return scrolling(made, "confidence against questions without an answer")


def page(
    report: Mapping[str, Any],
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    public: bool = False,
) -> str:
    """The whole page; a public one holds aggregates only, with no text and no id of the data set."""
    view = ReportView.of(report)
    return _template().render(
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


@cache
def _template() -> Template:
    loader = PackageLoader("triskele.evaluation.report", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return made.get_template("report.html")


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
    yield Section("Guards", findings(view, public=public))
    yield Section("Quality by kind of question", quality(view), note=signs if has_comparisons else "")
    if has_comparisons:
        dots = f"{name}: {against}, with its {INTERVAL}; a filled dot is decided, a hollow one is not."
        yield Section("Differences", forest(view, HEADLINE), note=dots)
    yield Section("Recall by depth", recall_curves(view), note="Recall among the first k memories, all questions.")
    bars = "The bar ends at the median, the line at the 95th percentile."
    yield Section("Time and space", costs(view), note=bars)
    if has_legs(view):
        yield Section("What each leg did", legs(view), note=_LEGS)
    if view.abstention:
        yield Section("Questions without an answer", confidence(view), note=_CONFIDENCE)
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
