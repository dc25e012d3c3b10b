"""Measure code search over benchmarks/code/suite.json: fetch the trees, then compare arms, and semble where installed.

    python benchmarks/code_search.py fetch FOLDER            the packages, at their pinned versions
    python benchmarks/code_search.py run FOLDER HOME [ARM …] quality, by half, type and tree
    python benchmarks/code_search.py speed TREE HOME         seconds to index, to search, and after one edit

Needs the extra `code`. semble's ranking by words is measured beside ours if its package is installed; its model is not
loaded. Nothing but the questions and paths is kept in this repository.
"""

from __future__ import annotations

import hashlib
import json
import re
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

from triskele.code.search import CodeSearch
from triskele.evaluation.code_suite import load_suite, run_suite

SUITE = Path(__file__).parent / "code" / "suite.json"
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
    suite = load_suite(SUITE)
    report = run_suite(
        suite, folder, home, names=names or None, others=others, baselines=("bm25", "lexical", "semble lexical")
    )
    print(json.dumps(report["arms"], indent=1))
    for each in report["comparisons"]:
        print(
            f"{each['a']} − {each['b']}, {each['stratum']}: {each['delta']:+.4f} {each['ci95']} p {each['p_holm']:.4f}"
        )


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
    questions = [case.question for case in load_suite(SUITE).cases[:40]]
    search.search(questions[0])
    for label, ask in (("ranking", _ranked(search)), ("answer with masked snippets", search.search)):
        spent = []
        for question in questions:
            cpu = time.process_time()
            ask(question)
            spent.append(1000 * (time.process_time() - cpu))
        print(
            f"{label}: p50 {statistics.median(spent):.1f} ms, p95 {sorted(spent)[int(0.95 * len(spent))]:.1f} ms of CPU"
        )
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
        began = time.perf_counter()
        subprocess.run(["rg", "-c", "schedule", str(tree)], stdout=subprocess.DEVNULL, check=False)
        print(f"ripgrep, one scan: {1000 * (time.perf_counter() - began):.0f} ms")


def _ranked(search: CodeSearch) -> Callable[[str], object]:
    from triskele.code.ranking import CodePlan

    return lambda question: search.ranked_paths(question, CodePlan(dense=0.0))


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    if command == "fetch":
        fetch(Path(given[0]))
    elif command == "run":
        run(Path(given[0]), Path(given[1]), given[2:])
    else:
        speed(Path(given[0]), Path(given[1]))
