"""A report as the page reads it: arms, groups of questions, and what was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from triskele.evaluation.compare import COMPARED, UNDERPOWERED_BELOW

HEADLINE = "ndcg@10"
LEADING = "default"
OVERALL = "overall"
_ALPHA = 0.05
_HALF = "half:"


class Verdict(StrEnum):
    """What a comparison decides."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Group:
    """Some of the questions: all of them, those of one kind, or one half."""

    key: str
    label: str
    n: int

    @property
    def is_underpowered(self) -> bool:
        """Whether it is too small to decide anything but large differences."""
        return self.n < UNDERPOWERED_BELOW

    @property
    def is_half(self) -> bool:
        """Whether it is one of the two halves."""
        return self.key.startswith(_HALF)


@dataclass(frozen=True, slots=True)
class Reading:
    """Names and look-ups over a report."""

    dataset: str
    manifest: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    baseline: str
    compared: Mapping[tuple[str, str, str], Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    abstention: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def of(report: Mapping[str, Any]) -> Reading:
        """The reading of a report; the baseline is what the arms were compared with, or else the first arm."""
        compared = {(each["a"], each["stratum"], each["metric"]): each for each in report["comparisons"]}
        baseline = next((each["b"] for each in report["comparisons"]), next(iter(report["arms"])))
        return Reading(
            dataset=report["dataset"],
            manifest=report["manifest"],
            arms=report["arms"],
            baseline=baseline,
            compared=compared,
            findings=report["guards"]["findings"],
            abstention=report.get("abstention", {}),
        )

    @property
    def challengers(self) -> list[str]:
        """The arms that are compared with the baseline."""
        return [name for name in self.arms if name != self.baseline]

    @property
    def leading(self) -> str | None:
        """The arm that the page follows query by query: the default, or else the last one."""
        return LEADING if LEADING in self.challengers else next(reversed(self.challengers), None)

    @property
    def n(self) -> int:
        """How many questions were measured."""
        return int(self.arms[self.baseline]["overall"]["n"])

    def groups(self) -> list[Group]:
        """All questions, each kind where there are several, and the halves."""
        arm = self.arms[self.baseline]
        kinds = arm["strata"] if len(arm["strata"]) > 1 else {}
        return [
            Group(OVERALL, "all questions", self.n),
            *(Group(name, name, kind["n"]) for name, kind in kinds.items()),
            *(Group(f"{_HALF}{name}", f"{name} half", part["n"]) for name, part in arm["halves"].items()),
        ]

    def kinds(self) -> list[Group]:
        """The kinds of questions alone."""
        return [group for group in self.groups() if group.key != OVERALL and not group.is_half]

    def metrics(self) -> list[str]:
        """The compared metrics that the report has, the headline first."""
        known = [metric for metric in COMPARED if metric in self.arms[self.baseline]["overall"]]
        return sorted(known, key=lambda metric: metric != HEADLINE)

    def value(self, arm: str, group: Group, metric: str) -> float | None:
        """An arm's mean over a group."""
        summary = self.arms[arm]
        if group.is_half:
            found = summary["halves"][group.key.removeprefix(_HALF)]
        else:
            found = summary["overall"] if group.key == OVERALL else summary["strata"][group.key]
        number: float | None = found[metric]
        return number

    def best(self, group: Group, metric: str) -> list[str]:
        """The arms with the highest value; none where nothing was measured."""
        values = {name: self.value(name, group, metric) for name in self.arms}
        known = [number for number in values.values() if number is not None]
        return [name for name, number in values.items() if known and number == max(known)]

    def comparison(self, arm: str, group: Group, metric: str) -> Mapping[str, Any] | None:
        """How an arm compares with the baseline, if that was tested."""
        return self.compared.get((arm, group.key, metric))

    def verdicts(self, group: Group, metric: str) -> dict[str, Verdict]:
        """What is decided about each arm that was tested."""
        tested = {name: self.comparison(name, group, metric) for name in self.challengers}
        return {name: verdict(each) for name, each in tested.items() if each is not None}


def verdict(comparison: Mapping[str, Any]) -> Verdict:
    """Better or worse only where the corrected p is small and the interval leaves out zero."""
    low, high = comparison["ci95"]
    if comparison["p_holm"] >= _ALPHA or low <= 0 <= high:
        return Verdict.UNDECIDED
    return Verdict.BETTER if comparison["delta"] > 0 else Verdict.WORSE
