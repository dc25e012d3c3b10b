"""What each family of models wants to read before a text, and how it makes one vector of many."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_SEARCHING = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class Family:
    """The prompts of a family and its pooling: mean, cls or last."""

    query: str = ""
    document: str = ""
    pooling: str = ""


# The first pattern that is found in a model's name counts, so the particular stands before the general.
_FAMILIES = (
    (r"bge-m3", Family(pooling="cls")),
    (r"bge-.*-zh", Family("为这个句子生成表示以用于检索相关文章：", pooling="cls")),
    (r"bge-(small|base|large)", Family(_SEARCHING, pooling="cls")),
    (r"e5-mistral", Family(f"Instruct: {_TASK}\nQuery: ", pooling="last")),
    (r"e5-.*instruct", Family(f"Instruct: {_TASK}\nQuery: ", pooling="mean")),
    (r"(^|[-_/])e5-", Family("query: ", "passage: ", "mean")),
    (r"nomic-embed-text", Family("search_query: ", "search_document: ", "mean")),
    (r"gte-qwen2", Family(f"Instruct: {_TASK}\nQuery: ", pooling="last")),
    (r"qwen3-embedding", Family(f"Instruct: {_TASK}\nQuery:", pooling="last")),
    (r"gte-.*-v1\.5|gte-modernbert|gte-multilingual", Family(pooling="cls")),
    (r"(^|[-_/])gte-", Family(pooling="mean")),
    (r"mxbai-embed", Family(_SEARCHING, pooling="cls")),
    (r"arctic-embed.*v2", Family("query: ", pooling="cls")),
    (r"arctic-embed", Family(_SEARCHING, pooling="cls")),
    (r"embeddinggemma", Family("task: search result | query: ", "title: none | text: ", "mean")),
    (r"minilm|all-mpnet|paraphrase-", Family(pooling="mean")),
)


def family(*names: str) -> Family:
    """The family that one of these names tells, most telling name first; one without prompts where none does."""
    for name in names:
        for pattern, found in _FAMILIES:
            if re.search(pattern, name.lower()):
                return found
    return Family()
