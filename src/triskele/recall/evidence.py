"""Evidence besides the legs: the speaker and the time that a query asks for, and which candidates match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np

from triskele.index.corpus import Corpus, Facts, Floats, Ints
from triskele.index.token_vectors import distinct
from triskele.text import timestamps
from triskele.text.words import STOP_WORDS
from triskele.types import Period, Role

SPEAKER, TIME, REVIEW = "speaker", "time", "review"
# A memory without a speaker may be from anyone.
UNKNOWN_SHARE = 0.5
# A suggestion is recorded in two turns, the one that makes it and the one that answers it: both are evidence.
ASSISTANT_SHARE = 0.4
# The name of somebody who takes part in a conversation says whose words are asked for, which is evidence. In texts it
# is an address (“Thanks, Dave!”) or missing, so late interaction counts this share of its weight (docs/decisions/0008).
NAME_SHARE = 0.25
# People write about events days before and after they happen: outside the period evidence falls to 1/e within a week
# and half the length of the period.
_WEEK = 7 * 86_400_000_000
_OF_PERIOD = 0.5

_ROLES = tuple(Role)
_TOLD = (
    "advised?|answer(?:ed)?|explain(?:ed)?|gave|give|list(?:ed)?|mention(?:ed)?|proposed?|provided?|recommend(?:ed)?"
    "|said|say|suggest(?:ed)?|tell|told|write|wrote"
)
_ASSISTANT = re.compile(
    rf"\byou\s+(?:\w+\s+)?(?:{_TOLD})\b"
    r"|\byour\s+(?:\w+\s+)?(?:advice|answers?|explanations?|ideas?|proposals?|recommendations?|suggestions?)\b"
    r"|\bthe\s+assistant\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"\b(?:can|could|would|will)\s+you\b", re.IGNORECASE)
_FIRST_PERSON = re.compile(r"\b(?:i|i['’](?:d|ll|m|ve)|me|mine|my|myself|our|ours|we)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")
# After a name: “did Ann say”, “has Ann ever mentioned”.
_TELLS = re.compile(rf"\s+(?:\w+\s+)?({_TOLD})\b", re.IGNORECASE)
# Before such a verb: “What did Bob say”.
_TELLER = re.compile(rf"\b(?:did|do|does|had|has|have)\s+(\w+(?:\s+\w+)??)\s+(?:{_TOLD})\b", re.IGNORECASE)
# Names are shortened and misspelt: those that begin with the same letters may be the same.
_ALIKE = 3


def speaker_asked(text: str, names: Mapping[int, str]) -> int | None:
    """The only one of some speakers that a query names, in full or by the first name."""
    named = _named(text, names)
    return named[0] if len(named) == 1 else None


def name_spans(text: str, names: Mapping[int, str]) -> list[tuple[int, int]]:
    """Where the words of a query stand that name any of some speakers."""
    words = {word for code in _named(text, names) for word in _WORD.findall(names[code].casefold())}
    return [found.span() for found in _WORD.finditer(text) if found.group().casefold() in words] if words else []


def asking_spans(text: str, names: Mapping[int, str]) -> list[tuple[int, int]]:
    """Where the words stand that ask for the words of any of some speakers: a name, and a verb of telling after it."""
    spans = name_spans(text, names)
    return [*spans, *_telling(text, spans)]


def _telling(text: str, names: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [found.span(1) for _, stop in names if (found := _TELLS.match(text, stop))]


def teller(text: str) -> str | None:
    """The name in a question for what somebody said, if it is capitalised."""
    found = _TELLER.search(text)
    name = found.group(1).split()[0] if found else ""
    return name if name[:1].isupper() and name.casefold() not in STOP_WORDS else None


def may_be(speaker: str, name: str) -> bool:
    """Whether a speaker may be the one that a name means."""
    return any(word[:_ALIKE] == name.casefold()[:_ALIKE] for word in _WORD.findall(speaker.casefold()))


def _named(text: str, names: Mapping[int, str]) -> list[int]:
    words = f" {' '.join(_WORD.findall(text.casefold()))} "
    return [code for code, name in names.items() if any(f" {call} " in words for call in _calls(name))]


def role_asked(text: str) -> Role | None:
    """The role whose words a query asks for: the assistant's after `you suggested`, the user's in the first person."""
    if _ASSISTANT.search(text) and not _REQUEST.search(text):
        return Role.ASSISTANT
    return Role.USER if _FIRST_PERSON.search(text) else None


def by_speaker(text: str, facts: Facts, corpus: Corpus) -> Floats | None:
    """How far each candidate matches the speaker asked for, from 0 to 1; None if the query asks for none."""
    names = corpus.speakers(distinct(facts.speakers).tolist())
    if (speaker := speaker_asked(text, names)) is not None:
        # “What did Ann say” asks for words of hers: a memory without a speaker that names her is about her.
        is_told = _telling(text, name_spans(text, {speaker: names[speaker]}))
        return _shares(facts.speakers, speaker, 0.0 if is_told else UNKNOWN_SHARE)
    if (facts.roles >= 0).any() and (role := role_asked(text)) is not None:
        return _shares(facts.roles, _ROLES.index(role)) * (ASSISTANT_SHARE if role is Role.ASSISTANT else 1.0)
    return None


def _calls(name: str) -> set[str]:
    words = _WORD.findall(name.casefold())
    return {" ".join(words), words[0]} if words else set()


def _shares(codes: Ints, wanted: int, unknown: float = UNKNOWN_SHARE) -> Floats:
    return np.where(codes == wanted, 1.0, np.where(codes < 0, unknown, 0.0)).astype(np.float32)


def by_time(period: Period | None, facts: Facts) -> Floats | None:
    """How near each candidate is to the time asked for, from 0 to 1; None if the query names no time."""
    return None if period is None else nearness(period, facts)


def nearness(period: Period, facts: Facts) -> Floats:
    """1 inside a period, less with the distance from it; 0 for a candidate without a time."""
    start, end = (None if side is None else timestamps.to_micros(side) for side in (period.start, period.end))
    outside = np.zeros(len(facts.times))
    if start is not None:
        outside = np.maximum(outside, start - facts.times.astype(np.float64))
    if end is not None:
        outside = np.maximum(outside, facts.times.astype(np.float64) - end)
    length = end - start if start is not None and end is not None else 0
    near = np.exp(-outside / (_WEEK + _OF_PERIOD * length))
    return np.where(facts.times > 0, near, 0.0).astype(np.float32)
