"""Making questions out of the words of a memory by rule, and checking how many of its words they share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from triskele.base.text import STOP_WORDS
from triskele.index.analysis import Analyzer
from triskele.index.lexical import LexicalIndex
from triskele.types import Memory

# A paraphrase may share at most this part of its telling words with the memory that it asks for.
MAX_OVERLAP = 0.5
_LONGEST_PHRASE = 80
_BORDER = re.compile(r"[.!?;:()\n]")
_OPENINGS = {
    "preferences": "what do we prefer about",
    "decisions": "what was decided about",
    "lessons": "what did we learn about",
    "procedures": "what are the steps for",
    "people": "who has to do with",
    "projects": "where do we stand with",
}
_ANY_OPENING = "what do we know about"


@dataclass(frozen=True, slots=True)
class Word:
    """A word in its place, and how rare it is in the store."""

    text: str
    start: int
    end: int
    rarity: float

    @property
    def is_telling(self) -> bool:
        """Whether it says anything by itself."""
        return self.text.lower() not in STOP_WORDS


def words(text: str, index: LexicalIndex) -> list[Word]:
    """The words of a text in order, each once for its place."""
    tokens = sorted(index.analyzer.tokens(text), key=lambda token: (token.start, -token.end))
    rarity = index.rarity({token.text for token in tokens})
    found: list[Word] = []
    for token in tokens:
        if found and token.start == found[-1].start and token.end == found[-1].end:
            # An identifier is as rare as its rarest part, and its whole is one of them.
            found[-1] = Word(found[-1].text, token.start, token.end, max(found[-1].rarity, rarity[token.text]))
        elif not found or token.start >= found[-1].end:
            found.append(Word(text[token.start : token.end], token.start, token.end, rarity[token.text]))
    return found


def salient_phrase(text: str, index: LexicalIndex) -> str | None:
    """The rarest two or three words that follow each other; None where nothing in the text is telling."""
    found = words(text, index)
    for length in (3, 2, 1):
        runs = [found[at : at + length] for at in range(len(found) - length + 1)]
        runs = [run for run in runs if _is_phrase(run, text)]
        if runs:
            best = max(runs, key=lambda run: (sum(word.rarity for word in run), -run[0].start))
            return " ".join(text[best[0].start : best[-1].end].split())
    return None


def reworded(memory: Memory, index: LexicalIndex) -> str | None:
    """A question in the words of keywords and tags, with the text's commonest telling words to keep the gist."""
    analyzer = index.analyzer
    own = set(analyzer.terms(memory.content))
    labels = [label for label in _labels(memory) if not own & set(analyzer.terms(label))]
    telling = {word.text.lower(): word for word in words(memory.content, index) if word.is_telling}
    by_rarity = sorted(telling.values(), key=lambda word: (word.rarity, word.start))
    gist = sorted(by_rarity[: len(labels) + 1], key=lambda word: word.start) if labels else []
    if not gist:
        return None
    opening = _OPENINGS.get(memory.category, _ANY_OPENING)
    return f"{opening} {' '.join(labels)}, {' '.join(word.text for word in gist)}?"


def overlap(question: str, text: str, analyzer: Analyzer) -> float:
    """The part of a question's telling terms that a text has too."""
    asked = analyzer.query_terms(question)
    said = set(analyzer.terms(text))
    return sum(term in said for term in asked) / len(asked) if asked else 1.0


def _labels(memory: Memory) -> list[str]:
    given = [*re.split(r"[\s,;]+", memory.keywords), *(word for tag in memory.tags for word in tag.split())]
    return [word for word in dict.fromkeys(map(str.lower, given)) if word and word not in STOP_WORDS][:3]


def _is_phrase(run: Sequence[Word], text: str) -> bool:
    between = (text[one.end : other.start] for one, other in pairwise(run))
    is_whole = not any(_BORDER.search(gap) for gap in between)
    ends_tell = run[0].is_telling and run[-1].is_telling
    return is_whole and ends_tell and run[-1].end - run[0].start <= _LONGEST_PHRASE
