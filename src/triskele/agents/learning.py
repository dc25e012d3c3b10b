"""Learns facts from conversations, by rules and a language model.

It is stored or proposed, and read only once; what a model could not read is read the next time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.agents import capture, echo, injection, respond
from triskele.agents.fact_reader import FactReader
from triskele.config import APPLY
from triskele.curation.curator import Curator
from triskele.curation.wording import content, forms, words
from triskele.errors import BadInput, TriskeleError
from triskele.exchange import transcripts
from triskele.ingest import with_told_period
from triskele.privacy import detect
from triskele.privacy.findings import Finding, merge
from triskele.replies import HookCall, Rationale
from triskele.store.derived import Document
from triskele.text import timestamps
from triskele.types import CURATION, Add, Memory, Origin, Role, Sensitivity, SpokenTurn, Verdict, is_secret

if TYPE_CHECKING:
    from triskele.agents.capture import CapturedText
    from triskele.store.access import StoreAccess

_READ = "learned"
# A captured text this similar to a stored memory is not new.
_KNOWN = 0.7
_EXPLICIT = "asked to remember"
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
    engine: StoreAccess, path: Path, *, dial: str = "normal", project: str | None = None, is_dry: bool = False
) -> Learned:
    """Learn from new turns of a transcript; a dry run stores nothing.

    What the rules find is kept before a language model is asked for more.
    """
    documents, key = engine.store.documents, respond.transcript_key(path)
    progress = _Progress(**({} if is_dry else documents.get(_READ, key) or {}))
    turns, after = transcripts.read_turns(path, progress.offset)
    progress.skipped = sorted({*progress.skipped, *map(_session_key, capture.marked_sessions(turns))})
    own = _own(engine, turns, progress)
    learned = Learned(turns=len(own))
    _take(engine, learned, capture.capture(own), dial, project, is_dry=is_dry)
    if after < progress.model_offset:
        # The file was rewritten.
        progress.model_offset = progress.model_turns = 0
    progress.offset = after
    if not is_dry:
        documents.put(_READ, {key: Document(asdict(progress))})
    _learn_by_model(engine, path, progress, learned, dial, project, is_dry=is_dry)
    if not is_dry:
        documents.put(_READ, {key: Document(asdict(progress))})
    return learned


def _learn_by_model(
    engine: StoreAccess,
    path: Path,
    progress: _Progress,
    learned: Learned,
    dial: str,
    project: str | None,
    *,
    is_dry: bool,
) -> None:
    """Let the language model read its unread turns."""
    reader = FactReader(engine, Curator(engine).may_call, project=project)
    llm = reader.model()
    if llm is None:
        return
    turns, after = transcripts.read_turns(path, progress.model_offset)
    places = {id(turn): place for place, turn in enumerate(turns)}
    own = [turn for turn in _own(engine, turns, progress) if places[id(turn)] >= progress.model_turns]
    private = {turn.session for turn in own if _is_private(engine, turn.session, progress)}
    reading = reader.read(llm, own, private=private)
    learned.withheld, learned.invented, learned.problem = reading.withheld, reading.invented, reading.problem
    progress.private = sorted({*progress.private, *map(_session_key, reading.private_sessions)})
    _take(engine, learned, _not_found(reading.candidates, learned), dial, project, is_dry=is_dry)
    if reading.problem:
        progress.model_turns = places[id(own[reading.done])]
    else:
        progress.model_offset, progress.model_turns = after, 0


def _own(engine: StoreAccess, turns: Sequence[SpokenTurn], progress: _Progress) -> list[SpokenTurn]:
    """The turns that no pattern of the settings leaves out."""
    skip = [re.compile(pattern, re.IGNORECASE) for pattern in engine.settings.curation.learn_skip]
    own, is_left_out = [], False
    for turn in turns:
        if turn.role == "user" and turn.is_typed:
            is_left_out = any(pattern.search(turn.text) for pattern in skip)
        is_from_user = turn.role != "user" or injection.is_from_user(HookCall(event="", prompt=turn.text))
        if is_from_user and not is_left_out and _session_key(turn.session) not in progress.skipped:
            own.append(turn)
    return own


def _is_private(engine: StoreAccess, session: str, progress: _Progress) -> bool:
    """Whether a session saw private memories."""
    key = injection.key_of(session)
    memories = engine.store.memories([each.id for each in engine.store.usage.given(key)]) if key else {}
    is_shown = any(memory.sensitivity is not Sensitivity.OPEN for memory in memories.values())
    return is_shown or _session_key(session) in progress.private


def _not_found(candidates: Sequence[CapturedText], learned: Learned) -> list[CapturedText]:
    """The model's facts that the rules did not find."""
    before = [_said(each.text) for each in learned.rules.values()]
    return [each for each in candidates if not any(_said(each.text) <= said for said in before)]


