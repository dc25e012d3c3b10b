"""How much one Postgres and one instance can serve: rows of a hundred owners, the largest with a fifth of them.

    python benchmarks/scale.py 10000 100000 1000000 [--result FILE]

Each size is a separate database, filled by COPY: texts of about 20 words drawn from the sample corpus, random unit
vectors of the bundled model's dimensions and 12 token vectors each, owners by Zipf's law. There are no names, so that
the graph leg has no links. Then an instance of its own, a new process without indexes, asks for the largest, the
median and the smallest owner: the first answer (cold), p50 and p95 of the next ones, writes one by one, and how much
memory they take; at last it opens as many owners as a server keeps open, the smallest beside these. Queries are encoded
before any clock runs. Server and instance share the machine; `fsync` is off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import psycopg
from postgres import open_engine, rehearse, server_module

from triskele.config import ServerSettings
from triskele.index.token_vectors import bytes_of, to_row
from triskele.models.bundled import bundled
from triskele.server.postgres.connections import Connections
from triskele.store.rows import JOURNAL_COLUMNS, VERSION_COLUMNS, from_memory, row_hash, version_hash
from triskele.store.vector_bytes import row_of
from triskele.text import timestamps
from triskele.text.ids import IdMaker, content_hash
from triskele.types import USER, Action, Memory

OWNERS = 100
WORDS, TOKENS = 20, 12
ASKED, WRITTEN = 40, 20
BATCH = 5000
OPEN = ServerSettings().open_memories


def sizes(rows: int) -> list[int]:
    """How many rows each owner has, the largest first: in proportion to 1, 1/2, 1/3, …"""
    shares = 1 / np.arange(1, OWNERS + 1)
    return [max(1, int(share)) for share in rows * shares / shares.sum()]


def owner(number: int) -> str:
    """The name of an owner."""
    return f"user-{number:03d}"


def sample(name: str) -> list[str]:
    """The texts of a file of the sample corpus."""
    lines = (resources.files("triskele.samples") / "team" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def memories(number: int, count: int, ids: IdMaker) -> Iterator[Memory]:
    """The memories of one owner, in batches of random words."""
    words = np.array(" ".join(sample("corpus.jsonl")).split())
    chance = np.random.default_rng(number)
    for at in range(count):
        text = f"{number}-{at} " + " ".join(words[chance.integers(len(words), size=WORDS)])
        now = timestamps.now()
        yield Memory(
            id=ids.make(now),
            content=text,
            content_hash=content_hash(text),
            owner=owner(number),
            project="bench",
            created_at=now,
            updated_at=now,
            known_from=now,
        )


def fill(url: str, rows: int) -> dict[str, Any]:
    """Write every owner; how long it took and how large the database is."""
    Connections(url).close()
    started = time.perf_counter()
    made = 0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = triskele; SET synchronous_commit = off")
        ids = IdMaker()
        for number, count in enumerate(sizes(rows), 1):
            connection.execute("INSERT INTO owners VALUES (%s)", [owner(number)])
            connection.execute("INSERT INTO marks VALUES (%s, 'model', %s)", [owner(number), bundled().fingerprint])
            batch: list[Memory] = []
            for memory in memories(number, count, ids):
                batch.append(memory)
                if len(batch) == BATCH:
                    made = copy(connection, batch, made)
                    batch = []
            made = copy(connection, batch, made)
        for table, column in (("versions", "row"), ("journal", "seq"), ("vectors", "slot")):
            connection.execute(f"SELECT setval(pg_get_serial_sequence('triskele.{table}', '{column}'), {made})")
        connection.execute("ANALYZE")
        took_s = time.perf_counter() - started
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return {"rows": made, "filled_s": took_s, "rows_per_s": made / took_s, "database_mb": row[0] / 1e6 if row else 0}


def copy(connection: Any, batch: list[Memory], made: int) -> int:
    """Copy rows, their journal entries and their vectors; how many rows there are now."""
    chance, model = np.random.default_rng(made), bundled()
    vectors = chance.normal(size=(len(batch), model.dimensions)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokens = chance.integers(256, size=(len(batch), TOKENS, bytes_of(model.token_dimensions)), dtype=np.uint8)
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY versions (row, {VERSION_COLUMNS}, row_hash) FROM STDIN") as rows:
            for number, memory in enumerate(batch, made + 1):
                values = from_memory(memory)
                rows.write_row([number, *values, version_hash(values)])
        with cursor.copy(f"COPY journal (seq, owner, {JOURNAL_COLUMNS}, row_hash) FROM STDIN") as rows:
            for number, memory in enumerate(batch, made + 1):
                told = [timestamps.to_micros(memory.known_from), Action.ADDED.value, memory.id, 1, None, None, None]
                values = [memory.owner, *told, "bench", None, USER]
                rows.write_row([number, *values, row_hash(values)])
        with cursor.copy("COPY vectors (slot, owner, content_hash, fingerprint, vector, tokens) FROM STDIN") as rows:
            for at, memory in enumerate(batch):
                raw = row_of(vectors[at]), to_row(tokens[at])
                rows.write_row([made + 1 + at, memory.owner, memory.content_hash, model.fingerprint, *raw])
    return made + len(batch)


def ask(url: str, corpus: str) -> dict[str, Any]:
    """Times of one new instance for some owners; its memory before, and with many owners open."""
    questions = sample("queries.jsonl")[:ASKED]
    found: dict[str, Any] = {"empty_mb": resident_mb()}
    with tempfile.TemporaryDirectory() as folder:
        home, opened = Path(folder), []
        known = None
        for place, number in (("largest", 1), ("median", OWNERS // 2), ("smallest", OWNERS)):
            engine = open_engine(url, home, corpus, owner(number))
            opened.append(engine)
            known = rehearse(engine, known)
            for question in questions:
                known.encode_query(question)
            before = resident_mb()
            found[place] = {**asked(engine, questions), "index_mb": size_mb(home, number)}
            found[place]["more_mb"] = resident_mb() - before
        # The largest is open already: with the next ones this would be nearly all rows, and minutes of indexing.
        for number in range(OWNERS - 1, OWNERS - OPEN + 1, -1):
            if number != OWNERS // 2:
                engine = open_engine(url, home, corpus, owner(number))
                rehearse(engine, known)
                engine.recall(questions[0], logged=False)
                opened.append(engine)
        found["open"], found["open_mb"] = len(opened), resident_mb()
        for engine in opened:
            engine.close()
    return found


def asked(engine: Any, questions: list[str]) -> dict[str, Any]:
    """The first answer, the next ones, and writes one by one."""
    started = time.perf_counter()
    engine.recall(questions[0], logged=False)
    cold_s = time.perf_counter() - started
    rows = engine.store.census().memories
    took = sorted(timed(lambda text=text: engine.recall(text, logged=False)) for text in questions)
    wrote = [timed(lambda at=at: engine.remember(f"Note {at} about berth {at * 7}")) for at in range(WRITTEN)]
    p95 = took[int(len(took) * 0.95)]
    return {
        "rows": rows,
        "cold_s": cold_s,
        "p50_ms": 1000 * statistics.median(took),
        "p95_ms": 1000 * p95,
        "write_ms": 1000 * statistics.median(wrote),
    }


def timed(work: Any) -> float:
    """How many seconds something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def resident_mb() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def size_mb(home: Path, number: int) -> float:
    """The size of an owner's index files."""
    found = home.glob(f"postgres-*/index/{owner(number)}")
    return sum(file.stat().st_size for folder in found for file in folder.rglob("*") if file.is_file()) / 1e6


