"""Numbers of a report's charts: scales, rows and curves for templates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from triskele.bench.report.summary import Group, ReportView

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
        """Distance between ticks: 1, 2 or 5 times a power of ten."""
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


@dataclass(frozen=True, slots=True)
class Forest:
    """Every arm's comparison with the baseline by group, on one scale."""

    scale: Scale
    panels: Sequence[tuple[Group, Sequence[Mapping[str, Any]]]]


def forest(view: ReportView, metric: str) -> Forest | None:
    """The comparisons of a metric; None if no arm was compared."""
    panels = []
    for group in view.groups():
        rows = [view.comparison(name, group, metric) for name in view.challengers]
        if not group.is_half and any(rows):
            panels.append((group, [row for row in rows if row is not None]))
    ends = [end for _, rows in panels for row in rows for end in row["ci95"]]
    return Forest(Scale.around([0.0, *ends]), panels) if ends else None


def time_scale(view: ReportView) -> Scale:
    """The scale of the arms' latencies, from zero."""
    return Scale(0.0, max((arm["latency_ms"]["p95"] for arm in view.arms.values()), default=0.0) or 1.0)


@dataclass(frozen=True, slots=True)
class RecallCurves:
    """Recall of each arm by depth, with the style of its line."""

    points: Mapping[str, Points]
    styles: Mapping[str, tuple[str, str]]
    up: Scale
    along: Scale = Scale(0, DEPTHS[-1])
    depths: Sequence[int] = DEPTHS
    height: int = _HEIGHT_PX
    bottom: int = _BOTTOM_PX

    def y(self, number: float) -> float:
        """The height of a value in the drawing."""
        return _BOTTOM_PX - (_BOTTOM_PX - _TOP_PX) * self.up.share(number)

    def dots(self, name: str) -> list[tuple[str, float]]:
        """Where the values of an arm are drawn."""
        return [
            (self.along.across(depth), self.y(number)) for depth, number in zip(DEPTHS, self.points[name], strict=True)
        ]

    def strokes(self, name: str) -> Iterable[tuple[tuple[str, float], tuple[str, float]]]:
        """The pieces of the line of an arm."""
        return pairwise(self.dots(name))

    def labels(self) -> list[tuple[str, float]]:
        """Names at line ends, moved apart where they would overlap."""
        names = sorted(self.points, key=lambda name: -self.points[name][-1])
        heights = apart([self.y(self.points[name][-1]) for name in names])
        return list(zip(names, heights, strict=True))


def recall_curves(view: ReportView) -> RecallCurves:
    """Curves of all arms with distinct styles; the baseline is grey."""
    points: dict[str, Points] = {
        name: [float(arm["overall"][f"recall@{depth}"] or 0.0) for depth in DEPTHS] for name, arm in view.arms.items()
    }
    styles = {view.baseline: ("colour-baseline", "5 4")}
    for position, name in enumerate(view.challengers):
        dash = _DASHES[position // _COLOURS % len(_DASHES)]
        styles[name] = (f"colour-{position % _COLOURS}", dash)
    return RecallCurves(points, styles, Scale.around([number for curve in points.values() for number in curve]))


def apart(heights: Sequence[float]) -> list[float]:
    """Heights at least one line of text apart, inside the drawing."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _LABEL_PX) if placed else height)
    limit = float(_BOTTOM_PX)
    for position in range(len(placed) - 1, -1, -1):
        placed[position] = min(placed[position], limit)
        limit = placed[position] - _LABEL_PX
    return placed
