"""Archives: SQLite to Postgres and back is the same archive, the same rankings, and embeds nothing."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, TriskeleError
from triskele.exchange.archive import export_archive, import_archive
from triskele.exchange.transfer import export_memories, import_memories
from triskele.models.bundled import BundledEmbedder
from triskele.store.archive import LEFT_OUT, TABLES
from triskele.types import Answer, LinkKind, Sensitivity

pytestmark = pytest.mark.slow

Open = Callable[..., LocalEngine]
SECRET = "the wifi password is Tq8/+xPv2#kd"
MINE: dict[str, Any] = {"keep_origin": True}


@pytest.fixture
def open_as(tmp_path: Path) -> Iterator[Open]:
    """Opens the engine of a store in a data folder of its own; all share the key of the vault."""
    with ExitStack() as stack:

        def open_one(home: str, url: str = "", owner: str = "me", model: str = "bundled") -> LocalEngine:
            environment = {
                "TRISKELE_HOME": str(tmp_path / home),
                "TRISKELE_PROJECT": "demo",
                "TRISKELE_MEMORY_OWNER": owner,
                "TRISKELE_RECALL_MODEL": model,
                "TRISKELE_PRIVACY_KEY": str(tmp_path / "vault.key"),
            }
            url = url or f"sqlite:///{tmp_path / home / 'memories.db'}"
            return stack.enter_context(LocalEngine(config.load(environment, store_url=url), tmp_path))

        yield open_one


@pytest.fixture
def unembedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are embedded from now on."""
    made, encode = list[str](), BundledEmbedder.encode_documents

    def count(self: BundledEmbedder, texts: Any, *rest: Any) -> Any:
        made.extend(texts)
        return encode(self, texts, *rest)

    monkeypatch.setattr(BundledEmbedder, "encode_documents", count)
    return made


def _lived_in(engine: LocalEngine) -> None:
    """Edits, forgets, links, secrets, an undone batch, an erasure and usage."""
    lamp = engine.remember("The lamp of Zoë Marsh is green", tags=["home"], speaker="Zoë", role="user").id
    engine.edit(lamp, content="The lamp of Zoë Marsh is blue")
    engine.undo(engine.edit(lamp, tags=["light"])[0].batch)
    helm = engine.remember("We deploy with Helm", valid_from="2026-01-01").id
    engine.remember("We deploy with Argo CD", supersedes=helm)
    engine.forget(engine.remember("A forgotten remark").id)
    engine.link(lamp, LinkKind.SEE_ALSO, helm)
    engine.unlink(lamp, LinkKind.SEE_ALSO, helm)
    engine.edit(engine.remember(SECRET, title="Wifi of the office").id, tags=["wifi"])
    engine.erase(engine.remember("Erased for good").id)
    engine.remember("The doctor said rest", sensitivity=Sensitivity.PRIVATE)
    engine.upkeep.embed()
    engine.recall("which lamp does Zoë have?")
    engine.deferred_writes.flush()
    engine.store.usage.injected("talk", [], client="claude-code", project="demo")


def _moved(source: LocalEngine, target: LocalEngine, path: Path, **options: Any) -> bytes:
    export_archive(source, path, include_private=True, **options)
    import_archive(target, path, **MINE, **options)
    return path.read_bytes()


def _written(engine: LocalEngine, path: Path, **options: Any) -> bytes:
    export_archive(engine, path, include_private=True, **options)
    return path.read_bytes()


def _plain(engine: LocalEngine, path: Path) -> str:
    export_memories(engine, path, include_private=True, with_secrets=True)
    return path.read_text()


def _questions(step: int) -> list[str]:
    lines = (resources.files("triskele.samples") / "team" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[::step]]


def _ranking(answer: Answer) -> list[tuple[str, Any]]:
    return [(hit.memory.id, pytest.approx(hit.score, abs=1e-6)) for hit in answer.hits]


