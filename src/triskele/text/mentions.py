"""The mentions of a memory: its subject, names, quoted words, identifiers, people, dates, tags and keywords."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from triskele.text import names

# Longer texts are read up to here; what they are about comes first.
MAX_CHARACTERS = 100_000
MAX_MENTIONS = 500
MAX_NAME_CHARACTERS = 80
_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_QUOTES = (
    r'"[^"\n]{2,80}"|“[^”\n]{2,80}”|«[^»\n]{2,80}»|„[^“”\n]{2,80}[“”]'
    r"|「[^」\n]{1,80}」|『[^』\n]{1,80}』|《[^》\n]{1,80}》"
)
# Every repetition is possessive or bounded: no text makes a pattern backtrack.
_FORMS = re.compile(
    # Most letters begin no pattern: one lookahead is cheaper than ten alternatives.
    r"(?=[`\"“«„「『《'h@0-9A-Z~./#v])(?:"
    r"(?P<fence>```)"
    r"|`(?P<code>[^`\n]{1,80})`"
    rf"|(?P<quote>{_QUOTES}|(?<![\w'])'[^'\n]{{2,60}}'(?![\w']))"
    r"|https?://(?P<host>[\w.\-]{1,253}+)[^\s<>\"')\]]*+"
    r"|(?<![\w.@/])@(?P<person>[^\W\d_][\w\-]{0,60}+)"
    rf"|(?P<date>(?<!\d)\d{{4}}-\d\d-\d\d(?!\d)|\b\d{{1,2}}(?:st|nd|rd|th)? {_MONTH},? \d{{4}}\b"
    rf"|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?, \d{{4}}\b|\b{_MONTH} \d{{4}}\b)"
    r"|(?P<path>(?<![\w/.:])(?:~|\.\.?)?(?:/[\w.@+\-]{1,100}+){2,40}+/?)"
    r"|(?<![\w#&])(?P<issue>#\d{1,7}\b|\b[A-Z]{2,10}-\d{1,6}\b)"
    r"|(?P<version>(?<![\w.])v\d{1,6}(?:\.\d{1,6}){0,3}+\b|(?<![\w.])\d{1,6}(?:\.\d{1,6}){2,3}+\b))"
)
_WORD = re.compile(r"[\w.:/\-]++(?:\(\))?")
# Tried on one word at a time, of at most _LONGEST characters.
_CODE = re.compile(
    r"(?:(?=[^_]*_[^_])[A-Za-z]\w+|[a-z]+[A-Z]\w*|[A-Z]+[a-z][a-z0-9]*[A-Z]\w*|[A-Za-z](?=[\w\-]*\d)[\w\-]*"
    r"|[A-Za-z_]\w*(?:(?:\.|::|#)[A-Za-z_]\w*)+)(?:\(\))?"
)
_FILE = re.compile(
    r"(?:[\w.\-]++/)+[\w\-]++\.\w{1,8}|[\w\-]++\.(?:py|js|ts|go|rs|rb|md|json|toml|ya?ml|sql|sh|txt|html|css|java|c|h"
    r"|cpp|lock|cfg|ini|env|xml|csv)"
)
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?")
_LONGEST = 100

PatternSpan = tuple[str, int, int]


def pattern_spans(text: str) -> Iterator[PatternSpan]:
    """The kind and the span of every mention that a pattern finds."""
    covered = 0
    for match in _FORMS.finditer(text):
        kind = match.lastgroup
        yield from _identifiers(text, covered, match.start())
        # Quoted text may be an identifier itself.
        covered = match.start() if kind == "quote" else match.end()
        if kind is not None and kind != "fence":
            start, end = match.span(kind)
            yield (kind, *_inside(text, start, end)) if kind == "quote" else (kind, start, end)
    yield from _identifiers(text, covered, len(text))


def _is_plain(word: str) -> bool:
    """Whether a word has only letters and no capital inside."""
    return word.isalpha() and (word[1:].islower() or word.isupper())


def _inside(text: str, start: int, end: int) -> tuple[int, int]:
    """The span between two quotes, without the spaces around it."""
    quoted = text[start + 1 : end - 1]
    return end - 1 - len(quoted.lstrip()), start + 1 + len(quoted.rstrip())


def _identifiers(text: str, start: int, end: int) -> Iterator[PatternSpan]:
    """Words that look like code or file names."""
    for match in _WORD.finditer(text, start, end):
        word = match.group().rstrip(".:/-")
        if len(word) < 3 or len(word) > _LONGEST or _is_plain(word):
            continue
        begin = match.start()
        if _FILE.fullmatch(word):
            yield "path", begin, begin + len(word)
        elif _CODE.fullmatch(word) and not _ABBREVIATION.fullmatch(word):
            yield "code", begin, begin + len(word)


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
    distinct = _distinct([*_in_text(text), *_labels(tags, keywords)])
    return distinct[:MAX_MENTIONS]


def _in_text(text: str) -> Iterator[Mention]:
    listed = names.words(text)
    for start, end, is_weak in names.subjects(text, listed):
        yield Mention(text[start:end], Kind.LEAD if is_weak else Kind.TITLE, start, end, True)
    coded = list(pattern_spans(text))
    for kind, start, end in coded:
        yield Mention(text[start:end], Kind(kind), start, end)
    # IndyCar may be a class or a part of a name, and quoted text may contain names.
    taken = [(start, end) for kind, start, end in coded if kind != "quote" and not text[start:end].isalpha()]
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
    distinct: dict[tuple[str, int], Mention] = {}
    for mention in found:
        is_valid = len(mention.text) <= MAX_NAME_CHARACTERS and any(map(str.isalnum, mention.text))
        if is_valid:
            distinct.setdefault((mention.text, mention.start), mention)
    return sorted(distinct.values(), key=lambda m: (m.start < 0, m.start if m.start >= 0 else 0))
