"""A benchmark as one page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from triskele.evaluation.abstention import THRESHOLD
from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.report import summary
from triskele.evaluation.report.charts import forest
from triskele.evaluation.report.confidence import confidence
from triskele.evaluation.report.costs import costs
from triskele.evaluation.report.curves import recall_curves
from triskele.evaluation.report.findings import findings
from triskele.evaluation.report.legs import has_legs, legs
from triskele.evaluation.report.markup import Html, element, joined
from triskele.evaluation.report.movers import movement
from triskele.evaluation.report.reading import HEADLINE, Reading
from triskele.evaluation.report.tables import manifest, quality
from triskele.evaluation.report.wording import INTERVAL, metric_name, questions
from triskele.evaluation.tally import LOOKED_AT, TOP

if TYPE_CHECKING:
    from triskele.evaluation.measured import Measured

_LEGS = (
    f"Scores as the leg gives them, over the first {LOOKED_AT} of each question. Changed: the share of questions whose "
    f"first {TOP} would be others without it. Right: right documents among the first {TOP} that the leg itself has "
    f"among its first {TOP}; only here: that no other leg has there."
)
_CONFIDENCE = (
    f"Above the threshold of {THRESHOLD} an answer is given; precision as if both kinds were asked equally often."
)
# Nothing may be fetched or run, whatever a text of the data set holds.
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
    reading = Reading.of(report)
    sections = _sections(reading, queries, measured, public=public)
    body = element("main", _header(reading, public=public), *sections)
    return _SHELL.format(
        policy=_POLICY,
        title=element("title", f"{reading.dataset} · triskele bench"),
        style=resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        body=body,
    )


def _header(reading: Reading, *, public: bool) -> Html:
    form = "public form: aggregates only" if public else "private form: holds questions and ids of the data set"
    arms = f"{len(reading.arms)} arm{'' if len(reading.arms) == 1 else 's'}"
    version = reading.manifest.get("versions", {}).get("triskele", "")
    facts = (element("li", fact) for fact in summary.facts(reading))
    return element(
        "header",
        element("h1", f"Benchmark of {reading.dataset}"),
        element("p", f"triskele {version} · {questions(reading.n)} · {arms} · {form}", class_="quiet"),
        element("p", summary.sentence(reading), class_="lead"),
        element("ul", *facts),
    )


def _sections(
    reading: Reading, queries: Sequence[BenchQuery], measured: Mapping[str, Measured], *, public: bool
) -> Iterator[Html]:
    name = metric_name(HEADLINE)
    against = f"difference to {reading.baseline}"
    signs = (
        f"Under each value: the {against} and its {INTERVAL}; ▲ better, ▼ worse, ○ undecided "
        "(Holm-corrected p of 0.05 or more, or an interval that holds zero)."
    )
    has_rivals = bool(reading.compared)
    yield _section("What the guards say", findings(reading, public=public))
    yield _section("Quality by kind of question", quality(reading), note=signs if has_rivals else "")
    if has_rivals:
        dots = f"{name}: {against}, with its {INTERVAL}; a filled dot is decided, a hollow one is not."
        yield _section("Differences", forest(reading, HEADLINE), note=dots)
    yield _section("Recall by depth", recall_curves(reading), note="Recall among the first k memories, all questions.")
    bars = "The bar ends at the median, the line at the 95th percentile."
    yield _section("Time and space", costs(reading), note=bars)
    if has_legs(reading):
        yield _section("What each leg did", legs(reading), note=_LEGS)
    if reading.abstention:
        yield _section("Questions without an answer", confidence(reading), note=_CONFIDENCE)
    if reading.leading is not None:
        arms = (reading.baseline, reading.leading)
        depth = reading.manifest["run_depth"]
        moved = movement(queries, measured, arms=arms, metric=HEADLINE, depth=depth, public=public)
        yield _section("Questions that moved", moved)
    yield element("section", manifest(reading.manifest))


def _section(title: str, *children: Html, note: str = "") -> Html:
    said = element("p", note, class_="quiet") if note else Html()
    return element("section", element("h2", title), said, joined(children))
