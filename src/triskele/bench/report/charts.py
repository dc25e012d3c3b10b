"""Charts as plain SVG: horizontal positions are percentages, so text keeps its size at every page width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from triskele.bench.comparison import Decision, decision
from triskele.bench.report.formatting import detectable, interval, p_value, signed
from triskele.bench.report.summary import ReportView
from triskele.bench.report.templating import Html, element, joined, table

_ROW_PX = 22
_MIDDLE_PX = _ROW_PX / 2
_MAX_TICKS = 5
_ROOM = 0.04
_MIN_ROOM = 0.005
DEPTHS = (1, 5, 10, 20, 30)
_HEIGHT_PX = 300
_TOP_PX = 8
_BOTTOM_PX = 262
_LABEL_PX = 15
_COLOURS = 8
_DASHES = ("none", "7 4", "2 3")

Points = Sequence[float]


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale between two numbers."""

    low: float
    high: float

    @staticmethod
    def around(numbers: Sequence[float]) -> Scale:
        """A scale that contains all numbers, with a margin at both ends."""
        low, high = min(numbers), max(numbers)
        room = max(_ROOM * (high - low), _MIN_ROOM)
        return Scale(low - room, high + room)

    def share(self, number: float) -> float:
        """The position of a number, from 0 to 1."""
        return (number - self.low) / (self.high - self.low)

    def across(self, number: float) -> str:
        """The position of a number in per cent."""
        return f"{100 * self.share(number):.2f}%"

    @property
    def step(self) -> float:
        """The distance between ticks: 1, 2 or 5 times a power of ten."""
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / _MAX_TICKS))
        return next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= _MAX_TICKS)

    @property
    def digits(self) -> int:
        """The decimal places that distinguish the ticks."""
        return max(1, -math.floor(math.log10(self.step) + 1e-9))

    def ticks(self) -> list[float]:
        """Round numbers along the scale."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [count * self.step for count in range(first, last + 1)]


def forest(view: ReportView, metric: str) -> Html:
    """Every arm's difference to the baseline with its interval, by type of question."""
    groups = [group for group in view.groups() if not group.is_half]
    found = {
        group: [each for name in view.challengers if (each := view.comparison(name, group, metric)) is not None]
        for group in groups
    }
    ends = [end for several in found.values() for each in several for end in each["ci95"]]
    if not ends:
        return element("p", "No arm was compared with another.", class_="quiet")
    scale = Scale.around([0.0, *ends])
    panels = [(group, [_forest_row(each, scale) for each in several]) for group, several in found.items() if several]
    return table("forest", panels, _axis(scale))


def _forest_row(each: Mapping[str, Any], scale: Scale) -> tuple[str, Html, str]:
    """The arm, its plot and its numbers."""
    low, high = each["ci95"]
    decided = decision(each)
    title = f"{each['a']} − {each['b']}: {signed(each['delta'])} ({interval(each)}, {p_value(each['p_holm'])})"
    plot = svg(
        title,
        _ROW_PX,
        *_grid(scale),
        line(scale.across(low), _MIDDLE_PX, scale.across(high), _MIDDLE_PX, f"whisker {decided}"),
        element("circle", cx=scale.across(each["delta"]), cy=_MIDDLE_PX, r=4.5, class_=f"dot {decided}"),
    )
    least = f", {detectable(each)}" if decided is Decision.UNDECIDED else ""
    numbers = f"{signed(each['delta'])} ({interval(each)}){least}"
    return each["a"], plot, numbers


def _grid(scale: Scale) -> list[Html]:
    return [
        line(scale.across(tick), 0, scale.across(tick), _ROW_PX, "zero" if abs(tick) < 1e-9 else "grid")
        for tick in scale.ticks()
    ]


def _axis(scale: Scale) -> Html:
    labels = (text(signed(tick, scale.digits), scale.across(tick), 14, text_anchor="middle") for tick in scale.ticks())
    return svg("axis", _ROW_PX, *labels)


