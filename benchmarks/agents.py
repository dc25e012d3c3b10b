"""Many agents at once: hooks and MCP clients on one resident, which is killed in the middle.

    python benchmarks/agents.py [--clients 20] [--seconds 60]

Half of the clients run hook processes, one after the other; half hold an MCP stream by `triskele mcp` and store and
recall. At half-time the resident gets a kill -9. Reported: errors, how long each client waited for its first answer
after the kill, whether every acknowledged write is in the store, and processes, open files and memory of the resident
while and after.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hook import FOLDER, HOOK, memory_of, serving

from triskele import config
from triskele.edge.hook import client
from triskele.edge.process import resident
from triskele.engine.local import LocalEngine
from triskele.requests import Draft

RESULTS = Path(__file__).parent / "results" / "agents.json"
CLI = [sys.executable, "-c", "from triskele.edge.cli.main import main; main()"]
DEADLINE_MS = 30_000
SAMPLES = 8
WORDS = "heron mill river lamp garden bridge letter winter copper window market stone".split()


@dataclass
class Tally:
    """The counts of one client."""

    answered: int = 0
    silent: int = 0
    refused: int = 0
    errors: list[str] = field(default_factory=list)
    stored: dict[str, str] = field(default_factory=dict)
    slowest_ms: float = 0.0
    recovered_s: float | None = None


class Stage:
    """What all clients share: when to end, and when the resident was killed."""

    def __init__(self, home: Path, environ: Mapping[str, str], seconds: float) -> None:
        self.home = home
        self.environ = environ
        self.began = time.monotonic()
        self.ends = self.began + seconds
        self.killed_at: float | None = None

    def is_on(self) -> bool:
        """Whether the run continues."""
        return time.monotonic() < self.ends

    def answered(self, tally: Tally, asked_at: float) -> None:
        """Note a good answer."""
        now = time.monotonic()
        tally.answered += 1
        tally.slowest_ms = max(tally.slowest_ms, (now - asked_at) * 1000)
        if self.killed_at is not None and tally.recovered_s is None and asked_at >= self.killed_at:
            tally.recovered_s = now - self.killed_at


def main() -> None:
    """Run the load and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="triskele-") as folder:
        figures = {"machine": platform.machine(), "cpus": os.cpu_count(), **run(Path(folder), given)}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    for name, figure in figures.items():
        print(f"  {name:28} {figure}")
    print(f"written to {RESULTS.name}")


