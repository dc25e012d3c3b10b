"""The weights are kept in the data folder, so that an update does not take them away."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from weakref import ref

import pytest

from triskele.models import bundled
from triskele.models.bundled import (
    MODEL_FOLDER,
    BundledEmbedder,
    embedder_in,
    keep_weights,
    kept_names,
    kept_weights,
)
from triskele.models.manifest import GRAPH_FILE, MANIFEST_FILE, TOKENIZER_FILE


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed version, which an update removes."""
    folder = Path(shutil.copytree(MODEL_FOLDER, tmp_path / "package"))
    monkeypatch.setattr(bundled, "MODEL_FOLDER", folder)
    monkeypatch.setattr(bundled, "_shared", BundledEmbedder(folder))
    return folder


def _kept(home: Path) -> Path | None:
    return kept_weights(home, bundled.bundled().fingerprint)


def _refused(*_: object) -> None:
    raise OSError("another file system")


@pytest.mark.parametrize("can_link", [True, False])
def test_kept_weights_outlive_the_package(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    if not can_link:
        monkeypatch.setattr(os, "link", _refused)
    expected = BundledEmbedder(package).encode_query("anything").sentence
    keep_weights(tmp_path / "home")
    keep_weights(tmp_path / "home")
    folders = _kept(tmp_path / "home")
    assert folders is not None and folders.stat().st_mode & 0o077 == 0
    assert os.path.samefile(folders / GRAPH_FILE, package / GRAPH_FILE) == can_link
    shutil.rmtree(package)
    assert (BundledEmbedder(folders).encode_query("anything").sentence == expected).all()
    assert sorted(path.suffix for path in folders.iterdir()) == [".json", ".json", ".onnx"]


def test_a_copy_that_the_disk_does_not_hold_leaves_nothing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder is copied, and the disk is full in the middle of the tokenizer."""
    copy = shutil.copyfile

    def copied(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name == TOKENIZER_FILE:
            os.truncate(target, 1000)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", _refused)
    monkeypatch.setattr(shutil, "copyfile", copied)
    with pytest.raises(OSError, match="No space left"):
        keep_weights(tmp_path / "home")
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == []
    monkeypatch.setattr(shutil, "copyfile", copy)
    keep_weights(tmp_path / "home")
    assert _kept(tmp_path / "home") is not None


def test_copies_do_not_take_the_last_of_a_disk(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = (package / GRAPH_FILE).stat().st_size + 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=left))
    monkeypatch.setattr(shutil, "copyfile", lambda *_: pytest.fail("copied to a disk that is nearly full"))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "link", _refused)
        with pytest.raises(OSError, match="No space left"):
            keep_weights(tmp_path / "home")
    assert _kept(tmp_path / "home") is None
    keep_weights(tmp_path / "home")
    assert _kept(tmp_path / "home") is not None, "links take no space"


def test_a_folder_that_was_half_written_is_written_again(package: Path, tmp_path: Path) -> None:
    keep_weights(tmp_path / "home")
    folders = _kept(tmp_path / "home")
    assert folders is not None
    (folders / MANIFEST_FILE).rename(folders / f"{MANIFEST_FILE}.part")
    assert _kept(tmp_path / "home") is None
    keep_weights(tmp_path / "home")
    assert _kept(tmp_path / "home") == folders


def test_weights_that_were_written_over_are_not_taken_for_the_earlier_ones(package: Path, tmp_path: Path) -> None:
    keep_weights(tmp_path / "home")
    manifest = json.loads((package / MANIFEST_FILE).read_text())
    (package / MANIFEST_FILE).write_text(json.dumps({**manifest, "name": "later"}))
    assert _kept(tmp_path / "home") is None


@pytest.mark.parametrize("file", [GRAPH_FILE, TOKENIZER_FILE])
@pytest.mark.parametrize("is_missing", [True, False])
def test_incomplete_weights_are_ignored(package: Path, tmp_path: Path, file: str, is_missing: bool) -> None:
    keep_weights(tmp_path / "home")
    folders = _kept(tmp_path / "home")
    assert folders is not None
    (folders / file).unlink()
    if not is_missing:
        shutil.copyfile(package / MANIFEST_FILE, folders / file)
    assert _kept(tmp_path / "home") is None


def test_only_weights_that_shipped_are_returned_to(package: Path, tmp_path: Path) -> None:
    keep_weights(tmp_path / "home")
    shutil.copytree(package, tmp_path / "home" / "models" / "another@1")
    (tmp_path / "home" / "models" / "notes.txt").touch()
    assert kept_weights(tmp_path / "home", "another@1") is None
    assert kept_names(tmp_path / "home") == []


def test_names_of_other_releases_are_latest_first(package: Path, tmp_path: Path) -> None:
    names = ["triskele-minilm-l6@1", "triskele-minilm-l6-12@1", "triskele-minilm-l6-2@1"]
    for name in names:
        (tmp_path / "home" / "models" / name).mkdir(parents=True)
    keep_weights(tmp_path / "home")
    assert kept_names(tmp_path / "home") == [names[1], names[2], names[0]]


def test_the_owners_of_a_server_share_weights_that_answer_and_none_stay_loaded(package: Path) -> None:
    first, second = embedder_in(package), embedder_in(package)
    assert first is second and first is not bundled.bundled()
    reference = ref(first)
    del first, second
    assert reference() is None
