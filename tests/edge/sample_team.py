"""The sample's questions and labels in the forms that `triskele eval` takes."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from triskele.engine.opening import open_memory

TEAM = resources.files("triskele.samples") / "team"


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TEAM / name).read_text(encoding="utf-8").splitlines()]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def questions_of(answers: Mapping[str, Any], each: int) -> list[dict[str, str]]:
    """So many of the sample's questions of each type."""
    taken: Counter[str] = Counter()
    found = []
    for row in rows_of("queries.jsonl"):
        if row["type"] != "unanswerable" and row["text"] in answers and taken[row["type"]] < each:
            taken[row["type"]] += 1
            found.append({"text": row["text"], "type": row["type"]})
    return found


def grades_of(questions: list[dict[str, str]], answers: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    return [
        {"question": each["text"], "memory": memory, "grade": grade}
        for each in questions
        for memory, grade in answers[each["text"]].items()
    ]


def answers_of_the_sample() -> dict[str, dict[str, int]]:
    """Grades of memories by the words of the question, in a store that holds the sample."""
    with open_memory() as engine:
        ids = {memory.content: memory.id for memory in engine.browse(all_projects=True, limit=1000).memories}
    texts = {row["id"]: row["text"] for row in rows_of("queries.jsonl")}
    known = {row["id"]: ids[row["text"]] for row in rows_of("corpus.jsonl")}
    grades: dict[str, dict[str, int]] = {}
    for row in csv.DictReader((TEAM / "qrels.tsv").read_text().splitlines(), delimiter="\t"):
        grades.setdefault(texts[row["qid"]], {})[known[row["docid"]]] = int(row["grade"])
    return grades