def spans(rows: Sequence[tuple[float, float]]) -> list[Html]:
    """Ranges from a common zero: a thin line to the end of each, a thick one to its start."""
    scale = Scale(0.0, max((end for _, end in rows), default=0.0) or 1.0)
    return [
        svg(
            f"{start:.2f} to {end:.2f}",
            _ROW_PX,
            line("0", _MIDDLE_PX, scale.across(end), _MIDDLE_PX, "tail"),
            line("0", _MIDDLE_PX, scale.across(start), _MIDDLE_PX, "bar"),
        )
        for start, end in rows
    ]


def svg(title: str, height_px: float, *children: Html) -> Html:
    """An SVG as wide as its container, with a title for screen readers."""
    return element("svg", element("title", title), joined(children), role="img", width="100%", height=height_px)


def line(x1: str, y1: float, x2: str, y2: float, class_: str, **attributes: object) -> Html:
    """A straight line."""
    return element("line", x1=x1, y1=f"{y1:.1f}", x2=x2, y2=f"{y2:.1f}", class_=class_, **attributes)


def text(label: str, x: str, y: float, **attributes: object) -> Html:
    """Text in a drawing."""
    return element("text", label, x=x, y=f"{y:.1f}", **attributes)


def recall_curves(view: ReportView) -> Html:
    """The curves, and below them their numbers, which are also the legend."""
    known: dict[str, Points] = {
        name: [float(arm["overall"][f"recall@{depth}"] or 0.0) for depth in DEPTHS] for name, arm in view.arms.items()
    }
    styles = _styles(view)
    swatches = {name: _swatch(*style) for name, style in styles.items()}
    return table("recall", _drawing(known, styles), known, swatches, DEPTHS)


def _styles(view: ReportView) -> dict[str, tuple[str, str]]:
    """Colour and dash of each arm: no two are equal, and the baseline is grey."""
    styles = {view.baseline: ("colour-baseline", "5 4")}
    for place, name in enumerate(view.challengers):
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
    return svg("recall by depth, one line per arm", _HEIGHT_PX, *frame, *drawn, *_labels(known, up, styles))


def _curve(points: Points, up: Scale, along: Scale, style: tuple[str, str]) -> Html:
    colour, dash = style
    places = [(along.across(depth), _height(up, number)) for depth, number in zip(DEPTHS, points, strict=True)]
    strokes = (line(*one, *other, f"curve {colour}", stroke_dasharray=dash) for one, other in pairwise(places))
    dots = (element("circle", cx=x, cy=f"{y:.1f}", r=3, class_=f"point {colour}") for x, y in places)
    return element("g", *strokes, *dots)


def _labels(known: Mapping[str, Points], up: Scale, styles: Mapping[str, tuple[str, str]]) -> list[Html]:
    """Names at the ends of the lines, moved apart where they would overlap."""
    names = sorted(known, key=lambda name: -known[name][-1])
    heights = apart([_height(up, known[name][-1]) for name in names])
    return [
        text(name, "100%", height + 4, dx="10", class_=f"name {styles[name][0]}")
        for name, height in zip(names, heights, strict=True)
    ]


def apart(heights: Sequence[float]) -> list[float]:
    """Heights in their order, at least one line of text apart, all inside the drawing."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LABEL_PX) if placed else height)
    limit = float(_BOTTOM_PX)
    for place in range(len(placed) - 1, -1, -1):
        placed[place] = min(placed[place], limit)
        limit = placed[place] - _LABEL_PX
    return placed


def _swatch(colour: str, dash: str) -> Html:
    stroke = line("0", 6, "26", 6, f"curve {colour}", stroke_dasharray=dash)
    return element("svg", stroke, width=26, height=12, aria_hidden="true", class_="swatch")


def _height(up: Scale, number: float) -> float:
    return _BOTTOM_PX - (_BOTTOM_PX - _TOP_PX) * up.share(number)
