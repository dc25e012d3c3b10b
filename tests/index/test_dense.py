"""The dense index: what a scan of all vectors would find, from a file, past it, and above the exact limit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from triskele import config
from triskele.engine.local import LocalEngine
from triskele.index import dense, lifecycle
from triskele.index.catalog import Catalog, Columns
from triskele.index.dense import DenseIndex
from triskele.store.sqlite.store import SqliteStore
from triskele.store.vector_bytes import restored, rounded, row_bytes, row_of
from triskele.text.files import file_lock
from triskele.text.ids import content_hash
from triskele.types import Add, Memory

MODEL, WIDTH = "some/model@1", 16
Floats = NDArray[np.float32]
Make = Callable[..., Memory]


class Shelf:
    """A store whose contents have vectors that a test chose."""

    def __init__(self, folder: Path, make: Make) -> None:
        self.folder = folder / "index"
        self.unbound = SqliteStore(folder / "store.db")
        self.store = self.unbound.for_owner("me")
        self.catalog = Catalog(self.store, MODEL)
        self.given: list[Floats] = []
        self._make = make

    def put(self, vectors: Floats, model: str = MODEL) -> None:
        """One memory per vector."""
        self.put_bytes([row_of(vector) for vector in vectors], model)
        self.given += list(vectors)

    def put_bytes(self, vectors: list[bytes], model: str = MODEL) -> None:
        start = len(self.catalog.view().rows)
        texts = [f"text {start + number}" for number in range(len(vectors))]
        self.store.apply([Add(self._make(text)) for text in texts], batch=f"batch {start}")
        digests = [content_hash(text) for text in texts]
        self.store.vectors.save(model, dict(zip(digests, vectors, strict=True)))

    def index(self, tail_cap: int = DenseIndex.tail_cap) -> DenseIndex:
        index = DenseIndex(self.folder, self.store, MODEL, WIDTH)
        index.tail_cap = tail_cap
        return index

    @property
    def columns(self) -> Columns:
        return self.catalog.view()


@pytest.fixture
def shelf(tmp_path: Path, make_memory: Make) -> Iterator[Shelf]:
    opened = Shelf(tmp_path, make_memory)
    yield opened
    opened.unbound.close()


def units(count: int, seed: int = 0, width: int = WIDTH) -> Floats:
    """Unit vectors as they are kept: rounding changes nothing any more."""
    drawn = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return kept(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def kept(vectors: Floats) -> Floats:
    return restored(rounded(vectors))


def clustered(count: int, seed: int, width: int, clusters: int = 40) -> Floats:
    centres = units(clusters, seed, width)
    drawn = np.random.default_rng(seed + 1)
    vectors = centres[drawn.integers(clusters, size=count)] + 0.5 * units(count, seed + 2, width)
    return kept((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32))


def everyone(columns: Columns) -> NDArray[np.bool_]:
    return np.ones(len(columns.rows), dtype=bool)


def brute(vectors: Floats, asked: Floats, mask: NDArray[np.bool_], limit: int) -> list[int]:
    """The plain answer: all cosines, the allowed ones in order."""
    cosines = vectors @ asked
    return [int(at) for at in np.argsort(-cosines, kind="stable") if mask[at]][:limit]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shelf, Floats]]:
    """300 vectors, the last 40 of them past the file."""
    from triskele.text import timestamps
    from triskele.text.ids import IdMaker

    ids = IdMaker()

    def make(content: str) -> Memory:
        now = timestamps.now()
        times = {"created_at": now, "updated_at": now, "known_from": now}
        return Memory(id=ids.make(now), content=content, content_hash=content_hash(content), **times)

    opened = Shelf(tmp_path_factory.mktemp("dense"), make)
    vectors = units(300)
    opened.put(vectors[:260])
    opened.index(tail_cap=1).over(opened.columns).nearest(vectors[0], everyone(opened.columns), 1)
    opened.put(vectors[260:])
    yield opened, vectors
    opened.unbound.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.0, 0.02, 0.3, 0.6, 1.0]), limit=st.integers(1, 60))
def test_the_nearest_are_those_of_a_plain_scan(
    filled: tuple[Shelf, Floats], seed: int, share: float, limit: int
) -> None:
    shelf, vectors = filled
    index, columns = shelf.index(tail_cap=1000), shelf.columns
    mask = np.random.default_rng(seed).random(len(vectors)) < share
    query = units(1, seed)[0]
    at, cosines = index.over(columns).nearest(query, mask, limit)
    assert at.tolist() == brute(vectors, query, mask, limit)
    np.testing.assert_allclose(cosines, vectors[at] @ query, atol=1e-6)


def test_a_row_has_the_same_cosine_in_any_company(filled: tuple[Shelf, Floats]) -> None:
    shelf, vectors = filled
    placed, query = shelf.index(tail_cap=1000).over(shelf.columns), units(1, 7)[0]
    everything = placed.scan(query)
    np.testing.assert_allclose(everything, vectors @ query, atol=1e-6)
    for at in (np.array([261]), np.array([3, 299, 40]), np.arange(250, 290)):
        assert placed.cosines(query, at).tolist() == everything[at].tolist()


@given(
    st.lists(st.sampled_from([-1.0, -0.5, 0.1, 0.2, 0.25, 0.9, 7.0, float("nan")]), max_size=400),
    st.integers(1, 20),
)
def test_the_highest_of_many_are_those_of_a_plain_order(numbers: list[float], limit: int) -> None:
    at, values = dense.highest(np.array(numbers, dtype=np.float32), limit)
    sound = [(place, number) for place, number in enumerate(numbers) if -1 <= number <= 1]
    expected = sorted(sound, key=lambda pair: (-pair[1], pair[0]))[:limit]
    assert at.tolist() == [place for place, _ in expected]
    assert values.tolist() == pytest.approx([number for _, number in expected])


def test_equal_vectors_come_in_the_order_of_rows_even_at_the_cut(shelf: Shelf) -> None:
    one = units(1)[0]
    shelf.put(np.stack([one] * 9))
    at, _ = shelf.index().over(shelf.columns).nearest(one, everyone(shelf.columns), 5)
    assert at.tolist() == [0, 1, 2, 3, 4]


def test_the_tail_answers_as_the_file_will(shelf: Shelf) -> None:
    vectors = units(40)
    shelf.put(vectors)
    query, columns = units(1, 5)[0], shelf.columns
    patient, eager = shelf.index(tail_cap=1000), shelf.index(tail_cap=1)
    before = patient.over(columns).nearest(query, everyone(columns), 10)
    assert not list(shelf.folder.glob("dense-*"))
    after = eager.over(columns).nearest(query, everyone(columns), 10)
    assert list(shelf.folder.glob("dense-*"))
    assert before[0].tolist() == after[0].tolist() == brute(vectors, query, everyone(columns), 10)
    np.testing.assert_allclose(before[1], after[1], atol=1e-6)


def test_dense_index_contains_later_writes_at_once(shelf: Shelf) -> None:
    shelf.put(units(20))
    index = shelf.index(tail_cap=5)
    query = units(1, 77)[0]
    index.over(shelf.columns).nearest(query, everyone(shelf.columns), 3)
    for number in range(8):
        shelf.put(query[None] * np.float32(1))
        rows, cosines = index.over(shelf.columns).nearest(query, everyone(shelf.columns), 1)
        assert rows.tolist() == [20]
        assert cosines[0] == pytest.approx(1, abs=1e-5)
        assert len(shelf.columns.rows) == 21 + number


def test_a_memory_without_a_vector_is_not_near_anything(shelf: Shelf, make_memory: Make) -> None:
    shelf.put(units(3))
    shelf.store.apply([Add(make_memory("not embedded yet"))], batch="later")
    index, query = shelf.index(), units(1)[0]
    at, _ = index.over(shelf.columns).nearest(query, everyone(shelf.columns), 10)
    assert sorted(at.tolist()) == [0, 1, 2]
    cosines = index.over(shelf.columns).cosines(query, np.arange(4))
    assert np.isnan(cosines).tolist() == [False, False, False, True]
    np.testing.assert_allclose(cosines[:3], units(3) @ query, atol=1e-6)


def test_an_empty_store_has_no_nearest(shelf: Shelf) -> None:
    at, cosines = shelf.index().over(shelf.columns).nearest(units(1)[0], everyone(shelf.columns), 5)
    assert (len(at), len(cosines)) == (0, 0)


def test_bits_keep_nearly_all_of_the_nearest(
    tmp_path: Path, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "EXACT_LIMIT", 400)
    monkeypatch.setattr(dense, "BIT_CANDIDATES", 300)
    width = 384
    vectors, questions = clustered(2000, 1, width), clustered(30, 1, width)
    shelf = Shelf(tmp_path, make_memory)
    shelf.put(vectors)
    index = DenseIndex(shelf.folder, shelf.store, MODEL, width)
    columns = shelf.columns
    random = np.random.default_rng(3)
    shares, exact = [], 0
    for query in questions:
        mask = random.random(len(vectors)) < 0.8
        rows, cosines = index.over(columns).nearest(query, mask, 50)
        wanted = brute(vectors, query, mask, 50)
        assert mask[rows].all()
        assert (np.diff(cosines) <= 0).all()
        np.testing.assert_allclose(cosines, vectors[rows] @ query, atol=1e-5)
        shares.append(len(set(rows.tolist()) & set(wanted)) / 50)
        exact += rows.tolist() == wanted
    assert np.mean(shares) >= 0.95
    # Otherwise the bits were never asked, and the test says nothing.
    assert exact < len(questions)
    shelf.unbound.close()


@pytest.mark.parametrize("lost", ["nothing", "all", "half", "others"])
def test_missing_bits_are_rebuilt(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    monkeypatch.setattr(dense, "EXACT_LIMIT", 50)
    monkeypatch.setattr(dense, "BIT_CANDIDATES", 100)
    vectors = units(200)
    shelf.put(vectors[:120])
    shelf.index(tail_cap=0).over(shelf.columns).nearest(vectors[0], everyone(shelf.columns), 1)
    [bits] = shelf.folder.glob("dense-*/bits")
    if lost == "all":
        shutil.rmtree(bits)
    if lost == "others":
        slots = np.fromfile(bits / "slots", dtype="<i8")
        slots[::-1].tofile(bits / "slots")
    if lost == "half":
        stamp = json.loads((bits / "stamp.json").read_text())
        (bits / "stamp.json").write_text(json.dumps(stamp | {"records": 60, "rows": 60}))
    shelf.put(vectors[120:])
    mask = everyone(shelf.columns)
    query = units(1, 9)[0]
    rows, _ = shelf.index(tail_cap=1000).over(shelf.columns).nearest(query, mask, 5)
    assert rows.tolist() == brute(vectors, query, mask, 5)


def test_few_allowed_ones_are_compared_exactly(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "EXACT_LIMIT", 50)
    monkeypatch.setattr(dense, "BIT_CANDIDATES", 5)
    vectors = units(200)
    shelf.put(vectors)
    mask = np.arange(200) % 4 == 0
    query = units(1, 9)[0]
    rows, _ = shelf.index().over(shelf.columns).nearest(query, mask, 20)
    assert rows.tolist() == brute(vectors, query, mask, 20)


def test_another_model_s_file_and_vectors_are_not_used(shelf: Shelf) -> None:
    vectors = units(4)
    shelf.put(vectors)
    other = "another/model@2"
    page = shelf.store.vectors.page(MODEL)
    mirrored = {digest: row_of(-vector) for (_, digest, _), vector in zip(page, vectors, strict=True)}
    shelf.store.vectors.save(other, mirrored)
    columns = Catalog(shelf.store, other).view()
    theirs = DenseIndex(shelf.folder, shelf.store, other, WIDTH)
    theirs.tail_cap = 0
    assert theirs.over(columns).nearest(-vectors[2], everyone(columns), 1)[0].tolist() == [2]
    assert len(list(shelf.folder.glob("dense-*"))) == 1
    for tail_cap in (100, 0):
        rows, cosines = (
            shelf.index(tail_cap=tail_cap).over(shelf.columns).nearest(vectors[2], everyone(shelf.columns), 4)
        )
        assert rows.tolist() == brute(vectors, vectors[2], everyone(shelf.columns), 4)
        assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert len(list(shelf.folder.glob("dense-*"))) == 2


def test_dense_index_is_rebuilt_after_a_restore(shelf: Shelf, tmp_path: Path) -> None:
    shelf.put(units(3))
    shelf.unbound.maintenance.backup(tmp_path / "copy.db")
    index = shelf.index(tail_cap=0)
    shelf.put(units(3, 8))
    index.over(shelf.columns).nearest(units(1)[0], everyone(shelf.columns), 9)
    shelf.unbound.maintenance.restore(tmp_path / "copy.db")
    # The same slots now mean other vectors.
    shelf.put(units(3, 9))
    vectors = np.concatenate([units(3), units(3, 9)])
    at, cosines = index.over(shelf.columns).nearest(units(1, 9)[0], everyone(shelf.columns), 9)
    assert at.tolist() == brute(vectors, units(1, 9)[0], everyone(shelf.columns), 9)
    assert cosines[0] == pytest.approx(1, abs=1e-5)


UNSOUND = {
    "empty": b"",
    "too short": row_of(units(1)[0])[:-2],
    "too long": row_of(units(1)[0]) * 2,
    "of four bytes per dimension": units(1)[0].tobytes(),
    "of no length": bytes(row_bytes(WIDTH)),
    "with another byte": row_of(units(1)[0])[:-2] + b"\x07" + row_of(units(1)[0])[-1:],
}


@pytest.mark.parametrize("tail_cap", [0, 100])
@pytest.mark.parametrize("kind", UNSOUND)
def test_vectors_that_are_none_are_left_out_and_counted(shelf: Shelf, kind: str, tail_cap: int) -> None:
    vectors = units(12)
    shelf.put(vectors[:6])
    shelf.put_bytes([UNSOUND[kind]])
    shelf.put(vectors[6:])
    index, columns = shelf.index(tail_cap=tail_cap), shelf.columns
    for limit in (3, 50):
        rows, cosines = index.over(columns).nearest(vectors[8], everyone(columns), limit)
        wanted = brute(vectors, vectors[8], np.ones(12, dtype=bool), limit)
        assert rows.tolist() == [place + (place >= 6) for place in wanted]
        assert np.isfinite(cosines).all()
    assert np.isnan(index.over(columns).cosines(vectors[8], np.array([6])))[0]
    assert index.damaged() == 1
    index.rebuild()
    assert index.damaged() == 0
    assert [text for _, text in shelf.store.vectors.waiting()] == ["text 6"]


@pytest.mark.parametrize("tail_cap", [0, 100])
def test_damaged_file_hides_only_its_own_vectors(shelf: Shelf, tail_cap: int) -> None:
    vectors = units(12)
    shelf.put(vectors)
    shelf.index(tail_cap=0).over(shelf.columns).nearest(vectors[0], everyone(shelf.columns), 1)
    [folder] = shelf.folder.glob("dense-*")
    with (folder / "values").open("r+b") as values:
        for number in (3, 5):
            values.seek(number * row_bytes(WIDTH))
            values.write(bytes(row_bytes(WIDTH)))
    index = shelf.index(tail_cap=tail_cap)
    rows, cosines = index.over(shelf.columns).nearest(vectors[8], everyone(shelf.columns), 4)
    expected = np.isin(np.arange(12), [3, 5], invert=True)
    assert rows.tolist() == brute(vectors, vectors[8], expected, 4)
    assert np.isfinite(cosines).all()
    assert index.damaged() == 2
    index.rebuild()
    assert index.damaged() == 0
    rows, _ = index.over(shelf.columns).nearest(vectors[3], everyone(shelf.columns), 1)
    assert rows.tolist() == [3]


def test_a_file_that_is_cut_short_is_written_again(shelf: Shelf) -> None:
    vectors = units(8)
    shelf.put(vectors)
    shelf.index(tail_cap=0).over(shelf.columns).nearest(vectors[0], everyone(shelf.columns), 1)
    [folder] = shelf.folder.glob("dense-*")
    for name in ("slots", "values"):
        (folder / name).write_bytes((folder / name).read_bytes()[:-8])
        rows, _ = shelf.index(tail_cap=0).over(shelf.columns).nearest(vectors[7], everyone(shelf.columns), 1)
        assert rows.tolist() == [7]
        assert shelf.index().damaged() == 0


def test_where_the_folder_cannot_be_written_memory_serves_alone(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = units(8)
    shelf.put(vectors)

    def refuse(self: DenseIndex) -> Path:
        raise PermissionError("read-only")

    monkeypatch.setattr(DenseIndex, "_lock_path", refuse)
    rows, _ = shelf.index(tail_cap=0).over(shelf.columns).nearest(vectors[2], everyone(shelf.columns), 1)
    assert rows.tolist() == [2]


def test_while_another_process_writes_the_file_memory_serves_alone(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "FIRST_INDEX_TIMEOUT_S", 0.01)
    vectors = units(8)
    shelf.put(vectors)
    index = shelf.index(tail_cap=0)
    with file_lock(index._lock_path(), timeout_s=1) as is_held:
        assert is_held
        rows, _ = index.over(shelf.columns).nearest(vectors[2], everyone(shelf.columns), 1)
    assert rows.tolist() == [2]
    assert not list(shelf.folder.glob("dense-*"))


def test_erased_vectors_leave_no_byte_in_the_rebuilt_file(shelf: Shelf) -> None:
    vectors = units(8)
    shelf.put(vectors)
    index = shelf.index(tail_cap=0)
    index.over(shelf.columns).nearest(vectors[0], everyone(shelf.columns), 1)
    [folder] = shelf.folder.glob("dense-*")
    assert row_of(vectors[5]) in (folder / "values").read_bytes()
    gone = next(memory.id for _, memory in shelf.store.versions() if memory.content == "text 5")
    shelf.store.erase([gone], batch="erase")
    index.rebuild()
    assert row_of(vectors[5]) not in (folder / "values").read_bytes()
    rows, _ = index.over(shelf.columns).nearest(vectors[6], everyone(shelf.columns), 1)
    assert shelf.store.rows(shelf.columns.rows[rows].tolist()).popitem()[1].content == "text 6"


@pytest.mark.parametrize("can_write", [True, False])
def test_the_file_of_another_format_is_replaced(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, can_write: bool) -> None:
    vectors = units(8)
    shelf.put(vectors)
    other = shelf.folder / "dense-2-some_model@1"
    other.mkdir(parents=True)
    (other / "values").write_bytes(vectors.tobytes())
    if not can_write:
        monkeypatch.setattr(DenseIndex, "catch_up", lambda *_, **__: False)
    index = shelf.index()
    rows, _ = index.over(shelf.columns).nearest(vectors[6], everyone(shelf.columns), 1)
    assert rows.tolist() == [6]
    assert other.exists() != can_write
    assert index.path.exists() == can_write


def test_bits_are_written_only_if_enabled(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "EXACT_LIMIT", 50)
    shelf.put(units(50))
    index = shelf.index(tail_cap=0)
    index.over(shelf.columns)
    assert not (index.path / "bits").exists()
    shelf.put(units(1, 1))
    index.over(shelf.columns)
    assert (index.path / "bits").exists()


def test_vectors_above_the_limit_are_read_from_the_file(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy of a large file is kept in memory, and its vectors are the same."""
    monkeypatch.setattr(dense, "EXACT_LIMIT", 50)
    vectors, query = units(80), units(1, 4)[0]
    shelf.put(vectors[:70])
    index = shelf.index(tail_cap=20)
    index.over(shelf.columns)
    shelf.put(vectors[70:])
    placed = index.over(shelf.columns)
    assert placed.vectors.file is None and len(placed.vectors.tail) == 10
    np.testing.assert_array_equal(placed.gather(np.arange(80)), vectors)
    monkeypatch.setattr(dense, "EXACT_LIMIT", 1000)
    in_memory = shelf.index(tail_cap=20).over(shelf.columns)
    assert in_memory.vectors.file is not None
    np.testing.assert_allclose(placed.scan(query), in_memory.scan(query), atol=1e-6)
    # The same cosine in any company.
    assert placed.cosines(query, np.array([3, 75])).tolist() == placed.scan(query)[[3, 75]].tolist()


