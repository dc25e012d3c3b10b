"""Send several statements to Postgres in one message, without the slower cursors of the driver.

Each is prepared on the connection when it is first asked, so only connections to the server itself may be used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors, generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

Connection = psycopg.Connection[tuple[Any, ...]]
Texts = Sequence[str | None] | Mapping[str, str | None]
_MARK = re.compile(r"%s|%\((\w+)\)s")
# A name is never given twice: the server may still have the statement that was prepared under it.
_numbers = count()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The names of the statements that a connection has prepared, and the encoding of its texts."""

    encoding: str
    names: dict[str, bytes] = field(default_factory=dict)


_prepared: WeakKeyDictionary[Connection, _Prepared] = WeakKeyDictionary()


def fetch(connection: Connection, *statements: tuple[str, Texts]) -> list[tuple[Any, ...]]:
    """The rows of the last of some statements; their values are passed as text."""
    prepared = _prepared.get(connection)
    if prepared is None:
        prepared = _prepared[connection] = _Prepared(connection.info.encoding)
    try:
        results = _results(connection, prepared, statements)
    except BaseException:
        # Where it stands is unknown: the pool makes another.
        connection.close()
        raise
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            prepared.names.clear()
            raise errors.error_from_result(result, encoding=prepared.encoding)
    answer = results[-2]
    rows = Transformer(connection)
    rows.set_pgresult(answer)
    return rows.load_rows(0, answer.ntuples, tuple)


def _results(connection: Connection, known: _Prepared, statements: Sequence[tuple[str, Texts]]) -> list[PGresult]:
    """What the server answers to each statement and each preparation, and to the end of the message."""
    low, answers = connection.pgconn, 1 + len(statements)
    low.enter_pipeline_mode()
    for sql, bindings in statements:
        (numbered, marks), name = _numbered(sql), known.names.get(sql)
        if name is None:
            name = known.names[sql] = b"triskele_%d" % next(_numbers)
            low.send_prepare(name, numbered.encode(known.encoding))
            answers += 1
        values = [bindings[mark] for mark in marks] if isinstance(bindings, Mapping) else bindings
        low.send_query_prepared(name, [None if value is None else value.encode(known.encoding) for value in values])
    low.pipeline_sync()
    results = connection.wait(_received(low, answers))
    low.exit_pipeline_mode()
    return results


def _received(low: PGconn, answers: int) -> PQGen[list[PGresult]]:
    yield from generators.send(low)
    results: list[PGresult] = []
    while len(results) < answers:
        # Nothing separates the answers to two statements.
        if (result := (yield from generators.fetch(low))) is not None:
            results.append(result)
    return results


@lru_cache(maxsize=64)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbers for its marks, and the names of these; marks of one name have one number."""
    places: dict[str, int] = {}

    def number(mark: re.Match[str]) -> str:
        name = mark.group(1) or str(len(places))
        return f"${places.setdefault(name, len(places) + 1)}"

    return _MARK.sub(number, sql), tuple(places)
