"""Every line of README.md works as printed, from an empty home folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from triskele import config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "site" / "python.md").read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRISKELE_", "XDG_"))}
    (tmp_path / "home").mkdir()
    (tmp_path / "shop").mkdir()
    program = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    # No background process may outlive the test, and no keyring of this machine may be asked.
    own = {"TRISKELE_AGENTS_BACKGROUND": "false", "TRISKELE_PRIVACY_KEY": "file"}
    return {**kept, **own, "HOME": str(tmp_path / "home"), "PATH": program}


def test_the_lines_for_a_terminal(environ: dict[str, str], tmp_path: Path) -> None:
    script = "set -e\n" + "\n".join(_blocks(README, "sh"))
    try:
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path / "shop", env=environ, capture_output=True, text=True, timeout=240
        )
    finally:
        subprocess.run(["triskele", "serve", "--stop"], env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    first = done.stdout[: done.stdout.index("recall took")]
    assert "through Argo CD" in first and "No good match" not in first
    assert (tmp_path / "shop" / "memories.jsonl").exists()


@pytest.mark.parametrize("text", [README, PYTHON], ids=["README.md", "docs/site/python.md"])
def test_the_lines_in_python(environ: dict[str, str], tmp_path: Path, text: str) -> None:
    [code] = _blocks(text, "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "shop", env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "through Argo CD" in done.stdout


def test_the_settings_are_settings(tmp_path: Path) -> None:
    for number, block in enumerate(_blocks(README, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_CONFIG": str(file)})


def test_the_table_names_what_exists() -> None:
    from triskele.edge.cli.main import COMMANDS
    from triskele.edge.mcp import registry
    from triskele.engine.local import LocalEngine

    table = README[README.index("| in words |") : README.index("What a memory, a project")]
    rows = [line.split(" | ") for line in table.splitlines()[2:] if line]
    assert len(rows) >= 12
    tools = Path(registry.__file__).read_text(encoding="utf-8")
    for _, command, python, tool in rows:
        assert command.strip("`").split()[0] in COMMANDS
        method = re.search(r"memory\.(\w+)\(", python)
        assert method is not None and hasattr(LocalEngine, method[1])
        assert "–" in tool or ((found := re.search(r"memory_\w+", tool)) is not None and found[0] in tools)


def test_links_lead_to_files() -> None:
    for name in ("README.md", "docs/site/concepts.md", "docs/site/python.md", "docs/architecture.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"
