"""Values of a report: formats of numbers, groups, comparisons, sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triskele.bench.comparison import COMPARED, UNDERPOWERED_BELOW, Decision, decision

_METRICS = {"ndcg@10": "nDCG@10", "mrr": "MRR", "map": "MAP", "recall_all@5": "all@5", "recall_any@5": "any@5"}
_LISTED = 6

INTERVAL = "95\u00a0% interval"

MEANINGS = {
    "ndcg@10": "how high the relevant memories rank among the first ten; 1 is perfect",
    "recall@5": "the share of the relevant memories among the first five",
    "recall@10": "the share of the relevant memories among the first ten",
    "recall_all@5": "how often every relevant memory is among the first five",
    "recall_any@5": "how often at least one relevant memory is among the first five",
    "mrr": "one over the rank of the first relevant memory",
    "map": "the precision at each relevant memory, averaged",
}
HEADLINE = "ndcg@10"
LEADING = "default"
OVERALL = "overall"
_MAX_OVERLAPS = 4
_HALF = "half:"
_FIRST = _METRICS[HEADLINE]
_BRACKETS = " (in brackets the smallest detectable difference)"


def metric_name(metric: str) -> str:
    """The usual spelling of a metric."""
    return _METRICS.get(metric, metric)


def value(number: float | None) -> str:
    """The value of a metric."""
    return "–" if number is None else f"{number:.3f}"


def signed(number: float, digits: int = 3) -> str:
    """A difference with its sign; one that rounds to zero has none."""
    text = f"{abs(number):.{digits}f}"
    if not float(text):
        return text
    return f"{'+' if number > 0 else '−'}{text}"


def interval(comparison: Mapping[str, Any]) -> str:
    """The 95 % interval of a difference."""
    low, high = comparison["ci95"]
    return f"{signed(low)} to {signed(high)}"


def detectable(comparison: Mapping[str, Any]) -> str:
    """The smallest detectable difference, shown with every undecided comparison."""
    smallest = comparison["mde"]
    return "detects nothing" if smallest is None else f"detects\u00a0≥\u00a0{smallest:.3f}"


def p_value(p: float) -> str:
    """A p value."""
    return "p\u00a0<\u00a00.001" if p < 0.001 else f"p\u00a0=\u00a0{p:.3f}"


def listing(names: Sequence[str]) -> str:
    """Names as a phrase; a long list is cut."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def grouped(pairs: Iterable[tuple[str, str]]) -> str:
    """Pairs as a phrase: "a on x and y; b on z"."""
    items_of: dict[str, list[str]] = {}
    for name, item in pairs:
        items_of.setdefault(name, []).append(item)
    return "; ".join(f"{name} on {listing(items)}" for name, items in items_of.items())


