"""The mentions of a memory: its subject, names, quoted words, identifiers, people, dates, tags and keywords."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from triskele.graph import names, patterns, subject

# Longer texts are read up to here; what they are about comes first.
MAX_CHARACTERS = 100_000
MAX_MENTIONS = 500
MAX_NAME_CHARACTERS = 80


class Kind(StrEnum):
    """The kind of a mention, by its form; a lead is a subject that may not be a name."""

    TITLE = "title"
    LEAD = "lead"
    NAME = "name"
    QUOTE = "quote"
    CODE = "code"
    PATH = "path"
    HOST = "host"
    VERSION = "version"
    ISSUE = "issue"
    DATE = "date"
    PERSON = "person"
    TAG = "tag"
    KEYWORD = "keyword"


class Mention(NamedTuple):
    """A piece of text that names something; `start` is −1 if it comes from a label instead of the text."""

    text: str
    kind: Kind
    start: int
    end: int
    is_subject: bool = False


def mentions(content: str, tags: Iterable[str] = (), keywords: str = "") -> list[Mention]:
    """The mentions of a memory in the order of the text, labels last."""
    text = content[:MAX_CHARACTERS]
    found = _distinct([*_in_text(text), *_labels(tags, keywords)])
    return found[:MAX_MENTIONS]


def _in_text(text: str) -> Iterator[Mention]:
    listed = names.words(text)
    for start, end, is_weak in subject.subjects(text, listed):
        yield Mention(text[start:end], Kind.LEAD if is_weak else Kind.TITLE, start, end, True)
    coded = list(patterns.spans(text))
    for kind, start, end in coded:
        yield Mention(text[start:end], Kind(kind), start, end)
    # IndyCar may be a class or a part of a name.
    taken = [
        (start, end) for kind, start, end in coded if kind not in patterns.OPEN_KINDS and not text[start:end].isalpha()
    ]
    for start, end in names.spans(listed, taken):
        yield Mention(text[start:end], Kind.NAME, start, end)


def _labels(tags: Iterable[str], keywords: str) -> Iterator[Mention]:
    for tag in tags:
        yield Mention(tag.strip(), Kind.TAG, -1, -1)
    # Without a comma, keywords are single words.
    for keyword in keywords.split(",") if "," in keywords else keywords.split():
        yield Mention(keyword.strip(), Kind.KEYWORD, -1, -1)


def _distinct(found: Sequence[Mention]) -> list[Mention]:
    """Each mention once, the subject first; without those that are too long or hold no letter or digit."""
    kept: dict[tuple[str, int], Mention] = {}
    for mention in found:
        is_valid = len(mention.text) <= MAX_NAME_CHARACTERS and any(map(str.isalnum, mention.text))
        if is_valid:
            kept.setdefault((mention.text, mention.start), mention)
    return sorted(kept.values(), key=lambda m: (m.start < 0, m.start if m.start >= 0 else 0))
