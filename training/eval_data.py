"""Turn evaluation sets into token arrays: evaluation only, never trained on.

    python -m training.eval_data DATA_FOLDER TOKENIZER.json OUT.npz SET...

Documents longer than a window are read in windows. Conversations include the two turns before each turn.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

WINDOW, MOST_WINDOWS, QUERY_TOKENS = 254, 6, 64
LEFT_OUT = {
    "adversarial", "abstention", "event_ordering", "instruction_following", "summarization",
}  # fmt: skip


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file."""
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def read_set(folder: Path) -> tuple[list[dict], list[dict], dict[str, dict[str, float]]]:
    """Documents, the questions that count, and their judgements."""
    judged: dict[str, dict[str, float]] = {}
    with gzip.open(folder / "qrels.tsv.gz", "rt") as lines:
        for line in list(lines)[1:]:
            query, document, grade = line.rstrip("\n").split("\t")
            if float(grade) > 0:
                judged.setdefault(query, {})[document] = float(grade)
    asked = read_lines(folder / "queries.jsonl.gz")
    asked = [query for query in asked if query["id"] in judged and query.get("type") not in LEFT_OUT]
    return read_lines(folder / "corpus.jsonl.gz"), asked, judged


def previous(documents: list[dict]) -> list[tuple[int, int]]:
    """The rows of the two turns before each turn of the same session, -1 if there is none."""
    sessions = [(row["meta"].get("scope"), row["meta"].get("session")) for row in documents]
    rows = []
    for i, session in enumerate(sessions):
        told = session[1] is not None
        before = [i - k if told and i >= k and sessions[i - k] == session else -1 for k in (1, 2)]
        rows.append((before[0], before[1] if before[0] >= 0 else -1))
    return rows


def encode_set(folder: Path, tokenizer: Tokenizer, tokens: list[list[int]]) -> dict[str, Any]:
    """Append a set's texts to the tokens; return its index arrays."""
    documents, asked, judged = read_set(folder)
    first = len(tokens)
    windows = []
    for row, text in enumerate(tokenizer.encode_batch_fast([d["text"] for d in documents], add_special_tokens=False)):
        for start in range(0, max(1, min(len(text.ids), WINDOW * MOST_WINDOWS)), WINDOW):
            windows.append((row, len(tokens)))
            tokens.append(text.ids[start : start + WINDOW])
    first_window = dict(reversed(windows))
    context = [[first_window[k] if k >= 0 else 0 for k in pair] for pair in previous(documents)]
    questions = []
    for query in tokenizer.encode_batch_fast([q["text"] for q in asked], add_special_tokens=False):
        questions.append(len(tokens))
        tokens.append(query.ids[:QUERY_TOKENS])
    place = {document["id"]: row for row, document in enumerate(documents)}
    scopes = {scope: i for i, scope in enumerate(dict.fromkeys(d["meta"].get("scope") for d in documents))}
    relevant = [(i, place[d], grade) for i, q in enumerate(asked) for d, grade in judged[q["id"]].items() if d in place]
    assert first < len(tokens)
    return {
        "windows": np.array(windows, np.int32), "context": np.array(context, np.int32),
        "scope": np.array([scopes[d["meta"].get("scope")] for d in documents], np.int32),
        "queries": np.array(questions, np.int32),
        "query_scope": np.array([scopes.get((q.get("meta") or {}).get("scope"), 0) for q in asked], np.int32),
        "relevant": np.array(relevant, np.float32), "ids": np.array([q["id"] for q in asked]),
    }  # fmt: skip


def main() -> None:
    """Parse the command line and write the arrays."""
    data, tokenizer_file, out, *names = sys.argv[1:]
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokens: list[list[int]] = [[], [101], [102]]
    arrays = {}
    for name in names:
        arrays |= {f"{name}.{key}": value for key, value in encode_set(Path(data) / name, tokenizer, tokens).items()}
        print(name, len(arrays[f"{name}.windows"]), "windows,", len(arrays[f"{name}.queries"]), "questions", flush=True)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in tokens])])
    flat = np.concatenate([np.array(row, np.uint16) for row in tokens])
    np.savez(out, tokens=flat, offsets=offsets, sets=np.array(names), **arrays)


if __name__ == "__main__":
    main()
