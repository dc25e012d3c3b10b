"""Bad input: one clear line, the right exit code, nothing lost, no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from triskele.errors import StoreUnavailable
from triskele.store.sqlite.schema import OLD_APPLICATION_ID

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Add = Callable[..., str]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", ""], "empty"),
        (["add", " \t\n "], "empty"),
        (["add", "\u200b\u2066"], "empty"),
        (["add", "--split", " "], "empty"),
        (["add", "x" * 1401], "1,401 characters"),
        (["add", "x" * 1401], "(--split)"),
        (["add", "x", "--title", "y"], "(--secret)"),
        (["add", "x", "--category", "nope"], "unknown category"),
        (["add", "x", "--importance", "7"], "between 0 and 1"),
        (["add", "x", "--importance", "nan"], "between 0 and 1"),
        (["add", "x", "--importance", "much"], "--importance"),
        (["add", "x", "--valid-from", "someday"], "not a date"),
        (["add", "x", "--valid-from", "2026-02-01", "--valid-to", "2026-01-01"], "later"),
        (["add", "x", "--tags", "t" * 501], "501 characters"),
        (["add", "x", "--position", "9" * 30], "position"),
        (["add", "x", "--project", "p", "--everywhere"], "exclude each other"),
        (["add", "x", "--split", "--supersedes", "abcd"], "exclude each other"),
        (["add"], "TEXT"),
        (["add", "x", "--limt", "3"], "--limt"),
        (["recall", "x", "--limit", "0"], "between 1 and 200"),
        (["recall", "x", "--limit", "9" * 30], "between 1 and 200"),
        (["recall", "x", "--as-of", "soon"], "not a date"),
        (["recall", "x", "--known-at", "31.13.2025"], "not a date"),
        (["recall", "x", "--category", "nope"], "unknown category"),
        (["recall", "x", "--sort", "colour"], "colour"),
        (["recall", "x", "--project", "p", "--all-projects"], "exclude each other"),
        (["recall"], "QUERY"),
        (["show", "abc"], "no memory"),
        (["show", "not-an-id!"], "no memory"),
        (["show", "line\nbreak"], "no memory"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--offset", "-1"], "--offset"),
        (["list", "--sort", "relevance"], "relevance"),
        (["link", "abcd", "adores", "abcd"], "KIND"),
        (["forget"], "ID"),
        (["completion", "tcsh"], "tcsh"),
        (["nonsense"], "nonsense"),
        (["recal", "x"], "did you mean recall?"),
        (["--nonsense"], "--nonsense"),
        (["add", "--halp"], "unknown option '--halp': did you mean --help?"),
        (["recall", "--explian", "x"], "unknown option '--explian': did you mean --explain?"),
        (["recall", "-hello world"], "unknown option '-hello…'; a text that begins with a dash goes after --"),
        (["add", "- an item"], "unknown option '-…'; a text that begins with a dash goes after --"),
        (["add", "We", "deploy"], "put a text of several words in quotes"),
        (["serch", "x"], "did you mean recall?"),
        (["help", "nonsense"], "nonsense"),
        (["list", "--store", "nonsense"], "not a store address"),
        (["add", "x", "--project", " "], "name a project, or write for all of them with --everywhere"),
        (["import", ""], "the path is empty"),
        (["export", "--format", "foo"], "choose one of jsonl, markdown, archive"),
        (["config", "set", "store.url", "foo://x"], "not a store address"),
        (["config", "set", "index.language", "klingon"], "no stemmer for 'klingon'"),
        (["config", "set", "memory.owner", ""], "a name on one line"),
        (["config", "set", "memory.owner", "a\nb"], "a name on one line"),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Run, arguments: list[str], words: str) -> None:
    assert run(*arguments).is_refused(2, words)


def test_add_refuses_a_nul_on_standard_input(run: Run) -> None:
    assert run("add", "-", stdin=b"a\x00b").is_refused(2, "NUL")


def test_add_refuses_bytes_that_are_not_utf_8(run: Run, program: Run) -> None:
    assert program("add", b"broken \xff\xfe").is_refused(2, "not valid Unicode")
    # Python hands over such bytes as lone surrogates.
    assert run("show", "\udcff" * 4).is_refused(2, "no memory")
    assert run("add", "x", "--project", "\udcff").is_refused(2, "not valid Unicode")
    assert run("undo", "--batch", "\udcff").is_refused(2, "not valid Unicode")
    assert run("add", "-", stdin=b"\xff\xfe\xfd").is_refused(2, "not UTF-8")


@pytest.mark.parametrize(
    "command", [["add", "-"], ["mcp"], ["hook", "user-prompt-submit", "--explain"], ["memory-tool"]]
)
def test_closed_standard_input_is_refused(home: Path, command: list[str]) -> None:
    program = ["-c", "import sys; sys.stdin.close(); sys.stdin = None; from triskele.__main__ import main; main()"]
    environment = {**os.environ, "TRISKELE_HOME": str(home)}
    ended = subprocess.run(
        [sys.executable, *program, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "standard input is closed" in ended.stderr


def test_add_refuses_ten_megabytes_unread(run: Run, home: Path) -> None:
    for options in ([], ["--split"]):
        assert run("add", "-", *options, stdin=b"word " * 2_000_000).is_refused(2, "longer than 4 MB")
    assert not home.exists()


def test_add_of_three_megabytes_names_split(run: Run) -> None:
    assert run("add", "-", stdin=b"x" * 3_000_000).is_refused(2, "3,000,000 characters")


QUERIES = [
    "",
    " ",
    "-",
    "-hello +world",
    "--help me",
    "AND OR NOT NEAR/3",
    '"never closed',
    "((((",
    "content:fact *:* fact^2 fact~",
    "[a TO b] {x} \\ / ^ ~ ? *",
    "'; DROP TABLE versions; --",
    "🔥🔥 👨‍👩‍👧 🏳️‍🌈",
    "\u202e\u2066\u200b",
    "a" * 100_000,
    " ".join(f"word{number}" for number in range(4000)),
    "fact OR " * 4000,
]


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_recall_answers_any_query(run: Run, add: Add, query: str) -> None:
    id = add("one fact")
    document = run("recall", "--json", "--", query).json
    assert [hit["id"] for hit in document["hits"]] in ([], [id])
    assert run("recall", "--explain", "--superseded", "--", query).code == 0


def test_recall_answers_a_query_of_broken_bytes(program: Run) -> None:
    program("add", "one fact")
    assert len(program("recall", b"\xff\xfe fact \xed\xa0\x80", "--json").json["hits"]) == 1


def store_at(path: Path) -> tuple[str, str]:
    return "--store", f"sqlite:///{path}"


def test_store_that_is_a_folder_is_refused(run: Run, tmp_path: Path) -> None:
    assert run("list", *store_at(tmp_path)).is_refused(3, str(tmp_path))


def test_store_that_is_no_database_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(b"Dear database, " * 500)
    assert run("add", "x", *store_at(path)).is_refused(3, "not a triskele store")
    assert path.read_bytes() == b"Dear database, " * 500


def test_database_of_another_program_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    assert run("add", "x", *store_at(path)).is_refused(3, "not one of triskele's")


def test_store_of_a_newer_version_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    run("add", "x", *store_at(path))
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    assert run("list", *store_at(path)).is_refused(3, "newer triskele")


def test_store_before_the_first_release_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "older.db"
    run("add", "x", *store_at(path))
    connection = apsw.Connection(str(path))
    connection.pragma("application_id", OLD_APPLICATION_ID)
    connection.close()
    for command in (["list"], ["add", "y"], ["doctor"]):
        assert run(*command, *store_at(path)).is_refused(3, "`triskele export FILE --private --with-secrets`")


def test_corrupt_store_is_reported(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "corrupt.db"
    run("add", "x", *store_at(path))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x5a" * (len(content) - 4096))
    for command in (["list"], ["recall", "x"], ["add", "y"], ["doctor"]):
        assert run(*command, *store_at(path)).is_refused(3, "damaged")


def test_read_only_folder_is_reported(run: Run, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    # Nothing is read-only to root, except what the kernel itself keeps.
    folder = Path("/proc/self/locked") if os.access(locked, os.W_OK) else locked
    assert run("add", "x", *store_at(folder / "memories.db")).is_refused(3, "memories.db")


@pytest.mark.parametrize("problem", ["the store is read-only", "no space left for the store: nothing was changed"])
def test_failing_write_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable(problem)

    monkeypatch.setattr("triskele.store.sqlite.store.SqliteOwnerStore.apply", fail)
    assert run("add", "x").is_refused(3, problem)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[recall]\nlimt = 3\n", "unknown setting recall.limt"),
        ("[recall]\nlimit = 9000\n", "between 1 and 200"),
        ("[recall\n", "cannot read the settings"),
        ('[index]\nlanguage = "klingon"\n', "klingon"),
    ],
)
def test_wrong_settings_are_refused(run: Run, home: Path, text: str, words: str) -> None:
    home.mkdir()
    (home / "config.toml").write_text(text)
    assert run("list").is_refused(2, words)


def test_internal_error_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("two\nlines \x1b[31m")

    monkeypatch.setattr("triskele.engine.local.LocalEngine.stats", fail)
    assert run("stats").is_refused(3, "a fault inside triskele", "two lines \\x1b[31m")


BROKEN = b"x\xffy"


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--store", b"sqlite:///" + BROKEN],
        ["list", "--store", "sqlite:///~nobody-here/x.db"],
        ["backup", BROKEN],
        ["backup", "~nobody-here/x.db"],
        ["restore", BROKEN],
        ["import", BROKEN],
        ["import", "~nobody-here/x"],
        ["export", "~nobody-here/x"],
        ["models", "switch", "~nobody-here/x"],
    ],
)
def test_unusable_path_is_refused(program: Run, arguments: list[str | bytes]) -> None:
    ran = program(*arguments)
    assert ran.is_refused(ran.code, "nobody-here" if "nobody-here" in str(arguments) else "x")
    assert ran.code in (1, 2, 3) and "fault inside" not in ran.err


@pytest.mark.parametrize("home", [BROKEN.decode("utf-8", "surrogateescape"), "~nobody-here/x"])
def test_unusable_data_folder_is_refused(program: Run, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("TRISKELE_HOME", home)
    for command in (["list"], ["config"], ["doctor"]):
        ran = program(*command)
        assert ran.is_refused(2) and "fault inside" not in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deep"),
        ("a." * 3000 + "b = 1", "nested too deep"),
        ('[store]\nurl = "sqlite:///a\\u0000b.db"', "NUL"),
        ('project = "a\\u0000b"', "NUL"),
        ('[memory]\ncategories = ["a\\u0000b"]', "NUL"),
        ('[recall]\nmodel = "~nobody-here/x"', "nobody-here"),
    ],
)
def test_unusable_settings_file_is_refused(run: Run, home: Path, text: str, words: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text)
    assert run("list").is_refused(2, words)


@pytest.mark.parametrize(
    "arguments", [["show", "nope"], ["recall"], ["nonsense"], ["--nonsense"], ["list", "--store", "nonsense"]]
)
def test_json_errors_have_the_same_exit_code(run: Run, arguments: list[str]) -> None:
    plain, as_json = run(*arguments), run(*arguments, "--json")
    assert plain.out == "" and plain.code == as_json.code and plain.err == as_json.err
    assert json.loads(as_json.out) == {"error": as_json.err.removeprefix("triskele: ").strip()}


def test_text_after_dashes_is_no_option(run: Run) -> None:
    assert run("show", "--", "--json").out == ""
