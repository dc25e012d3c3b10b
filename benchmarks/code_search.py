"""Measure code search over benchmarks/code/suite.json: fetch the trees, then compare arms, and semble where installed.

    python benchmarks/code_search.py fetch FOLDER            the packages, at their pinned versions
    python benchmarks/code_search.py run FOLDER HOME [ARM …] quality, by half, type and tree; then for places.json
    python benchmarks/code_search.py functions FOLDER HOME   questions about one function, by granularity
    python benchmarks/code_search.py speed TREE HOME         seconds to index, to search by words and with the model,
                                                             and after one edit

Needs the extra `code`. semble's ranking by words is measured beside ours if its package is installed; its model is not
loaded. Nothing but the questions and paths is kept in this repository.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from triskele.bench.code_suite import load_suite, run_suite
from triskele.code.paths import shown_path
from triskele.code.ranking import CodePlan
from triskele.code.search import CodeSearch
from triskele.config import BUNDLED
from triskele.models.local import local_embedder

FUNCTION_QUESTIONS = Path(__file__).parents[1] / "training" / "code_questions.jsonl"
SUITE = Path(__file__).parent / "code" / "suite.json"
# Questions that name the file or the folder that they are about.
PLACES = Path(__file__).parent / "code" / "places.json"
INDEXES = {"pypi": "https://pypi.org/simple/{}/", "npm": "https://registry.npmjs.org/{}"}


def fetch(folder: Path) -> None:
    """Download and unpack every tree that is not there, and check its hash."""
    for name, source in load_suite(SUITE).trees.items():
        target = folder / f"{name}-{source['version']}"
        if target.is_dir():
            continue
        content = urllib.request.urlopen(_address(name, source)).read()
        if hashlib.sha256(content).hexdigest() != source["sha256"]:
            sys.exit(f"{source['file']} is not the file that the questions were written for")
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            packed = Path(scratch, "packed")
            packed.write_bytes(content)
            with tarfile.open(packed) as archive:
                archive.extractall(Path(scratch, "tree"), filter="data")
            [inner] = Path(scratch, "tree").iterdir()
            shutil.move(inner, target)
        print(target)


def _address(name: str, source: dict[str, Any]) -> str:
    page = urllib.request.urlopen(INDEXES[source["source"]].format(name)).read()
    if source["source"] == "npm":
        return str(json.loads(page)["versions"][source["version"]]["dist"]["tarball"])
    links = re.findall(r'href="([^"#]+)', page.decode())
    return next(link for link in links if link.endswith("/" + source["file"]))


def semble_ranker(root: Path) -> Callable[[str], Sequence[str]]:
    """semble's chunks, BM25, boosts and penalties over a tree, without its model."""
    from semble.chunking import chunk_source
    from semble.index.bm25 import BM25
    from semble.index.file_walker import walk_files
    from semble.index.files import FileStatus, detect_language, get_extensions, get_file_status, read_file_text
    from semble.index.sparse import enrich_for_bm25
    from semble.ranking import apply_query_boost, boost_multi_chunk_files, rerank_topk
    from semble.search import _rrf_scores, _search_bm25
    from semble.tokens import tokenize
    from semble.types import ContentType

    chunks, index = [], BM25.empty()
    for path in walk_files(root, get_extensions([ContentType.CODE])):
        if get_file_status(path, path.stat()) is FileStatus.VALID:
            chunks += chunk_source(read_file_text(path), path.relative_to(root).as_posix(), detect_language(path))
    for number, chunk in enumerate(chunks):
        index.add_document(str(number), tokenize(enrich_for_bm25(chunk)))
    index.set_doc_order([str(number) for number in range(len(chunks))])

    def ranked(question: str) -> list[str]:
        found = _search_bm25(question, index, chunks, 150, None)
        scores = _rrf_scores({each.chunk: each.score for each in found})
        boost_multi_chunk_files(scores)
        scores = apply_query_boost(scores, question, chunks)
        return [chunk.file_path for chunk, _ in rerank_topk(scores, 30)]

    return ranked


def run(folder: Path, home: Path, names: Sequence[str]) -> None:
    """Print nDCG@10 by group, and the differences to the baseline and to semble."""
    try:
        import semble  # noqa: F401

        others = {"semble lexical": semble_ranker}
    except ImportError:
        others = {}
    baselines = ("bm25", "lexical", "semble lexical")
    for suite in map(load_suite, (SUITE, PLACES)):
        report = run_suite(suite, folder, home, names=names or None, others=others, baselines=baselines)
        print(suite.path.name, json.dumps(report["arms"], indent=1))
        for each in report["comparisons"]:
            interval = f"[{each['ci95'][0]:+.4f}, {each['ci95'][1]:+.4f}]"
            print(f"{each['a']} − {each['b']}, {each['stratum']}: {each['delta']:+.4f} {interval}")


