"""Tables that can be distributed by owner: the script for Citus, and a plan of every statement that the store makes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from contract import owner_walk

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.exchange.archive import export_archive
from triskele.server.postgres.migrations import ACCOUNT_TABLES, DERIVED, EMBEDDINGS, OWNED
from triskele.server.postgres.truth import PostgresStore
from triskele.types import LinkKind, Memory

SCRIPT = Path(__file__).parents[2] / "docs" / "deploy" / "citus.sql"
# Stand in for the functions of Citus: they note which table they were called for.
STAND_INS = """
CREATE TABLE public.calls (number serial, kind text, owned regclass, colocated text);
CREATE FUNCTION public.create_distributed_table(owned regclass, owner text, colocate_with text) RETURNS void
LANGUAGE sql AS $$ INSERT INTO public.calls (kind, owned, colocated) VALUES (owner, owned, colocate_with) $$;
CREATE FUNCTION public.create_reference_table(owned regclass) RETURNS void
LANGUAGE sql AS $$ INSERT INTO public.calls (kind, owned, colocated) VALUES ('reference', owned, '') $$;
"""
PARTS = (
    ("", {**owner_walk.TRUTH, **owner_walk.WHOLE}),
    ("vectors", owner_walk.VECTORS),
    ("names", owner_walk.MENTIONED_NAMES),
    ("jobs", owner_walk.JOBS),
    ("models", owner_walk.MODELS),
    ("documents", owner_walk.DOCUMENTS),
    ("usage", owner_walk.USAGE),
    ("corpus", owner_walk.CORPUS),
)
_CONDITIONS = ("Index Cond", "Filter", "Recheck Cond", "Join Filter", "Hash Cond", "Merge Cond")
# A list of columns names the owner; without one, the owner is the first value.
_INSERT = re.compile(r"INSERT INTO (\w+)(?: AS \w+)?(?: \(([^)]*)\))?")
_BOUND = re.compile(r"\bowner\)?(::text)? = |= \(?\w+\.owner\b")
_EXPLAINED = ("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every statement that is executed from now on, with the values that it had once."""
    seen: dict[str, Any] = {}

    def watch(kind: Any, name: str, is_many: bool) -> None:
        execute = getattr(kind, name)

        def watched(self: Any, query: Any, values: Any = None, *rest: Any, **details: Any) -> Any:
            if isinstance(query, str) and query.lstrip().upper().startswith(_EXPLAINED):
                bindings = list(values or ()) if is_many else values
                seen.setdefault(query, bindings[0] if is_many and bindings else bindings)
                values = bindings
            return execute(self, query, values, *rest, **details)

        monkeypatch.setattr(kind, name, watched)

    watch(psycopg.Cursor, "execute", False)
    watch(psycopg.Cursor, "executemany", True)
    watch(psycopg.ServerCursor, "execute", False)
    return seen


def test_citus_script_distributes_every_owned_table(postgres: Any) -> None:
    url = postgres.create()
    PostgresStore(url, folder=Path("/nowhere")).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE triskele.{EMBEDDINGS} (owner text, PRIMARY KEY (owner))")
        connection.execute(STAND_INS)
        connection.execute(SCRIPT.read_text())
        calls = connection.execute("SELECT owned::text, kind, colocated FROM public.calls ORDER BY number").fetchall()
        tables = {
            name
            for (name,) in connection.execute(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'triskele'::regnamespace"
            )
        }
        guarded = {name for (name,) in connection.execute("SELECT relname FROM pg_class WHERE relrowsecurity")}
        keys = connection.execute(
            "SELECT conrelid::regclass::text, conkey[1] = attnum FROM pg_constraint JOIN pg_attribute"
            " ON attrelid = conrelid AND attname = 'owner' WHERE contype IN ('p', 'u', 'f')"
            " AND connamespace = 'triskele'::regnamespace"
        ).fetchall()
    postgres.drop(url)
    distributed = [name.removeprefix("triskele.") for name, kind, _ in calls if kind == "owner"]
    assert set(distributed) == {"owners", *OWNED, *DERIVED, EMBEDDINGS} and len(set(distributed)) == len(distributed)
    assert distributed[0] == "owners" and distributed.index("conversations") < distributed.index("given")
    assert {colocated for _, kind, colocated in calls if kind == "owner"} == {"none", "triskele.owners"}
    assert {name for name, kind, _ in calls if kind == "reference"} == {"triskele.meta"}
    # What stays behind has no owner, and keeps its policies.
    assert tables - set(distributed) - {"meta"} >= set(ACCOUNT_TABLES)
    assert not guarded & set(distributed) and guarded >= set(ACCOUNT_TABLES)
    assert all(leads for _, leads in keys) and {name.removeprefix("triskele.") for name, _ in keys} >= set(OWNED)