def test_a_round_over_both_stores_changes_nothing_and_embeds_nothing(
    open_as: Open, team_home: Path, tmp_path: Path, new_postgres: Callable[[], str], unembedded: list[str]
) -> None:
    shutil.copytree(team_home, tmp_path / "first")
    first = open_as("first")
    _lived_in(first)
    first.lexical.flush()
    embedded = len(unembedded)
    server, other = open_as("server", new_postgres()), open_as("server2", new_postgres())
    last = open_as("last")
    there = _moved(first, server, tmp_path / "there")
    on = _moved(server, other, tmp_path / "on")
    back = _moved(other, last, tmp_path / "back")
    assert there == on == back == _written(last, tmp_path / "again")
    options = {"limit": 50, "all_projects": True, "logged": False}
    for question in [*_questions(24), "which lamp does Zoë have?"]:
        expected = first.recall(question, **options)
        assert len(expected.hits) > 5
        for engine in (server, last):
            assert _ranking(engine.recall(question, **options)) == [(hit.memory.id, hit.score) for hit in expected.hits]
    assert len(unembedded) == embedded
    plain = _plain(first, tmp_path / "first.jsonl")
    assert SECRET in plain
    for name, engine in (("server", server), ("last", last)):
        assert engine.upkeep.inspect(deep=True).findings == ()
        assert _plain(engine, tmp_path / f"{name}.jsonl") == plain


def test_the_secret_is_sealed_in_the_archive(open_as: Open, tmp_path: Path) -> None:
    engine = open_as("one", model="none")
    _lived_in(engine)
    archive = _written(engine, tmp_path / "archive")
    assert b"Tq8" not in archive and b"Wifi of the office" in archive
    assert (tmp_path / "archive").stat().st_mode & 0o077 == 0
    with pytest.raises(BadInput, match="private"):
        export_archive(engine, tmp_path / "refused", include_private=False)
    assert not (tmp_path / "refused").exists()
    with pytest.raises(BadInput, match="takes it where the store is"):
        import_memories(engine, tmp_path / "archive")


