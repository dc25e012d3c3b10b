"""Archives with a digest that holds and content that no store wrote: refused before a store is touched."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.exchange.archive import export_archive, import_archive
from triskele.store import archive
from triskele.store.archive import TABLES, TITLE
from triskele.types import LinkKind

Lines = list[Any]
MINE: dict[str, Any] = {"keep_origin": True}


def _open(home: Path, url: str = "", model: str = "none") -> LocalEngine:
    environment = {"TRISKELE_HOME": str(home), "TRISKELE_PROJECT": "demo", "TRISKELE_RECALL_MODEL": model}
    return LocalEngine(config.load(environment, store_url=url or f"sqlite:///{home / 'memories.db'}"), home.parent)


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """The lines of a good archive without its digest, which `_sealed` adds."""
    with _open(tmp_path / "source") as engine:
        lamp = engine.remember("The lamp is green", tags=["home"]).id
        engine.link(lamp, LinkKind.SEE_ALSO, engine.remember("We deploy with Helm").id)
        engine.undo(engine.edit(lamp, tags=["light"])[0].batch)
        engine.store.usage.injected("talk", [], client="claude-code", project="demo")
        export_archive(engine, tmp_path / "archive", include_private=True)
    return [json.loads(line) for line in (tmp_path / "archive").read_bytes().splitlines()[:-1]]


def _sealed(lines: Lines, path: Path) -> Path:
    raw = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    end = {"rows": sum(isinstance(line, list) for line in lines), "sha256": hashlib.sha256(raw).hexdigest()}
    path.write_bytes(raw + json.dumps(end, separators=(",", ":")).encode() + b"\n")
    return path


def _refused(engine: LocalEngine, path: Path, match: str) -> None:
    for dry_run in (True, False):
        with pytest.raises(BadInput, match=match):
            import_archive(engine, path, **MINE, dry_run=dry_run)


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """An engine over an empty store."""
    url = request.getfixturevalue("postgres_url") if request.param == "database" else ""
    with _open(tmp_path / "target", url) as engine:
        yield engine


def test_an_archive_cannot_use_up_the_numbers_of_a_store(target: LocalEngine, lines: Lines, tmp_path: Path) -> None:
    good, huge = [json.dumps(line) for line in lines], 2**63 - 100
    for sealed in (False, True):
        for changed in ((0,), (1,), (0, 1)):
            for number in (huge, -1, lines[0]["numbers"]["seq"] + 1):
                wrong = [json.loads(line) for line in good]
                for index in changed:
                    wrong[index]["numbers"]["seq"] = number
                path = _sealed(wrong, tmp_path / "wrong")
                if not sealed:
                    path.write_bytes(path.read_bytes().replace(b"green", b"greed"))
                _refused(target, path, "nothing was imported")
    for name, rank in (("seq", huge), ("seq", 0), ("id", f"place {huge}"), ("undoes", huge)):
        wrong = [json.loads(line) for line in good]
        _set(wrong, "journal", name, rank)
        _refused(target, _sealed(wrong, tmp_path / "wrong"), "row of journal that could not be read again")
    _refused(target, _sealed([lines[0], *lines[2:]], tmp_path / "wrong"), "rows before their owner")
    target.remember("Writes go on")
    # Not a small number: tests before this one have used the same database.
    assert target.store.journal()[-1].seq < 2**32
    assert target.upkeep.inspect(deep=True).findings == ()


def _set(lines: Lines, table: str, name: str, value: Any) -> int:
    """Change a value in the last row of a table; the number of its line."""
    place = max(number for number, line in enumerate(lines) if isinstance(line, list) and line[0] == table)
    lines[place][1 + TABLES[table].names.index(name)] = value
    return place + 1


UNREADABLE = [
    ("versions", "sensitivity", "bogus"),
    ("versions", "origin", "bogus"),
    ("versions", "role", "bogus"),
    ("versions", "tags", "no list"),
    ("versions", "tags", '{"a":1}'),
    ("versions", "tags", "[1]"),
    ("versions", "created_at", 2**62),
    ("versions", "content", "The text of another hash"),
    ("versions", "importance", float("nan")),
    ("versions", "importance", 1),
    ("versions", "project", 7),
    ("links", "kind", "bogus"),
    ("links", "known_from", -(2**62)),
    ("journal", "action", "bogus"),
    ("journal", "at", 2**62),
    ("journal", "batch", 7),
    ("conversations", "at", 2**62),
]


@pytest.mark.parametrize(("table", "name", "value"), UNREADABLE)
def test_rows_that_could_not_be_read_again_are_refused(
    lines: Lines, tmp_path: Path, table: str, name: str, value: Any
) -> None:
    number = _set(lines, table, name, value)
    with _open(tmp_path / "target") as target:
        _refused(target, _sealed(lines, tmp_path / "wrong"), f"line {number} of the archive is a row of {table} ")
        assert not target.recall("which lamp?").hits


@pytest.mark.parametrize("format", [1, 3, "2"])
def test_an_archive_of_another_format_is_refused(lines: Lines, tmp_path: Path, format: object) -> None:
    lines[0][TITLE] = format
    with _open(tmp_path / "target") as target:
        _refused(target, _sealed(lines, tmp_path / "wrong"), "another version of triskele")


@pytest.fixture
def embedded(tmp_path: Path) -> Lines:
    """The lines of an archive with the vectors of three memories, without its digest."""
    with _open(tmp_path / "embedded", model="bundled") as engine:
        for text in ("The lamp is green", "We deploy with Helm", "The kettle is red"):
            engine.remember(text)
        engine.upkeep.embed()
        export_archive(engine, tmp_path / "archive", include_private=True)
    return [json.loads(line) for line in (tmp_path / "archive").read_bytes().splitlines()[:-1]]


@pytest.mark.parametrize("size", [0, 3, 4, 4 * 255, 4 * 256 - 1, 4 * 100_000, 255, 385])
def test_a_vector_of_another_size_is_refused(embedded: Lines, tmp_path: Path, size: int) -> None:
    number = _set(embedded, "vectors", "vector", base64.b64encode(bytes(size)).decode())
    with _open(tmp_path / "target") as target:
        _refused(target, _sealed(embedded, tmp_path / "wrong"), f"line {number} of the archive is a row of vectors ")
        assert target.store.census().memories == 0


def test_impossible_vectors_are_refused(embedded: Lines, tmp_path: Path) -> None:
    index = 1 + TABLES["vectors"].names.index("vector")
    for line in embedded:
        if isinstance(line, list) and line[0] == "vectors":
            line[index] = base64.b64encode(bytes(8)).decode()
    with _open(tmp_path / "target", model="bundled") as target:
        _refused(target, _sealed(embedded, tmp_path / "wrong"), "another size than their model makes")
        assert target.store.census().memories == 0


def test_a_file_that_changes_while_it_is_read_is_refused(
    target: LocalEngine, lines: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, check = tmp_path / "changing", archive.check
    other = json.loads(json.dumps(lines))
    _set(other, "versions", "category", "decisions")
    head = json.loads(json.dumps(lines))
    head[0]["numbers"]["seq"] = 2**63 - 100

    def changing(to: Lines) -> Callable[[Any], archive.Checked]:
        def checked(raw: Any) -> archive.Checked:
            problem = check(raw)
            _sealed(to, path)
            return problem

        return checked

    for to in (other, head):
        _sealed(lines, path)
        monkeypatch.setattr(archive, "check", changing(to))
        with pytest.raises(BadInput, match="changed while it was read"):
            import_archive(target, path, **MINE)
        assert target.store.census().memories == 0
    monkeypatch.undo()
    assert import_archive(target, _sealed(lines, path), **MINE).memories == 2


def test_a_batch_ends_by_bytes_too() -> None:
    rows = [("documents", {"value": "x" * 2**20}) for _ in range(20)]
    assert [len(batch) for _, batch in archive.batches(iter(rows))] == [8, 8, 4]
