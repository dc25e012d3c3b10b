"""The real Codex and Gemini CLI, each in a home of its own and with a stand-in for its model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import model_stub
import pytest
from model_stub import Model

pytestmark = [pytest.mark.e2e, pytest.mark.needs("npm")]

CODEX = "@openai/codex@0.166.0"
GEMINI = "@google/gemini-cli@0.61.0"
ROOT = Path(__file__).parent.parent.parent
FACT = "The heron project releases through the quay pipeline on Thursdays, never by hand."
QUESTION = "How does the heron project release?"


@dataclass(frozen=True)
class Seat:
    """A user of one client: a home, a repository, and a model that only this machine reaches."""

    program: Path
    folder: Path
    model: Model

    @property
    def user(self) -> Path:
        return self.folder / "user"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.user),
            "PATH": f"{Path(sys.executable).parent}:{self.program.parent}:/usr/local/bin:/usr/bin:/bin",
            "TRISKELE_HOME": str(self.folder / "data"),
            "TRISKELE_PRIVACY_KEY": "file",
            # A machine under load must not decide what these tests see.
            "TRISKELE_HOOK_DEADLINE_MS": "4000",
            "GEMINI_API_KEY": "not-a-key",
            "GOOGLE_GEMINI_BASE_URL": self.model.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            # Whatever wants to leave the machine ends here.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            env=self.environment,
            cwd=self.folder / "heron",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def triskele(self, *arguments: str) -> Any:
        said = self.run(sys.executable, "-P", "-m", "triskele", *arguments, "--json")
        return json.loads(said[said.index("{") : said.rindex("}") + 1])

    def remember(self, text: str) -> str:
        return str(self.triskele("add", text)["id"])

    def ask_codex(self, prompt: str, *options: str) -> str:
        """Say a prompt to Codex; gives what reached the model with it."""
        settings = {
            "model": "stub",
            "model_provider": "stub",
            "model_providers.stub.name": "stub",
            "model_providers.stub.base_url": f"{self.model.url}/v1",
            "model_providers.stub.wire_api": "responses",
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
        self.run(self.program, "exec", "--skip-git-repo-check", *given, *options, prompt)
        return self.model.text

    def ask_gemini(self, prompt: str) -> str:
        """Say a prompt to Gemini CLI; gives what reached the model with it."""
        self.run(self.program, "--skip-trust", "--yolo", "-m", "gemini-2.5-flash", "-p", prompt)
        return self.model.text


@pytest.fixture(scope="session")
def codex_program(npm: Callable[..., Path]) -> Path:
    return _installed(npm, CODEX, "codex")


@pytest.fixture(scope="session")
def gemini_program(npm: Callable[..., Path]) -> Path:
    return _installed(npm, GEMINI, "gemini")


def _installed(npm: Callable[..., Path], package: str, program: str) -> Path:
    return npm(package, into=program) / program


@contextmanager
def _seat(program: Path, folder: Path, *, installs: bool = True) -> Iterator[Seat]:
    """A seat at a client that triskele is installed into."""
    for each in (folder / "user", folder / "heron" / ".git"):
        each.mkdir(parents=True)
    with model_stub.serving() as model:
        seat = Seat(program, folder, model)
        if installs:
            seat.triskele("install", program.name, "--yes")
        yield seat
        stop = [sys.executable, "-m", "triskele", "serve", "--stop"]
        subprocess.run(stop, env=seat.environment, capture_output=True, timeout=60, check=False)


@pytest.fixture
def codex(codex_program: Path, tmp_path: Path) -> Iterator[Seat]:
    with _seat(codex_program, tmp_path) as seat:
        yield seat


@pytest.fixture
def gemini(gemini_program: Path, tmp_path: Path) -> Iterator[Seat]:
    with _seat(gemini_program, tmp_path) as seat:
        # What a user chooses when Gemini CLI first starts.
        settings = seat.user / ".gemini" / "settings.json"
        chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        settings.write_text(json.dumps(json.loads(settings.read_text()) | chosen))
        yield seat


# A busy machine may ask the model before a server is connected.
_ATTEMPTS = 3
TRUSTED = "--dangerously-bypass-hook-trust"
# Without it Codex asks the model before its servers are connected.
CONNECTED = ("-c", "mcp_servers.triskele.required=true")


def test_codex_lists_the_server(codex: Seat) -> None:
    assert re.search(r"^triskele .* enabled ", codex.run(codex.program, "mcp", "list"), re.MULTILINE)


def test_a_memory_reaches_the_model_of_codex_through_trusted_hooks_alone(codex: Seat) -> None:
    id = codex.remember(FACT)
    assert FACT not in codex.ask_codex(QUESTION)
    given = codex.ask_codex(QUESTION, TRUSTED)
    assert FACT in given and id[:6] in given
    assert FACT not in codex.ask_codex("Compute the square root of two to five digits.", TRUSTED)


def test_codex_calls_the_tools(codex: Seat) -> None:
    codex.model.calls("mcp__triskele__memory_store", content=FACT, category="facts")
    codex.ask_codex("Please keep in mind how heron releases.", *CONNECTED)
    assert {f"mcp__triskele__memory_{verb}" for verb in ("store", "recall", "forget", "undo")} <= codex.model.tools
    [stored] = codex.triskele("list")["memories"]
    assert (stored["content"], stored["origin"], stored["project"]) == (FACT, "agent", "heron")


def test_after_uninstalling_codex_knows_nothing_of_it(codex: Seat) -> None:
    codex.remember(FACT)
    codex.triskele("uninstall", "codex")
    assert FACT not in codex.ask_codex(QUESTION, TRUSTED)
    assert "triskele" not in codex.run(codex.program, "mcp", "list").replace(str(codex.folder), "")


def test_codex_plugin_brings_server_hooks_and_skills(codex_program: Path, tmp_path: Path) -> None:
    with _seat(codex_program, tmp_path, installs=False) as codex:
        codex.run(codex.program, "plugin", "marketplace", "add", ROOT)
        codex.run(codex.program, "plugin", "add", "triskele@triskele")
        assert re.search(r"^triskele +triskele +mcp .* enabled ", codex.run(codex.program, "mcp", "list"), re.MULTILINE)
        codex.remember(FACT)
        assert FACT not in codex.ask_codex(QUESTION)
        assert FACT in codex.ask_codex(QUESTION, TRUSTED)
        assert {"triskele:remember", "triskele:recall"} <= set(re.findall(r"triskele:\w+", codex.model.text))
        # The server has the store of the environment, as the hooks do.
        for _ in range(_ATTEMPTS):
            codex.model.calls("mcp__triskele__memory_store", content="The quay has two cranes.", category="facts")
            codex.ask_codex("Please keep in mind what the quay has.")
            if len(codex.triskele("list")["memories"]) == 2:
                return
        pytest.fail("the memory was stored elsewhere")


def test_gemini_connects_and_calls_the_tools(gemini: Seat) -> None:
    assert "mcp (stdio) - Connected" in gemini.run(gemini.program, "mcp", "list")
    gemini.model.calls("mcp_triskele_memory_store", content=FACT, category="facts")
    gemini.ask_gemini("Please keep in mind how heron releases.")
    assert any(tool.endswith("memory_recall") for tool in gemini.model.tools)
    [stored] = gemini.triskele("list")["memories"]
    assert (stored["content"], stored["origin"], stored["project"]) == (FACT, "agent", "heron")
