"""Small data sets on disk, written by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
WriteDataset = Callable[..., Path]

CORPUS: list[Row] = [
    {"id": "d1", "text": "The lighthouse keeper paints boats in winter.", "meta": {"importance": 0.9}},
    {"id": "d2", "text": "Boats are painted by the keeper's sister.", "meta": {}},
    {"id": "d3", "text": "Winter storms closed the harbour for a week.", "meta": {}},
    {"id": "d4", "text": "The ferry timetable changes every spring.", "meta": {}},
    {"id": "d5", "text": "Nothing at all about the sea."},
]
QUERIES: list[Row] = [
    {"id": "q1", "text": "who paints the boats?", "type": "exact", "meta": {}},
    {"id": "q2", "text": "winter storm", "type": "exact"},
    {"id": "q3", "text": "when does the timetable of the ferries change", "type": "paraphrase"},
    {"id": "q4", "text": "does the keeper own a dog?", "type": "unanswerable"},
    {"id": "q5", "text": "winter boats", "type": "paraphrase"},
]
QRELS = [("q1", "d1", 3), ("q1", "d2", 2), ("q2", "d3", 3), ("q3", "d4", 3), ("q4", "d1", 1), ("q5", "d5", 0)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another has left."""
    monkeypatch.setenv("TRISKELE_BENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def write_dataset(tmp_path: Path) -> WriteDataset:
    """Writes a data set folder; without arguments the small one above."""

    def write(
        corpus: Iterable[Row] = CORPUS,
        queries: Iterable[Row] = QUERIES,
        qrels: Iterable[tuple[str, str, int]] = QRELS,
        *,
        packed: bool = False,
    ) -> Path:
        folder = tmp_path / ("packed" if packed else "harbour")
        folder.mkdir(exist_ok=True)
        texts = {
            "corpus.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in corpus),
            "queries.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in queries),
            "qrels.tsv": "qid\tdocid\tgrade\n" + "".join(f"{q}\t{d}\t{g}\n" for q, d, g in qrels),
        }
        for name, text in texts.items():
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
            else:
                (folder / name).write_text(text, encoding="utf-8")
        return folder

    return write
