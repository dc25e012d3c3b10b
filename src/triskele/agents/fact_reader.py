"""Reads facts of a conversation with a language model, and checks them.

Nothing of a private session is shown. A fact must consist of the words of the turns that it names, so that a text which
one turn smuggles into the prompt cannot speak for another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from triskele.agents import echo
from triskele.agents.capture import CapturedText, on_record, own_sentences
from triskele.curation.wording import content, forms, negations, words
from triskele.errors import Unavailable
from triskele.models.llm_replies import MOST_TURNS, ReadFact, ShownTurn, read_facts
from triskele.privacy.findings import looks_strong
from triskele.text.statements import is_statement
from triskele.types import SpokenTurn

if TYPE_CHECKING:
    from triskele.models.llm import Llm
    from triskele.privacy.clearance import ClearedText
    from triskele.store.access import StoreAccess

RULE = "language model"
SPENT = "the calls of today are used up (curation.llm_calls)"
# A fact of a model is never as sure as a request to remember: at the default dial it waits for a review.
_READ, _LOOSELY_READ = 0.75, 0.65
_LEAST_WORDS = 2
_MOST_CHARACTERS = 12_000
_LONGEST_TURN = 4_000
# Of a turn of the assistant only the end is sent: the part that the user answers.
_CONTEXT_CHARACTERS = 400
_OWN = re.compile(r"\b(?:i|me|my|mine|myself)(?:['’](?:m|ve|d|ll))?\b", re.IGNORECASE)
# Words that a model uses for a user who says "I".
_THE_USER = re.compile(r"\A(?:the )?user(?:['’]s)?\b", re.IGNORECASE)
_SELF = "i"


class _Shown(NamedTuple):
    """A turn, its sentences for the model, and their cleared text."""

    position: int
    turn: SpokenTurn
    sentences: tuple[str, ...]
    cleared: ClearedText | None

    @property
    def size(self) -> int:
        return sum(map(len, self.sentences))


@dataclass(slots=True)
class ModelReading:
    """The facts that a model read, and why it ended early."""

    candidates: list[CapturedText] = field(default_factory=list)
    done: int = 0
    withheld: int = 0
    invented: int = 0
    private_sessions: set[str] = field(default_factory=set)
    problem: str = ""


class FactReader:
    """Reads the turns of conversations with the language model of a store."""

    def __init__(self, access: StoreAccess, may_call: Callable[[], bool], *, project: str | None = None) -> None:
        self._access = access
        self._may_call = may_call
        self._project = project

    def read(self, llm: Llm, turns: Sequence[SpokenTurn], *, private: Iterable[str] = ()) -> ModelReading:
        """Read the facts of turns; a failed request ends the reading."""
        reading = ModelReading(private_sessions=set(private))
        shown = list(self._shown(turns))
        reading.private_sessions |= {each.turn.session for each in shown if each.cleared is None}
        reading.private_sessions |= self._told_together(shown)
        for batch in _batches(each for each in shown if each.turn.session not in reading.private_sessions):
            if not any(each.turn.role == "user" for each in batch):
                continue
            reading.done = batch[0].position
            if not self._may_call():
                reading.problem = SPENT
                return reading
            try:
                facts = read_facts(llm, [ShownTurn(role, text) for role, text in _texts(batch)])
            except Unavailable as error:
                reading.problem = str(error)
                return reading
            candidates = [_candidate(fact, batch) for fact in facts]
            reading.candidates += [each for each in candidates if each is not None]
            reading.invented += candidates.count(None)
        reading.withheld = sum(each.turn.session in reading.private_sessions for each in shown)
        reading.done = len(turns)
        return reading

    def _shown(self, turns: Sequence[SpokenTurn]) -> Iterator[_Shown]:
        store, positions = self._access.store, {id(turn): position for position, turn in enumerate(turns)}
        for turn in on_record(turns):
            own = own_sentences(turn.text)
            sentences = [each for each in own if echo.recognised(store, each, project=self._project) is None]
            if len(sentences) == 1 and looks_strong(sentences[0]) and " " not in sentences[0]:
                # The answer to "which password?" is a secret, although nothing in the answer shows it.
                continue
            if turn.role != "user":
                sentences = _last(sentences, _CONTEXT_CHARACTERS)
            for part in _parts(sentences):
                cleared, _ = self._access.egress_policy.question(" ".join(part))
                yield _Shown(positions[id(turn)], turn, part, cleared)

    def _told_together(self, shown: Sequence[_Shown]) -> set[str]:
        """The sessions whose turns together reveal a secret or something private."""
        texts: dict[str, list[str]] = {}
        for entry in shown:
            texts.setdefault(entry.turn.session, []).append(" ".join(entry.sentences))
        policy = self._access.egress_policy
        return {session for session, said in texts.items() if policy.question("\n".join(said))[0] is None}


def _texts(batch: Sequence[_Shown]) -> Iterator[tuple[str, ClearedText]]:
    for entry in batch:
        assert entry.cleared is not None, "a turn that must stay here is in no batch"
        yield entry.turn.role, entry.cleared


def _last(sentences: Sequence[str], most: int) -> list[str]:
    last: list[str] = []
    for sentence in reversed(sentences):
        if sum(map(len, last)) + len(sentence) > most:
            break
        last.insert(0, sentence)
    return last


def _parts(sentences: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The sentences of a turn in parts of a bounded length."""
    part: list[str] = []
    for sentence in sentences:
        if len(sentence) > _LONGEST_TURN:
            continue
        if part and sum(map(len, part)) + len(sentence) > _LONGEST_TURN:
            yield tuple(part)
            part = []
        part.append(sentence)
    if part:
        yield tuple(part)