def test_statements_filter_by_owner(
    postgres: Any, tmp_path: Path, make_memory: Callable[..., Memory], statements: dict[str, Any]
) -> None:
    url = postgres.create()
    _walk(url, tmp_path, make_memory)
    _live(url, tmp_path)
    asked = dict(statements)
    owned = {"owners", *OWNED, *DERIVED, EMBEDDINGS}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = triskele, public; SET enable_seqscan = off")
        problems = [
            (problem, query[:300])
            for query, values in asked.items()
            for problem in _problems(connection, query, values, owned)
        ]
    postgres.drop(url)
    assert len(asked) > 150
    assert all(any(table in query for query in asked) for table in (*DERIVED, EMBEDDINGS, "given", "merges"))
    assert problems == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM versions WHERE id = 'x'",
        "SELECT 1 FROM versions JOIN vectors USING (content_hash) WHERE versions.owner = 'alice'",
        "SELECT 1 FROM versions WHERE owner = 'alice' AND row IN (SELECT row FROM mentions)",
        "DELETE FROM jobs WHERE key = 'x'",
        "INSERT INTO marks (name, value) VALUES ('x', 'y')",
    ],
)
def test_statement_without_owner_is_noticed(postgres_url: str, query: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET search_path = triskele, public; SET enable_seqscan = off")
        assert list(_problems(connection, query, None, set(OWNED)))


def _walk(url: str, folder: Path, make_memory: Callable[..., Memory]) -> None:
    """Every call of the protocols."""
    store = PostgresStore(url, folder=folder)
    alice = store.for_owner("alice")
    known = owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, owner_walk.made(make_memory)))
    for _, calls in PARTS:
        for _, call in owner_walk.each_call(calls):
            owner_walk.outcome_of(call, alice, known)
    store.close()


def _live(url: str, folder: Path) -> None:
    """What an engine asks, by both corpora, and an archive of it."""
    for corpus in ("local", "database"):
        environment = {
            "TRISKELE_HOME": str(folder / corpus),
            "TRISKELE_PROJECT": "demo",
            "TRISKELE_STORE_CORPUS": corpus,
        }
        with LocalEngine(config.load(environment, store_url=url), folder) as engine:
            first = engine.remember("Zoë Marsh keeps the green lamp in the hall").id
            other = engine.remember("Zoë Marsh moved the lamp to the office", supersedes=first).id
            engine.link(first, LinkKind.SEE_ALSO, other)
            engine.upkeep.embed()
            assert engine.recall("where is the lamp of Zoë Marsh?").hits
            engine.why_not(first, "lamp")
            engine.undo(engine.edit(other, tags=["home"])[0].batch)
            engine.forget(first)
            engine.store.census()
            export_archive(engine, folder / f"{corpus}.archive", include_private=True)
            engine.erase(other)


def _problems(connection: Any, query: str, values: Any, owned: set[str]) -> Iterator[str]:
    for table, columns in _INSERT.findall(query):
        if table in owned and columns and "owner" not in columns.split(", "):
            yield f"inserts into {table} without its owner"
    text = psycopg.ClientCursor(connection).mogrify(query, values) if values else query.replace("%%", "%")
    [[[plan]]] = connection.execute(f"EXPLAIN (FORMAT JSON, VERBOSE) {text}".replace("%", "%%"), []).fetchall()
    yield from _unbound(plan["Plan"], owned)


def _unbound(node: dict[str, Any], owned: set[str]) -> Iterator[str]:
    """The scans of a plan that no condition binds to an owner."""
    table = node.get("Relation Name")
    children = node.get("Plans", [])
    if table in owned and node["Node Type"] != "ModifyTable":
        conditions = " ".join(json.dumps([each.get(name) for name in _CONDITIONS]) for each in (node, *children))
        if not _BOUND.search(conditions):
            yield f"{node['Node Type']} of {table}: {conditions}"
    for child in children:
        yield from _unbound(child, owned)