def run(home: Path, given: argparse.Namespace) -> dict[str, Any]:
    """One load over a fresh store."""
    (home / FOLDER / ".git").mkdir(parents=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    environ |= {"TRISKELE_HOME": str(home), "TRISKELE_HOOK_DEADLINE_MS": str(DEADLINE_MS)}
    place = client.Address(environ)
    seed(home, environ)
    ask_once(home, environ)
    stage = Stage(home, environ, given.seconds)
    tallies = [Tally() for _ in range(given.clients)]
    works = [(mcp_client if number % 2 else hook_loop) for number in range(given.clients)]
    threads = [
        threading.Thread(target=work, args=(stage, tally, number))
        for number, (work, tally) in enumerate(zip(works, tallies, strict=True))
    ]
    try:
        for thread in threads:
            thread.start()
        samples = watch(stage, place)
        for thread in threads:
            thread.join()
        ask_once(home, environ)
        time.sleep(1.0)
        samples.append(sample(place, "all clients gone"))
    finally:
        resident.stop(place)
    time.sleep(1.0)
    return report(stage, tallies, samples) | {"left_behind": len(processes(home))}


def seed(home: Path, environ: Mapping[str, str]) -> None:
    """A few hundred memories to recall, without vectors yet: the resident gives them theirs while it serves."""
    with LocalEngine(config.load(environ), home / FOLDER) as engine:
        drafts: list[Draft] = [
            {"content": f"{a} and {b} meet at the {c}"} for a in WORDS for b in WORDS for c in WORDS[:2]
        ]
        engine.remember_all(drafts)


def ask_once(home: Path, environ: Mapping[str, str]) -> bytes:
    """One hook process."""
    event = json.dumps({"session_id": "s", "cwd": str(home / FOLDER), "prompt": "where do heron and mill meet?"})
    command = [*HOOK, "user-prompt-submit"]
    return subprocess.run(command, input=event.encode(), capture_output=True, env=environ, check=True).stdout


def hook_loop(stage: Stage, tally: Tally, number: int) -> None:
    """Prompts one after the other, each in a new process."""
    command = [*HOOK, "user-prompt-submit"]
    for turn in range(1_000_000):
        if not stage.is_on():
            return
        prompt = f"where do {WORDS[turn % 12]} and {WORDS[(turn * 5 + number) % 12]} meet?"
        event = {"session_id": f"{number}-{turn}", "cwd": str(stage.home / FOLDER), "prompt": prompt}
        asked_at = time.monotonic()
        done = subprocess.run(command, input=json.dumps(event).encode(), capture_output=True, env=stage.environ)
        if done.returncode or done.stderr:
            tally.errors.append(f"hook: {done.returncode} {done.stderr[-200:]!r}")
        elif done.stdout:
            stage.answered(tally, asked_at)
        else:
            tally.silent += 1


def mcp_client(stage: Stage, tally: Tally, number: int) -> None:
    """One conversation that stores and recalls in turn."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [*CLI, "mcp"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=stage.environ, cwd=stage.home / FOLDER
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
        call(child, 0, "initialize", about)
        child.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        turn = 0
        while stage.is_on():
            turn += 1
            content = f"agent {number} noted in turn {turn} that the {WORDS[turn % 12]} is ready"
            tool, arguments = (
                ("memory_store", {"content": content}) if turn % 2 else ("memory_recall", {"query": content})
            )
            asked_at = time.monotonic()
            answer = call(child, turn, "tools/call", {"name": tool, "arguments": arguments})
            if "error" in answer or answer["result"].get("isError"):
                # An honest refusal is no acknowledgement; anything but the kill would be an error.
                tally.refused += 1
                if stage.killed_at is None:
                    tally.errors.append(f"{tool}: {json.dumps(answer)[:300]}")
                continue
            stage.answered(tally, asked_at)
            if tool == "memory_store":
                tally.stored[answer["result"]["structuredContent"]["id"]] = content
    except (OSError, ValueError, KeyError) as error:
        tally.errors.append(f"mcp: {type(error).__name__} {error}")
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def call(child: subprocess.Popen[bytes], id: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n")
    child.stdin.flush()
    while line := child.stdout.readline():
        answer: dict[str, Any] = json.loads(line)
        if answer.get("id") == id and "method" not in answer:
            return answer
    raise OSError("the stream ended")


def watch(stage: Stage, place: client.Address) -> list[dict[str, Any]]:
    """Look at the resident now and then, and kill it at half-time."""
    samples = []
    step = (stage.ends - stage.began) / SAMPLES
    for number in range(1, SAMPLES):
        time.sleep(max(0.0, stage.began + number * step - time.monotonic()))
        if number == SAMPLES // 2:
            stage.killed_at = time.monotonic()
            os.kill(serving(place), signal.SIGKILL)
        else:
            samples.append(sample(place, f"{number * step:.0f} s"))
    return samples


def sample(place: client.Address, at: str) -> dict[str, Any]:
    """Processes, open files and memory."""
    pid = serving(place)
    files = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    sockets = sum(name.startswith("socket:") for name in files)
    residents = len(processes(Path(place.home)))
    return {"at": at, "residents": residents, "files": len(files), "sockets": sockets, **memory_of(pid)}


def processes(home: Path) -> list[int]:
    """The residents of a data folder that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, environ = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue
        if b"triskele.edge.process.resident" in command and f"TRISKELE_HOME={home}\0".encode() in environ + b"\0":
            found.append(int(path.name))
    return found


def report(stage: Stage, tallies: list[Tally], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """All figures, and whether what was acknowledged is there."""
    stored = {id: content for tally in tallies for id, content in tally.stored.items()}
    with LocalEngine(config.load(stage.environ), stage.home / FOLDER) as engine:
        kept = {id: memory.content for id, memory in engine.store.memories(stored).items()}
    recovered = [tally.recovered_s for tally in tallies if tally.recovered_s is not None]
    return {
        "clients": len(tallies),
        "answers": sum(tally.answered for tally in tallies),
        "silent_hooks": sum(tally.silent for tally in tallies),
        "refused_after_the_kill": sum(tally.refused for tally in tallies),
        "errors": [error for tally in tallies for error in tally.errors],
        "slowest_ms": round(max(tally.slowest_ms for tally in tallies)),
        "clients_recovered": len(recovered),
        "recovered_s_median": round(statistics.median(recovered), 2) if recovered else None,
        "recovered_s_last": round(max(recovered), 2) if recovered else None,
        "writes_acknowledged": len(stored),
        "writes_lost": sum(kept.get(id) != content for id, content in stored.items()),
        "samples": samples,
    }


if __name__ == "__main__":
    main()