@pytest.mark.parametrize("kind", ["file", "database"])
def test_an_archive_that_was_cut_or_altered_changes_nothing(
    open_as: Open, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    source = open_as("source", model="none")
    _lived_in(source)
    lines = _written(source, tmp_path / "archive").splitlines(keepends=True)
    url = request.getfixturevalue("postgres_url") if kind == "database" else ""
    target = open_as("target", url, model="none")
    before = _written(target, tmp_path / "before")
    place = next(number for number, line in enumerate(lines) if b"Argo" in line)
    altered = [*lines[:place], lines[place].replace(b"Argo", b"Ergo"), *lines[place + 1 :]]
    dropped = [*lines[:place], *lines[place + 1 :]]
    damaged = [*lines[:place], b"[nothing\n", *lines[place + 1 :]]
    for wrong in (lines[:-1], lines[:place], altered, dropped, damaged, [*lines, lines[-1]], [*lines[:-1], b"{"]):
        (tmp_path / "wrong").write_bytes(b"".join(wrong))
        with pytest.raises(BadInput, match="nothing was imported"):
            import_archive(target, tmp_path / "wrong", **MINE)
        with pytest.raises(BadInput):
            import_archive(target, tmp_path / "wrong", **MINE, dry_run=True)
        assert _written(target, tmp_path / "after") == before
    # With a digest of its own, and rows that no store writes.
    for wrong in (
        [lines[0], lines[1], lines[2], *lines[2:-1]],
        [lines[0], *lines[2:-1]],
        [lines[2], *lines[1:-1]],
        [*lines[:place], b'["journal",1]\n', *lines[place:-1]],
        [*lines[:2], *(re.sub(rb'^\["journal",\d+,', b'["journal","x",', line) for line in lines[2:-1])],
    ):
        rows = sum(line.startswith(b"[") for line in wrong)
        trailer = {"rows": rows, "sha256": hashlib.sha256(b"".join(wrong)).hexdigest()}
        (tmp_path / "wrong").write_bytes(b"".join(wrong) + json.dumps(trailer).encode() + b"\n")
        with pytest.raises(TriskeleError):
            import_archive(target, tmp_path / "wrong", **MINE)
        assert _written(target, tmp_path / "after") == before
    report = import_archive(target, tmp_path / "archive", **MINE, dry_run=True)
    assert (
        report.memories
        == source.store.census().memories
        == import_archive(target, tmp_path / "archive", **MINE).memories
    )
    with pytest.raises(Conflict, match="has memories of 'me'"):
        import_archive(target, tmp_path / "archive", **MINE)


def test_several_owners_move_together_or_one_under_another_name(
    open_as: Open, tmp_path: Path, postgres_url: str, unembedded: list[str]
) -> None:
    path = f"sqlite:///{tmp_path / 'home' / 'memories.db'}"
    for owner in ("anna", "ben"):
        engine = open_as("home", path, owner)
        engine.remember(f"The lamp of {owner} is green")
        _lived_in(engine)
        engine.remember("We meet on Mondays")
        engine.upkeep.embed()
    anna, there = open_as("home", path, "anna"), open_as("there", owner="carla")
    _lived_in(there)
    count = len(unembedded)
    archive = tmp_path / "all"
    export_archive(anna, archive, include_private=True, all_owners=True)
    with pytest.raises(BadInput, match="2 owners"):
        import_archive(open_as("server", postgres_url), archive, **MINE)
    server = open_as("server", postgres_url, "ben")
    assert import_archive(server, archive, **MINE, all_owners=True).owners == 2
    # A store that has other owners gives other numbers; the archive is the same.
    import_archive(there, archive, **MINE, all_owners=True)
    for home, url in (("server", postgres_url), ("there", "")):
        for owner in ("anna", "ben"):
            theirs, here = open_as(home, url, owner), open_as("home", path, owner)
            assert _written(theirs, tmp_path / "theirs") == _written(here, tmp_path / "here")
            assert [hit.memory.content for hit in theirs.recall(f"the lamp of {owner}", limit=1).hits] == [
                f"The lamp of {owner} is green"
            ]
        assert server.upkeep.inspect(deep=True).findings == there.upkeep.inspect(deep=True).findings == ()
    renamed = open_as("renamed", owner="dora")
    _moved(anna, renamed, tmp_path / "one")
    assert {memory.owner for _, memory in renamed.store.versions()} == {"dora"}
    assert renamed.upkeep.inspect(deep=True).findings == ()
    assert len(unembedded) == count


def test_vectors_of_another_model_are_embedded_again(
    open_as: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unembedded: list[str]
) -> None:
    engine = open_as("one")
    engine.remember("The lamp is green")
    engine.upkeep.embed()
    with monkeypatch.context() as patched:
        patched.setattr(BundledEmbedder, "fingerprint", "another:0000")
        other = open_as("other")
        _moved(engine, other, tmp_path / "archive")
        assert other.store.models.seen() == {}
        assert [text for _, text in other.store.vectors.waiting()] == ["The lamp is green"]
        assert other.upkeep.embed() == 1
    assert len(unembedded) == 2


def test_every_table_with_an_owner_moves_or_is_named(open_as: Open) -> None:
    from triskele.server.postgres.migrations import OWNED

    assert {*TABLES, *LEFT_OUT} == set(OWNED)
    connection = open_as("one", model="none").maintenance._database.connection()
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    for table in tables:
        columns = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
        # The mentions of a version are a row of readings, and single ones in a view.
        if "owner" in columns and table not in {*LEFT_OUT, "readings"}:
            unnamed = {"row", "job", "mention", "merge", "lease", "row_hash", "owner"}
            assert columns - unnamed <= set(TABLES[table].names), table
