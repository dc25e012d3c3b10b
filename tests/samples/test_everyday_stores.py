"""The everyday stores keep their promises: numbers, labels, halves, and questions in other words."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import Stemmer  # type: ignore[import-not-found,import-untyped,unused-ignore]

from triskele.bench.datasets import UNRANKED_TYPES, Dataset, half
from triskele.bench.loaders import load_dataset
from triskele.privacy import detect
from triskele.text.words import STOP_WORDS

FOLDER = Path(__file__).parents[2] / "benchmarks" / "everyday_stores"
STORES = ("bookkeeper", "pharmacy", "studio")
COUNTS = {"exact": 50, "paraphrase": 50, "dated": 20, "unanswerable": 20, "prompt": 4, "idle": 20}
STEMMER = Stemmer.Stemmer("english")


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest) -> Dataset:
    return load_dataset(FOLDER / request.param)


def content_words(text: str) -> set[str]:
    words = re.findall(r"[^\W_]+", text.lower())
    return {STEMMER.stemWord(word) for word in words if word not in STOP_WORDS}


def test_store_has_the_stated_numbers(store: Dataset) -> None:
    assert len({document.text for document in store.documents}) == 60
    assert Counter(query.type for query in store.queries) == COUNTS
    assert len({query.text for query in store.queries}) == len(store.queries)


def test_halves_are_those_of_the_hash_and_equal_in_every_type(store: Dataset) -> None:
    held = [query for query in store.queries if query.meta.get("held")]
    assert held == [query for query in store.queries if half(query) == "test"]
    assert Counter(query.type for query in held) == {kind: count // 2 for kind, count in COUNTS.items()}


def test_labels_fit_the_types(store: Dataset) -> None:
    for query in store.queries:
        assert bool(store.qrels.get(query.id)) == (query.type not in UNRANKED_TYPES), query.id


def test_paraphrase_shares_at_most_one_content_word(store: Dataset) -> None:
    texts = {document.id: f"{document.text} {document.meta['category']}" for document in store.documents}
    for query in store.queries:
        shared = [content_words(query.text) & content_words(texts[id]) for id in store.qrels.get(query.id, ())]
        if query.type == "paraphrase":
            assert all(len(words) <= 1 for words in shared), query.text
        if query.type == "exact":
            assert any(len(words) >= 2 for words in shared), query.text


def test_no_note_holds_a_secret(store: Dataset) -> None:
    assert [document.text for document in store.documents if detect.find(document.text)] == []
