"""Looking for words in the bytes of a store's files, statements without their owner, and users of one database."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import tantivy

from triskele.stores.postgres import round_trips
from triskele.stores.postgres.accounts import Accounts
from triskele.stores.postgres.truth import PostgresStore
from triskele.text.analysis import Analyzer

LETTERS = "bcdfghjklmnpqrtvwxz"
_CONDITION = re.compile(r"(\w+\.)?owner = %(s|\(owner\)s)")


@pytest.fixture
def new_word() -> Callable[[], str]:
    """Capitalised words of 18 letters that occur nowhere else."""
    random = Random()
    return lambda: "".join(random.choices(LETTERS, k=18)).capitalize()


@pytest.fixture
def traces() -> Callable[[Path, Iterable[str]], set[tuple[str, str]]]:
    """The (kind of file, word) pairs for which a file below a folder holds the word in any form."""

    def find(folder: Path, words: Iterable[str]) -> set[tuple[str, str]]:
        forms = {word: _forms(word) for word in words}
        found: set[tuple[str, str]] = set()
        for path in folder.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            found |= {(path.suffix, word) for word, bytes_of in forms.items() if any(f in data for f in bytes_of)}
        return found

    return find


@pytest.fixture
def unfiltered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets no statement filter by owner; the statements that did are listed."""
    execute, together, changed = psycopg.Connection.execute, round_trips.asked, list[str]()

    def changed_query(query: Any) -> Any:
        if isinstance(query, str) and _CONDITION.search(query):
            changed.append(query)
            query = _CONDITION.sub(r"(\g<0> OR true)", query)
        return query

    def execute_unfiltered(connection: Any, query: Any, *rest: Any, **details: Any) -> Any:
        return execute(connection, changed_query(query), *rest, **details)

    def together_unfiltered(connection: Any, *statements: Any) -> Any:
        return together(connection, *((changed_query(query), values) for query, values in statements))

    monkeypatch.setattr(psycopg.Connection, "execute", execute_unfiltered)
    monkeypatch.setattr(round_trips, "asked", together_unfiltered)
    return changed


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    """The accounts of alice, bob and carol in one Postgres database."""
    found = Accounts(postgres_url)
    for name in ("alice", "bob", "carol"):
        found.create_user(name)
    yield found
    found.close()


@pytest.fixture
def store(postgres_url: str, accounts: Accounts, tmp_path: Path) -> Iterator[PostgresStore]:
    """The store of alice, bob and carol."""
    assert len(accounts.users()) == 3
    opened = PostgresStore(postgres_url, folder=tmp_path)
    yield opened
    opened.close()


def _forms(word: str) -> set[bytes]:
    terms = {word, word.lower(), *Analyzer().terms(word)}
    return {term.encode() for term in terms} | {_as_in_a_term_dictionary(term) for term in terms}


def _as_in_a_term_dictionary(term: str) -> bytes:
    """How tantivy writes a term that shares neither beginning nor end with others: one byte a letter, backwards."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="raw")
    with tempfile.TemporaryDirectory() as folder:
        index = tantivy.Index(builder.build(), path=folder)
        writer = index.writer(15_000_000, 1)
        writer.add_document(tantivy.Document(text=[term]))
        writer.commit()
        writer.wait_merging_threads()
        [dictionary] = Path(folder).glob("*.term")
        runs = re.findall(rb"[\xc0-\xff]{15,}", dictionary.read_bytes().split(b"{")[0])
    # The ends may be shared with other terms and are then written differently.
    return max(runs, key=len)[3:12]
