"""What a command leaves to do: the resident process does it, or the command itself after its output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.edge.cli import stores
from triskele.edge.hook import client
from triskele.edge.process import resident
from triskele.engine.background import BackgroundWork
from triskele.errors import StoreUnavailable

Run = Callable[..., Any]
HEAVY = ("numpy", "tantivy", "onnxruntime", "tokenizers", "triskele.bench", "triskele.index.lexical")
PATIENCE_S = 60


@pytest.mark.slow
def test_add_loads_no_index_and_no_model(home: Path) -> None:
    code = (
        "import sys\nfrom triskele.edge.cli import stores\nfrom triskele.edge.cli.main import main\n"
        "stores.SPARE_S = 0\nsys.argv = ['triskele', 'add', 'the kettle is red']\n"
        "try:\n    main()\nexcept SystemExit as left:\n    assert left.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.fixture
def started(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where resident processes would have been started."""
    places: list[str] = []

    def start(place: client.Address, environ: dict[str, str]) -> bool:
        places.append(place.home)
        return True

    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "true")
    monkeypatch.setattr(client, "start", start)
    return places


def test_command_starts_the_background_process_for_pending_jobs(run: Run, home: Path, started: list[str]) -> None:
    run("add", "the kettle is red")
    assert started == [str(home)]
    run("list")
    assert started == [str(home)] * 2


def test_command_without_pending_jobs_starts_no_process(
    run: Run, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("list")
    run("demo")
    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "false")
    run("add", "the kettle is red")
    run("reindex")
    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "true")
    run("recall", "kettle")
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    run("add", "the pot is blue")
    assert started == []


def test_command_starts_no_second_process(run: Run, started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "is_running", lambda _: True)
    run("add", "the kettle is red")
    assert started == []


def test_command_embeds_after_its_output_without_a_background_process(
    run: Run, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "SPARE_S", 30.0)
    printed: list[Any] = []
    real = BackgroundWork.process

    def work_off(self: BackgroundWork, seconds: float) -> None:
        printed.append(json.loads(sys.stdout.buffer.getvalue()))  # type: ignore[attr-defined]
        real(self, seconds)

    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "false")
    monkeypatch.setattr(BackgroundWork, "process", work_off)
    assert printed == [] and run("add", "the kettle is red", "--json").json == printed[0]
    jobs = run("stats", "--json").json["jobs"]
    assert (jobs["embed"], jobs["names"]) == (0, 0)
    assert len(printed) == 1 and started == []


def test_command_survives_a_background_process_that_cannot_start(
    run: Run, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError("no more processes")

    monkeypatch.setattr(client, "start", refuse)
    monkeypatch.setattr(stores, "SPARE_S", 30.0)
    assert run("add", "the kettle is red").code == 0
    assert run("stats", "--json").json["waiting"] == 0


def test_failure_after_the_output_is_no_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StoreUnavailable("busy")

    monkeypatch.setattr(BackgroundWork, "process", refuse)
    ran = run("add", "the kettle is red")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.slow
def test_started_background_process_embeds_everything(
    home: Path, program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "true")
    address = client.Address({"TRISKELE_HOME": str(home)})
    try:
        assert program("add", "the kettle is red").code == 0
        monkeypatch.setenv("TRISKELE_AGENTS_BACKGROUND", "false")
        ends = time.monotonic() + PATIENCE_S
        while json.loads(program("stats", "--json").out)["waiting"]:
            assert time.monotonic() < ends
        assert client.is_running(address)
    finally:
        resident.stop(address)
    assert not client.is_running(address)
