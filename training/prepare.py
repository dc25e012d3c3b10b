"""Turn the training pairs into token arrays.

    python -m training.prepare PAIRS.jsonl.gz TOKENIZER.json OUT.npz

OUT holds every text once as BERT token ids (`tokens`, `offsets`), the pool of passages that negatives are mined
from (`pool`: text, speaker) and the pairs (`pairs`, columns in columns.PAIR). Text ids 0 to 2 are markers.
OUT.sources.json names each source with its licence (training.subset chooses by them).
"""

from __future__ import annotations

import collections
import gzip
import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from training import augment
from training.columns import CHAIN, DIALOGUE, EMPTY, MARKERS, PLAIN, SHORT

DIALOGUES = (
    "topicalchat",
    "narrative_synthq",
    "sgd",
    "friends",
    "qmsum",
    "molweni",
    "multidogo",
    "ict_qmsum",
    "ict_molweni",
)
SPOKEN = (*DIALOGUES, "cosmosqa_synth3p", "tweetqa_synth3p")
# Questions that people wrote about short texts: such a text may stand as a turn of a conversation.
NATURAL = ("squad", "cosmosqa", "tweetqa", "socialiqa", "iirc", "mocha", "scitail", "adversarial_qa", "qed", "aquamuse")
LEFT_OUT = ("torque", "sgd_slot")
MOST_REPEATED, MAX_TOKENS, SHORT_TOKENS = 4, 200, 70
FIRST_PERSON_SHARE, SPLIT_SHARE, DATES = 0.3, 0.3, 3000


@dataclass(slots=True)
class Texts:
    """Every text once, by number."""

    numbers: dict[str, int] = field(default_factory=lambda: {text: i for i, text in enumerate(MARKERS)})

    def add(self, text: str) -> int:
        """The number of a text."""
        return self.numbers.setdefault(text, len(self.numbers))

    def speaker(self, name: str) -> int:
        """The number of a speaker's mark."""
        return self.add(f"{name}:") if name else EMPTY


@dataclass(slots=True)
class Collection:
    """Texts, pool and pairs in the making."""

    rng: random.Random
    texts: Texts = field(default_factory=Texts)
    pool: dict[tuple[int, int], int] = field(default_factory=dict)
    pairs: list[tuple[int, ...]] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)

    def add(self, row: dict[str, str]) -> None:
        """One published pair and what can be made of it."""
        source, question = row["source"], row["q"].strip()
        spoken = source.startswith(SPOKEN)
        name, said = augment.split_speaker(row["d"].strip()) if spoken else ("", row["d"].strip())
        # A source may hold texts under several licences.
        number = self.sources.setdefault(f"{source} {row.get('licence', '')}", len(self.sources))
        text, speaker = self.texts.add(said), self.texts.speaker(name)
        origin = self.pool.setdefault((text, speaker), len(self.pool))
        kind = DIALOGUE if name else SHORT if source.startswith(NATURAL) else PLAIN
        self.pairs.append((self.texts.add(question), text, speaker, EMPTY, EMPTY, EMPTY, origin, number, kind))
        if not name:
            return
        if name.isalpha() and name.istitle():
            self.names[name] = None
        self.add_first_person(question, name, text, origin, number)
        self.add_split(question, name, said, origin, number)
        if source == "topicalchat_next":
            self.add_answer([("", ""), ("", question), (name, said)], origin, number)
        turns = augment.split_turns(row["d"]) if source.startswith(("friends", "qmsum", "molweni", "ict_")) else []
        for i in range(1, len(turns)):
            self.add_answer([turns[i - 2] if i > 1 else ("", ""), turns[i - 1], turns[i]], origin, number)

    def add_first_person(self, question: str, name: str, text: int, origin: int, source: int) -> None:
        """The same question from the one who said it."""
        if self.rng.random() > FIRST_PERSON_SHARE or not (asked := augment.question_by(question, name)):
            return
        user = self.texts.speaker("user")
        self.pairs.append((self.texts.add(asked), text, user, EMPTY, EMPTY, EMPTY, origin, source, DIALOGUE))

    def add_split(self, question: str, name: str, said: str, origin: int, source: int) -> None:
        """The same text as two turns."""
        parts = augment.split_turn(question, said) if self.rng.random() < SPLIT_SHARE else None
        if parts:
            before, rest = (self.texts.add(part) for part in parts)
            mark = self.texts.speaker(name)
            self.pairs.append((self.texts.add(question), rest, mark, before, mark, EMPTY, origin, source, CHAIN))

    def add_answer(self, turns: list[tuple[str, str]], origin: int, source: int) -> None:
        """A question of the turn before, asked about the one who answers."""
        (_, before2), (asker, asked), (name, said) = turns
        if len(said) < 8 or name == asker or not (question := augment.question_about(asked, name)):
            return
        numbers = (self.texts.add(said), self.texts.speaker(name), self.texts.add(asked), self.texts.speaker(asker))
        self.pairs.append((self.texts.add(question), *numbers, self.texts.add(before2), origin, source, CHAIN))


def collect(path: Path, seed: int = 0) -> Collection:
    """Read the pairs and add those made by rules."""
    with gzip.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    asked = collections.Counter(row["q"] for row in rows)
    collection = Collection(random.Random(seed))
    for row in rows:
        if row["source"] not in LEFT_OUT and asked[row["q"]] <= MOST_REPEATED and row["q"].strip() and row["d"].strip():
            collection.add(row)
    return collection


def encode(tokenizer: Tokenizer, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """All texts' tokens in a row, and where each begins."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = [[], [101], [102]]
    for start in range(len(MARKERS), len(texts), 20_000):
        batch = [text[: MAX_TOKENS * 8] for text in texts[start : start + 20_000]]
        ids += [e.ids[:MAX_TOKENS] for e in tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int64)
    return np.concatenate([np.array(row, np.uint16) for row in ids]), offsets


def write(source: Path, tokenizer: Path, out: Path) -> None:
    """Collect, encode and write the arrays."""
    collection = collect(source)
    texts = collection.texts
    dates = [texts.add(date) for date in augment.make_dates(DATES, collection.rng)]
    names = [texts.speaker(name) for name in collection.names]
    roles = [texts.speaker("user"), texts.speaker("assistant")]
    tokens, offsets = encode(Tokenizer.from_file(str(tokenizer)), list(texts.numbers))
    pairs = np.array(collection.pairs, np.int32)
    short = offsets[pairs[:, 1] + 1] - offsets[pairs[:, 1]] <= SHORT_TOKENS
    pairs[(pairs[:, 8] == SHORT) & ~short, 8] = PLAIN
    kinds = {
        name: int((pairs[:, 8] == kind).sum()) for kind, name in enumerate(("plain", "dialogue", "short", "chain"))
    }
    print(f"{len(texts.numbers):,} texts, {len(tokens):,} tokens, {len(collection.pool):,} passages", kinds)
    pool = np.array(list(collection.pool), np.int32)
    np.savez(out, tokens=tokens, offsets=offsets, pool=pool, pairs=pairs, dates=np.array(dates, np.int32),
             names=np.array(names, np.int32), roles=np.array(roles, np.int32))  # fmt: skip
    out.with_suffix(".sources.json").write_text(json.dumps(list(collection.sources)))


def main() -> None:
    """Parse the command line."""
    source, tokenizer, out = (Path(argument) for argument in sys.argv[1:4])
    write(source, tokenizer, out)


if __name__ == "__main__":
    main()
