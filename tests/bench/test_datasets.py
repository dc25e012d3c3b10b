"""Reading data sets: what is taken in, what stays out of the ranked metrics, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.bench.datasets import BenchQuery, half, windows
from triskele.bench.loaders import load_dataset
from triskele.errors import BadInput
from triskele.types import Role

WriteDataset = Callable[..., Path]


def test_reads_documents_queries_and_labels(write_dataset: WriteDataset) -> None:
    data = load_dataset(write_dataset())
    assert data.name == "harbour"
    assert [document.id for document in data.documents] == ["d1", "d2", "d3", "d4", "d5"]
    assert data.queries[1] == BenchQuery("q2", "winter storm", "exact", None)
    assert data.qrels["q1"] == {"d1": 3, "d2": 2}


def test_gzipped_files_are_the_same_data(write_dataset: WriteDataset) -> None:
    plain, packed = load_dataset(write_dataset()), load_dataset(write_dataset(packed=True))
    assert packed.documents == plain.documents
    assert packed.sha256 == plain.sha256


def test_unanswerable_and_unlabelled_queries_are_not_ranked(write_dataset: WriteDataset) -> None:
    data = load_dataset(write_dataset())
    assert [query.id for query in data.ranked()] == ["q1", "q2", "q3"]
    assert data.left_out() == {"unanswerable": 1, "unlabelled": 1}


@pytest.mark.parametrize("kind", ["adversarial", "unanswerable", "abstention"])
def test_types_without_a_right_answer(write_dataset: WriteDataset, kind: str) -> None:
    queries = [{"id": "q1", "text": "boats", "type": kind}, {"id": "q2", "text": "storms"}]
    data = load_dataset(write_dataset(queries=queries))
    assert [(query.id, query.type) for query in data.ranked()] == [("q2", "all")]


def test_scope_and_order_within_a_session(write_dataset: WriteDataset) -> None:
    places = [("a", "s1"), ("a", "s1"), ("b", "s1"), ("a", "s2"), ("a", "s1")]
    corpus = [
        {"id": f"t{number}", "text": "a turn", "meta": {"scope": scope, "session": session}}
        for number, (scope, session) in enumerate(places)
    ]
    data = load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "t0", 1)]))
    assert [document.position for document in data.documents] == [0, 1, 0, 0, 2]
    assert data.documents[2].scope == "b"


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        ("corpus.jsonl", "{broken", "line 2: is not valid JSON"),
        ("corpus.jsonl", "[1]", "line 2: is not a JSON object"),
        ("corpus.jsonl", '{"text": "no id"}', "line 2: has no id"),
        ("corpus.jsonl", '{"id": "x"}', "line 2: has no text"),
        ("corpus.jsonl", '{"id": true, "text": "x"}', "line 2: has a id"),
        ("corpus.jsonl", '{"id": "x", "text": "a\\u0000b"}', "line 2: the text contains a NUL"),
        ("corpus.jsonl", '{"id": "x", "text": "x", "meta": 3}', "line 2: has a meta"),
        ("corpus.jsonl", '{"id": "d1", "text": "again"}', "line 2: repeats the id 'd1'"),
        ("queries.jsonl", '{"id": "x", "text": 3}', "line 2: has a text that is not text"),
        ("qrels.tsv", "q1 d1 1", "line 2: is not qid, docid and grade"),
        ("qrels.tsv", "q1\td1\tgood", "line 2: has a grade"),
        ("qrels.tsv", "q1\tnowhere\t1", "line 2: labels a document that the corpus does not have: 'nowhere'"),
    ],
)
def test_bad_lines_are_named(write_dataset: WriteDataset, name: str, line: str, problem: str) -> None:
    folder = write_dataset()
    path = folder / name
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest]))
    with pytest.raises(BadInput) as raised:
        load_dataset(folder)
    assert str(raised.value).startswith(str(path))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_files_and_folders_are_named(write_dataset: WriteDataset, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no data set folder"):
        load_dataset(tmp_path / "nowhere")
    folder = write_dataset()
    (folder / "qrels.tsv").unlink()
    with pytest.raises(BadInput, match=r"has no qrels\.tsv or qrels\.tsv\.gz"):
        load_dataset(folder)


def test_damaged_files_are_refused(write_dataset: WriteDataset) -> None:
    folder = write_dataset(packed=True)
    packed = folder / "corpus.jsonl.gz"
    packed.write_bytes(packed.read_bytes()[:40])
    with pytest.raises(BadInput, match="cannot read"):
        load_dataset(folder)
    (folder / "corpus.jsonl").write_bytes(b'{"id": "d1", "text": "\xff"}')
    with pytest.raises(BadInput, match="line 1: is not UTF-8"):
        load_dataset(folder)


def test_the_split_never_moves() -> None:
    halves = "".join(half(BenchQuery(f"q{number}", "", "all", None))[1] for number in range(20))
    assert halves == "ueuueueeeuuueuueeueu"
    assert {half(BenchQuery(f"q{number}", "", "all", "one scope")) for number in range(50)} == {"tune"}


def test_windows_name_who_said_them(write_dataset: WriteDataset) -> None:
    metas = [{"speaker": " Nate "}, {"role": "assistant"}, {"role": "Human"}, {"role": "narrator"}, {"speaker": 7}]
    corpus = [{"id": str(number), "text": "Nate: hello", "meta": meta} for number, meta in enumerate(metas)]
    found = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "0", 1)])).documents)
    assert {window.text for window in found} == {"Nate: hello"}
    said = [("Nate", None), (None, Role.ASSISTANT), (None, Role.USER), (None, Role.OTHER), (None, None)]
    assert [(window.speaker, window.role) for window in found] == said


def test_long_documents_become_windows_at_borders(write_dataset: WriteDataset) -> None:
    sentences = [f"Sentence number {number} tells of the harbour." for number in range(100)]
    corpus = [
        {"id": "long", "text": " ".join(sentences), "meta": {"session": "s", "importance": 0.8}},
        {"id": "short", "text": "One line.\nAnother line.", "meta": {"session": "s"}},
        {"id": "empty", "text": "  "},
    ]
    found = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "short", 1)])).documents)
    assert {window.document for window in found} == {"long", "short"}
    assert all(len(window.text) <= 1400 and window.text.endswith(".") for window in found)
    assert " ".join(window.text for window in found[:-1]) == " ".join(sentences)
    assert found[-1].text == "One line.\nAnother line."
    assert [window.position for window in found] == list(range(len(found)))
    assert [window.importance for window in found[-2:]] == [0.8, 0.5]
