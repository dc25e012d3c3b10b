"""Learns facts from conversations, by rules and a language model.

It is stored or proposed, and read only once; what a model could not read is read the next time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.agents import capture, echo, injection, respond
from triskele.agents.fact_reader import FactReader
from triskele.config import APPLY
from triskele.curation.curator import Curator
from triskele.curation.wording import stems
from triskele.errors import BadInput, TriskeleError
from triskele.exchange import transcripts
from triskele.ingest import with_told_period
from triskele.privacy import detect
from triskele.privacy.findings import Finding, merge
from triskele.replies.rooms import HookCall, Rationale
from triskele.store.values import Document
from triskele.text import timestamps
from triskele.text.statements import ASKED
from triskele.types import CURATION, Add, Memory, Origin, Role, Sensitivity, SpokenTurn, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.agents.capture import CapturedText
    from triskele.store.access import StoreAccess

_READ = "learned"
# A captured text this similar to a stored memory is not new.
_KNOWN = 0.7
# When a transcript is tried again that a language model could not read.
_RETRY_MINUTES = (10, 30, 120, 480, 1440)
_LONG_AGO = "2000-01-01T00:00:00Z"


@dataclass(slots=True)
class Learned:
    """What learning kept and proposed of a transcript.

    `rules` names what found each of them by its id; `withheld` turns of private sessions were not sent to the language
    model, `invented` facts of it were not in the turns, and `problem` says why it left turns for the next time.
    """

    turns: int = 0
    kept: list[Memory] = field(default_factory=list)
    proposed: list[Memory] = field(default_factory=list)
    skipped: int = 0
    batch: str = ""
    rules: dict[str, CapturedText] = field(default_factory=dict)
    withheld: int = 0
    invented: int = 0
    problem: str = ""


@dataclass(slots=True)
class _Progress:
    """How far rules and model have read a transcript."""

    offset: int = 0
    model_offset: int = 0
    model_turns: int = 0
    skipped: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)


def learn(
    access: StoreAccess, path: Path, *, dial: str = "normal", project: str | None = None, is_dry: bool = False
) -> Learned:
    """Learn from new turns of a transcript; a dry run stores nothing.

    What the rules find is kept before a language model is asked for more.
    """
    return _Learner(access, dial, project, is_dry).learn(path)


class _Learner:
    """Learns from one transcript."""

    def __init__(self, access: StoreAccess, dial: str, project: str | None, is_dry: bool) -> None:
        self._access = access
        self._store = access.store
        self._settings = access.settings
        self._dial = dial
        self._project = project
        self._is_dry = is_dry
        self._curator = Curator(access)
        self._progress = _Progress()
        self._learned = Learned()

    def learn(self, path: Path) -> Learned:
        """Learn by the rules, then by the language model."""
        documents, key = self._store.documents, respond.transcript_key(path)
        if not self._is_dry:
            self._progress = _Progress(**(documents.get(_READ, key) or {}))
        progress = self._progress
        turns, after = transcripts.read_turns(path, progress.offset)
        progress.skipped = sorted({*progress.skipped, *map(_session_key, capture.marked_sessions(turns))})
        own = self._own(turns)
        self._learned.turns = len(own)
        self._take(capture.capture(own))
        if after < progress.model_offset:
            # The file was rewritten.
            progress.model_offset = progress.model_turns = 0
        progress.offset = after
        if not self._is_dry:
            documents.put(_READ, {key: Document(asdict(progress))})
        self._learn_by_model(path)
        if not self._is_dry:
            documents.put(_READ, {key: Document(asdict(progress))})
        return self._learned

    def _learn_by_model(self, path: Path) -> None:
        """Let the language model read its unread turns."""
        llm = self._access.llm
        if llm is None:
            return
        reader = FactReader(self._access, self._curator.may_call, project=self._project)
        progress, learned = self._progress, self._learned
        turns, after = transcripts.read_turns(path, progress.model_offset)
        positions = {id(turn): position for position, turn in enumerate(turns)}
        own = [turn for turn in self._own(turns) if positions[id(turn)] >= progress.model_turns]
        private = {turn.session for turn in own if self._is_private(turn.session)}
        reading = reader.read(llm, own, private=private)
        learned.withheld, learned.invented, learned.problem = reading.withheld, reading.invented, reading.problem
        progress.private = sorted({*progress.private, *map(_session_key, reading.private_sessions)})
        self._take(_not_found(reading.candidates, learned))
        if reading.problem:
            progress.model_turns = positions[id(own[reading.done])]
        else:
            progress.model_offset, progress.model_turns = after, 0

    def _own(self, turns: Sequence[SpokenTurn]) -> list[SpokenTurn]:
        """The turns that no pattern of the settings leaves out."""
        skip = [re.compile(pattern, re.IGNORECASE) for pattern in self._settings.curation.learn_skip]
        own, is_left_out = [], False
        for turn in turns:
            if turn.role == "user" and turn.is_typed:
                is_left_out = any(pattern.search(turn.text) for pattern in skip)
            is_from_user = turn.role != "user" or injection.is_from_user(HookCall(event="", prompt=turn.text))
            if is_from_user and not is_left_out and _session_key(turn.session) not in self._progress.skipped:
                own.append(turn)
        return own

    def _is_private(self, session: str) -> bool:
        """Whether a session saw private memories."""
        key = injection.key_of(session)
        memories = self._store.memories([each.id for each in self._store.usage.given(key)]) if key else {}
        is_shown = any(memory.sensitivity is not Sensitivity.OPEN for memory in memories.values())
        return is_shown or _session_key(session) in self._progress.private

    def _take(self, candidates: Sequence[CapturedText]) -> None:
        """Keep and propose new candidates; a dry run only names them."""
        stored, waiting = capture.sorted_out(candidates, self._dial)
        accepted = self._news(stored)
        proposed = [each for each in self._news(waiting) if not is_secret(each)]
        self._learned.kept += accepted
        self._learned.proposed += proposed
        if self._is_dry:
            return
        self._keep(accepted)
        rules = self._learned.rules
        self._curator.proposals.offer_texts(
            (memory, rules[memory.id].confidence, (Rationale(rules[memory.id].rule),)) for memory in proposed
        )

    def _news(self, candidates: Sequence[CapturedText]) -> list[Memory]:
        """Drafts of captured texts that are neither echoes nor known."""
        news = list[Memory]()
        own = {turn: detect.find(turn.text) for turn in {captured.turn for captured in candidates}}
        for captured in candidates:
            secrets = merge([*detect.find(captured.text), *capture.secrets_from_turn(captured, own[captured.turn])])
            draft = self._draft(captured, secrets)
            if draft is None or self._is_known(draft, captured):
                self._learned.skipped += 1
            else:
                news.append(draft)
                self._learned.rules[draft.id] = captured
        return news

    def _draft(self, each: CapturedText, secrets: Sequence[Finding]) -> Memory | None:
        """A draft of a captured text; a secret needs the user's request."""
        is_users = each.turn.role == "user"
        try:
            text = self._access.draft(
                each.text,
                sensitivity=Sensitivity.SECRET if secrets else None,
                title=detect.title_for(each.text, secrets) if secrets else None,
                category=each.category if each.category in self._settings.memory.categories else None,
                project=self._project,
                origin=Origin.USER if is_users else Origin.AGENT,
                role=Role.USER if is_users else Role.ASSISTANT,
                session=_session(each.turn),
                created_at=each.turn.at,
            )
        except BadInput:
            return None
        # "Until Friday" is an expiry, counted from when it was said.
        draft = with_told_period(text)
        return None if is_secret(draft) and each.rule != ASKED else draft

    def _is_known(self, draft: Memory, each: CapturedText) -> bool:
        if echo.recognised(self._store, each.text, project=draft.project) is not None:
            return True
        hints = self._curator.related(draft)
        return any(hint.verdict is Verdict.NOOP and hint.confidence >= _KNOWN for hint in hints)

    def _keep(self, accepted: Sequence[Memory]) -> None:
        """Store memories, and decide what they replace."""
        if not accepted:
            return
        curation = self._access.acting_as(CURATION)
        outcomes = curation.apply([Add(memory) for memory in accepted], batch=self._learned.batch or None)
        self._learned.batch = outcomes[0].batch
        memories = self._store.memories([outcome.id for outcome in outcomes])
        decisions = [hint for memory in memories.values() for hint in self._curator.related(memory)]
        self._curator.apply_or_propose(decisions, apply=self._settings.curation.mode == APPLY)


