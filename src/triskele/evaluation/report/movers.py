"""The questions that moved most between two arms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.report.markup import Html, element, joined
from triskele.evaluation.report.wording import metric_name, questions, signed

if TYPE_CHECKING:
    from triskele.evaluation.measured import Measured

SHOWN = 10
_MAX_CHARACTERS = 400
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an arm put the best of the right memories, and what it put first."""

    rank: int | None
    first: str | None

    @staticmethod
    def of(measured: Measured, query: BenchQuery, place: int) -> Standing:
        """The standing of one question; its reciprocal rank tells the rank."""
        reciprocal = float(measured.scores["mrr"][place])
        found = measured.run[query.id]
        return Standing(round(1 / reciprocal) if reciprocal else None, found[0][0] if found else None)


@dataclass(frozen=True, slots=True)
class Mover:
    """One question under two arms."""

    query: BenchQuery
    difference: float
    before: Standing
    after: Standing
    why: str


def all_movers(queries: Sequence[BenchQuery], before: Measured, after: Measured, metric: str) -> list[Mover]:
    """Every question whose metric changed, the greatest gain first."""
    found = []
    for place, query in enumerate(queries):
        difference = float(after.scores[metric][place] - before.scores[metric][place])
        if abs(difference) > _TOLERANCE:
            stood, stands = (Standing.of(arm, query, place) for arm in (before, after))
            found.append(Mover(query, difference, stood, stands, explained(query.id, before, after)))
    return sorted(found, key=lambda mover: (-mover.difference, mover.query.id))


def explained(query: str, before: Measured, after: Measured) -> str:
    """What each leg gave to the right document that stands highest, under the one arm and under the other."""
    right = {**before.right.get(query, {}), **after.right.get(query, {})}
    standing = {
        document: rank
        for arm in (before, after)
        for rank, (document, _) in enumerate(arm.run[query], start=1)
        if document in right
    }
    if not standing:
        return ""
    document = min(right, key=lambda id: (standing.get(id, math.inf), id))
    return f"{document}: {_given(query, document, before)} → {_given(query, document, after)}"


def _given(query: str, document: str, arm: Measured) -> str:
    if all(document != found for found, _ in arm.run[query]):
        return "not found"
    legs = arm.right.get(query, {}).get(document, {})
    said = (f"{leg} no. {given.rank} {signed(given.contribution)}" for leg, given in legs.items())
    return ", ".join(said) or "found by words"


def movement(
    queries: Sequence[BenchQuery],
    measured: Mapping[str, Measured],
    *,
    arms: tuple[str, str],
    metric: str,
    depth: int,
    public: bool,
) -> Html:
    """How many questions moved each way and, unless the page is public, which moved most."""
    before, after = arms
    found = all_movers(queries, measured[before], measured[after], metric)
    gains = [mover for mover in found if mover.difference > 0]
    losses = [mover for mover in reversed(found) if mover.difference < 0]
    said = (
        f"From {before} to {after}, {metric_name(metric)} rises for {questions(len(gains))}, "
        f"falls for {len(losses):,} and stays for {len(queries) - len(found):,}."
    )
    if public:
        return element("p", said)
    note = f"Rank: the place of the best right memory, – where it is not among the first {depth}."
    return joined(
        (
            element("p", said, " ", note),
            _listed("Gained most", gains[:SHOWN], arms, metric),
            _listed("Lost most", losses[:SHOWN], arms, metric),
        )
    )


def _listed(title: str, movers: Sequence[Mover], arms: tuple[str, str], metric: str) -> Html:
    heading = element("h3", title)
    if not movers:
        return joined((heading, element("p", "None.", class_="quiet")))
    names = (("question", ""), ("rank", f"{arms[0]} → {arms[1]}"), ("change", metric_name(metric)))
    head = element("tr", *(element("th", name, element("small", unit), scope="col") for name, unit in names))
    rows = (_row(mover) for mover in movers)
    return joined((heading, element("table", element("thead", head), element("tbody", *rows), class_="movers")))


def _row(mover: Mover) -> Html:
    before, after = mover.before, mover.after
    text = mover.query.text
    clipped = text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
    details = (
        f"{mover.query.id} · {mover.query.type} · first place: {before.first or 'nothing'} → {after.first or 'nothing'}"
    )
    return element(
        "tr",
        element("td", element("bdi", clipped), element("small", details), element("small", mover.why)),
        element("td", f"{before.rank or '–'} → {after.rank or '–'}"),
        element("td", signed(mover.difference), class_="better" if mover.difference > 0 else "worse"),
    )
