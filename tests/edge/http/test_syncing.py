"""What `sync --status` tells: runs that failed, and what stays on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from triskele import config
from triskele.edge.cli import view
from triskele.edge.cli.main import cli
from triskele.edge.http import codec
from triskele.edge.process import syncing
from triskele.edge.process.syncing import AutomaticSync
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Unavailable
from triskele.store.values import Document
from triskele.sync import states
from triskele.sync.loop import Sync
from triskele.sync.notes import Notes
from triskele.text import timestamps
from triskele.types import Sensitivity

# The discard port: nobody answers there.
URL = "http://127.0.0.1:9"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    (tmp_path / "config.toml").write_text(f'[sync]\nurl = "{URL}"\n[recall]\nmodel = "none"\n')
    with LocalEngine(config.load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as made:
        yield made


def give_key(home: Path) -> None:
    (home / "sync.key").write_text("a-key\n")
    (home / "sync.key").chmod(0o600)


def test_sync_status_reports_a_missing_key(engine: LocalEngine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read the key"):
        syncing.sync(engine)
    assert "cannot read the key" in engine.upkeep.sync_state().error
    give_key(tmp_path)
    with pytest.raises(Unavailable, match="does not answer"):
        syncing.sync(engine)
    assert "does not answer" in engine.upkeep.sync_state().error
    assert Notes(engine.store).state()["address"] == URL


def test_sync_status_counts_private_and_secret_memories(engine: LocalEngine) -> None:
    engine.remember("an open one")
    for number in range(3):
        engine.remember(f"private {number}", project=f"project {number}", sensitivity=Sensitivity.PRIVATE)
    opened = engine.remember("private for a while", sensitivity=Sensitivity.PRIVATE).id
    engine.edit(opened, sensitivity=Sensitivity.OPEN)
    engine.forget(engine.remember("private and forgotten", sensitivity=Sensitivity.PRIVATE).id)
    assert engine.upkeep.sync_state().left_here == 3
    # Out of date, and still here.
    engine.remember("private last year", sensitivity=Sensitivity.PRIVATE, valid_to="2020-01-01")
    assert engine.upkeep.sync_state().left_here == 4


def test_automatic_sync_reports_faults_without_text(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(self: Sync, **_: Any) -> None:
        raise ValueError("the words of a memory")

    give_key(tmp_path)
    monkeypatch.setattr(Sync, "run", faulty)
    automatic = AutomaticSync(lambda: engine, every_s=60)
    deadline = time.monotonic() + 20
    while not (told := engine.upkeep.sync_state().error) and time.monotonic() < deadline:
        time.sleep(0.02)
    automatic.stop()
    assert "ValueError" in told and "words" not in told


def put_conflict(engine: LocalEngine) -> str:
    """A memory that was changed here and on the server."""
    id = engine.remember("the backup runs at dawn").id
    theirs = replace(engine.get(id), content="the backup runs at noon")
    record = codec.to_json(states.record_of(theirs, states.ProjectNames(engine.store)))
    values = {"record": record, "mine": "m", "theirs": "t", "token": "2.t"}
    Notes(engine.store).put_conflicts({id: Document(values, about=(id,))})
    return id


def test_show_and_list_mark_conflicts(engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "400")

    def said(*arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments), prog_name="triskele")
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    id, other = put_conflict(engine), engine.remember("the mill turns").id
    settled = "`triskele sync --resolve ID --keep mine|theirs` settles one"
    assert "conflict changed here and on the server" in said("show", id) and settled in said("show", id)
    assert "conflict" not in said("show", other)
    assert "[in conflict] the backup runs at dawn" in said("list", "--all-projects")
    assert said("list", "--all-projects").count("in conflict") == 1 and settled in said("list", "--all-projects")
    assert [json.loads(said("show", each, "--json"))["in_conflict"] for each in (id, other)] == [True, False]
    listed = json.loads(said("list", "--all-projects", "--json"))["memories"]
    assert {each["id"]: each["in_conflict"] for each in listed} == {id: True, other: False}
    said("sync", "--resolve", id, "--keep", "theirs")
    assert "conflict" not in said("show", id) + said("list", "--all-projects")


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("mine", "Kept this machine's version of {}; the next sync sends it."),
        ("theirs", "Kept the server's version of {}."),
    ],
)
def test_sync_resolve_announces_a_sync_only_if_it_sends(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str, said: str
) -> None:
    id = put_conflict(engine)
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    done = CliRunner().invoke(cli, ["sync", "--resolve", id, "--keep", kept], prog_name="triskele")
    assert (done.exit_code, done.stdout) == (0, said.format(engine.store.shorten([id])[id]) + "\n")


def test_sync_status_formats_the_last_sync(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    asked = ["sync", "--status"]
    assert "Last sync: never\n" in CliRunner().invoke(cli, asked, prog_name="triskele").stdout
    moment = "2026-11-16T11:20:31.000000Z"
    Notes(engine.store).put_state(address=URL, user="ada", at=moment)
    shown = view.minute(timestamps.parse(moment))
    assert f"Last sync: {shown}\n" in CliRunner().invoke(cli, asked, prog_name="triskele").stdout
    told = CliRunner().invoke(cli, [*asked, "--json"], prog_name="triskele").stdout
    assert json.loads(told)["at"] == moment


def test_doctor_names_the_server_that_gets_texts(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doctor(*options: str) -> str:
        done = CliRunner().invoke(cli, ["doctor", *options], prog_name="triskele")
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    claims = ("nothing leaves", "sent from this machine")
    said = doctor()
    assert f"are synced with {URL}: no sync has finished yet." in said
    assert "Nothing was sent to a hosted model." in said and not any(claim in said for claim in claims)
    Notes(engine.store).put_state(address=URL, user="ada", at="2026-11-16T11:20:00.000000Z")
    Notes(engine.store).count_sent(3)
    assert f"are synced with {URL} as ada: 3 changes pushed, last sync 2026-11-16" in doctor()
    # What was sent stays told when the settings name nobody any more.
    (tmp_path / "config.toml").write_text('[recall]\nmodel = "none"\n')
    said = doctor()
    assert f"were synced with {URL} as ada: 3 changes pushed" in said and claims[1] not in said
    (tmp_path / "config.toml").write_text('[server]\nurl = "https://memory.example.com"\n[recall]\nmodel = "none"\n')
    said = doctor("--store", f"sqlite:///{tmp_path}/another.db")
    assert "use the memory on https://memory.example.com." in said and not any(claim in said for claim in claims)