def _batches(shown: Iterable[_Shown]) -> Iterator[list[_Shown]]:
    """Batches of turns of one session."""
    for _, session in groupby(shown, key=lambda entry: entry.turn.session):
        batch: list[_Shown] = []
        for entry in session:
            size = sum(other.size for other in batch)
            if batch and (len(batch) == MOST_TURNS or size + entry.size > _MOST_CHARACTERS):
                yield batch
                batch = []
            batch.append(entry)
        yield batch


def _candidate(fact: ReadFact, batch: Sequence[_Shown]) -> CapturedText | None:
    """A fact as a candidate of its least trusted turn, if supported."""
    sources = [batch[position] for position in fact.turns]
    support = supporting([sentence for source in sources for sentence in source.sentences], fact.text)
    if support is None:
        return None
    turn = next((each.turn for each in sources if each.turn.role != "user"), sources[-1].turn)
    is_close = len(support) == 1 and _is_run(_said(_THE_USER.sub("I", fact.text)), _said(support[0]))
    needs_review = not is_close or turn.role != "user"
    return CapturedText(fact.text, RULE, "facts", _READ if is_close else _LOOSELY_READ, turn, needs_review)


def supporting(sentences: Sequence[str], fact: str) -> list[str] | None:
    """The sentences that state a fact together; None if they do not."""
    terms = _said(_THE_USER.sub("I", fact))
    if len(terms) < _LEAST_WORDS:
        return None
    for sentence in sentences:
        if set(terms) <= set(_said(sentence)):
            return [sentence] if _agrees(fact, [sentence]) else None
    near = [sentence for sentence in sentences if set(terms) & set(_said(sentence)) - {_SELF}]
    held = {form for sentence in near for form in _said(sentence)}
    return near if set(terms) <= held and _agrees(fact, near) else None


def _said(text: str) -> list[str]:
    """The content words; "I", "me" and "my" count as the same word."""
    return forms(content(words(_OWN.sub("I", text))))


def _agrees(fact: str, support: Sequence[str]) -> bool:
    """Whether the supporting sentences neither ask for nor negate the fact."""
    if not all(is_statement(sentence) for sentence in support):
        return False
    is_denied = any(negations(words(sentence)) for sentence in support)
    return is_denied == bool(negations(words(fact)))


def _is_run(said: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether the words of a fact follow each other in a sentence."""
    size = len(said)
    return any(list(whole[at : at + size]) == list(said) for at in range(len(whole) - size + 1))
