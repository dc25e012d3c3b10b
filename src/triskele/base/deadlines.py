"""Work that may take only so long: when its time is up it is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Given = TypeVar("Given")


def within(seconds: float, work: Callable[[], Given]) -> Given:
    """What the work gives, or TimeoutError; work left behind ends by itself and nobody hears of it."""
    # A thread, because neither a name lookup nor a model's run can be interrupted from inside.
    result: Future[Given] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="triskele-deadline", daemon=True).start()
    return result.result(timeout=max(0.0, seconds))
