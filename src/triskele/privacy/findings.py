"""Findings of secret detection, and tests whether a value looks random or chosen."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Finding:
    """Kind, span and reason of a secret; never the secret itself."""

    kind: str
    start: int
    end: int
    why: str


def merge(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in order; overlapping ones become one of the earliest rule."""
    merged: list[Finding] = []
    ranked = sorted(enumerate(findings), key=lambda pair: (pair[1].start, pair[0]))
    best = -1
    for rank, finding in ranked:
        if merged and finding.start < merged[-1].end:
            last = merged[-1]
            named = finding if rank < best else last
            merged[-1] = replace(named, start=last.start, end=max(last.end, finding.end))
            best = min(rank, best)
        else:
            merged.append(finding)
            best = rank
    return merged


def matches_near(
    form: re.Pattern[str], text: str, places: Iterable[tuple[int, int]], *, before: int, after: int
) -> Iterator[re.Match[str]]:
    """Matches of a form that begin at or shortly before a position.

    `before` is more than a match has before its place and one that ends there; `after` is what it reads behind.
    """
    at = 0
    for start, end in places:
        for match in form.finditer(text, max(at, start - before), end + after):
            if match.start() >= end:
                break
            at = match.end()
            yield match
        at = max(at, end)


def lowered(text: str) -> str:
    """The text in lower case, every character in its place."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(character.lower() if len(character.lower()) == 1 else character for character in text)


_STAND_INS = re.compile(
    r"(?i)example|redacted|placeholder|your[_\-. ]|^your|change[_\-]?me|changeit$|replace[_\-]?me|dummy|random[_\-]"
    r"|\.\.\.|…|\*\*\*|•••|xxxx|insert[_\-]|[_\-]here"
)
_SEQUENCE = re.compile(r"(?i)0{8}|1234567|abcdefg|0123456")
# Words such as "sk-proj-" before a key.
_KEY_PREFIX = re.compile(r"(?i)(?:[a-z0-9]{1,6}[_\-]){1,3}")
# Published in documentation.
_FAMOUS = frozenset({"sk_test_" + "4eC39HqLyjWDarjtT1zdp7dc"})
DOCUMENTED = frozenset(
    "password pass passwd pwd pw secret passwort kennwort user username postgres root admin guest test mysql token"
    " changeme example".split()
)
# A variable, a template slot, a call, a path or an option refers to a secret without holding it.
_REFERENCE = re.compile(
    r"\$[{(].*+|\$[A-Z0-9_]++|\$[A-Za-z_.]++|%[A-Za-z_]++%?|[<{\[(].*+|!\[.*+|[\w.]++[(\[].*+|[~.]{0,2}+/.*+|--[a-z].*+"
    r"|[=:][A-Za-z]++|\*++[\"'].*+|(?:os|env|process|config|settings|self|secrets|vars?)\.[\w.\[\]\"']++"
)
_ORDINARY = re.compile(
    # Versions, times, amounts, dates.
    r"v?\d++(?:[.,:]\d++)++\S{0,12}+|\d++[a-zäöü%€$°]{0,12}+(?:[-/]\d++)*+|\d{4}-\d\d-\d\dT?\S*+"
    # Names in code, paths, addresses.
    r"|[a-z]++(?:_[a-z0-9]++)++|[A-Z]++(?:_[A-Z0-9]++)++|\w++(?:\.[a-z_]++)++|[\w.~\-]*+/[\w.~\-/]*+|[^\s@]++@[\w.\-]++"
    # Words with a dash or an apostrophe, numbers of issues.
    r"|(?:[A-Za-z]{1,12}+-){1,2}+[A-Za-z]{1,12}+|[A-Za-z]++['’][a-z]++|[A-Z]{2,6}+-\d{1,6}+"
    # Letters that are percent-encoded: judged when decoded.
    r"|(?:%[0-9A-Fa-f]{2})++"
)
_CAMEL_CASE = re.compile(r"[a-z]*+(?:[A-Z][a-z]++)*+")
_SIGNS = re.compile(r"[^\w\s.,;:()'’\-]|_")
_CHARACTER_KINDS = (re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"\d"), re.compile(r"[^A-Za-z0-9]"))


def is_placeholder(value: str) -> bool:
    """Whether the value is a placeholder or a reference to a secret."""
    if value in _FAMOUS or _STAND_INS.search(value) or _REFERENCE.fullmatch(value):
        return True
    if _SEQUENCE.search(value) and _is_sequence(_KEY_PREFIX.sub("", value, count=1)):
        return True
    return len(set(value)) <= max(2, len(value) // 12)


def _is_sequence(value: str) -> bool:
    """Whether neighbours in the alphabet or equal characters make most of a value and end it."""
    steps = [one + other == "90" or ord(other) - ord(one) in {0, 1} for one, other in pairwise(value)]
    return not steps or (steps[-1] and sum(steps) * 3 >= len(steps) * 2)


def looks_random(value: str, least: int = 20) -> bool:
    """Whether a value is long and mixes digits and cases unlike words."""
    if len(value) < least or is_placeholder(value):
        return False
    kinds = [_kind(character) for character in value]
    changes = sum(one != other for one, other in pairwise(kinds)) / (len(value) - 1)
    digits = sum(character.isdigit() for character in value)
    if not digits and len(value) < 2 * least:
        return False
    return changes >= (0.2 if digits else 0.4) and digits < len(value) and entropy_bits(value) >= 2.8


def entropy_bits(value: str) -> float:
    """Shannon entropy for each character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts)


def looks_chosen(value: str) -> bool:
    """Whether a value looks like a chosen password, not a plain word or name in code."""
    if len(value) < 5 or is_placeholder(value) or _ORDINARY.fullmatch(value):
        return False
    if value.isalpha():
        return looks_random(value, least=5) and not _CAMEL_CASE.fullmatch(value)
    has_letter = any(character.isalpha() for character in value)
    has_digit = any(character.isdigit() for character in value)
    return has_letter and (has_digit or _SIGNS.search(value) is not None)


def looks_strong(value: str) -> bool:
    """Whether a value has three kinds of characters, as strong passwords do."""
    return looks_chosen(value) and len(value) >= 6 and sum(1 for kind in _CHARACTER_KINDS if kind.search(value)) >= 3


def _kind(character: str) -> int:
    if character.isdigit():
        return 0
    return 1 if character.islower() else 2 if character.isupper() else 3
