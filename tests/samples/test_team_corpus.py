"""The team sample keeps its promises: sound ids and links, honest labels, queries of the stated kind."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from datetime import date, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import Stemmer  # type: ignore[import-not-found,import-untyped,unused-ignore]

Row = dict[str, Any]
Qrels = dict[str, dict[str, int]]

TEAM = Path(__file__).resolve().parents[2] / "src" / "triskele" / "samples" / "team"
CATEGORIES = {"facts", "preferences", "projects", "people", "decisions", "lessons", "procedures"}
PROJECTS = {"", "berthing", "billing", "metering", "platform"}
LINKS = ("supersedes", "resolved_by", "part_of", "see_also")
MINIMUM_PER_TYPE = {"exact": 60, "paraphrase": 60, "multi-hop": 60, "unanswerable": 300, "prompt": 60, "idle": 60}
WITHOUT_ANSWER = ("unanswerable", "idle")
STOP_WORD_TEXT = """
a about above after again against ain all also am an and any are aren as at be because been before being
below between both but by can cannot could couldn d did didn do does doesn doing don down during each
else ever every few for from further get gets give given go goes going got had hadn has hasn have haven
having he her here hers herself him himself his how i if in into is isn it its itself just ll m may me
might mine more most much must my myself need needs no nor not now o of off on once one only or other
our ours ourselves out over own re s same shall she should shouldn since so some such t than that the
their theirs them themselves then there these they this those through to too under until up upon us
use used using ve very via was wasn we were weren what when where whether which while who whom whose why
will with within without won would wouldn yes yet you your yours yourself yourselves
"""
STOP_WORDS = frozenset(STOP_WORD_TEXT.split())
# A Han character counts as a word of its own, because Chinese is written without spaces.
WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]{2,}")
STEMMER = Stemmer.Stemmer("english")


def read_lines(name: str) -> list[Row]:
    lines = (TEAM / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_qrels() -> list[tuple[str, str, int]]:
    with (TEAM / "qrels.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    assert rows[0] == ["qid", "docid", "grade"]
    return [(qid, docid, int(grade)) for qid, docid, grade in rows[1:]]


def group_by_query(rows: list[tuple[str, str, int]]) -> Qrels:
    grouped: Qrels = {}
    for qid, docid, grade in rows:
        grouped.setdefault(qid, {})[docid] = grade
    return grouped


MEMORIES = read_lines("corpus.jsonl")
QUERIES = read_lines("queries.jsonl")
QREL_ROWS = read_qrels()
BY_ID = {memory["id"]: memory for memory in MEMORIES}
QRELS = group_by_query(QREL_ROWS)


def content_words(text: str) -> set[str]:
    words = WORD.findall(text.lower())
    return {STEMMER.stemWord(word) for word in words if word not in STOP_WORDS}


def memory_words(memory: Row) -> set[str]:
    meta = memory["meta"]
    return content_words(" ".join([memory["text"], *meta["tags"], meta["keywords"]]))


def queries_of(kind: str) -> list[Row]:
    return [query for query in QUERIES if query["type"] == kind]


def graded(query: Row, lowest: int) -> list[Row]:
    return [BY_ID[docid] for docid, grade in QRELS.get(query["id"], {}).items() if grade >= lowest]


def created(memory: Row) -> datetime:
    return datetime.fromisoformat(memory["meta"]["created"])


def test_memory_ids_are_consecutive() -> None:
    assert [memory["id"] for memory in MEMORIES] == [f"m{n:03d}" for n in range(1, len(MEMORIES) + 1)]


def test_corpus_has_about_three_hundred_memories() -> None:
    assert 290 <= len(MEMORIES) <= 320


def test_memories_are_ordered_by_creation() -> None:
    moments = [created(memory) for memory in MEMORIES]
    assert moments == sorted(moments)


def test_texts_are_distinct_and_of_sensible_length() -> None:
    texts = [memory["text"] for memory in MEMORIES]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if not 30 <= len(text) <= 1400] == []


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: str(memory["id"]))
def test_meta_is_valid(memory: Row) -> None:
    meta = memory["meta"]
    assert meta["category"] in CATEGORIES
    assert meta["project"] in PROJECTS
    assert 0 <= meta["importance"] <= 1
    assert isinstance(meta["keywords"], str)
    assert all(isinstance(tag, str) and tag for tag in meta["tags"])
    assert all(meta[link] in BY_ID and meta[link] != memory["id"] for link in LINKS if link in meta)


def test_every_category_is_used() -> None:
    assert {memory["meta"]["category"] for memory in MEMORIES} == CATEGORIES


def test_validity_starts_before_it_ends() -> None:
    spans = [memory["meta"] for memory in MEMORIES if {"valid_from", "valid_to"} <= memory["meta"].keys()]
    assert spans
    assert all(date.fromisoformat(m["valid_from"]) <= date.fromisoformat(m["valid_to"]) for m in spans)


# Strictly older predecessors also rule out cycles.
def test_superseded_memories_are_older() -> None:
    newer = [memory for memory in MEMORIES if "supersedes" in memory["meta"]]
    assert len(newer) >= 20
    assert all(created(BY_ID[memory["meta"]["supersedes"]]) < created(memory) for memory in newer)


def test_no_memory_is_superseded_twice() -> None:
    targets = Counter(memory["meta"].get("supersedes") for memory in MEMORIES)
    del targets[None]
    assert set(targets.values()) == {1}


def test_incidents_are_resolved_later() -> None:
    incidents = [memory for memory in MEMORIES if "resolved_by" in memory["meta"]]
    assert len(incidents) >= 8
    assert all(created(memory) < created(BY_ID[memory["meta"]["resolved_by"]]) for memory in incidents)


def test_queries_are_unique() -> None:
    assert len({query["id"] for query in QUERIES}) == len(QUERIES)
    assert len({query["text"].lower() for query in QUERIES}) == len(QUERIES)


def test_every_type_has_enough_queries() -> None:
    counts = Counter(query["type"] for query in QUERIES)
    assert counts.keys() == MINIMUM_PER_TYPE.keys()
    assert all(counts[kind] >= minimum for kind, minimum in MINIMUM_PER_TYPE.items())


@pytest.mark.parametrize("kind", [*WITHOUT_ANSWER, "prompt"])
def test_both_halves_have_the_same_number_of_queries(kind: str) -> None:
    halves = Counter(hashlib.sha256(query["id"].encode()).digest()[0] & 1 for query in queries_of(kind))
    assert halves[0] == halves[1]


def test_labels_name_existing_queries_and_memories_once() -> None:
    pairs = [(qid, docid) for qid, docid, _ in QREL_ROWS]
    assert len(set(pairs)) == len(pairs)
    assert {qid for qid, _ in pairs} <= {query["id"] for query in QUERIES}
    assert {docid for _, docid in pairs} <= BY_ID.keys()


def test_grades_are_between_zero_and_three() -> None:
    assert {grade for _, _, grade in QREL_ROWS} == {0, 1, 2, 3}


def test_only_answerable_queries_have_labels() -> None:
    answered = {query["id"] for query in QUERIES if graded(query, 3)}
    unanswerable = {query["id"] for kind in WITHOUT_ANSWER for query in queries_of(kind)}
    assert answered == {query["id"] for query in QUERIES} - unanswerable
    assert unanswerable.isdisjoint(QRELS)


def test_current_fact_outranks_the_one_it_replaced() -> None:
    for query in QUERIES:
        grades = QRELS.get(query["id"], {})
        for docid in grades:
            old = BY_ID[docid]["meta"].get("supersedes")
            if old in grades:
                assert grades[old] <= grades[docid], query["id"]


@pytest.mark.parametrize("query", queries_of("exact"), ids=lambda query: str(query["id"]))
def test_exact_query_shares_words_with_its_answer(query: Row) -> None:
    asked = content_words(query["text"])
    assert all(asked & memory_words(memory) for memory in graded(query, 3))


@pytest.mark.parametrize("query", queries_of("paraphrase"), ids=lambda query: str(query["id"]))
def test_paraphrase_shares_no_word_with_its_answer(query: Row) -> None:
    asked = content_words(query["text"])
    assert [asked & memory_words(memory) for memory in graded(query, 3) if asked & memory_words(memory)] == []


@pytest.mark.parametrize("query", queries_of("multi-hop"), ids=lambda query: str(query["id"]))
def test_multi_hop_bridge_is_not_in_the_query(query: Row) -> None:
    asked = content_words(query["text"])
    hops = [memory_words(memory) for memory in graded(query, 2)]
    assert len(hops) >= 2
    assert [first & second & asked for first, second in combinations(hops, 2) if first & second & asked] == []


@pytest.mark.parametrize("query", queries_of("multi-hop"), ids=lambda query: str(query["id"]))
def test_multi_hop_memories_form_a_chain(query: Row) -> None:
    waiting = [memory_words(memory) for memory in graded(query, 2)]
    reached = waiting.pop()
    while waiting:
        linked = [words for words in waiting if words & reached]
        assert linked, "a hop shares no entity with the others"
        reached = reached.union(*linked)
        waiting = [words for words in waiting if words not in linked]