def functions(folder: Path, home: Path) -> None:
    """Print how often the function asked for is first, in the first five, and its mean reciprocal rank, by plan."""
    embedder = local_embedder(BUNDLED)
    cases = [json.loads(line) for line in FUNCTION_QUESTIONS.read_text().splitlines()]
    searches = {}
    for tree in sorted(folder.iterdir()):
        searches[tree.name.partition("-")[0]] = search = CodeSearch(home, tree.resolve(), embedder)
        search.index()
        search.embed()
    plans = [
        CodePlan(granularity=by, dense=dense) for by in ("file", "function") for dense in (0.0, 0.2, 0.4, 0.6, 0.8)
    ]
    for plan in plans:
        places = [_place_of(searches[case["answers"][0].partition(":")[0]], case, plan) for case in cases]
        first, five = (statistics.mean(place <= most for place in places) for most in (1, 5))
        mean = statistics.mean(1 / place for place in places)
        print(f"by {plan.granularity}, dense {plan.dense}: first {first:.3f}, first five {five:.3f}, MRR@10 {mean:.3f}")


def _place_of(search: CodeSearch, case: dict[str, Any], plan: CodePlan) -> float:
    names = {answer.partition(":")[2] for answer in case["answers"]}
    corpus = search._corpus()[0]
    wanted = {
        (shown_path(corpus.paths[row]), each.start_line)
        for each, content in zip(corpus.definitions, corpus.definition_content.tolist(), strict=True)
        for row in corpus.files_of.get(content, ())
        if each.qualified in names
    }
    for place, hit in enumerate(search.search(case["question"], plan=plan).hits):
        if any(path == hit.path and hit.start_line <= line <= hit.end_line for path, line in wanted):
            return place + 1
    return float("inf")


def speed(tree: Path, home: Path) -> None:
    """Print seconds of CPU to index, to search and to search after one edit, and ripgrep's time for one scan."""
    search = CodeSearch(home, tree.resolve())
    began, cpu = time.perf_counter(), time.process_time()
    status = search.index(rebuild=True)
    cpu = time.process_time() - cpu
    print(
        f"{status.lines:,} lines in {status.files:,} files: {cpu:.1f} s CPU, {status.lines / cpu:,.0f} lines a second,"
    )
    print(f"  {time.perf_counter() - began:.1f} s of time; {status.bytes_on_disk / 1e6:.1f} MB on disk")
    questions = [case.question for case in load_suite(SUITE).cases if case.type != "symbol"][:100]
    asked = {
        "ranking": _ranked(search),
        "answer with masked snippets, by words": search.search,
        "answer with masked snippets, with the model": _embedded(home, tree).search,
    }
    for ask in asked.values():
        ask(questions[0])
    medians = {label: _cpu_ms(label, ask, questions) for label, ask in asked.items()}
    edited = tree / next(iter(search._corpus()[0].paths))
    content = edited.read_bytes()
    try:
        edited.write_bytes(content + b"\n")
        cpu = time.process_time()
        _ranked(search)("one edit")
        print(f"search after one edit: {1000 * (time.process_time() - cpu):.0f} ms of CPU")
    finally:
        edited.write_bytes(content)
    if shutil.which("rg"):
        words = [max(question.split(), key=len).strip("?.,") for question in questions]
        scan = _cpu_ms(
            "ripgrep, one scan for one word", lambda word: _scan(tree, word), words, resource.RUSAGE_CHILDREN
        )
        for label, median in medians.items():
            print(f"{label} / ripgrep: {median / scan:.2f}")


def _cpu_ms(
    label: str, ask: Callable[[str], object], questions: Sequence[str], whose: int = resource.RUSAGE_SELF
) -> float:
    """The median of the CPU time of some questions, which is printed."""
    spent = []
    for question in questions:
        before = resource.getrusage(whose)
        ask(question)
        after = resource.getrusage(whose)
        spent.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    print(f"{label}: p50 {statistics.median(spent):.1f} ms, p95 {sorted(spent)[int(0.95 * len(spent))]:.1f} ms of CPU")
    return statistics.median(spent)


def _scan(tree: Path, word: str) -> None:
    subprocess.run(["rg", "-F", "-c", "--", word, str(tree)], stdout=subprocess.DEVNULL, check=False)


def _embedded(home: Path, tree: Path) -> CodeSearch:
    search = CodeSearch(home, tree.resolve(), local_embedder(BUNDLED))
    cpu, before = time.process_time(), search.status()
    search.embed()
    cpu = time.process_time() - cpu
    texts = (before.chunks + before.files) * (1 - before.embedded)
    print(f"{texts:,.0f} texts embedded: {texts / cpu:.1f} a second of CPU")
    return search


def _ranked(search: CodeSearch) -> Callable[[str], object]:
    return lambda question: search.ranked_paths(question, CodePlan(dense=0.0))


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    if command == "fetch":
        fetch(Path(given[0]))
    elif command == "run":
        run(Path(given[0]), Path(given[1]), given[2:])
    elif command == "functions":
        functions(Path(given[0]), Path(given[1]))
    else:
        speed(Path(given[0]), Path(given[1]))
