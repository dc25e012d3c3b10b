"""The MCP Inspector as a client, over standard streams and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.needs("npm"), pytest.mark.timeout(400)]
TRISKELE = Path(sys.executable).with_name("triskele")
TOOLS = 14


class Inspector:
    """Runs the command line of the Inspector against one server."""

    def __init__(self, programs: Path, *server: str) -> None:
        self._command = [str(programs / "node"), str(programs / "mcp-inspector"), "--cli", *server]

    def ask(self, method: str, *options: str) -> Any:
        command = [*self._command, "--method", method, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def call(self, tool: str, **arguments: str) -> Any:
        pairs = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
        answer = self.ask("tools/call", "--tool-name", tool, *pairs)
        assert not answer["isError"], answer
        return answer["structuredContent"]


def check(inspector: Inspector) -> None:
    assert len(inspector.ask("tools/list", "--strict")["tools"]) == TOOLS
    stored = inspector.call("memory_store", content="We deploy with Argo CD, not Helm hooks")
    found = inspector.call("memory_recall", query="how do we deploy?")
    assert [hit["id"] for hit in found["hits"]] == [stored["id"]]
    assert inspector.ask("prompts/list")["prompts"] and inspector.ask("resources/list")["resources"]


def stop() -> None:
    subprocess.run([TRISKELE, "serve", "--stop"], capture_output=True, timeout=30, check=False)


def test_over_standard_streams(programs: Path, home: Path) -> None:
    # The Inspector hands a server nothing of its environment but what it is told to.
    given = ["-e", f"TRISKELE_HOME={home}", "-e", "TRISKELE_PRIVACY_KEY=file"]
    try:
        check(Inspector(programs, *given, str(TRISKELE), "mcp"))
    finally:
        stop()


@pytest.fixture
def resident(home: Path) -> Iterator[dict[str, str]]:
    command = [str(TRISKELE), "serve", "--http", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        said = ""
        while not said.rstrip().endswith("}"):
            line = served.stdout.readline()
            assert line, "the resident ended"
            said += line
        yield json.loads(said)
        stop()


def test_over_http_with_the_token(programs: Path, resident: dict[str, str]) -> None:
    token = Path(resident["token_file"]).read_text().strip()
    header = f"Authorization: Bearer {token}"
    check(Inspector(programs, f"{resident['http']}/mcp", "--header", header))
