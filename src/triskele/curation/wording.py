"""Split a memory into words for comparison: folded, lightly stemmed, each with its kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from triskele.text.words import COMMON_WORDS, fold


class WordKind(StrEnum):
    """What a word can change of a fact."""

    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    PLACE = "place"
    NEGATION = "negation"
    LINKING = "linking"
    FILLER = "filler"
    MARK = "mark"
    WORD = "word"


class ComparedWord(NamedTuple):
    """A word as written, its comparable form, its kind, and whether it says something by itself."""

    text: str
    form: str
    kind: WordKind
    is_content: bool


Words = Sequence[ComparedWord]

# Longer texts state several facts, and rules for one sentence do not apply to them.
MOST_WORDS = 60
_TOKEN = re.compile(r"[$€]?\d+(?:[.,:]\d+)+(?!\w)|[#@$€]?[^\W_](?:\w|[-.:/'’_&+#](?=\w))*|%|[,;:()—–.!?]")
# "I", "I'm", "I've".
_OWN = re.compile(r"I(?:['’]\w+)?\Z")
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())
}
DATES = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december nightly hourly daily weekly monthly quarterly yearly today tomorrow""".split()
)
# Words that distinguish things with otherwise equal descriptions.
PLACES = frozenset(
    """prod production staging stage dev development test testing qa demo sandbox local preview canary primary secondary
    replica master standby frontend backend client server internal external public private ios android desktop mobile
    web admin guest eu us uk asia north south east west left right upper lower inbound outbound upload download read
    write input output source target first second last next previous this weekly daily nightly monthly yearly
    quarterly minimum maximum min max old new home work""".split()
)
_STAGES = frozenset("prod production staging stage dev test qa demo".split())
_NEGATIONS = frozenset("not no never none nobody without cannot neither nor unable".split())
# They say that something changed; what it says without them is compared.
_FILLERS = frozenset(
    "now currently already again please nowadays meanwhile today anymore just only actually really still".split()
)
_DETERMINERS = frozenset(
    "the a an our its is are was were be been being has have had do does did may will we you there it of to".split()
)
LINKING = frozenset(
    """in on at for from to by with via after before until since into onto over under between per through of about
    during as than within behind next without because while which who where when that and or but so if then except
    including including together plus""".split()
)
_OPPOSITES = (
    "enabled disabled,allowed forbidden,allow forbid,allows forbids,accept reject,accepts rejects,on off,open closed"
    ",with without,always never,required optional,include exclude,includes excludes,automatically manually"
    ",encrypted unencrypted,accepted rejected,public private,likes dislikes,active inactive,everyone nobody"
)
OPPOSITES = frozenset(frozenset(pair.split()) for pair in _OPPOSITES.split(","))
_SAME = {
    form: group.split()[0]
    for group in (
        "kept keep store stored hold held",
        "called named name",
        "begin start",
        "begins start",
        "database db",
        "use using used",
        "prefer like",
        "log login",
        # Short names of what developers speak of most.
        "postgresql postgres pgsql",
        "kubernetes k8s",
        "javascript js",
        "typescript ts",
        "repository repo",
        "mongodb mongo",
    )
    for form in group.split()[1:]
} | {"begins": "begin", "starts": "begin", "start": "begin"}
_SILENT = frozenset({WordKind.MARK, WordKind.FILLER, WordKind.NEGATION})
_DIRECTIONS = frozenset("before after from than over under above below without until since".split())
_PHRASES = (
    (re.compile(r"\b(\w+)n['’]t\b", re.IGNORECASE), r"\1 not"),
    (re.compile(r"\bno longer\b|\bno more\b", re.IGNORECASE), "not"),
    (re.compile(r"\bany ?more\b", re.IGNORECASE), "anymore"),
    (re.compile(r"\bfrom now on\b", re.IGNORECASE), "now"),
)


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[ComparedWord, ...]:
    """The words of a text, punctuation included, in order."""
    for pattern, plain in _PHRASES:
        text = pattern.sub(plain, text)
    first = True
    compared: list[ComparedWord] = []
    for token in _TOKEN.findall(text):
        compared.append(_word(token, is_first=first))
        first = token in ".!?"
    return tuple(compared)


@lru_cache(maxsize=16384)
def _word(token: str, *, is_first: bool) -> ComparedWord:
    if not any(map(str.isalnum, token)):
        kind = WordKind.NUMBER if token == "%" else WordKind.MARK
        return ComparedWord(token, token, kind, is_content=kind is WordKind.NUMBER)
    bare = re.sub(r"['’]s?$", "", token)
    form = fold(bare)
    kind, form = _kind(bare, form, is_first), stem(form)
    is_content = form in _DIRECTIONS if kind is WordKind.LINKING else kind not in _SILENT
    return ComparedWord(token, form, kind, is_content)


def _kind(token: str, form: str, is_first: bool) -> WordKind:
    if form in _NEGATIONS:
        return WordKind.NEGATION
    if form in PLACES or _STAGES.intersection(re.split(r"[-_./]", form)):
        return WordKind.PLACE
    if form in _NUMBER_WORDS or token.strip("$€#")[:1].isdigit():
        return WordKind.NUMBER
    if form in _FILLERS:
        return WordKind.FILLER
    if form in DATES or form.removesuffix("s") in DATES:
        return WordKind.DATE
    if form in LINKING or form in _DETERMINERS:
        return WordKind.LINKING
    has_capital = token[:1].isupper() and not _OWN.match(token)
    if (has_capital and not (is_first and form in COMMON_WORDS) and not is_first) or _is_identifier(token):
        return WordKind.NAME
    return WordKind.WORD


def _is_identifier(token: str) -> bool:
    return (
        token[:1] in "#@"
        or any(mark in token[1:] for mark in "_/.#@")
        or any(character.isupper() or character.isdigit() for character in token[1:])
    )


def stem(form: str) -> str:
    """A form without the usual English endings, so that "deploys", "deployed" and "deployments" are one."""
    form = _ORDINAL.sub(r"\1", _NUMBER_WORDS.get(form, _SAME.get(form, form)))
    if form.isascii() and form.isalpha():
        for ending in ("ments", "ment", "ings", "ing", "ies", "ed", "es", "s"):
            if form.endswith(ending) and len(form) - len(ending) >= 3 and not form.endswith(("ss", "us", "is")):
                form = form[: -len(ending)] + ("y" if ending == "ies" else "")
                break
        form = form[:-1] if len(form) > 3 and form.endswith("e") else form
    return _SAME.get(form, form)


def content(sequence: Iterable[ComparedWord]) -> list[ComparedWord]:
    """The content words: no punctuation, determiners, fillers or negations; directions stay."""
    return [word for word in sequence if word.is_content]


def forms(sequence: Iterable[ComparedWord]) -> list[str]:
    """The comparable forms."""
    return [word.form for word in sequence]


def stems(text: str) -> frozenset[str]:
    """The comparable forms of the content words of a text."""
    return frozenset(forms(content(words(text))))


def negations(sequence: Words) -> int:
    """How many words deny."""
    return sum(word.kind is WordKind.NEGATION for word in sequence)
