"""Secrets in source: masked in everything shown, whether the file is as it was indexed, changed, or changing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triskele.code import parsing, secrets, segment, tree_index
from triskele.code import search as search_module
from triskele.code.search import CodeSearch
from triskele.code.secrets import MASK, SourceText
from triskele.privacy import detect

KEY = "ghp_" + "Q7xVb2Lk9TzR4mWc8YpN3sHd6JfGaE1uKo5i"
OTHER = "ghp_" + "Z1yWd8Nq3RsT6vBk9MpX2cLf4HgJ7aEu5Oi0"
BODY = "\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for _ in range(8))
BLOCK = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----"


def _tree(tmp_path: Path, **files: str) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for name, text in files.items():
        (root / f"{name}.py").write_text(text, encoding="utf-8")
        os.utime(root / f"{name}.py", (1, 1))
    return root


def _indexed(tmp_path: Path, **files: str) -> CodeSearch:
    search = CodeSearch(tmp_path / "home", _tree(tmp_path, **files))
    search.index()
    return search


def _snippets(search: CodeSearch, question: str) -> str:
    hits = search.search(question, limit=50).hits
    assert hits
    return "\n".join(hit.snippet for hit in hits)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that detection was asked about."""
    seen: list[str] = []

    def noting(text: str) -> tuple[secrets.Span, ...]:
        seen.append(text)
        return tuple((found.start, found.end) for found in detect.find(text))

    monkeypatch.setattr(secrets, "secrets_in", noting)
    return seen