def _not_found(candidates: Sequence[CapturedText], learned: Learned) -> list[CapturedText]:
    """The model's facts that the rules did not find."""
    before = [stems(each.text) for each in learned.rules.values()]
    return [each for each in candidates if not any(stems(each.text) <= said for said in before)]


def work_off(access: StoreAccess) -> int:
    """Learn from queued transcripts; return how many were read."""
    dial, done, store = access.settings.curation.learn, 0, access.store
    now = timestamps.now()
    for key, value in store.documents.all(respond.QUEUE).items() if dial != "off" else ():
        if timestamps.parse(value.get("after", _LONG_AGO)) > now:
            continue
        # Taken out first: a transcript that breaks the reader must not be read again and again.
        store.documents.delete(respond.QUEUE, [key])
        with suppress(TriskeleError, OSError):
            learned = learn(access, Path(value["path"]), dial=dial, project=value["project"])
            done += 1
            tries = int(value.get("tries", 0))
            # Later each time, then never.
            if learned.problem and tries < len(_RETRY_MINUTES):
                after = timestamps.now() + timedelta(minutes=_RETRY_MINUTES[tries])
                respond.queue_again(store, key, {**value, "tries": tries + 1, "after": timestamps.to_text(after)})
    return done


def _session(turn: SpokenTurn) -> str | None:
    return f"talk-{_session_key(turn.session)}" if turn.session else None


def _session_key(session: str) -> str:
    """A name for a conversation without the client's own id."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:12]
