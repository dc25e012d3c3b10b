"""A store on a disk that can only be read: it answers, and a write is refused in one line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = [pytest.mark.slow, pytest.mark.needs("mount")]


@pytest.fixture
def read_only_team(team: Path, tmp_path: Path) -> Iterator[Path]:
    """The sample memories on a disk that was mounted again for reading alone."""
    subprocess.run(["mount", "--bind", str(team), str(team)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(team)], check=True)
        yield team
    finally:
        subprocess.run(["umount", "--lazy", str(team)], check=True)


def test_a_read_only_disk_answers(team: Path, run: Run, program: Run, request: pytest.FixtureRequest) -> None:
    query = ("recall", "when may we deploy to production", "--all-projects", "--json")
    before = run(*query).json
    id = before["hits"][0]["id"]
    request.getfixturevalue("read_only_team")
    # As a program of its own: nothing that an earlier command opened may help.
    after = program(*query).json
    assert [(hit["id"], round(hit["score"], 6)) for hit in after["hits"]] == [
        (hit["id"], round(hit["score"], 6)) for hit in before["hits"]
    ]
    for command in (
        ("list", "--all-projects"),
        ("show", id),
        ("history",),
        ("stats",),
        ("export",),
        ("why-not", id, "boats"),
        ("recall", "deploy"),
        ("doctor",),
        ("doctor", "--deep"),
    ):
        ran = program(*command)
        assert (ran.code, ran.err) == (0, "") or command == ("export",), (command, ran.err)
        assert ran.code == 0 and ran.out
    for command in (("add", "one more"), ("forget", id), ("undo", "--yes", "--json")):
        assert program(*command).is_refused(3, "is read-only")


def test_a_recall_counts_and_logs_nothing_there_and_says_nothing(
    read_only_team: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_LOG", "true")
    before = run("stats", "--json").json["uses"]
    ran = run("recall", "deploy", "--all-projects")
    assert (ran.code, ran.err) == (0, "")
    assert run("stats", "--json").json["uses"] == before
