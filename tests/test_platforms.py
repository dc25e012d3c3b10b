"""What only some systems have: its named places, and the branches for Windows with stand-ins for what that has."""

from __future__ import annotations

import _socket
import fcntl
import importlib.util
import os
import posix
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from triskele.edge.hook import client
from triskele.models import llm
from triskele.text import files

SOURCE = Path(__file__).parent.parent / "src" / "triskele"

# What Windows lacks and is used all the same; each use is behind a test of the system or of the attribute.
WINDOWS_LACKS = {
    "edge/hook/client.py": {"AF_UNIX", "geteuid", "_exit"},  # the type checker does not know nt._exit
    "edge/install/config_files.py": {"getuid", "getgid", "chown"},
    "edge/process/listener.py": {"AF_UNIX", "geteuid"},
    "index/lifecycle.py": {"pread"},
    "models/llm.py": {"killpg", "SIGKILL"},
    "privacy/key_sources.py": {"getuid"},
    "server/demo.py": {"geteuid", "SIGQUIT"},
}
# What exists everywhere and means something else elsewhere, with the places that know it.
PLACES: dict[str, set[str]] = {
    # File locks end with the process; on Windows others cannot read a locked byte.
    r"\bfcntl\b|\bmsvcrt\b": {"edge/hook/client.py", "text/files.py"},
    # Sockets by path; on Windows loopback ports with a token.
    r"AF_UNIX|SO_PEERCRED": {"edge/hook/client.py", "edge/process/listener.py"},
    r"[\"']/(dev|tmp|proc)/": {"edge/cli/invocation.py", "edge/hook/client.py", "edge/install/config_files.py"},
    # On Windows SIGTERM kills at once, and there is no SIGQUIT.
    r"\bsignal\.SIG|os\.kill": {
        "__main__.py",
        "edge/process/resident.py",
        "edge/process/service.py",
        "models/llm.py",
        "server/demo.py",
    },
    # Processes that outlive their parent.
    r"start_new_session|creationflags|pass_fds": {
        "edge/cli/code.py",
        "edge/hook/client.py",
        "models/llm.py",
        "server/demo.py",
    },
    # Hard links: not on every file system.
    r"os\.link\(": {"models/bundled.py", "privacy/key_sources.py", "store/sqlite/store_file.py"},
    # Maps keep a file from being replaced on Windows.
    r"\bmmap\b|memmap": {"index/lifecycle.py"},
    # A descriptor that translates line ends on Windows if no file object takes it over.
    r"os\.(read|write)\(": {
        "__main__.py",
        "edge/cli/start.py",
        "edge/hook/client.py",
        "index/lifecycle.py",
        "privacy/key_sources.py",
        "text/folders.py",
    },
    # Libraries by their file; without them nothing is set.
    r"ctypes\.CDLL": {"edge/process/resident.py", "index/dense.py"},
}


def check_types(system: str) -> tuple[int, str]:
    """Exit status and output of the type checker for a system."""
    command = [sys.executable, "-m", "mypy", "--platform", system, "--cache-dir", f".mypy_cache/{system}"]
    done = subprocess.run(command, cwd=SOURCE.parent.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_types_hold_on_macos() -> None:
    assert check_types("darwin")[0] == 0


@pytest.mark.slow
def test_windows_lacks_nothing_but_what_is_guarded() -> None:
    _, output = check_types("win32")
    lacking: defaultdict[str, set[str]] = defaultdict(set)
    for line in output.splitlines()[:-1]:
        error = re.fullmatch(r'src/triskele/(\S+):\d+: error: Module has no attribute "(\w+)".*', line)
        assert error is not None, line
        lacking[error[1]].add(error[2])
    assert lacking == WINDOWS_LACKS


@pytest.mark.parametrize("pattern", PLACES)
def test_systems_differ_in_named_places(pattern: str) -> None:
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    assert {name for name, text in texts.items() if re.search(pattern, text)} == PLACES[pattern]


@pytest.fixture
def as_on_windows(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], Any]:
    """Loads a module as Windows would: with its locks, without unix sockets."""

    def locking(handle: int, _mode: int, _size: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setitem(sys.modules, "nt", SimpleNamespace(**vars(posix)))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))  # type: ignore[arg-type]
    monkeypatch.delattr(_socket, "AF_UNIX")
    monkeypatch.setattr(sys, "platform", "win32")

    def load(module: ModuleType) -> Any:
        spec = importlib.util.spec_from_file_location(f"windows_{module.__name__}", str(module.__file__))
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    return load


def test_locks_of_windows_exclude_the_hook(as_on_windows: Callable[[ModuleType], Any], tmp_path: Path) -> None:
    hook, locks = as_on_windows(client), as_on_windows(files)
    address = hook.Address({"TRISKELE_HOME": str(tmp_path)})
    (tmp_path / "run").mkdir()
    with locks.file_lock(Path(address.file("lock")), timeout_s=0) as is_held:
        assert is_held and hook.is_running(address)
        with locks.file_lock(Path(address.file("lock")), timeout_s=0) as is_held_again:
            assert not is_held_again
    assert not hook.is_running(address)


def test_windows_has_its_own_folder_and_ports(as_on_windows: Callable[[ModuleType], Any], tmp_path: Path) -> None:
    address = as_on_windows(client).Address({"LOCALAPPDATA": str(tmp_path), "XDG_DATA_HOME": "/elsewhere"})
    assert address.home == str(tmp_path / "triskele")
    assert address.is_tcp and address.sockets == address.run


def test_windows_starts_a_process_that_inherits_no_handle(
    as_on_windows: Callable[[ModuleType], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = as_on_windows(client)
    started: list[tuple[list[str], dict[str, Any]]] = []
    monkeypatch.setattr(subprocess, "DETACHED_PROCESS", 8, raising=False)
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 512, raising=False)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **details: started.append((command, details)))
    assert hook.start(hook.Address({"TRISKELE_HOME": str(tmp_path)}), {})
    [(command, details)] = started
    assert command[-1] == "triskele.edge.process.resident" and details["creationflags"] == 520
    assert not {"pass_fds", "start_new_session"} & set(details)


def test_windows_reads_an_event_without_select(as_on_windows: Callable[[ModuleType], Any]) -> None:
    hook = as_on_windows(client)
    pieces = [b'{"prompt":', b' "hello"}', b""]
    hook._system.read = lambda *_: pieces.pop(0)
    assert hook._read(0.0) == b'{"prompt": "hello"}'


def test_windows_kills_a_language_model_without_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    process: Any = SimpleNamespace(returncode=None, kill=lambda: calls.append("kill"), wait=lambda _: None)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.delattr(os, "killpg")
    llm._end(process)
    assert calls == ["kill"]
