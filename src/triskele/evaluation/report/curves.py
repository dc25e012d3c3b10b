"""Recall against the number of memories looked at, one line per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from triskele.evaluation.report.charts import Scale, line, svg, text
from triskele.evaluation.report.markup import Html, element, joined, scrolling
from triskele.evaluation.report.reading import Reading
from triskele.evaluation.report.wording import value

DEPTHS = (1, 5, 10, 20, 30)
_HEIGHT_PX = 300
_TOP_PX = 8
_BOTTOM_PX = 262
_LABEL_PX = 15
_COLOURS = 8
_DASHES = ("none", "7 4", "2 3")

Points = Sequence[float]


def recall_curves(reading: Reading) -> Html:
    """The curves, and under them their numbers, which are their legend as well."""
    known: dict[str, Points] = {
        name: [float(arm["overall"][f"recall@{depth}"] or 0.0) for depth in DEPTHS]
        for name, arm in reading.arms.items()
    }
    styles = _styles(reading)
    return joined((_drawing(known, styles), scrolling(_legend(known, styles), "recall by depth")))


def _styles(reading: Reading) -> dict[str, tuple[str, str]]:
    """Colour and dash of each arm: no two are alike, and the baseline is grey."""
    styles = {reading.baseline: ("colour-baseline", "5 4")}
    for place, name in enumerate(reading.challengers):
        dash = _DASHES[place // _COLOURS % len(_DASHES)]
        styles[name] = (f"colour-{place % _COLOURS}", dash)
    return styles


def _drawing(known: Mapping[str, Points], styles: Mapping[str, tuple[str, str]]) -> Html:
    up = Scale.around([number for points in known.values() for number in points])
    along = Scale(0, DEPTHS[-1])
    frame = [
        *(line("0", _height(up, tick), "100%", _height(up, tick), "grid") for tick in up.ticks()),
        *(text(f"{tick:.{up.digits}f}", "-8", _height(up, tick) + 4, text_anchor="end") for tick in up.ticks()),
        *(text(f"@{depth}", along.across(depth), _BOTTOM_PX + 20, text_anchor="middle") for depth in DEPTHS),
    ]
    drawn = [_curve(points, up, along, styles[name]) for name, points in known.items()]
    drawing = svg("recall by depth, one line per arm", _HEIGHT_PX, *frame, *drawn, *_labels(known, up, styles))
    return element("div", drawing, class_="curves")


def _curve(points: Points, up: Scale, along: Scale, style: tuple[str, str]) -> Html:
    colour, dash = style
    places = [(along.across(depth), _height(up, number)) for depth, number in zip(DEPTHS, points, strict=True)]
    strokes = (line(*one, *other, f"curve {colour}", stroke_dasharray=dash) for one, other in pairwise(places))
    dots = (element("circle", cx=x, cy=f"{y:.1f}", r=3, class_=f"point {colour}") for x, y in places)
    return element("g", *strokes, *dots)


def _labels(known: Mapping[str, Points], up: Scale, styles: Mapping[str, tuple[str, str]]) -> list[Html]:
    """Names at the ends of the lines, moved apart where they would cover each other."""
    names = sorted(known, key=lambda name: -known[name][-1])
    heights = apart([_height(up, known[name][-1]) for name in names])
    return [
        text(name, "100%", height + 4, dx="10", class_=f"name {styles[name][0]}")
        for name, height in zip(names, heights, strict=True)
    ]


def apart(heights: Sequence[float]) -> list[float]:
    """Heights in their order, none nearer to the one before than a line of text; they end inside the drawing."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LABEL_PX) if placed else height)
    limit = float(_BOTTOM_PX)
    for place in range(len(placed) - 1, -1, -1):
        placed[place] = min(placed[place], limit)
        limit = placed[place] - _LABEL_PX
    return placed


def _legend(known: Mapping[str, Points], styles: Mapping[str, tuple[str, str]]) -> Html:
    head = element("tr", element("th", "arm", scope="col"), *(element("th", f"@{depth}") for depth in DEPTHS))
    rows = (
        element(
            "tr",
            element("th", _swatch(*styles[name]), name, scope="row"),
            *(element("td", value(number)) for number in points),
        )
        for name, points in known.items()
    )
    return element("table", element("thead", head), element("tbody", *rows), class_="legend")


def _swatch(colour: str, dash: str) -> Html:
    stroke = line("0", 6, "26", 6, f"curve {colour}", stroke_dasharray=dash)
    return element("svg", stroke, width=26, height=12, aria_hidden="true", class_="swatch")


def _height(up: Scale, number: float) -> float:
    return _BOTTOM_PX - (_BOTTOM_PX - _TOP_PX) * up.share(number)
