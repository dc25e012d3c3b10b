"""What each leg did for each arm: its scores, what it brought, and whether it changed anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triskele.evaluation.report.markup import Html, element, joined, scrolling
from triskele.evaluation.report.reading import Reading

_SCORES = {"scores": "n", "mean": "mean", "σ": "sd", "skew": "skew"}
_HEAD = ("arm", "leg", *_SCORES, "changed", "right", "only here")
_MAX_SHOWN = 4


def legs(reading: Reading) -> Html:
    """A row for each leg of each arm that has any."""
    head = element("tr", *(element("th", title, scope="col") for title in _HEAD))
    rows = [row for name, arm in reading.arms.items() for row in _rows(name, arm["legs"])]
    made = element("table", element("thead", head), element("tbody", *rows), class_="legs")
    return joined((scrolling(made, "what each leg did"), *_overlaps(reading)))


def has_legs(reading: Reading) -> bool:
    """Whether any arm tells its legs apart."""
    return any(arm["legs"]["legs"] for arm in reading.arms.values())


def _rows(name: str, counted: Mapping[str, Any]) -> Iterator[Html]:
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


def _overlaps(reading: Reading) -> Iterator[Html]:
    """Which legs agree on the first places, arm by arm, the most frequent first."""
    for name, arm in reading.arms.items():
        shares = sorted(arm["legs"]["overlap"].items(), key=lambda item: (-item[1], item[0]))
        if len(arm["legs"]["legs"]) > 1:
            said = ", ".join(f"{by.replace('+', ' and ')} {share:.0%}" for by, share in shares[:_MAX_SHOWN])
            yield element("p", f"{name}, first places by the legs that have them first too: {said}.", class_="quiet")
