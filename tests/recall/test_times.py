"""The time that a query asks for: candidates inside it count in full, those near it less."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from triskele.index.corpus import Facts
from triskele.recall import evidence
from triskele.text import periods, timestamps

NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


def facts(*moments: datetime | None) -> Facts:
    count = len(moments)
    none = np.full(count, -1, dtype=np.int64)
    known = [0 if moment is None else timestamps.to_micros(moment) for moment in moments]
    return Facts(
        is_visible=np.ones(count, dtype=np.bool_),
        importance=np.zeros(count, dtype=np.float32),
        sessions=none,
        neighbours=np.zeros((count, 0), dtype=np.int64),
        speakers=none,
        roles=none,
        times=np.array(known, dtype=np.int64),
    )


def shares(text: str, *moments: datetime | None) -> list[float] | None:
    found = evidence.by_time(periods.question_period(text, NOW), facts(*moments))
    return None if found is None else found.tolist()


def test_a_query_without_a_time_prefers_none() -> None:
    assert shares("Where does Ann live?", NOW) is None


def test_inside_the_period_counts_in_full_and_no_time_counts_nothing() -> None:
    inside = datetime(2025, 7, 10, tzinfo=UTC)
    assert shares("What broke in July 2025?", inside, None) == [1.0, 0.0]


def test_evidence_falls_with_the_distance_from_the_period() -> None:
    day = datetime(2025, 7, 10, 12, tzinfo=UTC)
    found = shares("What broke on 10 July 2025?", *(day + timedelta(days=days) for days in (0, 3, -3, 30)))
    assert found is not None
    inside, after, before, far = found
    assert inside == 1.0 > after > far
    assert after == pytest.approx(before, abs=0.05)
    assert far < 0.05
