"""Mentions that a pattern can find: quoted words, code, paths, hosts, versions, issues, dates, people."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Quoted text may contain names, so a quote does not block other mentions.
OPEN_KINDS = frozenset({"quote"})
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

Found = tuple[str, int, int]


def spans(text: str) -> Iterator[Found]:
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


def _identifiers(text: str, start: int, end: int) -> Iterator[Found]:
    """Words that look like code or file names."""
    for match in _WORD.finditer(text, start, end):
        word = match.group().rstrip(".:/-")
        if len(word) < 3 or len(word) > _LONGEST or _is_plain(word):
            continue
        place = match.start()
        if _FILE.fullmatch(word):
            yield "path", place, place + len(word)
        elif _CODE.fullmatch(word) and not _ABBREVIATION.fullmatch(word):
            yield "code", place, place + len(word)