def questions(count: int) -> str:
    """A number of questions, with the right plural."""
    return f"{count:,} question{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of questions: all of them, one type, or one half."""

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
class ReportView:
    """Names and look-ups over a report."""

    dataset: str
    manifest: Mapping[str, Any]
    arms: Mapping[str, Mapping[str, Any]]
    baseline: str
    compared: Mapping[tuple[str, str, str], Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    abstention: Mapping[str, Mapping[str, Any]]

    @staticmethod
    def of(report: Mapping[str, Any]) -> ReportView:
        """View a report; the baseline is what the arms were compared with."""
        compared = {(each["a"], each["stratum"], each["metric"]): each for each in report["comparisons"]}
        baseline = next((each["b"] for each in report["comparisons"]), next(iter(report["arms"])))
        return ReportView(
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
        """The arm whose per-query changes are shown: the default or last."""
        return LEADING if LEADING in self.challengers else next(reversed(self.challengers), None)

    @property
    def has_legs(self) -> bool:
        """Whether any arm has legs."""
        return any(arm["legs"]["legs"] for arm in self.arms.values())

    def overlaps(self) -> Iterator[tuple[str, str]]:
        """Which legs share their top results, by arm, most frequent first."""
        for name, arm in self.arms.items():
            shares = sorted(arm["legs"]["overlap"].items(), key=lambda item: (-item[1], item[0]))
            if len(arm["legs"]["legs"]) > 1:
                yield name, ", ".join(f"{by.replace('+', ' and ')} {share:.0%}" for by, share in shares[:_MAX_OVERLAPS])

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
        """The kinds of questions."""
        return [group for group in self.groups() if group.key != OVERALL and not group.is_half]

    def metrics(self) -> list[str]:
        """The compared metrics that the report has, the headline first."""
        measured = [metric for metric in COMPARED if metric in self.arms[self.baseline]["overall"]]
        return sorted(measured, key=lambda metric: metric != HEADLINE)

    def value(self, arm: str, group: Group, metric: str) -> float | None:
        """An arm's mean over a group."""
        summary = self.arms[arm]
        if group.is_half:
            figures = summary["halves"][group.key.removeprefix(_HALF)]
        else:
            figures = summary["overall"] if group.key == OVERALL else summary["strata"][group.key]
        number: float | None = figures[metric]
        return number

    def best(self, group: Group, metric: str) -> list[str]:
        """The arms with the highest value; empty if nothing was measured."""
        values = {name: self.value(name, group, metric) for name in self.arms}
        numbers = [number for number in values.values() if number is not None]
        return [name for name, number in values.items() if numbers and number == max(numbers)]

    def comparison(self, arm: str, group: Group, metric: str) -> Mapping[str, Any] | None:
        """Comparison of an arm with the baseline, if it was tested."""
        return self.compared.get((arm, group.key, metric))

    def decisions(self, group: Group, metric: str) -> dict[str, Decision]:
        """The decision about each arm that was tested."""
        tested = {name: self.comparison(name, group, metric) for name in self.challengers}
        return {name: decision(each) for name, each in tested.items() if each is not None}


def sentence(view: ReportView) -> str:
    """The best arm on the headline metric, and whether it clearly leads."""
    overall = view.groups()[0]
    best = view.best(overall, HEADLINE)
    top = value(view.value(best[0], overall, HEADLINE))
    scope = f"On {questions(overall.n)} of {view.dataset}"
    if not view.challengers:
        return f"{scope}, {best[0]} reaches {_FIRST} {top}; there is no other arm to compare it with."
    if view.baseline in best:
        shared = f", shared with {listing(best[1:])}" if len(best) > 1 else ""
        return f"{scope}, no arm ranks better than the baseline {view.baseline}: {_FIRST} {top}{shared}."
    lead = f"{scope}, {listing(best)} {'ranks' if len(best) == 1 else 'rank'} best: {_FIRST} {top}"
    below = value(view.value(view.baseline, overall, HEADLINE))
    return f"{lead} against {below} of the baseline {view.baseline}, {_significance(view, best[0], overall)}."


def _significance(view: ReportView, arm: str, group: Group) -> str:
    row = view.comparison(arm, group, HEADLINE)
    if row is None:
        return "which was not tested"
    text = f"{signed(row['delta'])} ({INTERVAL} {interval(row)}, {p_value(row['p_holm'])} after Holm)"
    if decision(row) is Decision.UNDECIDED:
        return f"but the difference of {text} is not distinguishable from chance ({detectable(row)})"
    return f"a clear difference of {text}"


def facts(view: ReportView) -> list[str]:
    """Further facts, one sentence each."""
    if not view.challengers:
        return list(_underpowered(view))
    return [
        *_highest(view),
        *_decided(view),
        *_undecided(view),
        *_untested(view),
        *_underpowered(view),
    ]


def _highest(view: ReportView) -> Iterator[str]:
    overall = view.groups()[0]
    metrics = [metric for metric in view.metrics() if metric != HEADLINE]
    if text := grouped((listing(view.best(overall, metric)), metric_name(metric)) for metric in metrics):
        yield f"Highest on the other metrics: {text}."
    if text := grouped((listing(view.best(group, HEADLINE)), group.label) for group in view.kinds()):
        yield f"Highest {_FIRST} by kind: {text}."


def _decided(view: ReportView) -> Iterator[str]:
    decisions = view.decisions(view.groups()[0], HEADLINE)
    for wanted in (Decision.BETTER, Decision.WORSE):
        names = [name for name, decided in decisions.items() if decided is wanted]
        if names:
            yield f"Clearly {wanted} than {view.baseline} overall, on {_FIRST}: {listing(names)}."


def _undecided(view: ReportView) -> Iterator[str]:
    overall = view.groups()[0]
    pairs = [(name, metric) for metric in view.metrics() for name in _open(view, overall, metric)]
    text = grouped((name, f"{metric_name(metric)}{_least(view, name, overall, metric)}") for name, metric in pairs)
    if text:
        yield f"Not distinguishable from {view.baseline} overall{_BRACKETS}: {text}."
    kinds = [(name, group) for group in view.kinds() for name in _open(view, group, HEADLINE)]
    text = grouped((name, f"{group.label}{_least(view, name, group, HEADLINE)}") for name, group in kinds)
    if text:
        yield f"Not distinguishable from {view.baseline} by kind, on {_FIRST}{_BRACKETS}: {text}."


def _least(view: ReportView, name: str, group: Group, metric: str) -> str:
    row = view.comparison(name, group, metric)
    return "" if row is None or row["mde"] is None else f" ({row['mde']:.3f})"


def _open(view: ReportView, group: Group, metric: str) -> list[str]:
    return [name for name, decided in view.decisions(group, metric).items() if decided is Decision.UNDECIDED]


def _untested(view: ReportView) -> Iterator[str]:
    """Say that a lead over the second best is not tested."""
    overall = view.groups()[0]
    values = {name: view.value(name, overall, HEADLINE) or 0.0 for name in view.challengers}
    best, *rest = sorted(values, key=lambda name: -values[name])
    behind = next((name for name in rest if values[name] < values[best]), None)
    if behind is not None:
        yield (
            f"Every test is against {view.baseline}: the lead of {best} over {behind}, "
            f"{values[best] - values[behind]:.3f} on {_FIRST}, is not tested."
        )


def _underpowered(view: ReportView) -> Iterator[str]:
    small = [f"{group.label} ({group.n})" for group in view.groups() if group.is_underpowered]
    if small:
        yield f"Underpowered, with fewer than {UNDERPOWERED_BELOW} questions: {listing(small)}."
