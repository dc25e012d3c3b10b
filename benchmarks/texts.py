"""Realistic memories and questions for the speed benchmarks, cut from a folder of data sets."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import sys
from pathlib import Path

QUESTION_WORDS = range(13, 18)
MAX_CHARACTERS = 1400


def data_folder() -> Path:
    """The folder named by TRISKELE_BENCH_DATA."""
    named = os.environ.get("TRISKELE_BENCH_DATA")
    if not named:
        sys.exit("set TRISKELE_BENCH_DATA to a folder of data sets (corpus.jsonl.gz, queries.jsonl.gz in each)")
    return Path(named)


def memories(count: int, *, seed: int = 7, characters: int = 500) -> list[str]:
    """Distinct texts of about `characters` each: runs of neighbouring sentences from the corpora."""
    chance = random.Random(seed)
    sentences = [
        sentence
        for text in _texts("corpus.jsonl.gz")
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", text)
        if len(sentence) > 20
    ]
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        place = chance.randrange(len(sentences) - 40)
        length = characters * chance.uniform(0.5, 1.5)
        run = ""
        while len(run) < length and place < len(sentences):
            run += sentences[place] + " "
            place += 1
        # A run that was drawn before begins a few words later: large stores need more texts than there are runs.
        kept = run.strip()[:MAX_CHARACTERS]
        while kept in drawn and " " in kept:
            kept = kept.split(" ", 1)[1]
        drawn[kept] = None
    return list(drawn)


def questions(count: int, *, seed: int = 7) -> list[str]:
    """Real questions of about 15 words."""
    found = [text for text in _texts("queries.jsonl.gz") if len(text.split()) in QUESTION_WORDS]
    return random.Random(seed).sample(found, min(count, len(found)))


def _texts(name: str) -> list[str]:
    texts = []
    for path in sorted(data_folder().glob(f"*/{name}")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    return texts
