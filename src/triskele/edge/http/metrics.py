"""Counters and latencies in the text format of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a lookup in memory to a hosted model that hesitates.
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HELP = {
    "triskele_requests_total": "Requests by operation and status.",
    "triskele_request_seconds": "Time to serve a request, by operation.",
    "triskele_recall_seconds": "Time of recalls, by step (`leg`); `all`: everything.",
    "triskele_store_seconds": "Time to store, edit, link, forget or undo.",
    "triskele_inject_seconds": "Time to answer a hook of an agent.",
    "triskele_errors_total": "Requests that failed, by kind of error.",
    "triskele_embed_waiting": "Contents that wait for their vectors, over the open memories.",
    "triskele_engines_open": "Memories that are open in this process.",
}

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    total_s: float = 0.0


class Metrics:
    """The counts of one process; safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = {}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {}

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter."""
        with self._mutex:
            series = self._counters.setdefault(name, {})
            key = tuple(sorted(labels.items()))
            series[key] = series.get(key, 0) + 1

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add one duration to a histogram."""
        with self._mutex:
            histogram = self._histograms.setdefault(name, {}).setdefault(tuple(sorted(labels.items())), _Histogram())
            histogram.counts[bisect_left(_BOUNDS_S, seconds)] += 1
            histogram.total_s += seconds

    def render(self, gauges: Mapping[str, float]) -> str:
        """All series, with some values of this moment."""
        lines: list[str] = []
        with self._mutex:
            for name, counts in sorted(self._counters.items()):
                lines += _header(name, "counter")
                lines += [f"{name}{_written(labels)} {count}" for labels, count in sorted(counts.items())]
            for name, histograms in sorted(self._histograms.items()):
                lines += _header(name, "histogram")
                for labels, histogram in sorted(histograms.items()):
                    below = 0
                    for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), histogram.counts, strict=True):
                        below += count
                        lines.append(f"{name}_bucket{_written((*labels, ('le', bound)))} {below}")
                    lines.append(f"{name}_sum{_written(labels)} {histogram.total_s:.6f}")
                    lines.append(f"{name}_count{_written(labels)} {below}")
        for name, value in gauges.items():
            lines += [*_header(name, "gauge"), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _header(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
