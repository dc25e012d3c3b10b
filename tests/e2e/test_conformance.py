"""The official conformance suite against our HTTP application; what it may fail stands in a file with reasons."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.needs("npm")]
HERE = Path(__file__).parent
# How many scenarios of each version of the protocol pass.
PASSED = {"2026-07-28": 38, "2025-11-25": 20}


@pytest.fixture
def url(home: Path) -> Iterator[str]:
    server = subprocess.Popen([sys.executable, str(HERE / "open_server.py")], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("version", PASSED)
def test_the_official_suite(programs: Path, url: str, tmp_path: Path, version: str) -> None:
    command = [programs / "node", programs / "conformance", "server", "--url", url]
    options = ["--suite", "all", "--spec-version", version, "--output-dir", tmp_path / "results"]
    expected = ["--expected-failures", HERE / f"expected-failures-{version}.yml"]
    done = subprocess.run([*command, *options, *expected], capture_output=True, text=True, timeout=300, check=False)
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    assert done.returncode == 0, summary or done.stdout + done.stderr
    # A suite that runs nothing must not be taken for one that finds nothing.
    assert len(re.findall(r"^✓ .*: [1-9]", summary, re.MULTILINE)) == PASSED[version]
