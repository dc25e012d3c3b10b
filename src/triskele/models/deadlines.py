"""Work with a time limit, after which the caller stops waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Given = TypeVar("Given")


def within(seconds: float, work: Callable[[], Given]) -> Given:
    """The result of the work, or TimeoutError; its thread continues."""
    # A thread, because neither a DNS lookup nor a model's run can be interrupted.
    result: Future[Given] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="triskele-deadline", daemon=True).start()
    return result.result(timeout=max(0.0, seconds))


class Limited:
    """Bounds the work that continues after its time is up."""

    def __init__(self, most: int) -> None:
        self._free = threading.BoundedSemaphore(most)

    def __call__(self, seconds: float, work: Callable[[], Given]) -> Given:
        """The result of the work, or TimeoutError."""
        if not self._free.acquire(blocking=False):
            raise TimeoutError

        def run() -> Given:
            try:
                return work()
            finally:
                self._free.release()

        return within(seconds, run)
