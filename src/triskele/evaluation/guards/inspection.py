"""All guards over one run, as the report holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triskele.evaluation.arms import Arm
from triskele.evaluation.guards import circles, leaks, pooling, structure
from triskele.evaluation.guards.finding import ordered

if TYPE_CHECKING:
    from triskele.evaluation.measured import Course, Measured


def inspect(
    course: Course,
    arms: Sequence[Arm],
    measured: Mapping[str, Measured],
    summaries: Mapping[str, Mapping[str, Any]],
    *,
    public: bool,
) -> dict[str, Any]:
    """What the guards measured and what they have to say, alarms first."""
    data, queries = course.data, course.queries
    reached = {arm.name: structure.reaches(arm, course.depth) for arm in arms}
    runs = {name: one.run for name, one in measured.items()}
    covered = pooling.coverage(runs, queries, data.qrels)
    found = [
        *(
            finding
            for name, one in measured.items()
            for finding in structure.findings(name, reached[name], one.legs, len(queries))
        ),
        *structure.same_places(runs),
        *pooling.findings(covered),
        *leaks.findings(data.documents, queries, data.qrels),
        *circles.findings(data.about, queries, summaries),
    ]
    return {
        "findings": [finding.to_json(public=public) for finding in ordered(found)],
        "structure": {name: {leg: str(reach) for leg, reach in legs.items()} for name, legs in reached.items() if legs},
        "pooling": covered,
    }
