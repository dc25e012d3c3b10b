"""add, edit, link, forget, undo."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.types import Add as AddMemory
from triskele.types import Origin

Run = Callable[..., Any]
Add = Callable[..., str]


def test_add_has_id_project_and_action(run: Run) -> None:
    document = run("add", "The cache lives in Redis", "--json").json
    assert set(document) >= {"id", "project", "action", "batch"}
    assert (document["project"], document["action"]) == ("shop", "added")
    again = run("add", "The cache lives in Redis", "--json").json
    assert (again["id"], again["action"], again["batch"]) == (document["id"], "duplicate", None)


def test_add_keeps_every_detail(run: Run, add: Add) -> None:
    options = "--category decisions --tags Deploy,cd --importance 0.9 --private --session standup --position 3"
    dates = "--valid-from 2026-01-01 --valid-to 2026-06-01 --project other --speaker Marta --role user"
    id = add("We deploy with Argo CD", "--keywords", "release ship", *options.split(), *dates.split())
    stored = run("show", id, "--json").json
    expected = {
        "content": "We deploy with Argo CD",
        "category": "decisions",
        "tags": ["deploy", "cd"],
        "keywords": "release ship",
        "importance": 0.9,
        "sensitivity": "private",
        "session": "standup",
        "position": 3,
        "speaker": "Marta",
        "role": "user",
        "valid_from": "2026-01-01T00:00:00Z",
        "valid_to": "2026-06-01T00:00:00Z",
        "project": "other",
        "version": 1,
        "superseded": False,
        "forgotten": False,
    }
    assert {name: stored[name] for name in expected} == expected


def test_edit_changes_and_removes_speaker_and_role(run: Run, add: Add) -> None:
    id = add("We deploy with Argo CD")
    run("edit", id, "--speaker", " Marta  Lindqvist ", "--role", "assistant")
    stored = run("show", id, "--json").json
    assert (stored["speaker"], stored["role"], stored["version"]) == ("Marta Lindqvist", "assistant", 2)
    assert "Marta Lindqvist · assistant" in run("show", id).out
    assert "Marta Lindqvist · assistant" in run("recall", "how do we deploy").out
    run("undo")
    assert run("show", id, "--json").json["speaker"] is None
    run("undo")
    run("edit", id, "--speaker", "", "--role", "none")
    stored = run("show", id, "--json").json
    assert (stored["speaker"], stored["role"]) == (None, None)
    assert run("edit", id, "--role", "king").code == 2


def test_add_everywhere_belongs_to_no_project(run: Run) -> None:
    assert run("add", "Tabs, not spaces", "--everywhere", "--json").json["project"] == ""


def test_add_reads_standard_input(run: Run, add: Add) -> None:
    id = run("add", "-", "--json", stdin="\ufeffFrom a pipe\r\nwith two lines\n").json["id"]
    assert run("show", id, "--json").json["content"] == "From a pipe\nwith two lines"


def test_add_takes_text_that_begins_with_a_dash(run: Run) -> None:
    id = run("add", "--json", "--", "- item of a list").json["id"]
    assert run("show", id, "--json").json["content"] == "- item of a list"


def test_tag_and_tags_are_the_same_option(run: Run, add: Add) -> None:
    id = add("Tagged", "--tag", "one", "--tags", "two,three")
    assert run("show", id, "--json").json["tags"] == ["one", "two", "three"]
    add("Tagged otherwise", "--tag", "one")
    for options in (["--tags", "one,two"], ["--tag", "one", "--tag", "two"]):
        assert [hit["id"] for hit in run("recall", "tagged", *options, "--json").json["hits"]] == [id]
    run("edit", id, "--tag", "")
    assert run("show", id, "--json").json["tags"] == []


def test_add_cleans_control_and_bidi_characters(run: Run, add: Add) -> None:
    id = add("a\u202eb\u2066c \x1b[31mred\x07")
    assert run("show", id, "--json").json["content"] == "abc [31mred"


def test_add_split_cuts_at_sentences_and_counts_positions(run: Run) -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(100))
    document = run("add", "-", "--split", "--session", "s", "--position", "5", "--json", stdin=text).json
    pieces = [run("show", each["id"], "--json").json for each in document["memories"]]
    assert len(pieces) == 3
    assert [piece["position"] for piece in pieces] == [5, 6, 7]
    assert " ".join(piece["content"] for piece in pieces) == text
    assert all(len(piece["content"]) <= 1400 for piece in pieces)


def test_add_supersedes_marks_the_older_one(run: Run, add: Add) -> None:
    older = add("SMS go out through Textmarlin")
    newer = add("SMS go out through Pingwell", "--supersedes", older[:12])
    shown = run("show", older, "--json").json
    assert shown["superseded"] is True
    assert shown["superseded_by"] == [newer]
    assert shown["content"] == "[SUPERSEDED] SMS go out through Textmarlin"
    assert shown["links"] == [{"source": newer, "kind": "supersedes", "target": older}]


def test_add_of_a_stored_text_still_supersedes(run: Run, add: Add) -> None:
    newer = add("SMS go out through Pingwell")
    older = add("SMS go out through Textmarlin")
    document = run("add", "SMS go out through Pingwell", "--supersedes", older, "--json").json
    assert (document["id"], document["action"]) == (newer, "duplicate")
    assert run("show", older, "--json").json["superseded_by"] == [newer]


def test_edit_changes_only_named_details(run: Run, add: Add) -> None:
    id = add("Deploys happen on Tuesday", "--tags", "deploy", "--valid-to", "2026-06-01")
    assert run("edit", id, "Deploys happen daily", "--json").json["action"] == "edited"
    run("edit", id, "--tags", "", "--valid-to", "none", "--everywhere", "--private", "--importance", "1")
    stored = run("show", id, "--json").json
    assert stored["content"] == "Deploys happen daily"
    assert (stored["tags"], stored["valid_to"], stored["project"]) == ([], None, "")
    assert (stored["sensitivity"], stored["importance"], stored["version"]) == ("private", 1.0, 3)
    assert run("edit", id, "--importance", "1", "--json").json["action"] == "unchanged"


def test_edit_reads_standard_input_and_needs_a_change(run: Run, add: Add) -> None:
    id = add("Deploys happen on Tuesday")
    run("edit", id, "-", stdin="Deploys happen daily")
    assert run("show", id, "--json").json["content"] == "Deploys happen daily"
    assert run("edit", id).is_refused(2, "nothing to change")


def test_link_and_remove(run: Run, add: Add) -> None:
    one, two = add("The disk was full"), add("Old logs are deleted nightly")
    document = run("link", one[:10], "resolved-by", two, "--json").json
    assert {name: document[name] for name in ("source", "kind", "target", "action")} == {
        "source": one,
        "kind": "resolved-by",
        "target": two,
        "action": "linked",
    }
    assert run("show", two, "--json").json["links"] == [{"source": one, "kind": "resolved-by", "target": two}]
    assert run("link", one, "resolved-by", two, "--remove", "--json").json["action"] == "unlinked"
    assert run("show", two, "--json").json["links"] == []


def test_link_refuses_a_circle_of_successors(run: Run, add: Add) -> None:
    one, two = add("first"), add("second")
    run("link", one, "supersedes", two)
    assert run("link", two, "supersedes", one).is_refused(1, "circle")


def test_forget_and_undo(run: Run, add: Add) -> None:
    id = add("The door code is 4711")
    gone = run("forget", id, "--json").json
    assert (gone["id"], gone["action"]) == (id, "forgotten")
    assert run("recall", "door code", "--json").json["hits"] == []
    assert run("show", id, "--json").json["forgotten"] is True
    back = run("undo", "--json").json
    assert [change["action"] for change in back["changes"]] == ["restored"]
    assert [hit["id"] for hit in run("recall", "door code", "--json").json["hits"]] == [id]


def test_add_names_the_superseded_memory(run: Run, add: Add) -> None:
    older = add("Tea is green")
    output = run("add", "Tea is black", "--supersedes", older).out
    assert "It supersedes " in output and older.startswith(output.split("It supersedes ")[1].split(".")[0])


def test_edit_restores_only_on_request(run: Run, add: Add) -> None:
    id = add("The door code is 4711")
    run("forget", id)
    # Also where an editor would open: what is typed there would be lost.
    for change in (["The door code is 4712"], ["--importance", "0.9"], ["--secret"], []):
        assert run("edit", id, *change).is_refused(1, f"{id} is forgotten", f"triskele edit {id} --restore")
    assert run("show", id, "--json").json["forgotten"] is True
    assert run("edit", id, "--restore", "--importance", "0.9").is_refused(2, "unchanged")
    assert run("edit", id, "--restore", "--json").json["action"] == "restored"
    assert [hit["id"] for hit in run("recall", "door code", "--json").json["hits"]] == [id]
    assert run("edit", id, "--restore").is_refused(1, f"{id} is not forgotten")


def test_undo_of_a_batch(run: Run, add: Add) -> None:
    first = run("add", "The first fact", "--json").json
    second = add("The second fact")
    run("undo", "--batch", first["batch"])
    assert [memory["id"] for memory in run("list", "--json").json["memories"]] == [second]


def test_undo_names_the_link(run: Run, add: Add) -> None:
    one, two = add("The first fact"), add("The second fact")
    run("link", one, "see-also", two)
    output = run("undo").out
    assert "\nUnlinked " in output
    assert "see-also" in output


def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)


def _act_as(monkeypatch: pytest.MonkeyPatch, actor: str) -> None:
    monkeypatch.setattr("triskele.engine.local.USER", actor)


def test_undo_shows_the_change_and_the_result(run: Run, add: Add) -> None:
    id = add("Deploys happen on Tuesday")
    run("edit", id, "Deploys happen daily")
    output = run("undo").out
    assert "a change by you in project shop on 20" in output
    assert "edited" in output and "Deploys happen daily" in output
    assert "Restored the earlier text of" in output and ": Deploys happen on Tuesday" in output
    assert "Deploys happen on Tuesday" in run("undo").out
    run("edit", add("Backups run at night"), "--importance", "1")
    assert "Restored the earlier details of" in run("undo").out


def test_undo_stays_in_the_project_and_names_the_wider_options(run: Run, add: Add) -> None:
    add("The other fact", "--project", "other")
    assert run("undo").is_refused(1, "nothing to undo of yours in project shop", "--all-projects", "project other")
    undone = run("undo", "--all-projects", "--json").json["undone"]
    assert [(each["content"], each["project"], each["actor"]) for each in undone] == [
        ("The other fact", "other", "user")
    ]


def test_short_ids_stay_short_after_an_import(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text("".join(f'{{"content": "Fact number {number}"}}\n' for number in range(300)))
    run("import", str(notes))
    shown = [line.split()[0] for line in run("list", "--limit", "300").out.splitlines()[1:301]]
    assert {len(id) for id in shown} == {8}
    assert run("show", shown[7]).code == 0


def test_undo_of_several_changes_without_a_terminal_needs_yes(run: Run, tmp_path: Path) -> None:
    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"content": "One"}\n{"content": "Two"}\n')
    batch = run("import", str(notes), "--json").json["batch"]
    assert run("undo").is_refused(2, "2 changes by an import in project shop", "--yes")
    assert run("undo", "--batch", batch, "--json").is_refused(2, "--yes")
    assert len(run("list", "--json").json["memories"]) == 2
    assert "added" in run("undo", "--yes").out
    assert run("list", "--json").json["memories"] == []


def test_undo_counts_changes(run: Run, add: Add, tmp_path: Path) -> None:
    for name, text in (("one", "The mill turns, see [[two]]"), ("two", "The wind blows")):
        (tmp_path / f"{name}.md").write_text(text)
    run("import", str(tmp_path), "--format", "markdown")
    assert run("undo").is_refused(2, "this would undo 3 changes by an import", "--yes")
    heading, *lines = run("undo", "--yes").out.splitlines()
    assert heading.startswith("Undoing 3 changes by an import")
    assert [line.split()[0] for line in lines[:4]] == ["added", "added", "linked", "Forgot"]
    # A new memory and its link to the older one are two changes of one memory: no consent is needed.
    older = add("Deploys happen on Tuesday")
    run("add", "Deploys happen daily", "--supersedes", older)
    heading, *lines = run("undo").out.splitlines()
    assert heading.startswith("Undoing 2 changes by you")
    assert [line.split()[0] for line in lines[:3]] == ["added", "linked", "Forgot"]
    assert run("undo").out.startswith("Undoing a change by you")


def test_undo_restores_visibility_and_reaches_earlier_changes(run: Run, add: Add) -> None:
    add("an older fact")
    id = add("The staging database runs PostgreSQL 14")
    run("edit", id, "--private")
    assert run("show", id, "--json").json["sensitivity"] == "private"
    output = run("undo").out
    assert "version 2: The staging database runs PostgreSQL 14 (before: open)" in output
    assert "Restored the earlier details of" in output and "PostgreSQL 14 (now open)" in output
    assert run("show", id, "--json").json["sensitivity"] == "open"
    run("edit", id, "It runs PostgreSQL 15", "--private")
    assert "Restored the earlier text of" in run("undo").out
    shown = run("show", id, "--json").json
    assert (shown["content"], shown["sensitivity"]) == ("The staging database runs PostgreSQL 14", "open")
    assert "Nothing to change" not in run("undo").out
    assert "an older fact" in run("undo").out
    assert run("undo").is_refused(1, "nothing to undo")


def test_undo_of_another_actor_needs_anyone_and_consent(run: Run, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        _act_as(patched, "client:codex")
        add("Noted by an agent")
    assert run("undo").is_refused(1, "nothing to undo of yours", "--anyone", "1 change by codex")
    assert run("undo", "--anyone").is_refused(2, "1 change by codex", "--yes")
    _terminal(monkeypatch)
    refused = run("undo", "--anyone", stdin="n\n")
    assert refused.code == 1 and "Noted by an agent" in refused.out and "Undo 1 change by codex" in refused.err
    assert run("undo", "--anyone", stdin="y\n").code == 0
    assert run("list", "--json").json["memories"] == []


def test_undo_without_changes_exits_with_1(run: Run) -> None:
    assert run("undo").is_refused(1, "nothing to undo")
    assert run("undo", "--batch", "ffff").is_refused(1, "no batch", "`triskele history`")


def test_refused_undo_names_the_command(run: Run, add: Add, tmp_path: Path) -> None:
    id, gone = add("Deploys happen on Tuesday"), add("The canary sings")
    edit = run("edit", id, "Deploys happen daily", "--json").json["batch"]
    run("forget", "--hard", gone, "--yes")
    refused = run("undo")
    assert refused.is_refused(1, "erased a memory", f"(`triskele undo --batch {edit}`)")
    assert run("undo", "--batch", edit).code == 0

    [first, *_] = run("history", id, "--json").json["entries"]
    run("edit", id, "Deploys happen weekly")
    [*_, last] = run("history", id, "--json").json["entries"]
    refused = run("undo", "--batch", first["batch"])
    assert refused.is_refused(1, "changed later", f"`triskele undo --batch {last['batch']}`")
    assert run("undo", "--batch", last["batch"]).code == 0

    notes = tmp_path / "notes.jsonl"
    notes.write_text('{"content": "One"}\n{"content": "Two"}\n')
    batch = run("import", str(notes), "--json").json["batch"]
    assert run("undo").is_refused(2, f"`triskele undo --batch {batch} --yes`")
    assert run("undo", "--batch", batch, "--yes").code == 0


def test_undo_after_an_erasure_says_so(run: Run, add: Add) -> None:
    run("forget", "--hard", add("The canary sings"), "--yes")
    assert run("undo").is_refused(1, "erased a memory", "nothing before it to undo")


def test_help_of_add_lists_the_categories(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "preferences, projects, people" in run("add", "--help").out
    monkeypatch.setenv("TRISKELE_MEMORY_CATEGORIES", "facts,recipes")
    assert "facts, recipes" in run("add", "--help").out


def test_forget_hard_erases_every_byte_and_names_copies(run: Run, add: Add, home: Path) -> None:
    id = add("The canary sings xylophonically")
    run("backup", "kept.db")
    run("restore", "kept.db", "--yes")
    document = run("forget", "--hard", id, "--yes", "--json").json
    assert document["action"] == "erased"
    assert [Path(path).name[:22] for path in document["erased_copies"]] == ["memories.before-restor"]
    assert [Path(path).name for path in document["kept_copies"]] == ["kept.db"]
    files = [path for path in home.rglob("*") if path.is_file() and str(path) not in document["kept_copies"]]
    assert files and not any(b"xylophonically" in path.read_bytes() for path in files)
    assert run("show", id).is_refused(1, "no memory")


def test_forget_hard_without_a_terminal_needs_yes(run: Run, add: Add) -> None:
    id = add("The canary sings")
    assert run("forget", "--hard", id).is_refused(2, "--yes")
    assert run("forget", "--hard", id, "--json").is_refused(2, "--yes")
    assert run("show", id).code == 0


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 130)])
def test_forget_hard_shows_the_text_before_it_asks(
    run: Run, add: Add, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    ids = [add("The canary sings\x1b[31m\nall day"), add("hunter2 is the password", "--secret", "--title", "Door")]
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    ran = run("forget", "--hard", *ids, stdin=answer)
    assert ran.code == code
    assert f"{ids[0]}  The canary sings[31m all day\n" in ran.err and f"{ids[1]}  [SECRET] Door\n" in ran.err
    assert "hunter2" not in ran.err and "Erase 2 memories? This cannot be undone." in ran.err
    assert run("show", ids[0]).code == (1 if code == 0 else 0)


@pytest.mark.parametrize(
    "command",
    [["show", "{}"], ["forget", "{}"], ["edit", "{}", "x"], ["history", "{}"], ["link", "{}", "part-of", "{}"]],
)
def test_ambiguous_prefix_is_refused(run: Run, add: Add, command: list[str]) -> None:
    prefix = add("one fact")[:4]
    add("another fact")
    assert run(*(part.format(prefix) for part in command)).is_refused(2, "fits several")


def test_output_of_changes_is_short_sentences(run: Run, add: Add) -> None:
    output = run("add", "We deploy with Argo CD").out
    assert output.startswith("Added ") and output.endswith(" (project shop).\n")
    assert run("add", "We deploy with Argo CD").out.startswith("Already stored as ")
    id = run("list", "--json").json["memories"][0]["id"]
    assert run("edit", id, "We deploy with Flux").out.startswith("Edited ")
    forgotten = run("forget", id).out
    assert forgotten.startswith("Forgot ") and "triskele undo --batch" in forgotten


@pytest.mark.parametrize("origin", [each for each in Origin if each is not Origin.USER])
def test_add_raises_the_origin_of_a_stored_text(run: Run, home: Path, origin: Origin) -> None:
    with LocalEngine(config.load({"TRISKELE_HOME": str(home)}), Path.cwd()) as engine:
        [stored] = engine.apply([AddMemory(engine.draft("The cache lives in Redis", project="shop", origin=origin))])
    said = run("add", "The cache lives in Redis").out
    assert said.startswith(f"Already stored as {stored.id[:4]}") and "Its origin is user now." in said
    shown = run("show", stored.id, "--json").json
    assert (shown["origin"], shown["version"]) == ("user", 2)
    again = run("add", "The cache lives in Redis", "--json").json
    assert (again["id"], again["batch"]) == (stored.id, None) and "origin" not in again
    run("undo")
    assert run("show", stored.id, "--json").json["origin"] == origin
    raised = run("add", "The cache lives in Redis", "--json").json
    assert (raised["action"], raised["origin"], raised["version"]) == ("duplicate", "user", 4)