def test_a_view_joined_while_another_process_erases_keeps_no_vector_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DenseIndex, "tail_cap", 1)
    settings = config.load({"TRISKELE_HOME": str(tmp_path)})
    with (
        LocalEngine(settings, tmp_path) as writer,
        LocalEngine(settings, tmp_path) as reader,
        LocalEngine(settings, tmp_path) as fresh,
    ):
        lamp = writer.remember("The green lamp hangs in the hall").id
        for text in ("Our cat sleeps on the sofa", "Bread rises for six hours"):
            writer.remember(text)
        writer.upkeep.embed()
        reader.recall("lamp")
        writer.remember("The train to Basel leaves at nine")
        writer.upkeep.embed()
        writer.recall("train")
        semantic = reader.semantic()
        assert semantic is not None
        since, has_changed = DenseIndex._since, []

        def changed(index: DenseIndex, kept: Any) -> Any:
            tail = since(index, kept)
            if index is semantic.dense and not has_changed:
                has_changed.append(True)
                writer.erase(lamp)
                writer.remember("Whales sing at night")
                writer.upkeep.embed()
                writer.recall("whales")
            return tail

        monkeypatch.setattr(DenseIndex, "_since", changed)
        semantic.dense.view()
        lists = [
            [hit.memory.content for hit in each.recall("what do cetaceans sing?").hits] for each in (reader, fresh)
        ]
        assert has_changed and lists[0] == lists[1]
