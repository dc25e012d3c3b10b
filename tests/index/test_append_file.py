"""Files that only grow: what was stamped is there after any crash, and what is damaged is noticed."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triskele.index.lifecycle import AppendFile, Records

EPOCH, WIDTH = "first-epoch", 3


@pytest.fixture
def file(tmp_path: Path) -> AppendFile:
    return AppendFile(tmp_path / "growing", "<f4", WIDTH)


def _vectors(*slots: int, count: int = 1) -> dict[int, np.ndarray]:
    return {slot: np.arange(count * WIDTH, dtype="<f4").reshape(count, WIDTH) + slot * 100 for slot in slots}


def _open(file: AppendFile, epoch: str = EPOCH) -> Records:
    records = file.open(epoch)
    assert records is not None
    return records


def _content(records: Records) -> dict[int, np.ndarray]:
    pieces = zip(records.slots.tolist(), records.starts[:-1], records.starts[1:], strict=True)
    return {slot: np.array(records.values[start:stop]) for slot, start, stop in pieces}


def _assert_holds(file: AppendFile, expected: dict[int, np.ndarray]) -> None:
    content = _content(_open(file))
    assert list(content) == list(expected)
    for slot, values in expected.items():
        np.testing.assert_array_equal(content[slot], values)


def test_windows_reads_values_without_mapping_or_keeping_the_file(
    file: AppendFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    file.append(EPOCH, _vectors(1, 2, count=2))
    records = _open(file)
    assert records.values.base is None or not isinstance(records.values.base.base, mmap.mmap)
    _assert_holds(file, _vectors(1, 2, count=2))
    np.testing.assert_array_equal(records.read(np.array([1])), _vectors(2, count=2)[2])
    # Windows removes no mapped file and no open one: another epoch replaces these.
    file.append("next-epoch", _vectors(3))
    assert _open(file, "next-epoch").slots.tolist() == [3]
    (file.path / "values").write_bytes(b"short")
    assert file.open("next-epoch") is None


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4))
def test_appended_records_read_back_unchanged(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    file = AppendFile(tmp_path_factory.mktemp("growing"), "i1", 2)
    expected: dict[int, np.ndarray] = {}
    for counts in batches:
        start = len(expected) + 1
        batch = {slot: np.full((n, 2), slot, dtype="i1") for slot, n in enumerate(counts, start=start)}
        file.append(EPOCH, batch)
        expected |= batch
        _assert_holds(file, expected)
        records = _open(file)
        assert records.last_slot == len(expected)
        assert records.damaged().tolist() == []


def test_a_file_that_was_never_written_is_not_there(file: AppendFile) -> None:
    assert file.open(EPOCH) is None


def test_an_empty_file_is_there_and_holds_nothing(file: AppendFile) -> None:
    file.append(EPOCH, {})
    records = _open(file)
    assert (len(records.slots), records.values.shape, records.last_slot) == (0, (0, WIDTH), 0)
    assert records.damaged().tolist() == []
    file.append(EPOCH, _vectors(7))
    _assert_holds(file, _vectors(7))


def test_empty_records_may_lie_between_full_ones(file: AppendFile) -> None:
    batch = _vectors(1, 3, count=2) | {2: np.empty((0, WIDTH), dtype="<f4")}
    file.append(EPOCH, batch)
    _assert_holds(file, batch)


def test_a_crash_between_data_and_stamp_is_overwritten(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1))
    stamp = (file.path / "stamp.json").read_bytes()
    file.append(EPOCH, _vectors(2, 3, count=5))
    # The process died before the second stamp was there, perhaps in the middle of the last file.
    (file.path / "stamp.json").write_bytes(stamp)
    with (file.path / "values").open("ab") as values:
        values.write(b"half a rec")
    _assert_holds(file, _vectors(1))
    assert _open(file).damaged().tolist() == []
    file.append(EPOCH, _vectors(4, 5))
    _assert_holds(file, _vectors(1, 4, 5))
    assert _open(file).damaged().tolist() == []


def test_the_stamp_has_the_keys_of_existing_files(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1, 2, count=2))
    stamp = json.loads((file.path / "stamp.json").read_text())
    assert stamp == {"epoch": EPOCH, "width": WIDTH, "dtype": "<f4", "records": 2, "rows": 4}


def test_a_stamp_cut_short_is_never_read(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1))
    (file.path / "stamp.new").write_text('{"epoch": "fir')
    _assert_holds(file, _vectors(1))
    file.append(EPOCH, _vectors(2))
    _assert_holds(file, _vectors(1, 2))


def test_a_file_of_another_history_width_or_type_is_not_believed(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1, 2))
    assert file.open("another epoch") is None
    assert AppendFile(file.path, "<f4", WIDTH + 1).open(EPOCH) is None
    assert AppendFile(file.path, "i1", WIDTH).open(EPOCH) is None
    file.append("another epoch", _vectors(9))
    assert file.open(EPOCH) is None
    assert list(_content(_open(file, "another epoch"))) == [9]


def test_new_file_leaves_open_readers_alone(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1, count=500))
    # A process whose map lost its pages would die by a signal, so the file that it holds must stay whole.
    with (file.path / "values").open("rb") as held:
        file.append("another epoch", _vectors(2))
        assert os.fstat(held.fileno()).st_size == 500 * WIDTH * 4


@pytest.mark.parametrize("name", ["slots", "counts", "checks", "values", "stamp.json"])
def test_truncated_or_missing_file_starts_over(file: AppendFile, name: str) -> None:
    for damage in ("cut", "emptied", "gone"):
        shutil.rmtree(file.path, ignore_errors=True)
        file.append(EPOCH, _vectors(1, 2, 3))
        path = file.path / name
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-2] if damage == "cut" else b"")
        assert file.open(EPOCH) is None
        file.append(EPOCH, _vectors(4))
        _assert_holds(file, _vectors(4))


@pytest.mark.parametrize("stamp", ["[]", "null", "{}", "7", '{"epoch": "first-epoch"}', "\x00"])
def test_a_stamp_of_nonsense_is_not_believed(file: AppendFile, stamp: str) -> None:
    file.append(EPOCH, _vectors(1))
    (file.path / "stamp.json").write_text(stamp)
    assert file.open(EPOCH) is None


@pytest.mark.parametrize("change", [{"records": -1}, {"rows": -3}, {"records": 10**15}, {"rows": 10**15}])
def test_a_stamp_of_wrong_numbers_is_not_believed(file: AppendFile, change: dict[str, int]) -> None:
    file.append(EPOCH, _vectors(1, 2))
    path = file.path / "stamp.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert file.open(EPOCH) is None


@pytest.mark.parametrize("name", ["slots", "counts", "checks", "values"])
def test_every_flipped_bit_is_noticed(file: AppendFile, name: str) -> None:
    file.append(EPOCH, _vectors(1, 2) | {3: np.empty((0, WIDTH))} | _vectors(4, count=2))
    path = file.path / name
    content = path.read_bytes()
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        records = file.open(EPOCH)
        assert records is None or len(records.damaged()), f"bit {bit} of {name}"


def test_damage_names_the_record_that_has_it(file: AppendFile) -> None:
    file.append(EPOCH, _vectors(1, 2, 3, count=2))
    with (file.path / "values").open("r+b") as values:
        values.seek(2 * WIDTH * 4 + 5)
        values.write(b"\xff")
    assert _open(file).damaged().tolist() == [2]


def test_records_read_in_any_order_and_missing_ones_are_zero(file: AppendFile) -> None:
    batch = _vectors(1, 2, 3, 4, count=2) | {5: np.empty((0, WIDTH), dtype="<f4")} | _vectors(6)
    file.append(EPOCH, batch)
    records, order = _open(file), [1, 2, 4, 5, 0, 3, 3, 1]
    expected = np.concatenate([list(batch.values())[place] for place in order])
    np.testing.assert_array_equal(records.read(np.array(order)), expected)
    with (file.path / "values").open("r+b") as values:
        values.truncate(WIDTH * 4 * 3)
    found = records.read(np.array([3, 1, 0]))
    np.testing.assert_array_equal(found[:2], 0)
    np.testing.assert_array_equal(found[2], batch[2][0])
    np.testing.assert_array_equal(found[3], 0)
    np.testing.assert_array_equal(found[4:], batch[1])
