"""Skips tests that need what this machine lacks, and fails a test that is skipped for any other reason.

A test names its needs: `@pytest.mark.needs("pgbouncer")`.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from typing import NamedTuple, NoReturn

import pytest

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


class Need(NamedTuple):
    """What some tests need besides Python and make, and how to see whether this machine has it."""

    description: str
    is_met: Callable[[], bool]


def _has(program: str) -> bool:
    return shutil.which(program) is not None


def _runs(*command: str) -> bool:
    return _has(command[0]) and subprocess.run(command, capture_output=True, check=False).returncode == 0


def _mounts() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        return _runs("mount", "-t", "tmpfs", "tmpfs", folder) and _runs("umount", "--lazy", folder)


NEEDS = {
    "git": Need("git", lambda: _has("git")),
    "strace": Need(
        "strace with the right to watch processes",
        lambda: _runs("strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true"),
    ),
    "mount": Need("the right to mount disks", _mounts),
    "pgbouncer": Need("pgbouncer on the PATH", lambda: _has("pgbouncer")),
    "actionlint": Need("actionlint on the PATH", lambda: _has("actionlint")),
    # The first test that installs from it finds out.
    "pypi": Need("the Python package index", lambda: True),
    "chromium": Need(f"Chromium at {CHROMIUM}", lambda: _has(CHROMIUM)),
    "npm": Need(
        "npm and its registry, on Linux x86-64",
        lambda: _has("npm") and (platform.system(), platform.machine()) == ("Linux", "x86_64"),
    ),
}


@cache
def _is_met(name: str) -> bool:
    return NEEDS[name].is_met()


def skip_without(name: str) -> NoReturn:
    """Skip a test marked with this need, which turned out to be missing."""
    pytest.skip(_reason(name))


def _reason(name: str) -> str:
    return f"needs {NEEDS[name].description}"


def _needs(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("needs") for name in mark.args]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    unmet = [name for name in _needs(item) if not _is_met(name)]
    if unmet:
        skip_without(unmet[0])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        allowed = {f"Skipped: {_reason(name)}" for name in _needs(item)}
        if report.longrepr[2] not in allowed:
            _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.outcome = "failed"
    report.longrepr = f"{report.longrepr[2]}\nOnly a missing need may skip a test, see tests/plugins/needs.py."


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{reason} ({count})")
