"""Steps 7 and 8: add what speaker and time say, fuse the columns, and limit the pieces of one text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from triskele.index.corpus import Corpus, Facts, Floats, Ints
from triskele.index.token_vectors import distinct
from triskele.recall.plan import DEFAULT
from triskele.recall.question import Question
from triskele.recall.scores import (
    DENSE,
    LATE,
    LEXICAL,
    SPEAKER,
    TIME,
    Candidate,
    Candidates,
    Column,
    Contribution,
    Scores,
    SpeakerRows,
    scaled_parts,
)
from triskele.text import timestamps
from triskele.text.periods import names_only
from triskele.text.words import STOP_WORDS
from triskele.types import Period, Role, Sort

# The share of its score that a candidate gains from evidence in full.
BY_EVIDENCE: Mapping[str, float] = {SPEAKER: 0.25, TIME: 0.4}
# What a search for a speaker's name adds to the memories of that speaker: above what merely resembles the name, below a
# text that holds it.
BY_NAME = 0.4
# Mean dense score of a memory with none of the terms, and what all terms add: used while a memory has no vector.
EMBEDDED_MEAN, EMBEDDED_MEAN_BY_WORDS = 0.35, 0.5
# A long text is stored as several memories: how many of them keep their scores, the factor of the others, and the
# number of candidates that are checked.
MOST_PIECES, REPEATED_SHARE, _CHECKED = 2, 0.5, 30
# People write about events days before and after they happen: outside the period evidence falls to 1/e within a week.
_WEEK = 7 * 86_400_000_000

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


def evidence(question: Question, corpus: Corpus, scores: Scores) -> Scores:
    """Step 7: what speaker and time add, a share of the score that a candidate has without them."""
    query, names = question.query, question.plan.evidence
    if not names or scores.facts is None:
        return scores
    facts = corpus.facts(scores.rows)
    has_speakers = max(facts.speakers.max(initial=-1), facts.roles.max(initial=-1)) >= 0
    if query.period is None and not has_speakers:
        return scores
    by_name = speaker_rows(question, corpus, scores.rows, facts.speakers)
    places, sums = scores.ordered
    facts = corpus.facts(scores.rows[places])
    shares = {
        SPEAKER: lambda: by_speaker(query.text, facts, corpus, is_request=question.form.is_request),
        TIME: lambda: by_time(query.period, facts),
    }
    columns = []
    for name in sorted(names):
        if (share := shares[name]()) is not None:
            # What happened in July? The words that match tell nothing.
            is_alone = name == TIME and query.period is not None and names_only(query.text, query.period)
            raised = np.where(share > 0.5, sums.max(initial=0.0) / BY_EVIDENCE[TIME], sums) if is_alone else sums
            added = np.zeros(len(scores.rows))
            added[places] = share * raised
            # A gain of 0 counts as not scored.
            columns.append(Column(name, np.where(added > 0, added, np.nan), BY_EVIDENCE[name]))
    return replace(scores, columns=(*scores.columns, *columns), by_speaker=by_name)


def speaker_rows(question: Question, corpus: Corpus, rows: Ints, speakers: Ints) -> SpeakerRows | None:
    """The rows in the words of the one speaker whom a question names; None if it names none of these, or several."""
    if SPEAKER not in question.plan.evidence or speakers.max(initial=-1) < 0:
        return None
    names, text = corpus.speakers(distinct(speakers).tolist()), question.query.text
    if (speaker := speaker_asked(text, names)) is None:
        return None
    weights = question.reweighted(asking_spans(text, {speaker: names[speaker]}), 0.0)
    return SpeakerRows(frozenset(rows[speakers == speaker].tolist()), weights)


def fuse(question: Question, corpus: Corpus, scores: Scores) -> Candidates:
    """Step 8: one list of candidates, and what their confidence rests on."""
    ranked = scores.ranked()
    if question.plan.fusion != DEFAULT:
        return Candidates(ranked, question.missing)
    if scores.facts is None:
        return Candidates(_with_speaker_matches(question, corpus, ranked), question.missing)
    ranked = estimate_unembedded(ranked, scores)
    if scores.facts.sessions.max(initial=-1) >= 0:
        ranked = limit_pieces_per_text(ranked, corpus)
    dense = scores.rankings[1].scores
    nearest = float(dense[0]) if len(dense) else 1.0
    return Candidates(
        _with_speaker_matches(question, corpus, ranked),
        question.missing,
        seeds=scores.seeds,
        matches=dict(zip(scores.rows.tolist(), scores.matches, strict=True)) if scores.late_weights is not None else {},
        token_weights=question.token_weights,
        nearer_elsewhere=max(0.0, corpus.closest_anywhere() - nearest),
        by_speaker=scores.by_speaker,
    )


def estimate_unembedded(ranked: list[Candidate], scores: Scores) -> list[Candidate]:
    """Score memories that no other leg could score yet as memories with such words score on average."""
    by_vectors = [column for column in scores.columns if column.name in (DENSE, LATE)]
    unembedded = scores.rows[np.logical_and.reduce([~column.is_scored for column in by_vectors])]
    if not len(unembedded):
        return ranked
    rows = set(unembedded.tolist())
    pending = [candidate for candidate in ranked if candidate.row in rows and LEXICAL in candidate.parts]
    if not pending:
        return ranked
    candidates, words_weight = {candidate.row: candidate for candidate in ranked}, scores.weights.get(LEXICAL, 0.0)
    vectors_weight = sum(scores.weights.values()) - words_weight
    for candidate in pending:
        part = candidate.parts[LEXICAL]
        expected = EMBEDDED_MEAN + EMBEDDED_MEAN_BY_WORDS * min(part.normalised, 1.0)
        score = words_weight * part.normalised + vectors_weight * expected
        candidates[candidate.row] = Candidate(candidate.row, score, {LEXICAL: part._replace(contribution=score)})
    return sorted(candidates.values(), key=lambda candidate: (-candidate.score, candidate.row))


def limit_pieces_per_text(ranked: list[Candidate], corpus: Corpus) -> list[Candidate]:
    """Lower the third best piece of a long text and those after it, so that one text does not fill the list."""
    top = ranked[:_CHECKED]
    rows = np.array([candidate.row for candidate in top], dtype=np.int64)
    facts = corpus.facts(rows, reach=1)
    if max(Counter(_sources(facts)).values(), default=0) <= MOST_PIECES:
        return ranked
    counts: Counter[int] = Counter()
    limited = []
    for candidate, text in zip(top, _texts(rows, facts.neighbours, corpus), strict=True):
        counts[text] += 1
        if counts[text] > MOST_PIECES:
            score = REPEATED_SHARE * candidate.score
            candidate = Candidate(candidate.row, score, scaled_parts(candidate, score))
        limited.append(candidate)
    return sorted([*limited, *ranked[_CHECKED:]], key=lambda candidate: -candidate.score)


def _texts(rows: Ints, neighbours: Ints, corpus: Corpus) -> list[int]:
    """Per row the first known piece of the text that it was cut from.

    Adjacent turns of one speaker or role with the same time are pieces of one text.
    """
    everyone = distinct(np.concatenate([rows, neighbours[neighbours >= 0]]))
    facts = corpus.facts(everyone, reach=1)
    source = dict(zip(everyone.tolist(), _sources(facts), strict=True))
    before = dict(zip(everyone.tolist(), facts.neighbours[:, 0].tolist(), strict=True))
    before = {row: previous for row, previous in before.items() if _is_continued(source.get(previous), source[row])}
    return [_first(row, before) for row in rows.tolist()]


def _sources(facts: Facts) -> list[tuple[int, ...]]:
    """Session, time, speaker and role of each row."""
    columns = (facts.sessions, facts.times, facts.speakers, facts.roles)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _is_continued(previous: tuple[int, ...] | None, source: tuple[int, ...]) -> bool:
    """Whether a turn has the source of the one before it, and a speaker or role is known."""
    return previous == source and max(source[2:]) >= 0


def _first(row: int, before: Mapping[int, int]) -> int:
    while row in before:
        row = before[row]
    return row


def _with_speaker_matches(question: Question, corpus: Corpus, ranked: list[Candidate]) -> list[Candidate]:
    """The candidates with the rows of a speaker, if a few bare words are the name."""
    is_by_relevance = question.query.sort is Sort.RELEVANCE
    if SPEAKER not in question.plan.evidence or not is_by_relevance or not question.form.is_search:
        return ranked
    return add_speaker_matches(ranked, corpus.rows_of_speaker(question.query.text, question.query.depth))


def add_speaker_matches(ranked: list[Candidate], rows: Ints) -> list[Candidate]:
    """The candidates with the rows of a speaker, newest first, as evidence."""
    others = {candidate.row: candidate for candidate in ranked}
    spoken = [
        _with_speaker(others.pop(row, Candidate(row, 0.0, {})), rank) for rank, row in enumerate(rows.tolist(), start=1)
    ]
    return sorted([*spoken, *others.values()], key=lambda candidate: -candidate.score)


def _with_speaker(candidate: Candidate, rank: int) -> Candidate:
    parts = dict(candidate.parts)
    before = parts[SPEAKER].contribution if SPEAKER in parts else 0.0
    parts[SPEAKER] = Contribution(rank, 1.0, 1.0, before + BY_NAME)
    return Candidate(candidate.row, candidate.score + BY_NAME, parts)


def speaker_asked(text: str, names: Mapping[int, str]) -> int | None:
    """The only one of some speakers that a query names, in full or by the first name."""
    named = _named(text, names)
    return named[0] if len(named) == 1 else None


def name_spans(text: str, names: Mapping[int, str]) -> list[tuple[int, int]]:
    """Where the words of a query stand that name any of some speakers."""
    words = {word for code in _named(text, names) for word in _WORD.findall(names[code].casefold())}
    return [match.span() for match in _WORD.finditer(text) if match.group().casefold() in words] if words else []


def asking_spans(text: str, names: Mapping[int, str]) -> list[tuple[int, int]]:
    """Where the words stand that ask for the words of any of some speakers: a name, and a verb of telling after it."""
    spans = name_spans(text, names)
    return [*spans, *_telling(text, spans)]


def _telling(text: str, names: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return [match.span(1) for _, stop in names if (match := _TELLS.match(text, stop))]


def teller(text: str) -> str | None:
    """The name in a question for what a person said, if it is capitalised."""
    match = _TELLER.search(text)
    name = match.group(1).split()[0] if match else ""
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


def by_speaker(text: str, facts: Facts, corpus: Corpus, *, is_request: bool = False) -> Floats | None:
    """Whether each candidate may be in the words of the speaker asked for; None if the query asks for none.

    The rules that apply to a request are in the words of the user.
    """
    names = {} if is_request else corpus.speakers(distinct(facts.speakers).tolist())
    if (speaker := speaker_asked(text, names)) is not None:
        # “What did Ann say” asks for words of hers: a memory without a speaker that names her is about her.
        is_told = _telling(text, name_spans(text, {speaker: names[speaker]}))
        return _shares(facts.speakers, speaker, if_unknown=not is_told)
    role = Role.USER if is_request else role_asked(text)
    return _shares(facts.roles, _ROLES.index(role)) if role is not None and (facts.roles >= 0).any() else None


def _calls(name: str) -> set[str]:
    words = _WORD.findall(name.casefold())
    return {" ".join(words), words[0]} if words else set()


def _shares(codes: Ints, wanted: int, *, if_unknown: bool = True) -> Floats:
    """1 for a candidate of the one wanted, 0 for another; an unknown one may be from anyone."""
    shares: Floats = ((codes == wanted) | ((codes < 0) & if_unknown)).astype(np.float32)
    return shares


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
    near = np.exp(-outside / _WEEK)
    return np.where(facts.times > 0, near, 0.0).astype(np.float32)
