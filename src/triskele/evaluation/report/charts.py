"""Charts as plain SVG: positions across are per cent, so text keeps its size at every width of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triskele.evaluation.report.markup import Html, element, joined
from triskele.evaluation.report.reading import Group, Reading, Verdict, verdict
from triskele.evaluation.report.tables import underpowered
from triskele.evaluation.report.wording import chance, interval, noticeable, questions, signed

_ROW_PX = 22
_MIDDLE_PX = _ROW_PX / 2
_MAX_TICKS = 5
_ROOM = 0.04
_MIN_ROOM = 0.005


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a number stands between two ends."""

    low: float
    high: float

    @staticmethod
    def around(numbers: Sequence[float]) -> Scale:
        """A scale that holds all of these, with a little room at both ends."""
        low, high = min(numbers), max(numbers)
        room = max(_ROOM * (high - low), _MIN_ROOM)
        return Scale(low - room, high + room)

    def share(self, number: float) -> float:
        """The place of a number, from 0 to 1."""
        return (number - self.low) / (self.high - self.low)

    def across(self, number: float) -> str:
        """The place of a number in per cent."""
        return f"{100 * self.share(number):.2f}%"

    @property
    def step(self) -> float:
        """The distance between ticks: 1, 2 or 5 times a power of ten."""
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / _MAX_TICKS))
        return next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= _MAX_TICKS)

    @property
    def digits(self) -> int:
        """How many decimal places tell the ticks apart."""
        return max(1, -math.floor(math.log10(self.step) + 1e-9))

    def ticks(self) -> list[float]:
        """Round numbers along the scale."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [count * self.step for count in range(first, last + 1)]


def forest(reading: Reading, metric: str) -> Html:
    """Every arm's difference to the baseline with its interval, by kind of question."""
    groups = [group for group in reading.groups() if not group.is_half]
    found = {
        group: [each for name in reading.challengers if (each := reading.comparison(name, group, metric)) is not None]
        for group in groups
    }
    ends = [end for several in found.values() for each in several for end in each["ci95"]]
    if not ends:
        return element("p", "No arm was compared with another.", class_="quiet")
    scale = Scale.around([0.0, *ends])
    bodies = (_panel(group, several, scale) for group, several in found.items() if several)
    axis = element("tr", element("td"), element("td", _axis(scale), class_="plot"), element("td", class_="numbers"))
    return element("table", *bodies, element("tfoot", axis), class_="forest")


def _panel(group: Group, found: Sequence[Mapping[str, Any]], scale: Scale) -> Html:
    heading = element("th", group.label, " ", element("small", questions(group.n)), underpowered(group), colspan="3")
    return element("tbody", element("tr", heading), *(_forest_row(each, scale) for each in found))


def _forest_row(each: Mapping[str, Any], scale: Scale) -> Html:
    low, high = each["ci95"]
    decided = verdict(each)
    title = f"{each['a']} − {each['b']}: {signed(each['delta'])} ({interval(each)}, {chance(each['p_holm'])})"
    plot = svg(
        title,
        _ROW_PX,
        *_grid(scale),
        line(scale.across(low), _MIDDLE_PX, scale.across(high), _MIDDLE_PX, f"whisker {decided}"),
        element("circle", cx=scale.across(each["delta"]), cy=_MIDDLE_PX, r=4.5, class_=f"dot {decided}"),
    )
    least = f", {noticeable(each)}" if decided is Verdict.UNDECIDED else ""
    said = f"{signed(each['delta'])} ({interval(each)}){least}"
    return element(
        "tr",
        element("th", each["a"], scope="row"),
        element("td", plot, class_="plot"),
        element("td", said, class_="numbers"),
    )


def _grid(scale: Scale) -> list[Html]:
    return [
        line(scale.across(tick), 0, scale.across(tick), _ROW_PX, "zero" if abs(tick) < 1e-9 else "grid")
        for tick in scale.ticks()
    ]


def _axis(scale: Scale) -> Html:
    said = (text(signed(tick, scale.digits), scale.across(tick), 14, text_anchor="middle") for tick in scale.ticks())
    return svg("axis", _ROW_PX, *said)


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
    """A drawing as wide as its place, with words for those who cannot see it."""
    return element("svg", element("title", title), joined(children), role="img", width="100%", height=height_px)


def line(x1: str, y1: float, x2: str, y2: float, class_: str, **attributes: object) -> Html:
    """A straight line."""
    return element("line", x1=x1, y1=f"{y1:.1f}", x2=x2, y2=f"{y2:.1f}", class_=class_, **attributes)


def text(said: str, x: str, y: float, **attributes: object) -> Html:
    """Words in a drawing."""
    return element("text", said, x=x, y=f"{y:.1f}", **attributes)
