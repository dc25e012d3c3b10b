"""Conversations by turn: LoCoMo (Maharana 2024), LongMemEval (Wu 2025)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from triskele.bench.datasets import BenchQuery, Dataset
from triskele.bench.loaders.sources import (
    DatasetBuilder,
    Fields,
    list_items,
    list_of,
    objects,
    plain_name,
)

LOCOMO_KEYS = frozenset({"conversation", "qa"})
LOCOMO_TYPES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
MALFORMED = "evidence that names no turn"
UNKNOWN_TURNS = "evidence of turns that the conversation does not have"
LONGMEMEVAL_KEYS = frozenset({"haystack_sessions", "question_id"})
OUTSIDE_HAYSTACK = "answer sessions outside the haystack"

_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE_BREAK = re.compile(r"[\s;,]+")
_TURN = re.compile(r"D(\d+):(\d+)")
_ABSTENTION = "_abs"
_DATE = re.compile(r"(\d{4})/(\d{2})/(\d{2})(?:\s*\(\w+\))?(?:\s+(\d{2}:\d{2}))?")


def load_locomo(path: Path) -> Dataset:
    """Read locomo10.json: long conversations of two people with questions."""
    builder = DatasetBuilder(plain_name(path), path)
    for item in list_items(builder.source(path)):
        scope = item.name("sample_id")
        _add_locomo_turns(builder, scope, item.object("conversation"))
        for number, question in enumerate(item.objects("qa")):
            _ask_locomo(builder, scope, number, question)
    return builder.build()


def _add_locomo_turns(builder: DatasetBuilder, scope: str, conversation: Fields) -> None:
    numbers = sorted(int(match[1]) for key in conversation.values if (match := _SESSION.fullmatch(key)))
    for session in (f"session_{number}" for number in numbers):
        date = conversation.optional_text(f"{session}_date_time")
        dated = {"date": date} if date else {}
        for turn in objects(conversation.parts(session), f"{conversation.where}, {session}"):
            speaker, id = turn.name("speaker"), turn.name("dia_id")
            meta = dated | {"dia_id": id, "speaker": speaker}
            builder.add(turn, f"{scope}/{id}", _turn_text(turn, speaker), scope=scope, session=session, meta=meta)


def _turn_text(turn: Fields, speaker: str) -> str:
    caption = turn.optional_text("blip_caption")
    text = f"{speaker}: {turn.text('text')}"
    return f"{text} [shared image: {caption}]" if caption else text


def _ask_locomo(builder: DatasetBuilder, scope: str, number: int, question: Fields) -> None:
    category = question.whole("category")
    if category not in LOCOMO_TYPES:
        raise question.wrong(f"has a category that is not one of 1 to {len(LOCOMO_TYPES)}: {category}")
    id = f"{scope}/q{number:03d}"
    builder.ask(question.where, BenchQuery(id, question.text("question"), LOCOMO_TYPES[category], scope))
    lists = question.texts("evidence") if question.values.get("evidence") is not None else []
    for name in (name for evidence in lists for name in _EVIDENCE_BREAK.split(evidence) if name):
        _label_locomo(builder, id, scope, name)


def _label_locomo(builder: DatasetBuilder, query: str, scope: str, name: str) -> None:
    turn = _TURN.fullmatch(name)
    if turn is None:
        builder.skip(MALFORMED)
        return
    # Some are written with a leading zero: D30:05.
    document = f"{scope}/D{int(turn[1])}:{int(turn[2])}"
    if builder.has(document):
        builder.label(query, document)
    else:
        builder.skip(UNKNOWN_TURNS)


@dataclass(frozen=True, slots=True)
class _Session:
    """One chat of a haystack."""

    id_in_set: str
    id: str
    date: str
    turns: list[Fields]

    def turn_id(self, number: int) -> str:
        return _hashed(self.id, str(number))


def load_longmemeval(path: Path) -> Dataset:
    """Read longmemeval_s.json: every question has its own chat sessions."""
    builder = DatasetBuilder(plain_name(path), path)
    for item in list_items(builder.source(path)):
        question = item.name("question_id")
        # The scope is hashed too: a suffix of the id gives away which questions have no answer.
        scope = _hashed(question)
        kind = "abstention" if question.endswith(_ABSTENTION) else item.name("question_type")
        builder.ask(item.where, BenchQuery(question, item.text("question"), kind, scope))
        sessions = list(_sessions(item, question))
        for session in sessions:
            _add_session(builder, scope, session)
        if kind != "abstention":
            _label_longmemeval(builder, item, question, sessions)
    return builder.build()


def _sessions(item: Fields, question: str) -> Iterator[_Session]:
    names, dates = item.texts("haystack_session_ids"), item.texts("haystack_dates")
    chats = item.parts("haystack_sessions")
    if not len(names) == len(dates) == len(chats):
        raise item.wrong(f"has {len(chats)} sessions, {len(names)} session ids and {len(dates)} dates")
    for number, (name, date, chat) in enumerate(zip(names, dates, chats, strict=True), start=1):
        where = f"{item.where}, haystack_sessions {number}"
        turns = list(objects(list_of(chat, where), f"{where}, turn"))
        # The given ids start with "answer" for sessions that hold the answer.
        yield _Session(name, _hashed(question, name, str(number)), _iso(date), turns)


def _add_session(builder: DatasetBuilder, scope: str, session: _Session) -> None:
    metas: dict[str, dict[str, str]] = {}
    for number, turn in enumerate(session.turns):
        role = turn.name("role")
        meta = metas.setdefault(role, {"role": role} | ({"date": session.date} if session.date else {}))
        text = turn.text("content")
        builder.add(turn, session.turn_id(number), text, scope=scope, session=session.id, meta=meta)


def _label_longmemeval(builder: DatasetBuilder, item: Fields, question: str, sessions: list[_Session]) -> None:
    answers = set(item.texts("answer_session_ids"))
    builder.skip(OUTSIDE_HAYSTACK, len(answers - {session.id_in_set for session in sessions}))
    turns = [(session, number, turn) for session in sessions for number, turn in enumerate(session.turns)]
    gold = [(session, number) for session, number, turn in turns if turn.values.get("has_answer") is True]
    user = [(s, number) for s, number, turn in turns if s.id_in_set in answers and turn.values["role"] == "user"]
    for session, number in gold or user:
        builder.label(question, session.turn_id(number))


def _iso(date: str) -> str:
    """A date such as 2023/05/20 (Sat) 02:21 in ISO form."""
    match = _DATE.fullmatch(date)
    if match is None:
        return date
    year, month, day, time = match.groups()
    return f"{year}-{month}-{day}" + (f"T{time}" if time else "")


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
