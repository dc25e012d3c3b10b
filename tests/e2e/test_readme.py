"""Every line of README.md and of the site works as printed, from an empty home folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

from triskele import config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
REPOSITORY = "https://github.com/triskele/triskele/"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "site").glob("*.md"))]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}


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


def _with(language: str) -> list[str]:
    return [name for name, text in TEXTS.items() if _blocks(text, language)]


@pytest.mark.parametrize("name", _with("sh"))
def test_the_lines_for_a_terminal(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    script = "set -e\n" + "\n".join(_blocks(TEXTS[name], "sh"))
    try:
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path / "shop", env=environ, capture_output=True, text=True, timeout=240
        )
    finally:
        subprocess.run(["triskele", "serve", "--stop"], env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if "recall took" in done.stdout:
        first = done.stdout[: done.stdout.index("recall took")]
        assert "through Argo CD" in first and "No good match" not in first
    assert (tmp_path / "shop" / "memories.jsonl").exists() == (name in ("terminal.md", "moving.md"))


@pytest.mark.parametrize("name", _with("python"))
def test_the_lines_in_python(environ: dict[str, str], tmp_path: Path, name: str) -> None:
    [code] = _blocks(TEXTS[name], "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "shop", env=environ, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "through Argo CD" in done.stdout


def test_the_settings_are_settings(tmp_path: Path) -> None:
    blocks = [block for text in TEXTS.values() for block in _blocks(text, "toml")]
    assert blocks
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_CONFIG": str(file)})


def test_commands_in_the_text_exist() -> None:
    from triskele.edge.cli.main import COMMANDS

    for name, text in TEXTS.items():
        for command in re.findall(r"(?:^    |`)triskele ([a-z][a-z-]+)", text, re.MULTILINE):
            assert command in COMMANDS, f"{name} names the command {command}"


def test_the_table_names_what_exists() -> None:
    from triskele.edge.cli.main import COMMANDS
    from triskele.edge.mcp import registry
    from triskele.engine.local import LocalEngine

    _, _, table = TEXTS["terminal.md"].partition("| task |")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert len(rows) >= 12
    tools = Path(registry.__file__).read_text(encoding="utf-8")
    for _, command, python, tool in rows:
        assert command.strip("`").split()[0] in COMMANDS
        method = re.search(r"memory\.(\w+)\(", python)
        assert method is not None and hasattr(LocalEngine, method[1])
        assert "–" in tool or ((found := re.search(r"memory_\w+", tool)) is not None and found[0] in tools)


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"], ids=attrgetter("name")
)
def test_links_lead_to_files(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (path.parent / target).exists(), f"{path} links to {target}"
    for target in re.findall(rf"{REPOSITORY}(?:blob|tree)/main/([^)#\s]+)", text):
        assert (ROOT / target).exists(), f"{path} links to {target}"


def test_pages_are_short_and_all_of_them_are_on_the_site() -> None:
    counts = {name: len(text.split()) for name, text in TEXTS.items()}
    assert counts.pop("README.md") <= 600
    assert max(counts.values()) <= 1500, counts
    assert set(counts) == set(re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))


def test_demo_stands_within_the_first_words_of_the_readme() -> None:
    assert "make demo" in " ".join(TEXTS["README.md"].split()[:60])
