"""Token vectors: which are kept, how small and how exact they are, and how lost ones come back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.index import lifecycle
from triskele.index import token_vectors as vectors
from triskele.index.token_vectors import TokenIndex, against_bits, compressed, from_row, packed, to_row, unpacked
from triskele.index.worker import restore_tokens
from triskele.models.bundled import bundled
from triskele.models.embedder import Encoding
from triskele.store.owner import OwnerStore
from triskele.store.sqlite.store import SqliteStore
from triskele.text.files import file_lock
from triskele.text.ids import content_hash
from triskele.types import Add, Memory

# Bits of so many dimensions take so many bytes.
MODEL, DIMENSIONS, WIDTH = "some/model@1", 24, 6

# Twenty memories of about 500 characters, as people write them.
SENTENCES = (
    "The staging cluster in Frankfurt is rebuilt every Sunday night, because its disks fill up with container images.",
    "Ingrid prefers short written updates before ten o'clock, and she reads them on her phone on the way to work.",
    "Invoices above 4,000 euros need the signature of two people; the second one is usually Tomasz from accounting.",
    "We moved the search service from Elasticsearch to Postgres full-text search after the outage in November 2024.",
    "When the deploy script reports `lock held by build-agent-7`, delete /var/run/deploy.lock and start again.",
    "The customer portal must work without JavaScript for the first page, since the public library machines block it.",
    "Ravi keeps the release notes in the wiki and copies them into the ticket system only when a release is final.",
    "Backups are encrypted with the key in the safe; the spare key lies with the lawyer in Gothenburg.",
)


def memory_of_500_characters(number: int) -> str:
    text = ""
    for step in range(len(SENTENCES)):
        text += SENTENCES[(number + step * (1 + number % 3)) % len(SENTENCES)] + " "
    return text[:500]


def encoding(text: str, seed: int = 0) -> Encoding:
    """A made-up model: every word and every sign is a token with a random unit vector."""
    spans, start = [], 0
    for piece in text.split():
        start = text.index(piece, start)
        core = piece.rstrip(".,?!")
        spans += [(start, start + len(core))] if core else []
        spans += [(start + len(core) + place, start + len(core) + place + 1) for place in range(len(piece) - len(core))]
        start += len(piece)
    drawn = np.random.default_rng(seed).standard_normal((len(spans), DIMENSIONS)).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    ids = np.arange(len(spans), dtype=np.int32)
    return Encoding(drawn[:1].sum(axis=0), drawn, ids, np.array(spans, dtype=np.int32).reshape(-1, 2))


def kept_words(text: str) -> list[str]:
    encoded = encoding(text)
    rows = compressed(text, encoded).tolist()
    return [
        text[start:stop]
        for (start, stop), vector in zip(encoded.spans, encoded.tokens, strict=True)
        if packed(np.round(vector[None] * 127).astype(np.int8))[0].tolist() in rows
    ]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The plant on the sill drinks, but not on Mondays!", ["plant", "sill", "drinks", "Mondays"]),
        ("THE AND Of", ["THE", "AND", "Of"]),
        ("... ?!", [".", ".", ".", "?", "!"]),
        ("the ?", ["the", "?"]),
        ("port 8080 .", ["port", "8080"]),
        ("👍 thanks", ["thanks"]),
        ("👍", ["👍"]),
    ],
)
def test_stop_words_and_punctuation_go_unless_nothing_else_is_left(text: str, kept: list[str]) -> None:
    assert kept_words(text) == kept


def test_two_bits_per_dimension_lose_little() -> None:
    text = SENTENCES[0]
    encoded = bundled().encode_documents([text])[0]
    telling = [place for place, (start, stop) in enumerate(encoded.spans) if vectors._is_content_word(text[start:stop])]
    bits = compressed(text, encoded)
    assert (bits.dtype, bits.shape) == (np.uint8, (len(telling), 24))
    query = bundled().encode_query("Which cluster is rebuilt at night?").tokens
    exact, approximate = query @ encoded.tokens[telling].T, (unpacked(bits) @ against_bits(query)).T
    assert np.corrcoef(exact.ravel(), approximate.ravel())[0, 1] > 0.95
    assert abs((approximate - exact).mean()) < 0.04
    same = np.diag(unpacked(bits) @ against_bits(encoded.tokens[telling]))
    assert (same > 0.9).all() and (same <= 1 + 1e-6).all()


@pytest.mark.parametrize("dimensions", [1, 7, 8, 16, 17, 96, 384])
def test_a_vector_of_any_length_keeps_its_signs_and_its_farthest_third(dimensions: int) -> None:
    random = np.random.default_rng(dimensions)
    documents = random.integers(-127, 128, (9, dimensions), np.int8)
    query = random.standard_normal((4, dimensions)).astype(np.float32)
    expected = []
    for numbers in documents.tolist():
        far = sorted(range(dimensions), key=lambda place: -abs(numbers[place]))[: round(0.32 * dimensions)]
        unpacked_tokens = np.array(
            [(1 if number >= 0 else -1) * (10 / 3 if at in far else 1) for at, number in enumerate(numbers)]
        )
        expected.append(query @ (unpacked_tokens / np.linalg.norm(unpacked_tokens)))
    np.testing.assert_allclose(unpacked(packed(documents)) @ against_bits(query), expected, atol=1e-4)
    assert unpacked(packed(documents[:0])).shape == (0, len(against_bits(query)))


def test_a_memory_of_500_characters_takes_at_most_2_kb() -> None:
    texts = [memory_of_500_characters(number) for number in range(20)]
    assert len(set(texts)) == 20
    for text, encoded in zip(texts, bundled().encode_documents(texts), strict=True):
        assert len(text) == 500
        assert compressed(text, encoded).nbytes <= 2000


@pytest.mark.parametrize("dimensions", [24, 96, 384])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 64])
def test_a_row_gives_its_bits_back_or_is_damaged(count: int, dimensions: int) -> None:
    bits = packed(np.random.default_rng(count).integers(-127, 128, (count, dimensions), np.int8))
    restored = from_row(to_row(bits), dimensions)
    assert restored is not None
    np.testing.assert_array_equal(restored, bits)
    assert from_row(b"", dimensions) is None
    assert from_row(to_row(bits) + b"?", dimensions) is None
    assert from_row(b"?" + to_row(bits), dimensions) is None


@pytest.fixture
def unbound(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def store(unbound: SqliteStore, make_memory: Callable[..., Memory]) -> OwnerStore:
    """A store of nine contents; the slot of number n is n + 1."""
    opened = unbound.for_owner("me")
    texts = [f"number {number}" for number in range(9)]
    opened.apply([Add(make_memory(text)) for text in texts], batch="first")
    for text in texts:
        opened.vectors.save(MODEL, {content_hash(text): b"vector"})
    return opened


@pytest.fixture
def open_index(tmp_path: Path, store: OwnerStore) -> Callable[[], TokenIndex]:
    return lambda: TokenIndex(tmp_path / "index", store, MODEL, DIMENSIONS)


def _tokens(slot: int, count: int | None = None) -> NDArray[np.uint8]:
    return np.full((slot if count is None else count, WIDTH), slot, dtype=np.uint8)


def _gathered(index: TokenIndex, *slots: int) -> list[list[int]]:
    """Per slot the first number of each of its vectors."""
    vectors, counts = index.view().gather(np.array(slots, dtype=np.int64))
    ends = np.cumsum(counts)
    return [vectors[end - count : end, 0].tolist() for end, count in zip(ends.tolist(), counts.tolist(), strict=True)]


def test_gather_reads_added_vectors_in_any_order(open_index: Callable[[], TokenIndex]) -> None:
    index = open_index()
    assert _gathered(index, 1, 2) == [[], []]
    index.add({3: _tokens(3), 1: _tokens(1)})
    index.add({})
    index.add({2: _tokens(2), 5: _tokens(5, 0)})
    for each in (index, open_index()):
        assert _gathered(each, 2, 1, 4, 3, 3) == [[2, 2], [1], [], [3] * 3, [3] * 3]
        assert _gathered(each, 5, -1, 99) == [[], [], []]
        assert _gathered(each) == []


def test_vectors_of_another_process_are_seen_at_once(open_index: Callable[[], TokenIndex]) -> None:
    reader, writer = open_index(), open_index()
    for slot in range(1, 9):
        writer.add({slot: _tokens(slot, 1)})
        assert _gathered(reader, slot) == [[slot]]


def test_missing_are_those_without_a_record(open_index: Callable[[], TokenIndex]) -> None:
    index = open_index()
    assert index.missing(np.array([1, 2])).tolist() == [1, 2]
    index.add({2: _tokens(2), 4: _tokens(4, 0)})
    # A text without tokens has a record: it is not lost.
    assert index.missing(np.array([1, 2, 3, 4])).tolist() == [1, 3]


def test_stored_token_vectors_are_not_added_again(open_index: Callable[[], TokenIndex], tmp_path: Path) -> None:
    one, other = open_index(), open_index()
    one.add({1: _tokens(1), 2: _tokens(2)})
    [folder] = (tmp_path / "index").glob("tokens-*")
    size = (folder / "values").stat().st_size
    other.add({1: _tokens(1), 2: _tokens(2), 3: _tokens(3)})
    assert (folder / "values").stat().st_size == size + 3 * WIDTH
    assert (folder / "slots").stat().st_size == 3 * 8


def _erase(store: OwnerStore, *slots: int) -> None:
    contents = {f"number {slot - 1}" for slot in slots}
    store.erase([memory.id for _, memory in store.versions() if memory.content in contents], batch="erase")


def test_token_vectors_of_an_erased_text_are_dropped(open_index: Callable[[], TokenIndex], store: OwnerStore) -> None:
    _erase(store, 2)
    index = open_index()
    index.add({1: _tokens(1), 2: _tokens(2)})
    assert _gathered(index, 1, 2) == [[1], []]


def test_rebuild_leaves_no_byte_of_erased_texts(
    open_index: Callable[[], TokenIndex], store: OwnerStore, tmp_path: Path
) -> None:
    index = open_index()
    index.add({slot: _tokens(slot, 3) for slot in range(1, 7)})
    before = open_index()
    _gathered(before, 1)
    _erase(store, 1, 3, 4, 6)
    index.rebuild()
    written = b"".join(path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file())
    assert bytes([4] * WIDTH) not in written
    assert bytes([5] * WIDTH) in written
    for each in (index, open_index(), before):
        assert _gathered(each, 1, 2, 4, 5) == [[], [2] * 3, [], [5] * 3]
    assert index.missing(np.arange(1, 7)).tolist() == [1, 3, 4, 6]


def test_a_rebuild_keeps_nothing_that_is_damaged(open_index: Callable[[], TokenIndex], tmp_path: Path) -> None:
    index = open_index()
    index.add({slot: _tokens(slot, 3) for slot in (1, 2, 3)})
    [folder] = (tmp_path / "index").glob("tokens-*")
    with (folder / "values").open("r+b") as values:
        values.seek(4 * WIDTH)
        values.write(b"\x77")
    assert open_index().damaged() == 1
    index.rebuild()
    assert index.damaged() == 0
    assert index.missing(np.array([1, 2, 3])).tolist() == [2]


def test_after_a_restore_slots_mean_other_texts(
    open_index: Callable[[], TokenIndex], store: OwnerStore, unbound: SqliteStore, tmp_path: Path
) -> None:
    index = open_index()
    index.add({1: _tokens(1), 2: _tokens(2)})
    assert _gathered(index, 1) == [[1]]
    unbound.maintenance.backup(tmp_path / "copy.db")
    unbound.maintenance.restore(tmp_path / "copy.db")
    assert _gathered(index, 1, 2) == [[], []]
    index.rebuild()
    assert _gathered(index, 1, 2) == [[], []]
    index.add({1: _tokens(1, 2)})
    assert _gathered(index, 1) == [[1, 1]]


def test_orphans_are_records_that_the_store_no_longer_knows(open_index: Callable[[], TokenIndex]) -> None:
    index = open_index()
    assert index.orphans(np.array([1])) == 0
    index.add({1: _tokens(1), 2: _tokens(2)})
    assert index.orphans(np.array([-1, 1, 2, 3])) == 0
    assert index.orphans(np.array([-1, 1, 3])) == 1


def test_while_another_process_writes_nothing_is_lost_but_time(
    open_index: Callable[[], TokenIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LOCK_TIMEOUT_S", 0.01)
    index = open_index()
    index.add({1: _tokens(1)})
    with file_lock(index._lock_path(), timeout_s=1) as is_held:
        assert is_held
        index.add({2: _tokens(2)})
    assert index.missing(np.array([1, 2])).tolist() == [2]


def test_lost_tokens_are_encoded_again(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        engine.apply([Add(engine.draft(sentence)) for sentence in SENTENCES])
        assert engine.upkeep.embed() == len(SENTENCES)
        semantic = engine.semantic()
        assert semantic is not None
        slots = np.unique(semantic.catalog.view().slots)
        before = semantic.tokens.view().gather(slots)
        shutil.rmtree(semantic.tokens.path)
        assert semantic.tokens.missing(slots).tolist() == slots.tolist()
        assert restore_tokens(engine.store, semantic, limit=2) == 2
        assert semantic.tokens.missing(slots).tolist() == slots[2:].tolist()
        assert engine.upkeep.embed() == len(slots) - 2
        assert engine.upkeep.embed() == 0
        after = semantic.tokens.view().gather(slots)
        np.testing.assert_array_equal(before[0], after[0])
        np.testing.assert_array_equal(before[1], after[1])