def _said(text: str) -> frozenset[str]:
    return frozenset(forms(content(words(text))))


def _take(
    engine: StoreAccess,
    learned: Learned,
    candidates: Sequence[CapturedText],
    dial: str,
    project: str | None,
    *,
    is_dry: bool,
) -> None:
    """Keep and propose new candidates; a dry run only names them."""
    stored, waiting = capture.sorted_out(candidates, dial)
    accepted = _news(engine, stored, project, learned)
    proposed = [each for each in _news(engine, waiting, project, learned) if not is_secret(each)]
    learned.kept += accepted
    learned.proposed += proposed
    if is_dry:
        return
    _keep(engine, accepted, learned)
    rules = learned.rules
    Curator(engine).proposals.offer_texts(
        (memory, rules[memory.id].confidence, (Rationale(rules[memory.id].rule),)) for memory in proposed
    )


def _news(
    engine: StoreAccess, candidates: Sequence[CapturedText], project: str | None, learned: Learned
) -> list[Memory]:
    """Drafts of captured texts that are neither echoes nor known."""
    curator, news = Curator(engine), list[Memory]()
    own = {turn: detect.find(turn.text) for turn in {captured.turn for captured in candidates}}
    for captured in candidates:
        secrets = merge([*detect.find(captured.text), *capture.secrets_from_turn(captured, own[captured.turn])])
        draft = _draft(engine, captured, secrets, project)
        if draft is None or _is_known(curator, engine, draft, captured):
            learned.skipped += 1
        else:
            news.append(draft)
            learned.rules[draft.id] = captured
    return news


def _draft(engine: StoreAccess, each: CapturedText, secrets: Sequence[Finding], project: str | None) -> Memory | None:
    """A draft of a captured text; a secret needs the user's request."""
    is_users = each.turn.role == "user"
    try:
        text = engine.draft(
            each.text,
            sensitivity=Sensitivity.SECRET if secrets else None,
            title=detect.title_for(each.text, secrets) if secrets else None,
            category=each.category if each.category in engine.settings.memory.categories else None,
            project=project,
            origin=Origin.USER if is_users else Origin.AGENT,
            role=Role.USER if is_users else Role.ASSISTANT,
            session=_session(each.turn),
            created_at=each.turn.at,
        )
    except BadInput:
        return None
    # "Until Friday" is an expiry, counted from when it was said.
    draft = with_told_period(text)
    return None if is_secret(draft) and each.rule != _EXPLICIT else draft


def _is_known(curator: Curator, engine: StoreAccess, draft: Memory, each: CapturedText) -> bool:
    if echo.recognised(engine.store, each.text, project=draft.project) is not None:
        return True
    hints = curator.related(draft)
    return any(hint.verdict is Verdict.NOOP and hint.confidence >= _KNOWN for hint in hints)


def _keep(engine: StoreAccess, kept: Sequence[Memory], learned: Learned) -> None:
    """Store memories, and decide what they replace."""
    if not kept:
        return
    outcomes = engine.acting_as(CURATION).apply([Add(memory) for memory in kept], batch=learned.batch or None)
    learned.batch = outcomes[0].batch
    curator = Curator(engine)
    memories = engine.store.memories([outcome.id for outcome in outcomes])
    decisions = [hint for memory in memories.values() for hint in curator.related(memory)]
    curator.apply_or_propose(decisions, apply=engine.settings.curation.mode == APPLY)


def work_off(engine: StoreAccess) -> int:
    """Learn from queued transcripts; return how many were read."""
    dial, done = engine.settings.curation.learn, 0
    now = timestamps.now()
    for key, value in respond.queued_transcripts(engine.store).items() if dial != "off" else ():
        if timestamps.parse(value.get("after", _LONG_AGO)) > now:
            continue
        # Taken out first: a transcript that breaks the reader must not be read again and again.
        respond.take_transcript(engine.store, key)
        with suppress(TriskeleError, OSError):
            learned = learn(engine, Path(value["path"]), dial=dial, project=value["project"])
            done += 1
            if learned.problem:
                _try_later(engine, key, value)
    return done


def _try_later(engine: StoreAccess, key: str, value: Mapping[str, Any]) -> None:
    """Queue an unread transcript again, later each time, then drop it."""
    tries = int(value.get("tries", 0))
    if tries < len(_RETRY_MINUTES):
        after = timestamps.now() + timedelta(minutes=_RETRY_MINUTES[tries])
        again = {**value, "tries": tries + 1, "after": timestamps.to_text(after)}
        respond.queue_again(engine.store, key, again)


def _session(turn: SpokenTurn) -> str | None:
    return f"talk-{_session_key(turn.session)}" if turn.session else None


def _session_key(session: str) -> str:
    """A name for a conversation without the client's own id."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:12]
