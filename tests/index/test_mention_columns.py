"""The mentions as arrays: the same from the file, past it, after regrouping, and after the file was lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from triskele.index.mentions import Layers, MentionIndex
from triskele.store.sqlite.store import SqliteStore
from triskele.store.values import Named
from triskele.types import Add, Memory

Make = Callable[..., Memory]


class Book:
    """A store whose memories mention what a test says."""

    def __init__(self, folder: Path, make: Make) -> None:
        self.folder = folder / "index"
        self.unbound = SqliteStore(folder / "store.db")
        self.store = self.unbound.for_owner("me")
        self._make = make

    def add(self, *said: str, spread: int = 0) -> int:
        """One memory; a name with a star is its title, with a question mark its lead."""
        self.store.apply([Add(self._make(f"memory {' '.join(said)} {self.store.position()}"))], batch="b")
        row = self.store.names.unread()[-1][0]
        kinds = {"*": "title", "?": "lead"}
        texts = [(text.rstrip("*?"), kinds.get(text[-1], "name")) for text in said]
        named = [Named(text, "", text, True, kind, spread=spread) for text, kind in texts]
        self.store.names.save({row: named}, read=[row])
        return row

    def index(self, tail_cap: int = 1000, *, instance: str = "") -> MentionIndex:
        index = MentionIndex(self.folder / instance, self.store)
        index.tail_cap = tail_cap
        return index

    def concept(self, name: str) -> int:
        return self.store.names.find([name])[name].concept


@pytest.fixture
def book(tmp_path: Path, make_memory: Make) -> Iterator[Book]:
    opened = Book(tmp_path, make_memory)
    yield opened
    opened.unbound.close()


def _holders(layers: Layers, concept: int) -> dict[int, bool]:
    _, rows, marks = layers.holders(np.array([concept]))
    return dict(zip(rows.tolist(), marks.tolist(), strict=True))


def _concepts(layers: Layers, row: int) -> set[int]:
    return set(layers.concepts(np.array([row]))[1].tolist())


@pytest.mark.parametrize("tail_cap", [0, 2, 1000])
def test_mentions_lead_from_rows_to_names_and_back(book: Book, tail_cap: int) -> None:
    index = book.index(tail_cap)
    first = book.add("argo*", "helm")
    index.view()
    second, third = book.add("helm", "argo"), book.add("kite")
    layers = index.view()
    argo, helm = book.concept("argo"), book.concept("helm")
    assert _holders(layers, argo) == {first: True, second: False}
    assert _concepts(layers, second) == {argo, helm}
    assert _concepts(layers, third) == {book.concept("kite")}
    assert layers.frequency(np.array([argo, helm, 999])).tolist() == [2, 2, 0]
    assert layers.owners(np.array([argo, helm, 999])).tolist() == [1, 0, 0]
    assert _concepts(layers, 999) == set()


def test_list_of_other_rows_may_be_cut(book: Book) -> None:
    for _ in range(4):
        book.add("argo")
    places, rows, _ = book.index(0).view().holders(np.array([book.concept("argo")] * 2), most=3)
    assert places.tolist() == [0, 0, 0, 1, 1, 1]
    assert len(set(rows.tolist())) == 3


def test_lead_counts_as_subject_if_other_memories_mention_it(book: Book) -> None:
    alone = book.add("kite?")
    named, _ = book.add("argo?"), book.add("argo")
    layers = book.index().view()
    assert _holders(layers, book.concept("argo"))[named]
    assert not _holders(layers, book.concept("kite"))[alone]


@pytest.mark.parametrize("tail_cap", [0, 1000])
def test_names_of_one_concept_count_as_one(book: Book, tail_cap: int) -> None:
    index = book.index(tail_cap)
    first, second = book.add("ci", "continuous integration*"), book.add("ci")
    index.view()
    whole = book.concept("continuous integration")
    book.store.names.set_concepts({book.concept("ci"): whole}, "acronym")
    layers = index.view()
    assert _holders(layers, whole) == {first: True, second: False}
    assert _concepts(layers, first) == {whole}


def test_how_common_a_name_is_does_not_depend_on_when_it_was_read(book: Book) -> None:
    grown = book.index(instance="grown")
    book.add("argo", "helm", spread=5)
    helm = book.concept("helm")
    assert grown.view().reach(np.array([book.concept("argo"), helm])).tolist() == [1, 1]
    book.add("argo", spread=40)
    book.store.names.set_concepts({helm: book.concept("argo")}, "acronym")
    for instance in (grown, book.index(instance="fresh")):
        assert instance.view().reach(np.array([book.concept("argo")])).tolist() == [40]
    book.add("kite", spread=60)
    assert grown.view().reach(np.array([book.concept("argo"), book.concept("kite")])).tolist() == [40, 60]


def test_a_settled_index_reads_as_one_that_was_written_at_once(book: Book) -> None:
    grown = book.index(1, instance="grown")
    book.add("argo?", "helm")
    grown.view()
    # Past the file by now: the lead of the first is not known to be mentioned there.
    book.add("argo")
    assert _marks(grown, book) != _marks(book.index(0, instance="fresh"), book)
    assert grown.flush()
    assert _marks(grown, book) == _marks(book.index(0, instance="fresh"), book) == [True, False]
    unwritten = book.index(instance="unwritten")
    assert unwritten.flush() and not unwritten.path.exists()


def _marks(index: MentionIndex, book: Book) -> list[bool]:
    _, _, marks = index.view().holders(np.array([book.concept("argo")]))
    return [bool(mark) for mark in marks]


def test_the_file_serves_and_is_written_again_when_lost(book: Book) -> None:
    row = book.add("argo*")
    book.index(0).view()
    assert _holders(book.index(1000).view(), book.concept("argo")) == {row: True}
    shutil.rmtree(book.folder)
    assert _holders(book.index(0).view(), book.concept("argo")) == {row: True}
    assert book.index().damaged() == 0


def test_damaged_mention_file_is_rebuilt(book: Book) -> None:
    row = book.add("argo*")
    index = book.index(0)
    index.view()
    values = next(book.folder.glob("mentions-*/values"))
    values.write_bytes(bytes(len(values.read_bytes())))
    assert book.index().damaged() == 1
    index.rebuild()
    assert book.index().damaged() == 0
    assert _holders(index.view(), book.concept("argo")) == {row: True}


def test_an_empty_store_mentions_nothing(book: Book) -> None:
    layers = book.index().view()
    assert _concepts(layers, 1) == set()
    assert _holders(layers, 1) == {}
