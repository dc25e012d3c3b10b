"""`triskele ui`: a resident process is started where none runs, and its address signs one browser in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from residents import Host

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path / "home")
    yield made
    made.close()


def _ui(host: Host, *options: str, **environ: str) -> Any:
    command = [sys.executable, "-m", "triskele", "ui", *options]
    return subprocess.run(
        command, capture_output=True, text=True, env={**host.environ, **environ}, timeout=90, check=False
    )


def _sign_in(url: str) -> int:
    base, code = url.split("/ui#")
    headers = {"Origin": base, "HX-Request": "true"}
    with httpx.Client(base_url=base) as client:
        assert client.get("/ui").status_code == 401
        assert client.post("/ui/session", content=code, headers=headers).status_code == 204
        return client.get("/ui").status_code


def test_ui_signs_in_two_browsers_at_one_port(host: Host) -> None:
    first, second = (json.loads(_ui(host, "--json").stdout)["url"] for _ in range(2))
    assert first.split("#")[0] == second.split("#")[0] and first != second
    assert first.startswith("http://127.0.0.1:")
    assert _sign_in(first) == _sign_in(second) == 200


def test_ui_keeps_the_code_out_of_browser_arguments(host: Host, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$1" > {seen}\n')
    browser.chmod(0o755)
    done = _ui(host, BROWSER=f"{browser} %s")
    url = done.stdout.removeprefix("Opened ").strip()
    page = Path(seen.read_text().removeprefix("file://"))
    assert url.split("#")[1] not in seen.read_text()
    assert url in page.read_text() and page.stat().st_mode & 0o077 == 0
    assert _sign_in(url) == 200


def test_ui_refuses_another_store(host: Host, tmp_path: Path) -> None:
    assert _ui(host, "--no-browser").stdout.startswith("Open http://127.0.0.1:")
    refused = _ui(host, "--no-browser", "--store", f"sqlite:///{tmp_path}/other.db")
    assert refused.returncode == 1 and "another store" in refused.stderr
