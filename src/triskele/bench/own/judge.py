"""Judge questions by hand, or import questions, grades and labels."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triskele import validation
from triskele.bench.datasets import UNRANKED_TYPES
from triskele.bench.harness import OwnHarness
from triskele.bench.loaders.sources import Fields, Source
from triskele.bench.own.build import is_open
from triskele.bench.own.questions import (
    ANSWERS,
    GRADES,
    HAND,
    MULTI_HOP,
    PARAPHRASE,
    PROMPT,
    TYPES,
    Label,
    Labels,
    OwnQuestion,
    delete_labels,
    load_labels,
    make_question,
    questions_of,
    save_labels,
    save_questions,
)
from triskele.bench.own.run import NOW, own_arm
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.types import Memory

POOLED = ("fts", "lexical", "dense", "rrf", "default", NOW)
POOL_DEPTH = 10
USER = "user"
MIN_KAPPA = 0.6
MIN_SHARE = 0.15
# With fewer pairs any kappa is an accident.
MIN_PAIRS = 20
_MAX_QUESTION_CHARACTERS = 2000


def pool(harness: OwnHarness, question: OwnQuestion, seed: int) -> list[str]:
    """Top ten of several arms and the question's sources, shuffled."""
    arms = [own_arm(name, harness.engine) for name in POOLED]
    retrieved = {id for one in arms for id in harness.ids(one, question.text, question.project)[:POOL_DEPTH]}
    ids = sorted((retrieved | set(question.sources)) & harness.memories.keys())
    random.Random(f"{seed} {question.id}").shuffle(ids)
    return ids


def export_pairs(harness: OwnHarness, seed: int) -> Iterator[dict[str, str]]:
    """Pairs for an external judge, without private memories and multi-hop questions."""
    for question in questions_of(harness.engine).values():
        about = (harness.memories.get(id) for id in question.about)
        if question.type == MULTI_HOP or any(memory is not None and not is_open(memory) for memory in about):
            continue
        for memory in (harness.memories[id] for id in pool(harness, question, seed)):
            if is_open(memory):
                yield {"question": question.id, "text": question.text, "memory": memory.id, "content": memory.content}


@dataclass(frozen=True, slots=True)
class JudgingItem:
    """A question and a candidate to grade, and what is left."""

    question: OwnQuestion
    memory: Memory
    number: int
    total: int
    questions_left: int


class JudgingSession:
    """A session of a judge; grades are durable and can be undone."""

    def __init__(self, harness: OwnHarness, seed: int) -> None:
        self._harness = harness
        self._seed = seed
        self._store = harness.engine.store
        self._questions = questions_of(harness.engine)
        self._labels = load_labels(self._store)
        self._queue = [id for id, each in self._questions.items() if each.is_waiting]
        self._at = 0
        self._pools: dict[str, list[str]] = {}
        self._graded: list[tuple[str, str]] = []

    @property
    def given(self) -> int:
        """How many grades this session has given."""
        return len(self._graded)

    def item(self) -> JudgingItem | None:
        """The next pair to judge, None when every pair is judged."""
        while self._at < len(self._queue):
            id = self._queue[self._at]
            waiting = self._waiting(id)
            if waiting:
                ids, memory = self._pool(id), self._harness.memories[waiting[0]]
                left = len(self._queue) - self._at
                return JudgingItem(self._questions[id], memory, ids.index(memory.id) + 1, len(ids), left)
            self._mark(id, HAND)
            self._at += 1
        return None

    def grade(self, grade: int) -> None:
        """Give the current pair its grade."""
        item = self._current()
        label = Label(item.question.id, item.memory.id, grade)
        save_labels(self._store, [label], self._questions)
        self._labels[label.pair] = label
        self._graded.append(label.pair)
        if not self._waiting(label.question):
            self._mark(label.question, HAND)

    def undo(self) -> bool:
        """Delete the last grade and return to its pair, if any."""
        if not self._graded:
            return False
        pair = self._graded.pop()
        delete_labels(self._store, [pair])
        del self._labels[pair]
        self._mark(pair[0], None)
        self._at = self._queue.index(pair[0])
        return True

    def skip(self) -> None:
        """Leave the current question for another session."""
        self._current()
        self._at += 1

    def _current(self) -> JudgingItem:
        item = self.item()
        assert item is not None, "there is nothing left to judge"
        return item

    def _pool(self, id: str) -> list[str]:
        if id not in self._pools:
            self._pools[id] = pool(self._harness, self._questions[id], self._seed)
        return self._pools[id]

    def _waiting(self, id: str) -> list[str]:
        return [memory for memory in self._pool(id) if (id, memory) not in self._labels]

    def _mark(self, id: str, by: str | None) -> None:
        if self._questions[id].judged != by:
            self._questions[id] = replace(self._questions[id], judged=by)
            save_questions(self._store, [self._questions[id]])


