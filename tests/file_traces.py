"""Fixtures that look for words in the bytes of a store's files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest
import tantivy

from triskele.text.analysis import Analyzer

LETTERS = "bcdfghjklmnpqrtvwxz"


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
