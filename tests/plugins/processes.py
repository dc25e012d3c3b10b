"""Fails a test that starts a process without being marked slow, so that `make quick` starts none."""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest

_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
# The test whose setup or call is running and may start no process.
_quick_test: pytest.Item | None = None


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if event in _STARTS and _quick_test is not None:
        pytest.fail(f"{_quick_test.nodeid} starts a process: mark it with pytest.mark.slow")


# Python asks a program once and remembers the answer.
platform.platform()
sys.addaudithook(_refuse)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


# The needs of a test are looked up before: that may start processes.
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _quick_test
    is_slow = any(item.get_closest_marker(mark) for mark in ("slow", "e2e"))
    _quick_test = None if is_slow else item


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    # What others started in the session may end with the last test.
    global _quick_test
    _quick_test = None
