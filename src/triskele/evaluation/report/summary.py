"""What a benchmark says, in words."""

from __future__ import annotations

from collections.abc import Iterator

from triskele.evaluation.compare import UNDERPOWERED_BELOW
from triskele.evaluation.report.reading import HEADLINE, Group, Reading, Verdict, verdict
from triskele.evaluation.report.wording import (
    INTERVAL,
    chance,
    grouped,
    interval,
    listing,
    metric_name,
    noticeable,
    questions,
    signed,
    value,
)

_FIRST = metric_name(HEADLINE)
_BRACKETS = " (in brackets the smallest difference that would have been noticed)"


def sentence(reading: Reading) -> str:
    """Which arm is best on the headline metric, and how sure that is."""
    overall = reading.groups()[0]
    best = reading.best(overall, HEADLINE)
    top = value(reading.value(best[0], overall, HEADLINE))
    asked = f"On {questions(overall.n)} of {reading.dataset}"
    if not reading.challengers:
        return f"{asked}, {best[0]} reaches {_FIRST} {top}; there is no other arm to compare it with."
    if reading.baseline in best:
        shared = f", shared with {listing(best[1:])}" if len(best) > 1 else ""
        return f"{asked}, no arm ranks better than the baseline {reading.baseline}: {_FIRST} {top}{shared}."
    lead = f"{asked}, {listing(best)} {'ranks' if len(best) == 1 else 'rank'} best: {_FIRST} {top}"
    below = value(reading.value(reading.baseline, overall, HEADLINE))
    return f"{lead} against {below} of the baseline {reading.baseline}, {_sureness(reading, best[0], overall)}."


def _sureness(reading: Reading, arm: str, group: Group) -> str:
    found = reading.comparison(arm, group, HEADLINE)
    if found is None:
        return "which was not tested"
    said = f"{signed(found['delta'])} ({INTERVAL} {interval(found)}, {chance(found['p_holm'])} after Holm)"
    if verdict(found) is Verdict.UNDECIDED:
        return f"but the difference of {said} is not distinguishable from chance ({noticeable(found)})"
    return f"a clear difference of {said}"


def facts(reading: Reading) -> list[str]:
    """What else there is to know, one sentence each."""
    if not reading.challengers:
        return list(_underpowered(reading))
    return [
        *_other_metrics(reading),
        *_kinds(reading),
        *_decided(reading),
        *_undecided(reading),
        *_untested(reading),
        *_underpowered(reading),
    ]


def _other_metrics(reading: Reading) -> Iterator[str]:
    overall = reading.groups()[0]
    others = [metric for metric in reading.metrics() if metric != HEADLINE]
    said = grouped((listing(reading.best(overall, metric)), metric_name(metric)) for metric in others)
    if said:
        yield f"Highest on the other metrics: {said}."


def _kinds(reading: Reading) -> Iterator[str]:
    said = grouped((listing(reading.best(group, HEADLINE)), group.label) for group in reading.kinds())
    if said:
        yield f"Highest {_FIRST} by kind: {said}."


def _decided(reading: Reading) -> Iterator[str]:
    found = reading.verdicts(reading.groups()[0], HEADLINE)
    for wanted in (Verdict.BETTER, Verdict.WORSE):
        names = [name for name, said in found.items() if said is wanted]
        if names:
            yield f"Clearly {wanted} than {reading.baseline} overall, on {_FIRST}: {listing(names)}."


def _undecided(reading: Reading) -> Iterator[str]:
    overall = reading.groups()[0]
    found = [(name, metric) for metric in reading.metrics() for name in _open(reading, overall, metric)]
    said = grouped((name, f"{metric_name(metric)}{_least(reading, name, overall, metric)}") for name, metric in found)
    if said:
        yield f"Not distinguishable from {reading.baseline} overall{_BRACKETS}: {said}."
    kinds = [(name, group) for group in reading.kinds() for name in _open(reading, group, HEADLINE)]
    said = grouped((name, f"{group.label}{_least(reading, name, group, HEADLINE)}") for name, group in kinds)
    if said:
        yield f"Not distinguishable from {reading.baseline} by kind, on {_FIRST}{_BRACKETS}: {said}."


def _least(reading: Reading, name: str, group: Group, metric: str) -> str:
    found = reading.comparison(name, group, metric)
    return "" if found is None or found["mde"] is None else f" ({found['mde']:.3f})"


def _open(reading: Reading, group: Group, metric: str) -> list[str]:
    return [name for name, said in reading.verdicts(group, metric).items() if said is Verdict.UNDECIDED]


def _untested(reading: Reading) -> Iterator[str]:
    """Tests are against the baseline alone: a lead over the second best must not pass for a tested one."""
    overall = reading.groups()[0]
    values = {name: reading.value(name, overall, HEADLINE) or 0.0 for name in reading.challengers}
    best, *others = sorted(values, key=lambda name: -values[name])
    behind = next((name for name in others if values[name] < values[best]), None)
    if behind is not None:
        yield (
            f"Every test is against {reading.baseline}: the lead of {best} over {behind}, "
            f"{values[best] - values[behind]:.3f} on {_FIRST}, is not tested."
        )


def _underpowered(reading: Reading) -> Iterator[str]:
    small = [f"{group.label} ({group.n})" for group in reading.groups() if group.is_underpowered]
    if small:
        yield f"Underpowered, with fewer than {UNDERPOWERED_BELOW} questions: {listing(small)}."