# Agreement of two judges


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """How far two judges agree; `kappa` over four grades decides."""

    by: str
    labels: int
    by_hand: int
    kappa: float | None
    kappa_binary: float | None
    left_to_hand: int
    reason: str | None

    @property
    def is_accepted(self) -> bool:
        """Whether the labels count."""
        return self.reason is None


def agreement(given: Sequence[Label], known: Labels, questions: Mapping[str, OwnQuestion], by: str) -> JudgeAgreement:
    """Compare a judge's labels with those by hand, without multi-hop questions."""
    own = [label for label in given if questions[label.question].type != MULTI_HOP]
    shared = [(known[label.pair].grade, label.grade) for label in own if _is_by_hand(known.get(label.pair))]
    kappa = cohen_kappa(shared)
    written_by_judge = sum(questions[label.question].generator.casefold() == by.casefold() for label in own)
    return JudgeAgreement(
        by=by,
        labels=len(own),
        by_hand=len(shared),
        kappa=kappa,
        kappa_binary=cohen_kappa([(one >= ANSWERS, other >= ANSWERS) for one, other in shared]),
        left_to_hand=len(given) - len(own),
        reason=_reason_to_refuse(kappa, len(shared), len(own), written_by_judge, by),
    )


def _is_by_hand(label: Label | None) -> bool:
    return label is not None and label.by == HAND


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement beyond chance (Cohen 1960); None if chance explains all."""
    if not pairs:
        return None
    n = len(pairs)
    first, second = Counter(one for one, _ in pairs), Counter(other for _, other in pairs)
    agreed = sum(one == other for one, other in pairs) / n
    by_chance = sum(first[grade] * second[grade] for grade in first) / n**2
    return None if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def _reason_to_refuse(kappa: float | None, by_hand: int, labels: int, made: int, by: str) -> str | None:
    if made:
        return f"{by} made the questions of {made} of these labels: the judge must not be the generator"
    wanted = max(MIN_PAIRS, math.ceil(MIN_SHARE * labels))
    if by_hand < wanted:
        return (
            f"{by_hand} of the {labels} labelled pairs are judged by hand,"
            f" {wanted} are needed ({MIN_SHARE * 100:.0f} %, at least {MIN_PAIRS})"
        )
    if kappa is None:
        return "both judges gave every pair the same grade: kappa is undefined"
    if kappa < MIN_KAPPA:
        return f"kappa over the four grades is {kappa:.2f} on {by_hand} pairs, {MIN_KAPPA} is needed"
    return None


# Import


def import_questions(engine: LocalEngine, path: Path) -> list[OwnQuestion]:
    """Add new questions of a file; memories in `ids` get the highest grade."""
    stored = questions_of(engine)
    read = [_imported(record, engine) for record in Source(path).records()]
    if not read:
        raise BadInput(f"{path} holds no questions")
    fresh = {each.id: each for each in read if each.id not in stored}
    save_questions(engine.store, fresh.values())
    labels = [Label(each.id, memory, GRADES[-1]) for each in fresh.values() for memory in each.sources]
    save_labels(engine.store, labels, fresh)
    return list(fresh.values())


def import_grades(engine: LocalEngine, path: Path) -> list[Label]:
    """Import grades by hand; every question of the file counts as judged."""
    questions = questions_of(engine)
    labels = read_labels(path, engine, questions, by=HAND)
    _keep(engine, labels, questions, HAND)
    return labels


def import_labels(engine: LocalEngine, path: Path, by: str) -> JudgeAgreement:
    """Import another judge's labels if they agree enough, or nothing."""
    name = validation.check_name(by, "the judge's name")
    if not name or name.casefold() == HAND:
        raise BadInput(f"not a name for another judge: {by!r}")
    questions, present = questions_of(engine), load_labels(engine.store)
    labels = read_labels(path, engine, questions, by=name)
    agreed = agreement(labels, present, questions, name)
    if agreed.is_accepted:
        own = [label for label in labels if questions[label.question].type != MULTI_HOP]
        _keep(engine, [each for each in own if not _is_by_hand(present.get(each.pair))], questions, name)
    return agreed


