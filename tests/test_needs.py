"""A missing need skips a test and the run passes; every other skip fails the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PLUGINS = Path(__file__).parent / "plugins"
NEEDS_GIT = "import pytest\n@pytest.mark.needs('git')\ndef test_it():\n    assert True\n"
OTHER_SKIPS = {
    "call": "def test_it():\n    pytest.skip('later')",
    "mark": "@pytest.mark.skip\ndef test_it():\n    pass",
    "condition": "@pytest.mark.skipif(True, reason='needs git')\ndef test_it():\n    pass",
    "import": "pytest.importorskip('no_such_module')\ndef test_it():\n    pass",
    "module": "pytest.skip('needs git', allow_module_level=True)",
    "without a mark": "def test_it():\n    needs.skip_without('git')",
    "marked with another need": "@pytest.mark.needs('git')\ndef test_it():\n    needs.skip_without('strace')",
    "unknown need": "@pytest.mark.needs('unknown')\ndef test_it():\n    pass",
}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs pytest with the plugin on one test file; the machine has only the programs in `bin`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(name)\n")

    def run_file(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_file.py").write_text(text)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "needs", *options]
        environ = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(PLUGINS), "HOME": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)

    return run_file


@pytest.fixture
def git(tmp_path: Path, run: Run) -> None:
    """Adds git to the machine."""
    (tmp_path / "bin" / "git").touch(mode=0o755)


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_missing_need_skips_and_is_counted(run: Run, options: tuple[str, ...]) -> None:
    ran = run(NEEDS_GIT + "def test_other():\n    pass\n", *options)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed, 1 skipped" in ran.stdout
    assert "Skipped: needs git (1)" in ran.stdout


def test_need_that_the_machine_has_skips_nothing(run: Run, git: None) -> None:
    ran = run(NEEDS_GIT)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout


def test_need_missed_by_a_fixture_skips(run: Run, git: None) -> None:
    fixture = "import needs\n@pytest.fixture\ndef program():\n    needs.skip_without('git')\n"
    ran = run(NEEDS_GIT.replace("test_it()", "test_it(program)") + fixture)
    assert (ran.returncode, "1 skipped" in ran.stdout) == (0, True), ran.stdout


@pytest.mark.parametrize(
    ("skip", "options"), [(skip, ()) for skip in OTHER_SKIPS] + [("call", ("-n", "1")), ("import", ("-n", "1"))]
)
def test_other_skip_fails(run: Run, git: None, skip: str, options: tuple[str, ...]) -> None:
    ran = run(f"import needs\nimport pytest\n{OTHER_SKIPS[skip]}\n", *options)
    assert ran.returncode in {1, 2}, ran.stdout
    assert "1 error" in ran.stdout or "1 failed" in ran.stdout
    assert "INTERNALERROR" not in ran.stdout
