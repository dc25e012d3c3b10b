"""LoCoMo (Maharana et al. 2024): long conversations between two people, one turn a document."""

from __future__ import annotations

import re
from pathlib import Path

from triskele.evaluation.datasets import BenchQuery
from triskele.evaluation.loaders.collecting import Collector, Loaded
from triskele.evaluation.loaders.fields import Fields, objects
from triskele.evaluation.loaders.listing import items
from triskele.evaluation.loaders.reading import plain_name

MARKS = frozenset({"conversation", "qa"})
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
MALFORMED = "evidence that names no turn"
UNKNOWN = "evidence of turns that the conversation does not have"

_SESSION = re.compile(r"session_(\d+)")
_EVIDENCE_BREAK = re.compile(r"[\s;,]+")
_TURN = re.compile(r"D(\d+):(\d+)")


def load(path: Path) -> Loaded:
    """Read locomo10.json or a file of its form."""
    collector = Collector(plain_name(path), path)
    for item in items(collector.source(path)):
        scope = item.name("sample_id")
        _add_turns(collector, scope, item.object("conversation"))
        for number, question in enumerate(item.objects("qa")):
            _ask(collector, scope, number, question)
    return collector.loaded()


def _add_turns(collector: Collector, scope: str, conversation: Fields) -> None:
    numbers = sorted(int(found[1]) for key in conversation.values if (found := _SESSION.fullmatch(key)))
    for session in (f"session_{number}" for number in numbers):
        date = conversation.optional_text(f"{session}_date_time")
        dated = {"date": date} if date else {}
        for turn in objects(conversation.parts(session), f"{conversation.where}, {session}"):
            speaker, id = turn.name("speaker"), turn.name("dia_id")
            meta = dated | {"dia_id": id, "speaker": speaker}
            collector.add(turn, f"{scope}/{id}", _said(turn, speaker), scope=scope, session=session, meta=meta)


def _said(turn: Fields, speaker: str) -> str:
    caption = turn.optional_text("blip_caption")
    said = f"{speaker}: {turn.text('text')}"
    return f"{said} [shared image: {caption}]" if caption else said


def _ask(collector: Collector, scope: str, number: int, question: Fields) -> None:
    category = question.whole("category")
    if category not in CATEGORIES:
        raise question.wrong(f"has a category that is not one of 1 to {len(CATEGORIES)}: {category}")
    id = f"{scope}/q{number:03d}"
    collector.ask(question.where, BenchQuery(id, question.text("question"), CATEGORIES[category], scope))
    given = question.texts("evidence") if question.values.get("evidence") is not None else []
    for name in (name for evidence in given for name in _EVIDENCE_BREAK.split(evidence) if name):
        _label(collector, id, scope, name)


def _label(collector: Collector, query: str, scope: str, name: str) -> None:
    turn = _TURN.fullmatch(name)
    if turn is None:
        collector.skip(MALFORMED)
        return
    # Some are written with a zero in front: D30:05.
    document = f"{scope}/D{int(turn[1])}:{int(turn[2])}"
    if collector.has(document):
        collector.label(query, document)
    else:
        collector.skip(UNKNOWN)
