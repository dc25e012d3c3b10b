"""Public data sets as people download them: what becomes of each form, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.bench.bench import run_bench
from triskele.bench.datasets import BenchQuery, Dataset, windows
from triskele.bench.loaders import FORMATS, load_dataset, load_public, sources
from triskele.bench.loaders.sources import cleaned
from triskele.errors import BadInput

SAMPLES = Path(__file__).parent / "samples"
LOCOMO = SAMPLES / "locomo" / "locomo10.json"
LONGMEMEVAL = SAMPLES / "longmemeval" / "longmemeval_s.json"
HOTPOT = SAMPLES / "multihop" / "hotpotqa.json"
BEIR = SAMPLES / "beir"
TREC = SAMPLES / "trec"
ALL = [
    LOCOMO,
    LONGMEMEVAL,
    HOTPOT,
    BEIR,
    TREC,
    *(HOTPOT.with_name(f"{n}.json") for n in ("2wikimultihopqa", "musique")),
]

Change = Callable[[Any], object]


def loaded(path: Path) -> Dataset:
    found = load_public(path)
    assert found is not None
    return found


def texts_of(data: Dataset, query: str) -> list[str]:
    texts = {document.id: document.text for document in data.documents}
    return [texts[document] for document, grade in data.qrels[query].items() if grade > 0]


def test_locomo_turns_in_the_order_of_their_sessions() -> None:
    data = load_dataset(LOCOMO)
    assert data.name == "locomo10"
    assert [(document.id, document.session, document.position) for document in data.documents] == [
        ("conv-1/D2:1", "session_2", 0),
        ("conv-1/D2:2", "session_2", 1),
        ("conv-1/D10:1", "session_10", 0),
        ("conv-2/D1:1", "session_1", 0),
    ]
    assert data.documents[1].text == "Mira: Look at it! [shared image: a photo of a blue boat]"
    assert data.documents[1].scope == "conv-1"
    assert data.documents[1].meta["date"] == "1:56 pm on 8 May, 2023"


def test_locomo_questions_and_evidence() -> None:
    data = loaded(LOCOMO)
    assert [query.type for query in data.queries[:5]] == [
        "single-hop",
        "multi-hop",
        "temporal",
        "open-domain",
        "adversarial",
    ]
    assert data.queries[5] == BenchQuery("conv-2/q000", "When does the ferry leave?", "single-hop", "conv-2")
    assert set(data.qrels["conv-1/q001"]) == {"conv-1/D2:1", "conv-1/D2:2", "conv-1/D10:1"}
    assert data.qrels["conv-1/q002"] == {"conv-1/D10:1": 1}
    assert data.skipped == {
        "evidence that names no turn": 2,
        "evidence of turns that the conversation does not have": 1,
    }
    assert data.left_out() == {"unanswerable": 1, "unlabelled": 1}


def test_longmemeval_has_a_haystack_per_question() -> None:
    data = loaded(LONGMEMEVAL)
    assert [query.type for query in data.queries] == ["single-session-user", "temporal-reasoning", "abstention"]
    assert len({query.scope for query in data.queries}) == 3
    first = [document for document in data.documents if document.scope == data.queries[0].scope]
    assert [document.position for document in first] == [0, 1, 0, 1, 2]
    assert first[0].meta == {"role": "user", "date": "2023-05-20T02:21"}
    assert texts_of(data, "e47becba") == ["I finished my degree in trade."]
    assert texts_of(data, "gpt4_2655b836") == ["I bought a boat.", "And now a car."]
    assert "f4f1d8a4_abs" not in data.qrels
    assert data.skipped == {"answer sessions outside the haystack": 1}


def test_longmemeval_ids_do_not_tell_the_gold() -> None:
    data = load_dataset(LONGMEMEVAL)
    told = " ".join(f"{d.id} {d.scope} {d.session} {dict(d.meta)}" for d in data.documents)
    assert not any(word in told for word in ("answer", "abs", "sharegpt", "280352e9"))
    # The same chat lies in two haystacks: two documents, one text in memory.
    same = [document for document in data.documents if document.text == "How do I tie a bowline?"]
    assert same[0].id != same[1].id and same[0].text is same[1].text


def test_beir_takes_the_test_split_and_its_queries() -> None:
    found = loaded(BEIR)
    assert found.name == "beir"
    assert [document.text for document in found.documents][:2] == [
        "Tides\nThe moon moves the water.",
        "Boats are painted in winter.",
    ]
    assert [query.id for query in found.queries] == ["q1", "q3"]
    assert found.qrels == {"q1": {"d1": 2, "d2": 0}, "q3": {"d3": 1}}
    assert found.skipped == {"labels of documents that the corpus does not have": 1}


def test_another_split_of_beir_is_named_by_its_file() -> None:
    data = load_dataset(BEIR / "qrels" / "dev.tsv")
    assert data.name == "beir-dev"
    assert data.qrels == {"q2": {"d2": 1}}


def test_passages_are_gold_by_title_and_text() -> None:
    data = loaded(HOTPOT)
    assert [(query.type, query.scope) for query in data.queries] == [("bridge", None), ("comparison", None)]
    assert texts_of(data, data.queries[0].id) == [
        "Moon Dock\nMoon Dock is a pier. It was built by Ada Reed.",
        "Ada Reed\nAda Reed was an engineer from Leith.",
    ]
    assert data.skipped == {"gold passages that the corpus does not have": 1}
    assert load_dataset(HOTPOT.with_name("hotpotqa_corpus.json")) == data


def test_sentences_that_are_joined_by_spaces_match() -> None:
    data = load_dataset(HOTPOT.with_name("2wikimultihopqa.json"))
    assert len(data.qrels["a80d84e7096d11ebbdb0ac1f6bf848b6"]) == 2


def test_musique_paragraphs_by_their_mark() -> None:
    data = load_dataset(HOTPOT.with_name("musique.json"))
    assert data.queries[0].type == "2hop"
    assert texts_of(data, "2hop__150763_14904")[1] == "Harbour Society\nThe Harbour Society was led by G. Hall."
    assert len(data.qrels["2hop__150763_14904"]) == 2


def test_trec_judgements_with_topics() -> None:
    found = loaded(TREC)
    assert found.queries[1] == BenchQuery("302", "storms and harbours", "all", None)
    assert found.qrels == {"301": {"WSJ-1": 3, "WSJ-2": 0}, "302": {"WSJ-2": 1}}
    assert found.documents[1].text == "Harbours\nThe harbour was closed by a storm."


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_no_answer_and_no_question_is_indexed(path: Path) -> None:
    data = load_dataset(path)
    indexed = repr(windows(data.documents)) + repr([dict(document.meta) for document in data.documents])
    assert "zanzibar" not in indexed and "quicksilver" not in indexed
    assert not any(query.text in indexed for query in data.queries)
    assert "zanzibar" not in repr(data)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_form_is_the_same_packed(path: Path, tmp_path: Path) -> None:
    source = path if path.is_dir() else path.parent
    copy = tmp_path / source.name
    shutil.copytree(source, copy)
    for file in [file for file in copy.rglob("*") if file.is_file()]:
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert load_dataset(copy if path.is_dir() else copy / f"{path.name}.gz") == load_dataset(path)


def test_a_folder_stands_for_the_one_data_set_in_it(tmp_path: Path) -> None:
    assert load_dataset(LOCOMO.parent) == load_dataset(LOCOMO)
    shutil.copy(LONGMEMEVAL, tmp_path / "renamed.json")
    (tmp_path / "package.json").write_text('{"name": "other"}')
    (tmp_path / "broken.json").write_text('[{"qa"')
    assert load_dataset(tmp_path).queries == load_dataset(LONGMEMEVAL).queries
    with pytest.raises(BadInput, match=r"several data sets: name one of .*2wikimultihopqa\.json.*musique\.json"):
        load_dataset(HOTPOT.parent)


def test_our_own_form_comes_first(write_dataset: Callable[..., Path]) -> None:
    folder = write_dataset()
    shutil.copy(LOCOMO, folder)
    shutil.copytree(BEIR / "qrels", folder / "qrels")
    assert load_dataset(folder).name == "harbour"


def test_what_has_no_known_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "list.json").write_text('[{"name": 1}]')
    for name in ("notes.txt", "list.json"):
        with pytest.raises(BadInput, match="unknown data set format; the known ones are locomo10") as raised:
            load_dataset(tmp_path / name)
        assert all(form.about in str(raised.value) for form in FORMATS.values())
    with pytest.raises(BadInput, match=r"has no corpus\.jsonl"):
        load_dataset(tmp_path)
    shutil.copy(HOTPOT, tmp_path / "alone.json")
    with pytest.raises(BadInput, match=r"has no alone_corpus\.json next to it"):
        load_dataset(tmp_path / "alone.json")


def _at(*keys: Any, value: Any = None) -> Change:
    """Sets a value deep inside, or takes it away."""

    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        if value is None:
            del data[keys[-1]]
        else:
            data[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("path", "change", "problem"),
    [
        (LOCOMO, _at(1, "sample_id"), "item 2: has no sample_id"),
        (LOCOMO, _at(0, "conversation"), "item 1: has no conversation"),
        (LOCOMO, _at(0, "conversation", value=[]), "item 1: has a conversation that is not an object"),
        (LOCOMO, _at(0, "conversation", "session_2", 1, "text"), "item 1, conversation, session_2 2: has no text"),
        (LOCOMO, _at(0, "conversation", "session_2", 1, value="D2:2"), "session_2 2: is not a JSON object"),
        (LOCOMO, _at(0, "conversation", "session_2", 1, "dia_id", value="D2:1"), "session_2 2: repeats the id"),
        (LOCOMO, _at(0, "qa", 2, "category", value=9), "item 1, qa 3: has a category that is not one of 1 to 5: 9"),
        (LOCOMO, _at(0, "qa", 2, "category", value="two"), "qa 3: has a category that is not a whole number"),
        (LOCOMO, _at(0, "qa", 2, "evidence", value="D1:1"), "qa 3: has a evidence that is not a list"),
        (LOCOMO, _at(0, "qa", 2, "evidence", 1, value=4), "qa 3, evidence 2: is not text"),
        (LOCOMO, _at(0, "qa", 2, "question", value="  "), "qa 3: has an empty question"),
        (LONGMEMEVAL, _at(1, "haystack_dates", 0), "item 2: has 2 sessions, 2 session ids and 1 dates"),
        (LONGMEMEVAL, _at(1, "haystack_sessions", 0, value={}), "item 2, haystack_sessions 1: is not a list"),
        (LONGMEMEVAL, _at(0, "haystack_sessions", 1, 2, "content"), "haystack_sessions 2, turn 3: has no content"),
        (LONGMEMEVAL, _at(0, "answer_session_ids"), "item 1: has no answer_session_ids"),
        (LONGMEMEVAL, _at(1, "question_id", value="e47becba"), "item 2: repeats the id 'e47becba'"),
        (HOTPOT, _at(0, "supporting_facts"), "item 1: has none of supporting_facts, paragraphs"),
        (HOTPOT, _at(0, "context", 1, value=["Ada Reed"]), "item 1, context 2: is not a title with its content"),
        (HOTPOT, _at(0, "context", 0, 1, value="a text"), "item 1, context 1: is not a list"),
        (HOTPOT, _at(0, "supporting_facts", 0, value=["x"]), "item 1, supporting_facts 1: is not a title"),
    ],
)
def test_malformed_objects_are_named(tmp_path: Path, path: Path, change: Change, problem: str) -> None:
    copy = tmp_path / "data"
    shutil.copytree(path.parent, copy)
    data = json.loads(path.read_text())
    change(data)
    (copy / path.name).write_text(json.dumps(data))
    _assert_refused(copy / path.name, copy / path.name, problem)


@pytest.mark.parametrize(
    ("folder", "name", "text", "problem"),
    [
        (BEIR, "corpus.jsonl", '{"_id": "d1", "text": "x"}\n{"_id": "d2"', "line 2: is not valid JSON"),
        (BEIR, "corpus.jsonl", '{"title": "x", "text": "x"}', "line 1: has no _id"),
        (BEIR, "corpus.jsonl", '{"_id": "d1", "title": 3, "text": "x"}', "line 1: has a title that is not text"),
        (BEIR, "corpus.jsonl", '{"_id": "d1", "text": "x"}\n' * 2, "line 2: repeats the id 'd1'"),
        (BEIR, "queries.jsonl", '{"_id": true, "text": "x"}', "line 1: has a _id that is not text or a whole number"),
        (BEIR, "qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1", "line 2: is neither query, document and grade"),
        (BEIR, "qrels/test.tsv", "q1\td1\t1\nq1\td1\tgood", "line 2: has a grade that is not a whole number: 'good'"),
        (BEIR, "qrels/test.tsv", "q1\tnowhere\t1", "labels no document of the corpus"),
        (TREC, "topics.tsv", "301 price of oil", "line 1: is not a query id and a text with one tab between"),
        (TREC, "qrels.txt", "301 0 WSJ-1 1\n301 0 WSJ-1 1 extra", "line 2: is neither"),
    ],
)
def test_malformed_lines_are_named(tmp_path: Path, folder: Path, name: str, text: str, problem: str) -> None:
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    (copy / name).write_text(text)
    _assert_refused(copy, copy / name, problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a JSON list"),
        ('{"sample_id": 1}', "is not a JSON list"),
        ("[]", "has no documents"),
        ("[", "item 1: the file breaks off inside it"),
        ("[1]", "item 1: is not a JSON object"),
        ('[{"sample_id": "c', "item 1: the file breaks off inside it"),
        ('[{"sample_id": "c", ', "item 1: the file breaks off inside it"),
        (
            '[{"sample_id": nothing, "conversation": "a long text that goes on"}]',
            "item 1: is not valid JSON (Expecting",
        ),
        ("[" * 100_000, "item 1: is not valid JSON that can be read"),
        ('[{"sample_id": ' + "1" * 5000 + "}]", "item 1: is not valid JSON that can be read"),
    ],
)
def test_broken_json_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "locomo10.json"
    path.write_text(text)
    _assert_refused(path, path, problem)


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ("", "item 2: the file breaks off after it"),
        (",", "item 3: the file breaks off inside it"),
        (",]", "item 2: nothing comes after its comma"),
        ("{}]", "item 2: a comma is missing after it"),
        ("] more", "continues after the end of its list"),
    ],
)
def test_a_list_that_ends_badly_is_refused(tmp_path: Path, end: str, problem: str) -> None:
    path = tmp_path / "locomo10.json"
    path.write_text(LOCOMO.read_text().rstrip().removesuffix("]") + end)
    _assert_refused(path, path, problem)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    packed = tmp_path / "locomo10.json.gz"
    packed.write_bytes(gzip.compress(LOCOMO.read_bytes())[:200])
    with pytest.raises(BadInput, match="cannot read"):
        load_dataset(packed)
    path = tmp_path / "longmemeval_s.json"
    path.write_bytes(b'[{"question_id": "\xff"}]')
    _assert_refused(path, path, "is not UTF-8")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("path", [LOCOMO, LONGMEMEVAL, BEIR], ids=lambda path: path.stem)
def test_files_are_read_in_pieces_of_any_size(path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_dataset(path)
    monkeypatch.setattr(sources, "CHUNK_BYTES", size)
    assert load_dataset(path) == whole


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", 64)
    monkeypatch.setattr(sources, "MAX_ITEM_CHARACTERS", 200)
    _assert_refused(LOCOMO, LOCOMO, "item 1: is longer than 200 characters")
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 10)
    _assert_refused(BEIR, BEIR / "corpus.jsonl", "has a line of more than")
    monkeypatch.setattr(sources, "MAX_FILE_BYTES", 100)
    _assert_refused(LONGMEMEVAL, LONGMEMEVAL, "is larger than")


def test_halves_of_emoji_and_controls_do_not_cost_the_set() -> None:
    assert cleaned("a\ud83d\ude00b\ud83d c\x00\u202ed\n\te ") == "a\U0001f600b\ufffd cd\n\te"


def test_a_download_is_measured_as_it_is() -> None:
    report = run_bench(LOCOMO, arms=["fts"])
    assert report["dataset"] == "locomo10"
    assert report["manifest"]["counts"]["left_out"] == {"unanswerable": 1, "unlabelled": 1}
    assert report["arms"]["fts"]["overall"]["n"] == 4


def _assert_refused(path: Path, place: Path, problem: str) -> None:
    with pytest.raises(BadInput) as raised:
        load_dataset(path)
    assert str(raised.value).startswith(str(place))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)
