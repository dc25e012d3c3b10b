"""Work within its time, or not at all."""

from __future__ import annotations

import threading

import pytest

from triskele.models.deadlines import within


def test_the_result_and_the_error_of_the_work_come_through() -> None:
    assert within(30, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(30, lambda: 1 // 0)


@pytest.mark.parametrize("seconds", [0.02, 0.0, -1.0])
def test_work_that_takes_longer_is_left_behind(seconds: float) -> None:
    gate, done = threading.Event(), threading.Event()

    def work() -> None:
        gate.wait(30)
        done.set()

    with pytest.raises(TimeoutError):
        within(seconds, work)
    gate.set()
    assert done.wait(30), "it ends by itself"
