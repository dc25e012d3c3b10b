"""The whole benchmark on a data set small enough to check by eye."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triskele.bench.arms import ARMS, arm
from triskele.bench.bench import available_arms, run_bench
from triskele.bench.datasets import Window, windows
from triskele.bench.harness import BenchHarness, best_documents
from triskele.bench.loaders import load_dataset
from triskele.bench.measure import RankedDocument
from triskele.curation.curator import Curator
from triskele.errors import BadInput

pytestmark = pytest.mark.slow

WriteDataset = Callable[..., Path]


def without_costs(report: dict[str, Any]) -> dict[str, Any]:
    """What must be the same every time."""
    kept = copy.deepcopy(report)
    for one in kept["arms"].values():
        del one["latency_ms"], one["bytes_per_memory"]
    return kept


def test_the_report_has_the_agreed_shape(write_dataset: WriteDataset) -> None:
    report = run_bench(write_dataset(), arms=["lexical"])
    assert set(report) == {"dataset", "manifest", "guards", "arms", "comparisons", "abstention"}
    assert list(report["arms"]) == ["fts", "lexical"]
    for one in report["arms"].values():
        assert set(one) == {"overall", "strata", "halves", "latency_ms", "bytes_per_memory", "legs"}
        wanted = {"n", "recall@5", "recall@10", "recall_all@5", "recall_any@5", "ndcg@10", "mrr", "map"}
        assert wanted <= set(one["overall"])
        assert set(one["strata"]) == {"exact", "paraphrase"}
        assert one["halves"]["tune"]["n"] + one["halves"]["test"]["n"] == one["overall"]["n"] == 3
        assert 0 < one["latency_ms"]["p50"] <= one["latency_ms"]["p95"]
        assert one["bytes_per_memory"] > 0
    compared = report["comparisons"]
    assert {one["stratum"] for one in compared} >= {"overall", "exact", "paraphrase"}
    assert all((one["a"], one["b"]) == ("lexical", "fts") for one in compared)
    assert set(compared[0]) >= {"a", "b", "stratum", "metric", "delta", "ci95", "p", "p_holm", "mde", "underpowered"}
    json.dumps(report, allow_nan=False)


def test_stems_find_what_plain_words_miss(write_dataset: WriteDataset) -> None:
    queries = [{"id": "q1", "text": "paint boat"}, {"id": "q2", "text": "winter storms"}]
    folder = write_dataset(queries=queries, qrels=[("q1", "d2", 1), ("q2", "d3", 1)])
    report = run_bench(folder, arms=["fts", "lexical"])
    assert report["arms"]["lexical"]["overall"]["recall@5"] == 1
    assert report["arms"]["fts"]["overall"]["recall@5"] == 0.5
    overall = next(one for one in report["comparisons"] if one["metric"] == "recall@5")
    assert (overall["stratum"], overall["delta"]) == ("overall", 0.5)


def test_unanswerable_queries_are_left_out_and_counted(write_dataset: WriteDataset, tmp_path: Path) -> None:
    report = run_bench(write_dataset(), arms=["lexical"], out=tmp_path / "out")
    counts = report["manifest"]["counts"]
    assert (counts["queries"], counts["ranked"], counts["measured"]) == (5, 3, 3)
    assert counts["left_out"] == {"unanswerable": 1, "unlabelled": 1}
    runs = (tmp_path / "out" / "runs" / "lexical.trec").read_text()
    assert {line.split()[0] for line in runs.splitlines()} == {"q1", "q2", "q3"}


def test_runs_and_values_per_query_are_kept(write_dataset: WriteDataset, tmp_path: Path) -> None:
    out = tmp_path / "kept" / "here"
    report = run_bench(write_dataset(), arms=["lexical"], out=out)
    assert json.loads((out / "results.json").read_text()) == report
    fields = (out / "runs" / "fts.trec").read_text().splitlines()[0].split()
    assert (fields[0], fields[1], fields[3], fields[5]) == ("q1", "Q0", "1", "fts")
    header, *lines = [line.split("\t") for line in (out / "queries.tsv").read_text().splitlines()]
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert len(rows) == 6
    values = [float(row["mrr"]) for row in rows if row["arm"] == "lexical"]
    assert sum(values) / 3 == report["arms"]["lexical"]["overall"]["mrr"]


def test_it_reproduces_bit_for_bit(write_dataset: WriteDataset, tmp_path: Path) -> None:
    folder = write_dataset()
    one, two = (run_bench(folder, arms=available_arms(), out=tmp_path / name) for name in ("one", "two"))
    assert without_costs(one) == without_costs(two)
    for name in ("queries.tsv", *(f"runs/{each}.trec" for each in available_arms())):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_manifest_holds_what_a_second_run_needs(write_dataset: WriteDataset) -> None:
    manifest = run_bench(write_dataset(), arms=["default", "rrf:k=10"])["manifest"]
    assert {"python", "triskele", "numpy", "tantivy", "onnxruntime"} <= set(manifest["versions"])
    assert len(manifest["data_sha256"]) == 64
    assert manifest["model"] and manifest["seed"] == 7 and manifest["platform"]
    assert manifest["arms"]["fts"]["plan"] is None
    assert set(manifest["arms"]["rrf:k=10"]["plan"]["k"].values()) == {10.0}
    assert "not included" in manifest["latency"]
    assert manifest["counts"]["labels_skipped"] == {}


def test_the_default_arm_is_what_recall_does(write_dataset: WriteDataset) -> None:
    corpus = [
        {"id": f"d{number}", "text": f"a red boat number {number} in the harbour", "meta": {"importance": number / 20}}
        for number in range(20)
    ]
    data = load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "d1", 1)]))
    rows = windows(data.documents)
    with BenchHarness(rows) as harness:
        for name in ("default", "default-prior", "default+exact"):
            ranking = harness.search(ARMS[name], "red boat number 7", None)
            plan = ARMS[name].plan
            assert plan is not None
            answer = harness.engine.ask("red boat number 7", plan, all_projects=True)
            assert len(ranking.documents) == 20 and len(answer.hits) == 10
            documents = [harness.document(hit.memory.id) for hit in answer.hits]
            assert [each.document for each in ranking.documents[:10]] == documents
            assert [each.score for each in ranking.documents[:10]] == [hit.score for hit in answer.hits]
            assert [
                {leg: (e.rank, e.contribution) for leg, e in each.legs.items()} for each in ranking.documents[:10]
            ] == [{leg: (e.rank, e.contribution) for leg, e in hit.legs.items()} for hit in answer.hits]
            assert ranking.confidence == answer.confidence


def test_recall_with_a_depth_rescores_what_the_plan_says(write_dataset: WriteDataset) -> None:
    corpus = [{"id": f"d{number}", "text": f"a red boat number {number} in the harbour"} for number in range(40)]
    rows = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "d1", 1)])).documents)
    with BenchHarness(rows) as harness:
        found = harness.search(arm("default:rescored=12"), "red boat", None)
        assert len(found.documents) == 12
        assert len(harness.search(arm("rrf"), "red boat", None).documents) == 40


def test_curation_is_off_in_a_benchmark_whatever_the_settings_say(
    write_dataset: WriteDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = [{"id": "d1", "text": "Payroll runs on Nomad"}, {"id": "d2", "text": "Payroll now runs on Kubernetes"}]
    rows = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "d1", 1)])).documents)
    monkeypatch.setenv("TRISKELE_CURATION_MODE", "apply")
    with BenchHarness(rows) as harness:
        harness.folder.mkdir(parents=True, exist_ok=True)
        (harness.folder / "config.toml").write_text("[curation]\nmode = 'apply'\nlearn = 'all'\n")
        curation = harness.engine.settings.curation
        assert (curation.mode, curation.llm_calls, curation.learn) == ("off", 0, "off")
        assert harness.engine.store.census().versions == 2
        Curator(harness.engine).follow()
        assert Curator(harness.engine).follow().read == 0
        assert harness.engine.proposals.list() == []
        assert list(harness.engine.store.all_links()) == []


def test_a_cached_store_is_used_again_and_a_broken_one_is_filled_again(write_dataset: WriteDataset) -> None:
    rows = windows(load_dataset(write_dataset()).documents)
    with BenchHarness(rows) as harness:
        first = {memory: window.document for memory, window in _opened(harness).items()}
    with BenchHarness(rows) as harness:
        assert {memory: window.document for memory, window in _opened(harness).items()} == first
        folder = harness.folder
    (folder / "ids.txt").unlink()
    with BenchHarness(rows) as harness:
        again = {memory: window.document for memory, window in _opened(harness).items()}
    assert not again.keys() & first.keys() and sorted(again.values()) == sorted(first.values())


def _opened(harness: BenchHarness) -> dict[str, Window]:
    assert harness.engine.store.census().versions == len(harness.windows)
    return harness.windows_by_memory


def test_a_document_scores_as_its_best_window_and_ties_go_by_id() -> None:
    rows = [RankedDocument(id, score, score) for id, score in (("b", 1.0), ("b", 3.0), ("c", 2.0), ("a", 2.0))]
    assert best_documents(rows, 10) == [("b", 3.0), ("a", 2.0), ("c", 2.0)]
    assert best_documents(rows, 1) == [("b", 3.0)]


def test_importance_moves_the_default_and_not_the_default_without_it(write_dataset: WriteDataset) -> None:
    corpus = [{"id": id, "text": "a red boat", "meta": {"importance": share}} for id, share in (("a", 0), ("b", 1))]
    queries = [{"id": "q1", "text": "red boat"}]
    folder = write_dataset(corpus, queries, [("q1", "b", 1)])
    report = run_bench(folder, arms=["default", "default-prior"])
    assert report["arms"]["default"]["overall"]["mrr"] == 1
    assert report["arms"]["default-prior"]["overall"]["mrr"] == 0.5


def test_a_leaked_gold_id_is_caught(write_dataset: WriteDataset) -> None:
    def alarms(id: str) -> list[str]:
        corpus = [{"id": f"note {number}", "text": f"boat number {number}"} for number in range(8)]
        queries = [{"id": f"question-{number}", "text": f"which boat is {number}?"} for number in range(3)]
        corpus[2]["id"] = id
        qrels = [("question-0", "note 0", 1), ("question-1", "note 1", 1), ("question-2", id, 1)]
        found = run_bench(write_dataset(corpus, queries, qrels), arms=["lexical"])["guards"]["findings"]
        return [one["guard"] for one in found if one["severity"] == "alarm"]

    assert alarms("note 2") == []
    assert alarms("note for question-2") == ["leak"]
    assert alarms("note 2, gold") == ["leak"]


def test_a_set_says_how_it_was_made(write_dataset: WriteDataset) -> None:
    folder = write_dataset()
    said = {"generator": "model-a", "judge": "model-a", "built_from": {"exact": "fts"}}
    (folder / "manifest.json").write_text(json.dumps(said))
    found = run_bench(folder, arms=["lexical"])["guards"]["findings"]
    assert [one["guard"] for one in found if one["severity"] == "alarm"] == ["circle", "circle"]
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(BadInput, match="not a JSON object"):
        run_bench(folder, arms=["lexical"])


def test_questions_without_an_answer_are_told_by_confidence(write_dataset: WriteDataset) -> None:
    told = run_bench(write_dataset(), arms=["fts", "rrf", "default"])["abstention"]
    assert set(told) == {"default"}
    assert told["default"]["answerable"] == 3
    assert told["default"]["kinds"]["unanswerable"]["n"] == 1
    assert 0 <= told["default"]["kinds"]["unanswerable"]["auroc"] <= 1
    queries = [{"id": "q1", "text": "winter storm"}]
    assert "abstention" not in run_bench(write_dataset(queries=queries), arms=["default"])


def test_a_public_run_holds_no_text_and_no_id(write_dataset: WriteDataset, tmp_path: Path) -> None:
    queries = [{"id": f"secret-{number}", "text": f"confidential boat number {number}"} for number in range(3)]
    corpus = [{"id": f"secret-{number}", "text": f"boat number {number}", "meta": {}} for number in range(3)]
    folder = write_dataset(corpus, queries, [(query["id"], query["id"], 1) for query in queries])
    private = run_bench(folder, arms=["default"], out=tmp_path / "private")
    public = run_bench(folder, arms=["default"], out=tmp_path / "public", public=True)
    assert "secret-1" in json.dumps(private)
    assert "public form" in (tmp_path / "public" / "report.html").read_text()
    assert sorted(path.name for path in (tmp_path / "public").iterdir()) == ["report.html", "results.json"]
    for text in (json.dumps(public), *(path.read_text() for path in (tmp_path / "public").iterdir())):
        assert "secret-" not in text and "confidential" not in text


def test_a_changed_arm_keeps_its_run_under_a_name_for_files(write_dataset: WriteDataset, tmp_path: Path) -> None:
    run_bench(write_dataset(), arms=["rrf:k=10"], out=tmp_path / "out")
    assert (tmp_path / "out" / "runs" / "rrf_k=10.trec").read_text().split()[5] == "rrf:k=10"


def test_a_sample_is_decided_by_the_seed(write_dataset: WriteDataset, tmp_path: Path) -> None:
    queries = [{"id": f"q{number:02}", "text": "winter boats", "type": "exact"} for number in range(40)]
    folder = write_dataset(queries=queries, qrels=[(query["id"], "d3", 1) for query in queries])

    def sampled(seed: int, name: str) -> set[str]:
        run_bench(folder, arms=["fts"], max_queries=6, seed=seed, out=tmp_path / name)
        return {line.split("\t")[1] for line in (tmp_path / name / "queries.tsv").read_text().splitlines()[1:]}

    first = sampled(7, "a")
    assert len(first) == 6
    assert sampled(7, "b") == first
    assert sampled(8, "c") != first


def test_every_arm_searches_inside_the_scope(write_dataset: WriteDataset) -> None:
    places = {"in a": "a", "in b": "b", "everywhere": None}
    corpus = [
        {"id": id, "text": "the red boat", "meta": {"scope": scope, "session": "s"} if scope else {}}
        for id, scope in places.items()
    ]
    rows = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "in a", 1)])).documents)
    with BenchHarness(rows) as harness:
        for each in map(ARMS.__getitem__, available_arms()):
            inside, everywhere = (harness.search(each, "red boat", scope).documents for scope in ("a", None))
            assert {found.document for found in inside} == {"in a", "everywhere"}
            assert {found.document for found in everywhere} == set(places)


def test_memories_keep_session_position_and_importance(write_dataset: WriteDataset) -> None:
    corpus = [
        {"id": f"t{turn}", "text": "the same words", "meta": {"scope": "a", "session": "s", "importance": 0.25}}
        for turn in range(3)
    ]
    rows = windows(load_dataset(write_dataset(corpus=corpus, qrels=[("q1", "t0", 1)])).documents)
    with BenchHarness(rows) as harness:
        stored = [harness.engine.get(memory) for memory in _opened(harness)]
    assert [(m.project, m.session, m.position, m.importance) for m in stored] == [
        ("a", "s", turn, 0.25) for turn in range(3)
    ]


def test_importance_moves_the_importance_arm(write_dataset: WriteDataset) -> None:
    corpus = [
        {"id": "plain", "text": "a red boat", "meta": {"importance": 0.1}},
        {
            "id": "weighty",
            "text": "a red boat with many other words that make it a worse match",
            "meta": {"importance": 1},
        },
    ]
    queries = [{"id": "q1", "text": "red boat", "type": "exact"}]
    report = run_bench(write_dataset(corpus, queries, [("q1", "weighty", 1)]), arms=["lexical", "importance"])
    assert report["arms"]["lexical"]["overall"]["mrr"] == 0.5
    assert report["arms"]["importance"]["overall"]["mrr"] == 1


def test_ids_with_blanks_stay_one_column(write_dataset: WriteDataset, tmp_path: Path) -> None:
    corpus = [{"id": "a note", "text": "the red boat"}]
    queries = [{"id": "my question", "text": "red boat"}]
    run_bench(write_dataset(corpus, queries, [("my question", "a note", 1)]), arms=["fts"], out=tmp_path / "out")
    assert (tmp_path / "out" / "runs" / "fts.trec").read_text().startswith("my%20question Q0 a%20note 1 ")


def test_queries_that_find_nothing_count_as_misses(write_dataset: WriteDataset) -> None:
    queries = [{"id": "q1", "text": "zeppelin"}, {"id": "q2", "text": "!!!"}, {"id": "q3", "text": ""}]
    folder = write_dataset(queries=queries, qrels=[(query["id"], "d1", 1) for query in queries])
    report = run_bench(folder, arms=available_arms())
    assert report["arms"]["lexical"]["overall"]["recall@30"] == 0
    assert report["arms"]["lexical"]["overall"]["n"] == 3


def test_progress_is_told(write_dataset: WriteDataset) -> None:
    told: list[tuple[str, int, int]] = []
    run_bench(write_dataset(), arms=["lexical"], progress=lambda *step: told.append(step))
    assert ("indexing", 5, 5) in told
    assert ("lexical", 3, 3) in told
    assert told[-1] == ("comparing", 1, 1)


def test_what_cannot_be_measured_is_refused(write_dataset: WriteDataset, tmp_path: Path) -> None:
    folder = write_dataset()
    with pytest.raises(BadInput, match="unknown arm 'telepathy': choose from fts, lexical"):
        run_bench(folder, arms=["telepathy"])
    with pytest.raises(BadInput, match="max-queries"):
        run_bench(folder, arms=["fts"], max_queries=0)
    with pytest.raises(BadInput, match="cannot write results"):
        run_bench(folder, arms=["fts"], out=folder / "corpus.jsonl")
    with pytest.raises(BadInput, match="nothing to rank"):
        run_bench(write_dataset(qrels=[("q4", "d1", 1)]), arms=["fts"])


def test_the_bytes_of_a_memory_are_those_of_the_closed_folder(write_dataset: WriteDataset) -> None:
    """As it is while the store is open and much of it is in its log."""
    dataset = load_dataset(write_dataset())
    harness = BenchHarness(windows(dataset.documents))
    lexical = arm("lexical")
    harness.search(lexical, "storks", None)
    measured = harness.bytes_per_memory(lexical)
    harness.close()
    files = [path for path in harness.folder.rglob("*") if path.is_file() and path.name != "ids.txt"]
    assert measured == sum(path.stat().st_size for path in files) / len(harness.windows)
