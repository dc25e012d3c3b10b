"""Circles: sets that were made by what they judge.

A data set says where it comes from in `manifest.json` or in the meta of its questions: `generator`, `judge`, and
`built_from`, the arms whose results made a stratum (`"fts"`, `["fts"]`, or by stratum `{"exact": ["fts"]}`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.guards.finding import Finding, Severity

GUARD = "circle"
_MIN_QUESTIONS = 20


def findings(
    about: Mapping[str, Any], queries: Sequence[BenchQuery], arms: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Judges of their own questions, and strata made from an arm that is measured on them."""
    yield from own_judges(about, queries)
    yield from built_from_arms(about, queries, list(arms))
    yield from too_perfect(arms)


def own_judges(about: Mapping[str, Any], queries: Sequence[BenchQuery]) -> Iterator[Finding]:
    """Whoever made the questions must not be the one who judged the answers."""
    both = Counter(
        name
        for said in (about, *(query.meta for query in queries))
        for name in {*_names(said.get("generator"))} & {*_names(said.get("judge"))}
    )
    if both:
        said = f"{' and '.join(sorted(both))} made the questions and judged the answers: the labels are no evidence."
        yield Finding(GUARD, Severity.ALARM, said)


def built_from_arms(
    about: Mapping[str, Any], queries: Sequence[BenchQuery], arms: Collection[str]
) -> Iterator[Finding]:
    """A stratum made from an arm's results shows that arm at its best, whatever it is worth."""
    made: set[tuple[str, str]] = set()
    for query in queries:
        given = about.get("built_from")
        of_stratum = given.get(query.type) if isinstance(given, Mapping) else given
        made |= {(query.type, name) for source in (of_stratum, query.meta.get("built_from")) for name in _names(source)}
    for stratum, source in sorted(made):
        measured = [name for name in arms if name.split(":")[0] == source]
        if measured:
            said = f"{stratum} was built from {source}, which is measured on it: there its values are no evidence."
            yield Finding(GUARD, Severity.ALARM, said, measured[0], stratum)


def too_perfect(arms: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """A stratum in which one single arm misses nothing may have been made from it."""
    strata = next(iter(arms.values()))["strata"]
    for stratum, values in strata.items():
        perfect = [name for name, arm in arms.items() if arm["strata"][stratum]["recall@5"] == 1]
        if len(perfect) == 1 < len(arms) and values["n"] >= _MIN_QUESTIONS:
            said = f"{perfect[0]} alone misses nothing in {stratum}: was that made from its results?"
            yield Finding(GUARD, Severity.NOTE, said, perfect[0], stratum)


def _names(value: Any) -> list[str]:
    """One name or several; a value of another shape names nobody."""
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
