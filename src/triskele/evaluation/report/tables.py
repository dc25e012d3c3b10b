"""The tables of the page: values by arm and group, and the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from triskele.evaluation.report.markup import Html, element, joined, scrolling
from triskele.evaluation.report.reading import Group, Reading, Verdict, verdict
from triskele.evaluation.report.wording import MEANINGS, chance, interval, metric_name, noticeable, signed, value

_SIGNS = {Verdict.BETTER: "▲", Verdict.WORSE: "▼", Verdict.UNDECIDED: "○"}


def quality(reading: Reading) -> Html:
    """Arms by groups for the headline metric, and the other metrics behind a fold each."""
    first, *others = reading.metrics()
    folded = (
        element(
            "details",
            element("summary", f"{metric_name(metric)}: {MEANINGS[metric]}"),
            _by_group(reading, metric),
        )
        for metric in others
    )
    return joined((element("p", f"{metric_name(first)}: {MEANINGS[first]}."), _by_group(reading, first), *folded))


def _by_group(reading: Reading, metric: str) -> Html:
    groups = reading.groups()
    head = element("tr", element("th", "arm", scope="col"), *(_heading(group) for group in groups))
    rows = (
        element("tr", _arm(reading, name), *(_cell(reading, name, group, metric) for group in groups))
        for name in reading.arms
    )
    made = element("table", element("thead", head), element("tbody", *rows), class_="quality")
    return scrolling(made, f"{metric_name(metric)} by arm and kind of question")


def _heading(group: Group) -> Html:
    return element("th", group.label, element("small", f"n = {group.n:,}"), underpowered(group), scope="col")


def underpowered(group: Group) -> Html:
    """The mark of a group that is too small."""
    return element("span", "underpowered", class_="mark") if group.is_underpowered else Html()


def _arm(reading: Reading, name: str) -> Html:
    said = element("small", "baseline") if name == reading.baseline else Html()
    return element("th", name, said, scope="row")


def _cell(reading: Reading, name: str, group: Group, metric: str) -> Html:
    best = "best" if name in reading.best(group, metric) else None
    number = element("b" if best else "span", value(reading.value(name, group, metric)))
    found = reading.comparison(name, group, metric)
    return element("td", number, _difference(found) if found else Html(), class_=best)


def _difference(found: Mapping[str, Any]) -> Html:
    decided = verdict(found)
    said = element("span", f"{_SIGNS[decided]} {signed(found['delta'])}", class_=decided)
    title = f"{decided}, {chance(found['p_holm'])} after Holm"
    least = element("small", noticeable(found), class_="interval") if decided is Verdict.UNDECIDED else Html()
    ends = element("small", interval(found), class_="interval")
    return joined((element("small", said, title=title), ends, least))


def manifest(values: Mapping[str, Any]) -> Html:
    """Everything that a second run needs, folded away."""
    text = json.dumps(values, ensure_ascii=False, indent=2)
    return element("details", element("summary", "Manifest"), element("pre", text))
