"""Learning from conversations: what the user said is captured by rules, stored or proposed, and read only once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.curation import capture, echo
from triskele.curation.compare import Rationale, Verdict
from triskele.curation.curator import Curator
from triskele.errors import BadInput, TriskeleError
from triskele.exchange import agent_turns
from triskele.serving.hook import injection
from triskele.stores.protocols import Document
from triskele.types import CURATION, Add, Memory, Origin, Role, SpokenTurn, is_secret

if TYPE_CHECKING:
    from triskele.curation.capture import CapturedText
    from triskele.engine import Engine

_READ, _QUEUE = "learned", "learn-queue"
_MOST_QUEUED = 200
# A captured text that resembles a known memory so much is not news.
_KNOWN = 0.7
_EXPLICIT = "asked to remember"


@dataclass(slots=True)
class Learned:
    """What became of a transcript: memories kept, texts that wait for a review, and how many were known or unfit."""

    turns: int = 0
    kept: list[Memory] = field(default_factory=list)
    proposed: list[Memory] = field(default_factory=list)
    skipped: int = 0
    batch: str = ""


def learn(
    engine: Engine, path: Path, *, dial: str = "normal", project: str | None = None, is_dry: bool = False
) -> Learned:
    """Read what a transcript says since the last time; a dry run reads all of it and keeps nothing."""
    documents, key = engine.store.documents, _key(path)
    offset = 0 if is_dry else int((documents.get(_READ, key) or {}).get("offset", 0))
    turns, after = agent_turns.read_turns(path, offset)
    skip = [re.compile(pattern, re.IGNORECASE) for pattern in engine.settings.curation.learn_skip]
    own = [turn for turn in turns if injection.is_from_user({"prompt": turn.text})]
    own = [turn for turn in own if not any(pattern.search(turn.text) for pattern in skip)]
    stored, waiting = capture.sorted_out(capture.capture(own), dial)
    learned = Learned(turns=len(own))
    learned.kept = _news(engine, stored, project, learned)
    learned.proposed = [each for each in _news(engine, waiting, project, learned) if not is_secret(each)]
    if is_dry:
        return learned
    _keep(engine, learned)
    captured = {each.text: each for each in waiting}
    engine.proposals.offer_texts(
        (memory, captured[memory.content].confidence, (Rationale(captured[memory.content].rule),))
        for memory in learned.proposed
    )
    documents.put(_READ, {key: Document({"offset": after})})
    return learned


def _news(engine: Engine, found: Sequence[CapturedText], project: str | None, learned: Learned) -> list[Memory]:
    """The drafts of captured texts that are neither an echo of recall nor known already."""
    curator, news = Curator(engine), list[Memory]()
    for each in found:
        draft = _draft(engine, each, project)
        if draft is None or _is_known(curator, engine, draft, each):
            learned.skipped += 1
        else:
            news.append(draft)
    return news


def _draft(engine: Engine, each: CapturedText, project: str | None) -> Memory | None:
    """A captured text as a memory in the user's own words; a secret only if the user asked to remember it."""
    try:
        draft = engine.draft(
            each.text,
            category=each.category if each.category in engine.settings.memory.categories else None,
            project=project,
            origin=Origin.USER,
            role=Role.USER,
            session=_session(each.turn),
            created_at=each.turn.at,
        )
    except BadInput:
        return None
    return None if is_secret(draft) and each.rule != _EXPLICIT else draft


def _is_known(curator: Curator, engine: Engine, draft: Memory, each: CapturedText) -> bool:
    if echo.recognised(engine.store, each.text, project=draft.project) is not None:
        return True
    hints = curator.hints(draft)
    return any(hint.verdict is Verdict.NOOP and hint.confidence >= _KNOWN for hint in hints)


def _keep(engine: Engine, learned: Learned) -> None:
    """Store what is to be kept, and decide what it replaces as for any new memory."""
    if not learned.kept:
        return
    outcomes = engine.acting_as(CURATION).apply([Add(memory) for memory in learned.kept])
    learned.batch = outcomes[0].batch
    curator = Curator(engine)
    standing = engine.store.memories([outcome.id for outcome in outcomes])
    decisions = [hint for memory in standing.values() for hint in curator.hints(memory)]
    curator.settle(decisions, apply=engine.settings.curation.apply)


def queue(engine: Engine, payload: Mapping[str, Any], project: str) -> None:
    """Let the background read a transcript; the hook does not wait for it."""
    path = injection.text_in(payload, "transcript_path")
    if engine.settings.curation.learn == "off" or not Path(path).is_absolute():
        return
    value = {"path": path, "project": project}
    with suppress(TriskeleError):
        engine.store.documents.put(_QUEUE, {_key(Path(path)): Document(value)}, most=_MOST_QUEUED, durable=False)


def work_off(engine: Engine) -> int:
    """Read the transcripts that wait; one that cannot be read is dropped. Returns how many were read."""
    dial, done = engine.settings.curation.learn, 0
    for key, value in engine.store.documents.all(_QUEUE).items() if dial != "off" else ():
        # Taken out first: a transcript that breaks the reader must not be read again and again.
        engine.store.documents.delete(_QUEUE, [key])
        with suppress(TriskeleError, OSError):
            learn(engine, Path(value["path"]), dial=dial, project=value["project"])
            done += 1
    return done


def _session(turn: SpokenTurn) -> str | None:
    """A name for the conversation that does not hold the client's own id."""
    return f"talk-{hashlib.sha256(turn.session.encode()).hexdigest()[:12]}" if turn.session else None


def _key(path: Path) -> str:
    return hashlib.sha256(str(path.expanduser().absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:32]
