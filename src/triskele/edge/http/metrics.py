"""Counters and latencies in the text format of Prometheus."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from triskele.errors import TriskeleError
from triskele.replies import Statistics

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# From a lookup in memory to a hosted model that hesitates.
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONFIDENCE = "triskele_recall_confidence"
_BOUNDS = {CONFIDENCE: (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)}
_COUNTED_S = 30.0
_NUMBERS: Mapping[str, Callable[[Statistics], int]] = {
    "triskele_embed_waiting": attrgetter("jobs.embed"),
    "triskele_names_waiting": attrgetter("jobs.names"),
    "triskele_memories": attrgetter("memories"),
    "triskele_store_bytes": attrgetter("bytes"),
}
_HELP = {
    "triskele_requests_total": "Requests by operation and status.",
    "triskele_request_seconds": "Time to serve a request, by operation.",
    "triskele_recall_seconds": "Time of recalls, by step (`leg`); `all`: everything.",
    CONFIDENCE: "Confidence of recalls, from 0 to 1.",
    "triskele_prompts_total": "Prompts of agents that got memories or nothing (`result`).",
    "triskele_store_seconds": "Time to store, edit, link, forget or undo.",
    "triskele_inject_seconds": "Time to answer a hook of an agent.",
    "triskele_errors_total": "Requests that failed, by kind of error.",
    "triskele_embed_waiting": "Contents that wait for their vectors, over the open memories.",
    "triskele_names_waiting": "Versions whose names wait to be read, over the open memories.",
    "triskele_memories": "Stored memories, over the open memories.",
    "triskele_store_bytes": "Bytes that the open memories take in the store.",
    "triskele_engines_open": "Users whose memory is open in this process.",
}

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Histogram:
    bounds: Sequence[float]
    counts: list[int]
    total: float = 0.0


class Metrics:
    """The counts of one process; safe for threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._counters: dict[str, Counter[Labels]] = defaultdict(Counter)
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter."""
        with self._mutex:
            self._counters[name][tuple(sorted(labels.items()))] += 1

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add one duration in seconds, or one confidence, to a histogram."""
        key, bounds = tuple(sorted(labels.items())), _BOUNDS.get(name, _BOUNDS_S)
        with self._mutex:
            histogram = self._histograms[name].setdefault(key, _Histogram(bounds, [0] * (len(bounds) + 1)))
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.total += value

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
                    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
                        below += count
                        lines.append(f"{name}_bucket{_written((*labels, ('le', bound)))} {below}")
                    lines.append(f"{name}_sum{_written(labels)} {histogram.total:.6f}")
                    lines.append(f"{name}_count{_written(labels)} {below}")
        for name, value in gauges.items():
            lines += [*_header(name, "gauge"), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


class Gauges:
    """The sizes and queues of the open memories, read from the store."""

    def __init__(self, memories: Callable[[], Sequence[LocalEngine]]) -> None:
        self._memories = memories
        self._counts: list[Statistics] = []
        self._read_at = -math.inf

    def read(self) -> dict[str, float]:
        """The gauges of the last half minute, without numbers of a store that fails."""
        memories = self._memories()
        gauges: dict[str, float] = {"triskele_engines_open": len(memories)}
        with suppress(TriskeleError, OSError):
            # Counting every row of large memories takes seconds.
            if time.monotonic() - self._read_at >= _COUNTED_S:
                self._counts = [memory.stats() for memory in memories]
                self._read_at = time.monotonic()
            gauges |= {name: sum(map(number, self._counts)) for name, number in _NUMBERS.items()}
        return gauges


def _header(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]


def _written(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
