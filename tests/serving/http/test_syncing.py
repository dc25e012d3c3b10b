"""What `sync --status` tells: runs that failed, and what stays on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.engine import Engine
from triskele.errors import BadInput, Unavailable
from triskele.exchange.sync_notes import Notes
from triskele.serving import syncing
from triskele.serving.cli import render
from triskele.serving.syncing import AutomaticSync, Sync
from triskele.types import Sensitivity

# The discard port: nobody answers there.
URL = "http://127.0.0.1:9"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    (tmp_path / "config.toml").write_text(f'[sync]\nurl = "{URL}"\n[recall]\nmodel = "none"\n')
    with Engine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as made:
        yield made


def give_key(home: Path) -> None:
    (home / "sync.key").write_text("a-key\n")
    (home / "sync.key").chmod(0o600)


def test_a_missing_key_is_told_by_the_status_and_the_next_run_begins_as_the_first(
    engine: Engine, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="cannot read the key"):
        syncing.sync(engine)
    assert "cannot read the key" in syncing.status(engine).error
    give_key(tmp_path)
    with pytest.raises(Unavailable, match="does not answer"):
        syncing.sync(engine)
    assert "does not answer" in syncing.status(engine).error
    assert Notes(engine.store).state()["address"] == URL


def test_the_status_counts_what_is_private_or_secret_now(engine: Engine) -> None:
    engine.remember("an open one")
    for number in range(3):
        engine.remember(f"private {number}", project=f"project {number}", sensitivity=Sensitivity.PRIVATE)
    opened = engine.remember("private for a while", sensitivity=Sensitivity.PRIVATE).id
    engine.edit(opened, sensitivity=Sensitivity.OPEN)
    engine.forget(engine.remember("private and forgotten", sensitivity=Sensitivity.PRIVATE).id)
    assert syncing.status(engine).left_here == 3
    # Out of date, and still here.
    engine.remember("private last year", sensitivity=Sensitivity.PRIVATE, valid_to="2020-01-01")
    assert syncing.status(engine).left_here == 4


def test_a_fault_while_syncing_by_itself_is_told_without_its_text(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(self: Sync, **_: Any) -> None:
        raise ValueError("the words of a memory")

    give_key(tmp_path)
    monkeypatch.setattr(Sync, "run", faulty)
    automatic = AutomaticSync(lambda: engine, every_s=60)
    deadline = time.monotonic() + 20
    while not (told := syncing.status(engine).error) and time.monotonic() < deadline:
        time.sleep(0.02)
    automatic.stop()
    assert "ValueError" in told and "words" not in told


def test_a_settled_conflict_says_that_only_the_version_of_this_machine_is_still_to_be_sent() -> None:
    mine, theirs = (str(render.resolved("1k2m", side)) for side in ("mine", "theirs"))
    assert "on this machine is kept; the next sync sends it" in mine
    assert "on the server is kept" in theirs and "sends" not in theirs