def _keep(engine: LocalEngine, given: Sequence[Label], known: dict[str, OwnQuestion], by: str) -> None:
    save_labels(engine.store, given, known)
    named = {label.question for label in given}
    save_questions(engine.store, [replace(known[id], judged=by) for id in sorted(named) if not known[id].judged])


def _imported(record: Fields, engine: LocalEngine) -> OwnQuestion:
    row = record.values
    text = validation.clean(_text_of(record, "text"), "the question")
    if not text or len(text) > _MAX_QUESTION_CHARACTERS:
        raise record.wrong(f"a question has between 1 and {_MAX_QUESTION_CHARACTERS:,} characters")
    type = row.get("type") or PARAPHRASE
    known_types = (*TYPES, PROMPT, *sorted(UNRANKED_TYPES))
    if type not in known_types:
        raise record.wrong(f"unknown type {type!r}: choose one of {', '.join(known_types)}")
    ids, project = row.get("ids") or [], row.get("project")
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids):
        raise record.wrong("ids is not a list of memory ids")
    if not isinstance(project, str | None) or not isinstance(row.get("generator", ""), str):
        raise record.wrong("project and generator must be text")
    return make_question(
        text,
        type,
        row.get("generator") or USER,
        project=project,
        sources=tuple(_memory_id(record, id, engine) for id in ids),
        judged=HAND if ids else None,
    )


def read_labels(path: Path, engine: LocalEngine, questions: Mapping[str, OwnQuestion], *, by: str) -> list[Label]:
    """Read labels; questions by id or text, memories by id prefix."""
    by_text = {question.text.casefold(): question.id for question in questions.values()}
    labels: Labels = {}
    for record in Source(path).records():
        named = _text_of(record, "question")
        question = named if named in questions else by_text.get(" ".join(named.split()).casefold())
        if question is None:
            raise record.wrong(f"no question {named[:60]!r} (see `triskele eval build --json`)")
        grade = record.values.get("grade")
        if isinstance(grade, bool) or grade not in GRADES:
            raise record.wrong(f"a grade is 0, 1, 2 or 3, not {grade!r}")
        label = Label(question, _memory_id(record, _text_of(record, "memory"), engine), int(grade), by)
        labels[label.pair] = label
    if not labels:
        raise BadInput(f"{path} holds no labels")
    return list(labels.values())


def _memory_id(record: Fields, named: str, engine: LocalEngine) -> str:
    try:
        return engine.resolve(named)
    except BadInput as error:
        raise record.wrong(str(error)) from error


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write objects to a new JSONL file only the user reads."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(text)
    except FileExistsError:
        raise BadInput(f"{path} exists already: name a new file") from None
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error


def _text_of(record: Fields, name: str) -> str:
    value = record.values.get(name)
    if not isinstance(value, str) or not value.strip():
        raise record.wrong(f"has no {name}")
    return value.strip()
