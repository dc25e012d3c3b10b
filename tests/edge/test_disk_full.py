"""A day of commands, each met by a full disk first: one clear line, nothing lost, and it works once there is room."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

NOTE = "The heron fishes at dawn"
KEY = "the alarm code of the boat house is 7719"


@pytest.fixture
def small_home(home: Path) -> Iterator[Path]:
    """A data folder on a disk of eight megabytes."""
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(home)], check=True)
    yield home
    subprocess.run(["umount", "--lazy", str(home)], check=True)


def _fill(home: Path, left: int) -> Path:
    """Take all room but so many bytes."""
    filler = home / "filler"
    free = shutil.disk_usage(home).free
    filler.write_bytes(bytes(max(0, free - left)))
    return filler


def _truth(run: Run) -> tuple[object, ...]:
    listed = run("list", "--all-projects", "--limit", "200", "--json").json["memories"]
    texts = {memory["id"]: run("secrets", "reveal", memory["id"], "--json") for memory in _secrets(run)}
    return (
        {memory["id"]: (memory["content"], memory["version"], memory["tags"]) for memory in listed},
        {id: ran.json["text"] for id, ran in texts.items()},
    )


def _secrets(run: Run) -> list[dict[str, Any]]:
    return list(run("secrets", "list", "--json").json["memories"])


def _day(run: Run, home: Path, outside: Path) -> Iterator[tuple[str, ...]]:
    """The commands of a day; ids are known when their turn comes."""

    def id(words: str) -> str:
        found = run("list", "--all-projects", "--limit", "200", "--json").json["memories"]
        return str(next(memory["id"] for memory in found if words in memory["content"]))

    yield ("add", NOTE)
    yield ("add", "The otter sleeps at noon", "--tags", "river")
    yield ("recall", "heron")
    yield ("add", KEY, "--secret", "--title", "Boat house")
    yield ("edit", id("heron"), "The heron fishes at dusk")
    yield ("add", "The otter sleeps at night", "--supersedes", id("otter"))
    yield ("link", id("heron"), "see-also", id("noon"))
    yield ("import", str(outside / "notes.jsonl"))
    yield ("recall", "sighting")
    yield ("export", str(home / "export.jsonl"))
    yield ("forget", id("sighting 7"))
    yield ("undo",)
    yield ("secrets", "seal", id("sighting 8"), "--title", "Sighting")
    yield ("secrets", "rotate", "--renew")
    yield ("backup", str(home / "backup.db"))
    yield ("reindex",)
    yield ("doctor", "--deep")
    yield ("restore", str(home / "backup.db"), "--yes")
    yield ("forget", "--hard", id("sighting 9"), "--yes")


@pytest.mark.needs("mount")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("left", [0, 16_384, 131_072])
def test_a_day_on_a_full_disk(
    run: Run, small_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    lines = [f'{{"content": "sighting {number} of a crane {"x" * 500}"}}' for number in range(60)]
    (tmp_path / "notes.jsonl").write_text("\n".join(lines))
    refused = 0
    for command in _day(run, small_home, tmp_path):
        before = _truth(run)
        filler = _fill(small_home, left)
        ran = run(*command)
        filler.unlink()
        if ran.code == 0:
            continue
        refused += 1
        assert ran.is_refused(3, "no space left"), (command, ran.err)
        is_erased = ": erased, but" in ran.err or ": sealed, but" in ran.err
        after = _truth(run)
        assert is_erased or after == before, (command, ran.err)
        assert run("doctor", "--deep").code == 0, command
        if not is_erased:
            again = run(*command)
            assert again.code == 0, (command, again.err)
    assert refused > 5
    assert run("doctor", "--deep", "--json").json["healthy"]
