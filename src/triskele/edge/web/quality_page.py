"""Runs over the user's own questions, drift and gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from triskele.bench.comparison import decision
from triskele.bench.own import gate as gates
from triskele.bench.own import run
from triskele.bench.own.questions import judging_state
from triskele.bench.report.summary import interval, metric_name, signed
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page

METRICS = ("ndcg@10", "recall@5", "recall@10", "mrr")
_OVERALL = "overall"
# The arm for the current recall: the adopted plan, or else the default.
_OWN_ARMS = ("now", "default")


@dataclass(frozen=True, slots=True)
class ScoreCell:
    """A figure of an arm, with its tested difference to the baseline."""

    value: float | None
    delta: str = ""
    interval: str = ""
    decision: str = ""


def show(request: PageRequest) -> Response:
    """Show the chosen run or the newest one."""
    engine = request.engine
    runs = run.reports(engine)
    key = request.text("run", next(iter(runs), ""), most=40)
    report = runs.get(key) or next(iter(runs.values()), None)
    metric = request.text("metric", METRICS[0], most=20)
    metric = metric if metric in METRICS else METRICS[0]
    judging = judging_state(engine)
    return page(
        request,
        "quality.html",
        "Quality",
        runs={name: each["manifest"]["at"] for name, each in runs.items()},
        key=key,
        metric=metric,
        metrics=[(name, metric_name(name)) for name in METRICS],
        report=report,
        questions=judging.questions,
        labels=sum(judging.labels.values()),
        adopted=engine.adopted(),
        accepted=gates.accepted_at(engine),
        drift=drift([*reversed(runs.values())], metric),
        **(table(report, metric) if report else {}),
    )


def has_figures(request: PageRequest) -> bool:
    """Whether questions are judged, or a run is kept."""
    return bool(judging_state(request.engine).labels or run.reports(request.engine))


def table(report: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """The arms by groups of questions, and the intervals of all questions."""
    arms: Mapping[str, Any] = report["arms"]
    compared = {(each["a"], each["stratum"]): each for each in report["comparisons"] if each["metric"] == metric}
    first = next(iter(arms.values()))
    groups = {_OVERALL: int(first["overall"]["n"]), **{name: int(each["n"]) for name, each in first["strata"].items()}}
    rows = {
        name: [_cell(arm, compared.get((name, group)), group, metric) for group in groups] for name, arm in arms.items()
    }
    return {"groups": groups, "rows": rows, "arms": arms, "marks": _marks(compared)}


def _cell(arm: Mapping[str, Any], found: Mapping[str, Any] | None, group: str, metric: str) -> ScoreCell:
    values = arm["overall"] if group == _OVERALL else arm["strata"].get(group, {})
    if found is None:
        return ScoreCell(values.get(metric))
    return ScoreCell(values.get(metric), signed(found["delta"]), interval(found), str(decision(found)))


def _marks(compared: Mapping[tuple[str, str], Mapping[str, Any]]) -> dict[str, Any]:
    """Every arm's difference over all questions, on one scale around zero."""
    overall = {arm: each for (arm, group), each in compared.items() if group == _OVERALL}
    reach = max((abs(end) for each in overall.values() for end in each["ci95"]), default=0.0) or 1.0

    def percent(value: float) -> float:
        return round(50 + 48 * value / reach, 2)

    drawn = [
        {"arm": arm, "low": percent(each["ci95"][0]), "middle": percent(each["delta"]),
         "high": percent(each["ci95"][1]), "decision": str(decision(each)),
         "text": f"{signed(each['delta'])} ({interval(each)})"}
        for arm, each in overall.items()
    ]  # fmt: skip
    return {"drawn": drawn, "reach": reach}


def drift(reports: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """One metric of the user's ranking over all runs, oldest first."""
    points = []
    for report in reports:
        arm = next((report["arms"][name] for name in _OWN_ARMS if name in report["arms"]), None)
        if arm is not None and arm["overall"].get(metric) is not None:
            points.append({"at": report["manifest"]["at"], "value": float(arm["overall"][metric])})
    step = 100 / max(len(points) - 1, 1)
    return [{**each, "x": round(1 + 0.98 * step * number, 2), "y": round(100 - 100 * each["value"], 2)}
            for number, each in enumerate(points)]  # fmt: skip


def run_gate(request: PageRequest) -> Response:
    """Compare the present ranking with the accepted one, now."""
    return fragment("_gate.html", gate=gates.gate(request.engine))


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/quality", show, title="Quality", has_content=has_figures),
    PageRoute("POST", "/quality/gate", run_gate),
)
