"""Install a wheel into empty environments and use it as a new user would.

    python scripts/check_wheel.py WHEEL [--python PROGRAM] [--extras code demo keyring postgres hub]

Demo, add, recall, hook and MCP run with the wheel alone; then each extra gets an environment and a use of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FACT = "The heron project releases through the quay pipeline on Thursdays, never by hand."
QUESTION = "How does the heron project release?"
_LIMIT_S = 900
_THROW_AWAY = """
import triskele
from triskele.server.demo import running_postgres
with running_postgres() as url, triskele.open(url) as memory:
    memory.remember("The quay pipeline runs on Thursdays")
    assert memory.recall("quay pipeline").hits
"""
# What uses an extra, and the exit status of that; the address has no server, so the driver says that.
USES: dict[str, tuple[list[str], int]] = {
    "code": (["-m", "triskele", "code", "index", ".", "--json"], 0),
    "demo": (["-c", _THROW_AWAY], 0),
    "hub": (["-c", "import sentence_transformers"], 0),
    "keyring": (["-c", "import keyring"], 0),
    "postgres": (["-m", "triskele", "stats", "--store", "postgresql://127.0.0.1:9/none"], 3),
}
# The throw-away database is reached over a unix socket.
USUAL = [name for name in USES if name != "hub" and (name != "demo" or sys.platform != "win32")]


@dataclass(frozen=True)
class Environment:
    """An environment that holds the wheel, a new user's home, and a folder to work in."""

    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def run(self, *arguments: str, stdin: str = "", status: int = 0) -> str:
        """Standard output of the interpreter; ends the program unless the exit status is the expected one."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRISKELE_", "XDG_"))}
        own = {"TRISKELE_HOME": str(self.folder / "data"), "TRISKELE_PRIVACY_KEY": "file", "PYTHONUTF8": "1"}
        # A machine under load decides nothing here.
        own |= {"TRISKELE_HOOK_DEADLINE_MS": "60000", "HOME": str(self.folder)}
        done = subprocess.run(
            [self.python, *arguments],
            input=stdin,
            env=kept | own,
            cwd=self.folder / "work",
            capture_output=True,
            encoding="utf-8",
            timeout=_LIMIT_S,
            check=False,
        )
        if done.returncode != status:
            sys.exit(f"{' '.join(arguments)[:200]}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def triskele(self, *arguments: str, stdin: str = "") -> Any:
        """The JSON document that a command prints."""
        return json.loads(self.run("-m", "triskele", *arguments, "--json", stdin=stdin))


def make_environment(folder: Path, python: str, requirement: str) -> Environment:
    """Install into a new environment."""
    environment = Environment(folder)
    (folder / "work" / ".git").mkdir(parents=True)
    (folder / "work" / "retry.py").write_text("def retry(times):\n    return times + 1\n", encoding="utf-8")
    subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
    environment.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement)
    return environment


def use(environment: Environment) -> None:
    """Demo, add, recall, hook and MCP."""
    assert all(scene["hits"] for scene in environment.triskele("demo")["scenes"])
    environment.triskele("add", FACT)
    assert environment.triskele("recall", QUESTION)["hits"][0]["content"] == FACT
    event = json.dumps({"prompt": QUESTION, "cwd": str(environment.folder / "work"), "session_id": "one"})
    try:
        assert FACT in environment.run("-m", "triskele", "hook", "user-prompt-submit", stdin=event)
        assert {"memory_store", "memory_recall", "memory_undo"} <= tools(environment)
    finally:
        environment.run("-m", "triskele", "serve", "--stop")


def tools(environment: Environment) -> set[str]:
    """The names of the tools that `triskele mcp` offers."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}}
    messages = (
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    )
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    answers = map(json.loads, environment.run("-m", "triskele", "mcp", stdin=lines).splitlines())
    return {tool["name"] for answer in answers if answer.get("id") == 2 for tool in answer["result"]["tools"]}


def main() -> None:
    """Check the wheel alone and with each extra."""
    parser = argparse.ArgumentParser(description="Install a wheel into empty environments and use it.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("--extras", nargs="*", choices=USES, default=USUAL)
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve(strict=True)
    with tempfile.TemporaryDirectory(prefix="triskele-wheel-") as name:
        plain = make_environment(Path(name) / "plain", arguments.python, str(wheel))
        use(plain)
        print("alone: demo, add, recall, hook, MCP", flush=True)
        for extra in arguments.extras:
            command, status = USES[extra]
            make_environment(Path(name) / extra, arguments.python, f"{wheel}[{extra}]").run(*command, status=status)
            print(f"extra {extra}", flush=True)


if __name__ == "__main__":
    main()
