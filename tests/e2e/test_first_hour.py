"""The first day of a new user, through the installed command: one store, from the first memory to the last export."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROGRAM = str(Path(sys.executable).with_name("triskele"))


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home folder of a new user."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def user(folder: Path) -> Ask:
    """Runs commands in a folder of a new user, on one store."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRISKELE_", "XDG_"))}
    own = {"TRISKELE_AGENTS_BACKGROUND": "false", "TRISKELE_PRIVACY_KEY": "file", "COLUMNS": "100"}
    # Recall by words is enough here, and a start costs less.
    environ = {**kept, **own, "TRISKELE_RECALL_MODEL": "none", "HOME": str(folder)}

    def ask(*arguments: str, folder_name: str = "shop", stdin: str = "") -> Said:
        place = folder / folder_name
        (place / ".git").mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [PROGRAM, *arguments], cwd=place, env=environ, input=stdin, capture_output=True, text=True, timeout=120
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    return ask


# The tests are the hours of one day: each goes on with the store that the one before it left.


def test_nine_o_clock_help_is_short_and_leads_on(user: Ask) -> None:
    said = user()
    assert said.code == 0 and "triskele demo" in said.out and len(said.out.splitlines()) < 50
    assert user("add", "-h").out.startswith("Usage: triskele add")
    for mistake, words in (
        (("add", "--halp"), "did you mean --help?"),
        (("recall", "--explian", "x"), "did you mean --explain?"),
        (("recal", "x"), "did you mean recall?"),
        (("add", "-5 degrees in the server room"), "goes after --"),
        (("add", "no", "quotes"), "in quotes"),
    ):
        said = user(*mistake)
        assert (said.code, said.out) == (2, "") and words in said.err


def test_ten_o_clock_nothing_is_found_yet_and_says_so(user: Ask) -> None:
    said = user("recall", "how do we deploy?")
    assert said.code == 0 and "Nothing found in project shop" in said.out
    assert "No memories" in user("list").out
    assert user("show", "abcd1234", "--json").code == 1
    assert "no memory starts with" in json.loads(user("show", "abcd1234", "--json").out)["error"]


def test_eleven_o_clock_the_first_memories(user: Ask) -> None:
    id = user("remember", "We deploy with Argo CD", "--tag", "deploy", "-q").out.strip()
    user("add", "--tags", "ops,rooms", "--", "-5 degrees in the server room")
    [hit] = user("search", "how do we deploy?", "--tags", "deploy", "--json").json["hits"]
    assert hit["id"] == id
    assert "We deploy with Argo CD" in user("show", id[:8]).out
    assert "-5 degrees" in user("recall", "server room").out


def test_noon_undo_takes_back_what_it_shows(user: Ask) -> None:
    id = user("add", "Deploys happen on Tuesday", "-q").out.strip()
    user("edit", id, "Deploys happen daily")
    user("add", "Kept in another project", folder_name="blog")
    said = user("undo")
    assert said.code == 0 and "project shop" in said.out and "Deploys happen daily" in said.out
    assert "Restored the earlier text of" in said.out and "Deploys happen on Tuesday" in said.out
    assert "Deploys happen on Tuesday" in user("undo").out
    history = user("history").out
    assert "Deploys happen daily" in history and "Kept in another project" in history and " you " in history
    assert len(user("list", "--json", folder_name="blog").json["memories"]) == 1


def test_one_o_clock_several_changes_need_consent(user: Ask, tmp_path: Path) -> None:
    notes = tmp_path / "CLAUDE.md"
    notes.write_text("- Tests run with pytest\n- Reviews need two people\n")
    assert "would be added" in user("import", str(notes), "--dry-run").out
    user("import", str(notes))
    refused = user("undo")
    assert refused.code == 2 and "2 changes by an import" in refused.err and "--yes" in refused.err
    ids = [line.split()[0] for line in user("list").out.splitlines()[1:-1]]
    assert ids and all(len(id) == 8 for id in ids)
    assert user("undo", "--yes").code == 0
    assert "pytest" not in user("list").out


def test_two_o_clock_an_erasure_is_final(user: Ask) -> None:
    id = user("add", "A name that must go", "-q").out.strip()
    assert user("forget", "--hard", id).code == 2
    assert user("forget", "--hard", id, "--yes").code == 0
    said = user("undo")
    assert said.code == 1 and "cannot be undone" in said.err


def test_three_o_clock_settings_are_checked(user: Ask) -> None:
    assert user("config", "set", "recall.limit", "5").code == 0
    assert user("config", "get", "recall.limit").out == "5\n"
    wrong = user("config", "set", "recall.limit", "a lot")
    assert wrong.code == 2 and "whole number" in wrong.err


def test_four_o_clock_the_hook_says_why(user: Ask, folder: Path) -> None:
    event = {"prompt": "how do we deploy?", "cwd": str(folder / "shop")}
    said = user("hook", "user-prompt-submit", "--explain", stdin=json.dumps(event))
    assert said.code == 0 and "gives 1 memory" in said.out and "Argo CD" in said.out
    silent = user("hook", "user-prompt-submit", "--explain", stdin='{"prompt": "/clear"}')
    assert "is silent" in silent.out


def test_five_o_clock_the_export_says_what_it_holds(user: Ask) -> None:
    user("forget", user("add", "Soon forgotten", "-q").out.strip())
    said = user("export", "all.jsonl")
    assert said.code == 0 and "forgotten memor" in said.out and "--current-only" in said.out
    assert user("export", "all.jsonl").code == 2
    assert user("export", "now.jsonl", "--current-only").code == 0


def test_a_secret_is_sealed_and_an_overruled_one_stays_in_the_export(user: Ask) -> None:
    said = user("add", "The password of the build box is hunter2-Xy9!", "--json").json
    assert said["secret"] is True
    user("edit", said["id"], "--not-secret")
    assert user("export", "open.jsonl").code == 0
    records = [json.dumps(record) for record in user("export", "--json").json["records"]]
    assert any(said["id"] in record and "hunter2-Xy9!" in record for record in records)


def test_six_o_clock_an_import_seals_one_line_and_shows_it_first(user: Ask, tmp_path: Path) -> None:
    notes = tmp_path / "staging.md"
    notes.write_text(
        "# Staging\n\nThe cluster is called Dorado.\n\n- The admin password is Tr0ub4dor-3xyz!\n- Ask Omar.\n"
    )
    shown = user("import", str(notes), "--dry-run").out
    assert "1 memory would be sealed" in shown and "would be sealed" in shown.split("[SECRET]")[1]
    assert "Tr0ub4dor" not in shown
    batch = user("import", str(notes), "--json").json["batch"]
    assert "Dorado" in user("recall", "what is the cluster called").out
    refused = user("undo")
    assert refused.code == 2 and f"`triskele undo --batch {batch} --yes`" in refused.err
    assert user("undo", "--batch", batch, "--yes").code == 0


def test_seven_o_clock_times_and_history_are_told(user: Ask) -> None:
    assert "As of 1 May 2026" in user("recall", "deploy", "--as-of", "May 2026").out
    assert "project shop · batch " in user("history", "--limit", "3").out
    assert "did you mean --batch 3?" in user("undo", "3").err
    assert "Index up to date" in user("doctor").out and "Repaired" not in user("doctor").out
