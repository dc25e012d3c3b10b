"""A test starts a process only if it is marked slow."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_starting_a_process_fails_a_quick_test() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"starts a process: mark it with pytest\.mark\.slow"):
        subprocess.run([sys.executable, "--version"], check=True)


@pytest.mark.slow
def test_slow_test_starts_processes() -> None:
    assert subprocess.run([sys.executable, "-c", "pass"], check=False).returncode == 0
