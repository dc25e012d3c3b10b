"""LongMemEval (Wu et al. 2025): every question has a haystack of chat sessions of its own, one turn a document."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.loaders.collecting import Collector, Loaded
from triskele.evaluation.loaders.fields import Fields, list_of, objects
from triskele.evaluation.loaders.listing import items
from triskele.evaluation.loaders.reading import plain_name

MARKS = frozenset({"haystack_sessions", "question_id"})
NOT_THERE = "answer sessions outside the haystack"

_ABSTENTION = "_abs"
_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?:\s*\(\w+\))?(?:\s+(\d{2}:\d{2}))?")


@dataclass(frozen=True, slots=True)
class _Session:
    """One chat of a haystack."""

    given: str
    id: str
    date: str
    turns: list[Fields]

    def turn_id(self, number: int) -> str:
        return _hashed(self.id, str(number))


def load(path: Path) -> Loaded:
    """Read longmemeval_s.json, longmemeval_m.json, longmemeval_oracle.json or a file of their form."""
    collector = Collector(plain_name(path), path)
    for item in items(collector.source(path)):
        question = item.name("question_id")
        # The scope is hashed too: a suffix of the id tells which questions have no answer.
        scope = _hashed(question)
        kind = "abstention" if question.endswith(_ABSTENTION) else item.name("question_type")
        collector.ask(item.where, BenchQuery(question, item.text("question"), kind, scope))
        sessions = list(_sessions(item, question))
        for session in sessions:
            _add_turns(collector, scope, session)
        if kind != "abstention":
            _label(collector, item, question, sessions)
    return collector.loaded()


def _sessions(item: Fields, question: str) -> Iterator[_Session]:
    names, dates = item.texts("haystack_session_ids"), item.texts("haystack_dates")
    chats = item.parts("haystack_sessions")
    if not len(names) == len(dates) == len(chats):
        raise item.wrong(f"has {len(chats)} sessions, {len(names)} session ids and {len(dates)} dates")
    for place, (name, date, chat) in enumerate(zip(names, dates, chats, strict=True), start=1):
        where = f"{item.where}, haystack_sessions {place}"
        turns = list(objects(list_of(chat, where), f"{where}, turn"))
        # The given ids begin with "answer" where the gold is.
        yield _Session(name, _hashed(question, name, str(place)), _iso(date), turns)


def _add_turns(collector: Collector, scope: str, session: _Session) -> None:
    metas: dict[str, dict[str, str]] = {}
    for number, turn in enumerate(session.turns):
        role = turn.name("role")
        meta = metas.setdefault(role, {"role": role} | ({"date": session.date} if session.date else {}))
        text = turn.text("content")
        collector.add(turn, session.turn_id(number), text, scope=scope, session=session.id, meta=meta)


def _label(collector: Collector, item: Fields, question: str, sessions: list[_Session]) -> None:
    answers = set(item.texts("answer_session_ids"))
    collector.skip(NOT_THERE, len(answers - {session.given for session in sessions}))
    turns = [(session, number, turn) for session in sessions for number, turn in enumerate(session.turns)]
    gold = [(session, number) for session, number, turn in turns if turn.values.get("has_answer") is True]
    said = [(s, number) for s, number, turn in turns if s.given in answers and turn.values["role"] == "user"]
    for session, number in gold or said:
        collector.label(question, session.turn_id(number))


def _iso(date: str) -> str:
    """A date such as 2023/05/20 (Sat) 02:21 in ISO form; others stay as they are."""
    found = _DATE.fullmatch(date)
    if found is None:
        return date
    year, month, day, time = found.groups()
    return f"{year}-{month}-{day}" + (f"T{time}" if time else "")


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