def table(known: dict[str, Any]) -> Iterator[str]:
    """The first table of benchmarks/notebook/postgres.md, “Scale”."""
    yield "| rows | owner | memories | cold s | p50 ms | p95 ms | write ms | files MB | memory MB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for rows, found in known.items():
        for place in ("largest", "median", "smallest"):
            one = found[place]
            times = " | ".join(f"{one[name]:.0f}" for name in ("p50_ms", "p95_ms", "write_ms"))
            sizes = f"{one['index_mb']:.1f} | {one['more_mb']:.0f}"
            yield f"| {int(rows):,} | {place} | {one['rows']:,} | {one['cold_s']:.1f} | {times} | {sizes} |"
    yield ""
    yield "| rows | filled s | rows/s | database MB | instance, empty MB | with so many owners open, MB |"
    yield "|---|---|---|---|---|---|"
    for rows, found in known.items():
        filled = f"{found['filled_s']:.0f} | {found['rows_per_s']:,.0f} | {found['database_mb']:,.0f}"
        yield f"| {int(rows):,} | {filled} | {found['empty_mb']:.0f} | {found['open']}: {found['open_mb']:.0f} |"


def main() -> None:
    """Fill a database of each size, measure it in a separate process, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="+")
    parser.add_argument("--result", type=Path, default=Path(__file__).parent / "results" / "scale.json")
    parser.add_argument("--corpus", default="local")
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        print(json.dumps(ask(given.ask, given.corpus)))
        return
    known = json.loads(given.result.read_text()) if given.result.exists() else {}
    with server_module().running_server() as server:
        for rows in given.rows:
            url = server.create()
            found = fill(url, rows)
            command = [sys.executable, __file__, str(rows), "--ask", url, "--corpus", given.corpus]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            known[str(rows)] = found | json.loads(done.stdout.splitlines()[-1])
            given.result.write_text(json.dumps(known, indent=1) + "\n")
            print("\n".join(table(known)), flush=True)
            server.drop(url)


if __name__ == "__main__":
    main()
