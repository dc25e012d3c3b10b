"""Taking over what others wrote: the user's own questions, scripted grades, and the labels of another judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.evaluation.datasets import UNRANKED_TYPES
from triskele.evaluation.own import agreement, labels, lines, questions
from triskele.evaluation.own.agreement import Verdict
from triskele.evaluation.own.labels import GRADES, Label
from triskele.evaluation.own.questions import PARAPHRASE, TYPES, Question

USER = "user"
_LONGEST = 2000


def import_questions(engine: Engine, path: Path) -> list[Question]:
    """The questions of a file that were not known yet; memories named in `ids` answer them fully."""
    known = questions.load(engine.store)
    read = [_imported(row, place, engine) for place, row in lines.read(path)]
    if not read:
        raise BadInput(f"{path} holds no questions")
    fresh = {each.id: each for each in read if each.id not in known}
    questions.save(engine.store, fresh.values())
    best = GRADES[-1]
    given = [Label(each.id, memory, best) for each in fresh.values() for memory in each.sources]
    labels.save(engine.store, given, fresh)
    return list(fresh.values())


def take_scripted(engine: Engine, path: Path) -> list[Label]:
    """Take grades from a file as if they had been typed; every question named there counts as judged."""
    known = questions.load(engine.store)
    given = labels.read_file(path, engine, known, by=labels.HAND)
    _take(engine, given, known, labels.HAND)
    return given


def take_from(engine: Engine, path: Path, by: str) -> Verdict:
    """Take another judge's labels where they agree enough with those by hand; else nothing is taken."""
    name = validation.check_name(by, "the judge's name")
    if not name or name.casefold() == labels.HAND:
        raise BadInput(f"not a name for another judge: {by!r}")
    known, present = questions.load(engine.store), labels.load(engine.store)
    given = labels.read_file(path, engine, known, by=name)
    verdict = agreement.compare(given, present, known, name)
    if verdict.is_accepted:
        own = [label for label in given if known[label.question].type != questions.MULTI_HOP]
        _take(engine, [each for each in own if not agreement.is_by_hand(present.get(each.pair))], known, name)
    return verdict


def _take(engine: Engine, given: Sequence[Label], known: dict[str, Question], by: str) -> None:
    labels.save(engine.store, given, known)
    named = {label.question for label in given}
    questions.save(engine.store, [replace(known[id], judged=by) for id in sorted(named) if not known[id].judged])


def _imported(row: dict[str, Any], place: str, engine: Engine) -> Question:
    text = validation.clean(lines.text_of(row, "text", place), "the question")
    if not text or len(text) > _LONGEST:
        raise BadInput(f"{place}: a question has between 1 and {_LONGEST:,} characters")
    type = row.get("type") or PARAPHRASE
    known_types = (*TYPES, *sorted(UNRANKED_TYPES))
    if type not in known_types:
        raise BadInput(f"{place}: unknown type {type!r}: choose one of {', '.join(known_types)}")
    ids, project = row.get("ids") or [], row.get("project")
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise BadInput(f"{place}: ids is not a list of memory ids")
    if not isinstance(project, str | None) or not isinstance(row.get("generator", ""), str):
        raise BadInput(f"{place}: project and generator are texts")
    return questions.make(
        text,
        type,
        row.get("generator") or USER,
        project=project,
        sources=tuple(labels.named_memory(id, engine, place) for id in ids),
        judged=labels.HAND if ids else None,
    )
