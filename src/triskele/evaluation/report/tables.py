"""The tables of the page: findings, quality by arm and group, costs, legs, confidence and the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from triskele.evaluation.comparison import Decision, decision
from triskele.evaluation.report.charts import spans
from triskele.evaluation.report.formatting import (
    MEANINGS,
    Html,
    detectable,
    element,
    interval,
    joined,
    metric_name,
    p_value,
    scrolling,
    signed,
    underpowered,
    value,
)
from triskele.evaluation.report.summary import Group, ReportView

_SIGNS = {Decision.BETTER: "▲", Decision.WORSE: "▼", Decision.UNDECIDED: "○"}
_CONFIDENCE_HEAD = ("arm", "against", "n", "AUROC", "precision", "answerable kept")
_TIMES = ("p50", "p95", "mean", "max")
_COSTS_HEAD = {"arm": None, **{f"{name} ms": None for name in _TIMES}, "": "plot", "bytes per memory": None}
_SCORES = {"scores": "n", "mean": "mean", "σ": "sd", "skew": "skew"}
_LEGS_HEAD = ("arm", "leg", *_SCORES, "changed", "right", "only here")
_MAX_SHOWN = 4


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


def manifest(values: Mapping[str, Any]) -> Html:
    """Everything that is needed to repeat the run, folded."""
    text = json.dumps(values, ensure_ascii=False, indent=2)
    return element("details", element("summary", "Manifest"), element("pre", text))


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