def test_secrets_are_masked_everywhere_and_stored_nowhere(tmp_path: Path) -> None:
    search = _indexed(tmp_path, client=f"def connect(password='{KEY}'):\n    token = '{KEY}'\n    return token\n")
    [hit] = search.search("connect token").hits
    assert KEY not in hit.snippet and MASK in hit.snippet and "return token" in hit.snippet
    assert all(KEY.encode() not in path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    uses = search.symbol("token").references
    assert uses and all(KEY not in use.text for use in uses)
    assert KEY not in search.symbol("connect").definitions[0].definition.signature


def test_search_applies_the_findings_of_indexing(tmp_path: Path, searched: list[str]) -> None:
    search = _indexed(tmp_path, client=f"def connect():\n    return '{KEY}'\n")
    assert KEY not in _snippets(search, "connect")
    assert searched == []
    # Nor in another process.
    assert KEY not in _snippets(CodeSearch(tmp_path / "home", search.root), "connect")
    assert searched == []


@pytest.mark.parametrize("lines_before", [0, 1, 30, 39, 40, 41, 59, 60, 61, 80])
def test_a_secret_at_the_border_of_a_chunk_is_masked_on_both_sides(tmp_path: Path, lines_before: int) -> None:
    padding = "".join(f"    ledger_{number} = ledger_entry({number}) + 'some ledger text'\n" for number in range(200))
    lines = padding.splitlines(keepends=True)
    text = (
        "def ledger():\n" + "".join(lines[:lines_before]) + f"    key = '''{BLOCK}'''\n" + "".join(lines[lines_before:])
    )
    search = _indexed(tmp_path, ledger=text)
    corpus, _ = search._corpus()
    source = search._source(corpus, 0)
    shown = "\n".join(source.shown(first, last) for first, last in corpus.chunk_lines.tolist())
    assert MASK in shown and "MIIEvQ" not in shown
    assert "MIIEvQ" not in _snippets(search, "ledger entry key")


@pytest.mark.parametrize(("first", "last", "shown"), [(3, 11, f"{MASK}\nrest"), (1, 4, MASK), (3, 5, MASK)])
def test_a_part_of_a_secret_is_masked(first: int, last: int, shown: str) -> None:
    assert SourceText(f"{BLOCK}\nrest").shown(first, last) == shown


def test_a_secret_named_on_the_line_before_the_snippet_is_masked() -> None:
    assert SourceText("api_key:\n  Zx81kQpL40vRt7YmNw29\n").shown(2, 2) == f"  {MASK}"


def test_lines_beyond_the_file_show_nothing() -> None:
    assert SourceText("one\ntwo").shown(2, 9) == "two"
    assert SourceText("one\ntwo").shown(5, 9) == ""


def test_broken_characters_do_not_move_the_mask(tmp_path: Path) -> None:
    root = _tree(tmp_path)
    (root / "a.py").write_bytes(
        b"# \xff\xfe \xf0\x9f\x90\x8d \xe4\ndef connect():\r\n    return '" + KEY.encode() + b"'\n"
    )
    search = CodeSearch(tmp_path / "home", root)
    search.index()
    [hit] = search.search("connect").hits
    assert KEY not in hit.snippet and hit.snippet.endswith(f"return '{MASK}'")


def test_changed_file_is_masked_again(tmp_path: Path) -> None:
    search = _indexed(tmp_path, client="def connect():\n    return 1\n")
    (search.root / "client.py").write_text(f"# moved\n# by some lines\ndef connect():\n    return '{KEY}'\n")
    shown = _snippets(search, "connect")
    assert KEY not in shown and MASK in shown


def test_a_file_that_changes_between_the_index_and_the_snippet_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = _indexed(tmp_path, client=f"def connect():\n    return '{KEY}'\n")
    place = search.root / "client.py"
    rank = search_module.rank

    def changing(*values: object, **named: object) -> object:
        place.write_text(f"def connect(first, second):\n    return '{OTHER}'\n")
        return rank(*values, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(search_module, "rank", changing)
    assert _snippets(search, "connect") == f"def connect(first, second):\n    return '{MASK}'"


def test_a_file_that_changes_while_it_is_indexed_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _tree(tmp_path, client=f"def connect():\n    return '{'x' * len(KEY)}'\n")
    place, read = root / "client.py", tree_index.read

    def changing(folder: Path, path: str) -> bytes | None:
        source = read(folder, path)
        # Size and time stay the same: no search notices.
        place.write_text(f"def connect():\n    return '{KEY}'\n")
        os.utime(place, (1, 1))
        return source

    monkeypatch.setattr(tree_index, "read", changing)
    search = CodeSearch(tmp_path / "home", root)
    search.index()
    shown = _snippets(search, "connect")
    assert KEY not in shown and MASK in shown


def test_a_file_that_vanishes_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = _indexed(tmp_path, client=f"def connect():\n    return '{KEY}'\n")
    monkeypatch.setattr(search_module, "read", lambda *_: None)
    assert [hit.snippet for hit in search.search("connect").hits] == [""]


def test_findings_of_another_version_of_detection_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: list[str]
) -> None:
    monkeypatch.setattr(parsing, "secrets_in", lambda _: ())
    monkeypatch.setattr(segment, "detector", lambda: 1)
    search = _indexed(tmp_path, client=f"def connect():\n    return '{KEY}'\n")
    assert KEY not in _snippets(search, "connect")
    assert len(searched) == 1
    monkeypatch.undo()
    # The next indexing reads every file again, and then queries apply what it found.
    again = CodeSearch(tmp_path / "home", search.root)
    again.index()
    assert again._corpus()[0].secrets_of(0)
    assert KEY not in _snippets(again, "connect")


def test_detection_without_a_version_is_never_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_DETECTION", (type("Frozen", (), {"__file__": str(tmp_path / "none.py")}),))
    secrets.detector.cache_clear()
    try:
        assert secrets.detector() == secrets.UNKNOWN
        search = _indexed(tmp_path, client=f"def connect():\n    return '{KEY}'\n")
        assert search._corpus()[0].secrets_of(0) is None
        assert KEY not in _snippets(search, "connect")
    finally:
        secrets.detector.cache_clear()


def test_the_version_follows_every_module_of_detection() -> None:
    used = {name for name, each in vars(detect).items() if getattr(each, "__name__", "").startswith("triskele.privacy")}
    assert used <= {module.__name__.rpartition(".")[2] for module in secrets._DETECTION}


def test_edits_and_merged_segments_retain_findings(tmp_path: Path, searched: list[str]) -> None:
    search = _indexed(
        tmp_path,
        first=f"def connect_one():\n    return '{KEY}'\n",
        second=f"X = 1\n\ndef connect_two():\n    return '{OTHER}'\n",
        third="def connect_three():\n    return 3\n",
    )
    for number in range(tree_index.MAX_SEGMENTS + 2):
        (search.root / "third.py").write_text(f"def connect_three():\n    return '{KEY}' + '{'x' * number}'\n")
        shown = _snippets(search, "connect one two three")
        assert KEY not in shown and OTHER not in shown and shown.count(MASK) == 3
    (search.root / "first.py").unlink()
    search.index()
    shown = _snippets(search, "connect one two three")
    assert KEY not in shown and OTHER not in shown and shown.count(MASK) == 2
    assert searched == []
