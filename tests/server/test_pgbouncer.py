"""The store behind PgBouncer in transaction mode: nothing that a transaction set is left to the next one.

`TRISKELE_PGBOUNCER=1 pytest tests/contract -k postgres` runs the whole contract behind it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pgbouncer import CONNECTIONS, PgBouncer, running_pgbouncer
from postgres import PostgresProcess

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.server.postgres.truth import PostgresStore
from triskele.types import Add, Memory

pytestmark = pytest.mark.needs("pgbouncer")
CORE = ("journal", "links")


@pytest.fixture(scope="module")
def bouncer(postgres: PostgresProcess) -> Iterator[PgBouncer]:
    with running_pgbouncer(postgres) as running:
        yield running


@pytest.fixture
def address(bouncer: PgBouncer, postgres_url: str) -> str:
    return bouncer.url(postgres_url)


def _on_every_connection(address: str, query: str) -> list[tuple[object, ...]]:
    """What a query gives on each connection of the pooler to the server: all of them are held at once."""
    together = threading.Barrier(CONNECTIONS)

    def ask() -> list[tuple[object, ...]]:
        with psycopg.connect(address, prepare_threshold=None) as connection, connection.transaction():
            rows = connection.execute(query).fetchall()
            together.wait(60)
            return rows

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        futures = [threads.submit(ask) for _ in range(CONNECTIONS)]
        return [row for each in futures for row in each.result()]


def test_pooled_connections_keep_owners_apart(address: str, make_memory: Callable[..., Memory], tmp_path: Path) -> None:
    store = PostgresStore(address, folder=tmp_path)
    owners = ("alice", "alice ", "bob", "Alice") * 2
    written: dict[str, set[str]] = {owner: set() for owner in owners}

    def write(owner: str) -> None:
        for number in range(12):
            memory = make_memory(f"{owner!r} {number} {threading.get_ident()}", owner=owner)
            store.for_owner(owner).apply([Add(memory)], batch=memory.id)
            written[owner].add(memory.id)
            assert {each.owner for _, each in store.for_owner(owner).versions()} == {owner}

    try:
        with ThreadPoolExecutor(len(owners)) as threads:
            for done in [threads.submit(write, owner) for owner in owners]:
                done.result()
        for owner, ids in written.items():
            assert {memory.id for _, memory in store.for_owner(owner).versions()} == ids
            # The advisory lock holds until the commit: numbers become visible in order.
            numbers = [entry.seq for entry in store.for_owner(owner).journal(limit=1000)]
            assert numbers == sorted(numbers) and len(numbers) == len(ids)
    finally:
        store.close()
    # A connection that no transaction has used yet knows no owner at all.
    owner = "coalesce(current_setting('triskele.owner', true), '')"
    settings = f"SELECT {owner}, current_user, current_setting('lock_timeout')"
    assert _on_every_connection(address, settings) == [("", "postgres", "0")] * CONNECTIONS
    assert _on_every_connection(address, "SELECT count(*) FROM pg_prepared_statements") == [(0,)] * CONNECTIONS
    assert _on_every_connection(address, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")[0] == (0,)


def test_settings_of_a_recall_end_with_its_statement(address: str, tmp_path: Path) -> None:
    store = PostgresStore(address, folder=tmp_path)
    try:
        with store.for_owner("alice").snapshot():
            store.for_owner("alice").census()
        store.for_owner("alice").documents.put("kind", {}, durable=False)
    finally:
        store.close()
    isolated = "SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')"
    assert _on_every_connection(address, isolated) == [("read committed", "on")] * CONNECTIONS


@pytest.mark.parametrize("has_replica", [False, True])
def test_reads_and_writes_release_pooled_connections(
    address: str,
    tmp_path: Path,
    make_memory: Callable[..., Memory],
    monkeypatch: pytest.MonkeyPatch,
    has_replica: bool,
) -> None:
    fetch = psycopg.Pipeline._fetch_gen

    def late(pipeline: Any, *, flush: bool) -> Any:
        # As on a busy machine: the answer is there before the driver sends its Flush.
        if flush and pipeline.result_queue:
            select.select([pipeline.pgconn.socket], [], [], 5)
        return fetch(pipeline, flush=flush)

    # Each with connections of its own, and one more than the pooler has to the server.
    read_url = address if has_replica else ""
    stores = [PostgresStore(address, folder=tmp_path, read_url=read_url) for _ in range(CONNECTIONS + 1)]
    monkeypatch.setattr(psycopg.Pipeline, "_fetch_gen", late)
    for number, store in enumerate(stores):
        assert len(list(store.for_owner("alice").versions())) == number
        memory = make_memory(str(number), owner="alice")
        assert store.for_owner("alice").apply([Add(memory)], batch=memory.id)
    for store in stores:
        assert len(list(store.for_owner("alice").versions())) == len(stores)
    for store in stores:
        store.close()


def test_engines_of_two_users_work_in_parallel(address: str, tmp_path: Path) -> None:
    def day(owner: str) -> list[str]:
        environment = {"TRISKELE_HOME": str(tmp_path / owner), "TRISKELE_PROJECT": "garden"}
        environment |= {"TRISKELE_RECALL_MODEL": "none", "TRISKELE_PRIVACY_KEY": "file", "TRISKELE_MEMORY_OWNER": owner}
        with LocalEngine(config.load(environment, store_url=address), tmp_path) as engine:
            ids = [engine.remember(f"the heron of {owner} fishes at {hour} o'clock").id for hour in range(8)]
            secret = engine.remember("The staging database password is hunter2-Rk4T9w").id
            assert engine.reveal(secret).text.endswith("hunter2-Rk4T9w")
            engine.edit(ids[0], content=f"the stork of {owner} sleeps")
            engine.forget(ids[1])
            engine.undo()
            engine.erase(ids[2], secret)
            assert engine.maintenance.check(deep=True) == []
            return [hit.memory.content for hit in engine.recall("heron fishes").hits]

    with ThreadPoolExecutor(2) as threads:
        answers = {owner: threads.submit(day, owner) for owner in ("alice", "bob")}
        for owner, answer in answers.items():
            assert len(answer.result()) == 6 and all(f"of {owner} " in text for text in answer.result())


@pytest.mark.slow
def test_store_contract_holds_behind_pgbouncer() -> None:
    folder = Path(__file__).parents[1] / "contract"
    modules = [str(folder / f"test_store_{name}.py") for name in CORE]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "postgres"]
    done = subprocess.run(
        [*command, *modules],
        env={**os.environ, "TRISKELE_PGBOUNCER": "1"},
        cwd=folder.parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-3000:]
