"""The index of a tree: what is read again, what is kept, and what a search sees while it changes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from triskele.code import segment, tree_index, walk
from triskele.code.corpus import CodeCorpus
from triskele.code.parsing import parse
from triskele.code.search import CodeSearch, locate
from triskele.code.tree_index import MANIFEST_FILE, TreeIndex
from triskele.errors import BadInput, IndexUnavailable, NotFound, Unavailable

PAY = "class PaymentService:\n    def retry(self):\n        '''Try a failed charge again.'''\n"
MAIL = "def send_mail(address):\n    return address\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "payment.py").write_text(PAY)
    (root / "shop" / "mail.py").write_text(MAIL)
    _age(root)
    return root


def _age(root: Path) -> None:
    """Make every file old enough that its time is trusted."""
    for path in root.rglob("*"):
        os.utime(path, (time.time() - 100, time.time() - 100))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []

    def noting(source: bytes, language: str) -> object:
        seen.append(source)
        return parse(source, language)

    monkeypatch.setattr(tree_index, "parse", noting)
    return seen


def _search(tmp_path: Path, tree: Path) -> CodeSearch:
    return CodeSearch(tmp_path / "home", tree)


def _paths(search: CodeSearch, question: str) -> list[str]:
    return [hit.path for hit in search.search(question).hits]


def test_nothing_is_written_into_the_tree(tmp_path: Path, tree: Path) -> None:
    before = sorted(tree.rglob("*"))
    _search(tmp_path, tree).index()
    assert sorted(tree.rglob("*")) == before
    assert (tmp_path / "home" / "code").is_dir()


def test_only_changed_content_is_parsed_again(tmp_path: Path, tree: Path, parsed: list[bytes]) -> None:
    search = _search(tmp_path, tree)
    search.index()
    assert len(parsed) == 2
    (tree / "shop" / "mail.py").write_text("def send_letter():\n    pass\n")
    _search(tmp_path, tree).index()
    assert len(parsed) == 3
    assert _paths(_search(tmp_path, tree), "send letter") == ["shop/mail.py"]


def test_a_rename_costs_nothing(tmp_path: Path, tree: Path, parsed: list[bytes]) -> None:
    _search(tmp_path, tree).index()
    (tree / "shop").rename(tree / "store")
    assert _paths(_search(tmp_path, tree), "PaymentService") == ["store/payment.py"]
    assert len(parsed) == 2


def test_a_search_notices_edits_new_files_and_deleted_ones(tmp_path: Path, tree: Path) -> None:
    search = _search(tmp_path, tree)
    search.index()
    (tree / "shop" / "payment.py").write_text(PAY.replace("PaymentService", "InvoiceBook"))
    assert _paths(search, "InvoiceBook") == ["shop/payment.py"]
    (tree / "shop" / "tax.py").write_text("def vat_rate():\n    return 19\n")
    assert _paths(search, "vat rate") == ["shop/tax.py"]
    (tree / "shop" / "tax.py").unlink()
    assert _paths(search, "vat rate") == []
    assert _paths(_search(tmp_path, tree), "InvoiceBook") == ["shop/payment.py"]


def test_a_search_notices_a_changed_gitignore(tmp_path: Path, tree: Path) -> None:
    (tree / ".gitignore").write_text("\n")
    search = _search(tmp_path, tree)
    search.index()
    (tree / ".gitignore").write_text("mail.py\n")
    assert _paths(search, "send mail") == []


def test_an_edit_right_after_reading_is_noticed(tmp_path: Path, tree: Path) -> None:
    path = tree / "shop" / "mail.py"
    search = _search(tmp_path, tree)
    now = time.time_ns()
    path.write_text("def aaaa_one():\n    pass\n")
    os.utime(path, ns=(now, now))
    search.index()
    path.write_text("def bbbb_two():\n    pass\n")
    os.utime(path, ns=(now, now))
    assert _paths(search, "bbbb") == ["shop/mail.py"]


def test_many_edits_are_merged_into_one_segment(tmp_path: Path, tree: Path) -> None:
    search = _search(tmp_path, tree)
    search.index()
    for number in range(tree_index.MAX_SEGMENTS + 3):
        (tree / "shop" / "mail.py").write_text(f"def letter_{'x' * number}y():\n    pass\n")
        search.search("letter")
    folder = TreeIndex(tmp_path / "home", tree).folder
    assert len(list(folder.glob("*.npz"))) <= tree_index.MAX_SEGMENTS
    assert _paths(search, "PaymentService") == ["shop/payment.py"]


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, tree: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_index, "BATCH", 1)

    def stop(done: int, _: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _search(tmp_path, tree).index(stop)
    answer = _search(tmp_path, tree).search("send mail payment")
    assert (answer.files, answer.waiting, answer.is_partial) == (1, 1, True)
    assert len(parsed) == 1
    _search(tmp_path, tree).index()
    assert len(parsed) == 2
    assert not _search(tmp_path, tree).search("mail").is_partial


def test_a_damaged_index_is_reported_and_built_again(tmp_path: Path, tree: Path) -> None:
    _search(tmp_path, tree).index()
    folder = TreeIndex(tmp_path / "home", tree).folder
    [part] = folder.glob("*.npz")
    part.write_bytes(b"nonsense")
    with pytest.raises(IndexUnavailable):
        _search(tmp_path, tree).search("mail")
    _search(tmp_path, tree).index()
    assert _paths(_search(tmp_path, tree), "send mail") == ["shop/mail.py"]
    (folder / MANIFEST_FILE).write_text("{")
    with pytest.raises(IndexUnavailable, match="--rebuild"):
        _search(tmp_path, tree).search("mail")


def test_a_read_only_data_folder_still_answers(tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _search(tmp_path, tree).index()

    def full(*_: object) -> None:
        raise IndexUnavailable("no space left")

    monkeypatch.setattr(segment.CodeSegment, "save", full)
    monkeypatch.setattr(TreeIndex, "_write", full)
    (tree / "shop" / "mail.py").write_text("def send_letter():\n    pass\n")
    assert _paths(_search(tmp_path, tree), "letter") == ["shop/mail.py"]


def test_copies_are_parsed_once_and_listed_twice(tmp_path: Path, tree: Path, parsed: list[bytes]) -> None:
    (tree / "copy.py").write_text(PAY)
    search = _search(tmp_path, tree)
    search.index()
    assert len(parsed) == 2
    assert set(_paths(search, "PaymentService")) == {"copy.py", "shop/payment.py"}


def test_remove_deletes_the_index_and_nothing_else(tmp_path: Path, tree: Path) -> None:
    search = _search(tmp_path, tree)
    search.index()
    search.remove()
    assert (tree / "shop" / "mail.py").exists()
    with pytest.raises(NotFound, match="triskele code index"):
        search.search("mail")
    with pytest.raises(NotFound):
        search.remove()


def test_tree_is_resolved_from_inside(tmp_path: Path, tree: Path) -> None:
    _search(tmp_path, tree).index()
    assert locate(tmp_path / "home", tree / "shop") == (tree.resolve(), "shop/")
    assert locate(tmp_path / "home", tree / "shop" / "mail.py") == (tree.resolve(), "shop/mail.py")
    with pytest.raises(NotFound, match="code index"):
        locate(tmp_path / "home", tmp_path)


def test_a_missing_extra_is_named(tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_language_pack", None)
    with pytest.raises(Unavailable, match=r"triskele\[code\]"):
        _search(tmp_path, tree).index()


def test_a_file_is_no_tree(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        _search(tmp_path, tree / "shop" / "mail.py").index()


def test_an_empty_tree_is_indexed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    search = _search(tmp_path, tmp_path / "empty")
    assert search.index().files == 0
    assert search.search("anything").hits == ()


def test_merged_segments_answer_as_the_parts_did() -> None:
    files = [parse(source.encode(), "python") for source in (PAY, MAIL, "X = 1\n")]
    one = segment.build(files)
    merged = segment.merge([segment.build(files[:1]), segment.build(files[1:])], [np.ones(1, bool), np.ones(2, bool)])
    for name in segment.CodeSegment.__slots__:
        assert np.array_equal(getattr(one, name), getattr(merged, name)), name
    kept = segment.merge([one], [np.array([False, True, True])])
    assert [each.name for each in kept.definitions()] == ["send_mail", "X"]
    manifest = tree_index.TreeManifest("", {"m.py": tree_index.Entry(0, 0, files[1].digest.hex())})
    assert CodeCorpus(manifest, [kept]).paths == ["m.py"]


def test_missing_tree_is_reported_and_its_index_stays(tmp_path: Path, tree: Path) -> None:
    search = _search(tmp_path, tree)
    search.index()
    tree.rename(tmp_path / "away")
    with pytest.raises(NotFound, match="triskele code remove"):
        search.search("mail")
    (tmp_path / "away").rename(tree)
    assert _paths(search, "send mail") == ["shop/mail.py"]
    tree.rename(tmp_path / "away")
    search.remove()


def test_skipped_files_are_tried_again_and_counted(tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "shop" / "made.py").write_text("# @generated\nX = 1\n")
    _age(tree)
    with monkeypatch.context() as patch:
        patch.setattr(tree_index, "read", lambda root, path: None if "mail" in path else walk.read(root, path))
        status = _search(tmp_path, tree).index()
    assert (status.files, status.skipped) == (1, {"unreadable": 1, "generated": 1})
    status = _search(tmp_path, tree).index()
    assert (status.files, status.skipped) == (2, {"generated": 1})
    assert _paths(_search(tmp_path, tree), "send mail") == ["shop/mail.py"]
