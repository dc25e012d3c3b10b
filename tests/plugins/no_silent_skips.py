"""Fails a run in which a test was skipped without its reason standing in tests/skips.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

LISTED = Path(__file__).parent.parent / "skips.txt"
SKIPPED: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        SKIPPED.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    unlisted = [nodeid for nodeid in SKIPPED if nodeid not in _listed()]
    if unlisted and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for nodeid in SKIPPED:
        if nodeid not in _listed():
            terminalreporter.write_line(f"skipped, but not listed in tests/skips.txt: {nodeid}", red=True)


def _listed() -> set[str]:
    """Test ids before a `#` and its reason; a line without a reason does not count."""
    lines = LISTED.read_text().splitlines()
    pairs = (line.partition("#") for line in lines if not line.startswith("#"))
    return {nodeid.strip() for nodeid, _, reason in pairs if reason.strip()}
