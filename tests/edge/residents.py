"""Residents for tests: started, asked, killed, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from triskele import __version__
from triskele.edge.hook import client as hook_client
from triskele.edge.http import dispatch
from triskele.edge.process import resident, service
from triskele.edge.process.engine_host import EngineHost
from triskele.text.files import file_lock

CLIENT = str(Path(hook_client.__file__).with_name("start.py"))
STAND_IN = str(Path(__file__).parent / "stand_in.py")
# What a whole start may take on a busy machine.
PATIENT_MS = "60000"

# What names another store than the one that a process serves.
OTHER = {"TRISKELE_STORE": "sqlite:////nowhere/x.db"}


class Host:
    """A data folder with its residents."""

    def __init__(self, home: Path, **environ: str) -> None:
        self.home = home
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        self.environ = {**kept, "TRISKELE_HOME": str(home), "TRISKELE_RECALL_MODEL": "none", **environ}
        self.address = hook_client.Address(self.environ)
        self._children: list[subprocess.Popen[bytes]] = []
        home.mkdir(parents=True, exist_ok=True)
        self.configure(idle_minutes=2)

    def configure(self, **agents: float) -> None:
        """Write the settings that residents read when they start."""
        lines = ["[agents]", *(f"{name} = {value}" for name, value in agents.items())]
        (self.home / "config.toml").write_text("\n".join(lines) + "\n")

    def serving(self, version: str = __version__, *, says: bytes = b"ready\n") -> subprocess.Popen[bytes]:
        """A resident with the stand-in's answers, of any version, that listens or was refused."""
        command = [sys.executable, STAND_IN, version]
        started = self.spawn(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert started.stdout is not None and started.stdout.readline() == says
        return started

    def who(self, version: str = __version__) -> str:
        """The process that answers, which must be of this version."""
        pid, said = self.hook("who", b"{}").stdout.decode().split()
        assert said == version
        return pid

    def hook(self, event: str, body: bytes, *, deadline_ms: str = PATIENT_MS, **more: Any) -> Any:
        """Run the hook client as clients do."""
        environ = {**self.environ, "TRISKELE_HOOK_DEADLINE_MS": deadline_ms, **more.pop("environ", {})}
        command = [sys.executable, "-I", "-S", CLIENT, event]
        return subprocess.run(command, input=body, capture_output=True, env=environ, timeout=90, check=False, **more)

    def hooking(self, event: str, body: bytes) -> subprocess.Popen[bytes]:
        """A hook client that is still waiting for its answer."""
        environ = {**self.environ, "TRISKELE_HOOK_DEADLINE_MS": PATIENT_MS}
        pipe = subprocess.PIPE
        command = [sys.executable, "-I", "-S", CLIENT, event]
        client = self.spawn(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)
        assert client.stdin is not None
        client.stdin.write(body)
        client.stdin.close()
        client.stdin = None
        return client

    def log(self) -> str:
        """All that was logged."""
        path = self.home / "run" / "hook.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """End every process of this folder."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.communicate()
        if not (self.home / "run").is_dir():
            return
        for _ in range(20):
            found = resident.health(self.address)
            if found is not None and found["pid"] != os.getpid():
                os.kill(found["pid"], signal.SIGKILL)
            start, life = Path(self.address.file("starting")), Path(self.address.file("lock"))
            with file_lock(start, timeout_s=1) as none_starts, file_lock(life, timeout_s=1) as none_lives:
                if none_starts and none_lives:
                    return
        raise AssertionError("a resident was left behind")

    def spawn(self, command: list[str], **details: Any) -> subprocess.Popen[bytes]:
        """A process that does not outlive the test."""
        self._children.append(subprocess.Popen(command, **{"env": self.environ, **details}))
        return self._children[-1]


@contextmanager
def resident_in_thread() -> Iterator[EngineHost]:
    """Serve the store of this environment from a thread of the test, without background work."""
    ready = threading.Event()
    address = hook_client.Address(os.environ)
    hosts: list[EngineHost] = []
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(EngineHost, "process_new_memories", lambda _: None)
        # Without a worker a recall does it itself.
        patches.setattr(dispatch, "embed_newest", lambda _: None)
        # The first recall reads the names of what waits, as in a process of its own.
        patches.setattr(EngineHost, "warm_up", lambda host: hosts.append(host))
        patches.setattr(service, "_TICK_S", 0.05)
        thread = threading.Thread(target=resident.serve, args=(os.environ,), kwargs={"ready": lambda _: ready.set()})
        thread.start()
        try:
            assert ready.wait(60)
            for _ in range(3000):
                if hosts:
                    break
                time.sleep(0.01)
            yield hosts[0]
        finally:
            # A process that nobody reaches any more ends.
            for kind in (hook_client.HTTP, hook_client.STREAM):
                Path(address.socket(kind)).unlink(missing_ok=True)
            thread.join(60)
            assert not thread.is_alive()
