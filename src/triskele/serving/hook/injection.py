"""Which memories an agent is given unasked, and when it is given none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from triskele import validation
from triskele.base import timestamps
from triskele.engine import Engine
from triskele.recall.reasons import tokens_of
from triskele.serving.hook import fence
from triskele.serving.hook.conversation import Conversation, current
from triskele.types import Answer, Memory, Sort

# What is said first tells what a long prompt is about, the rest is often a paste; and reading more takes too long.
HEAD_CHARACTERS = 1000
# Some hits may not be shown; so many are looked at to find those that may.
CONSIDERED = 20
# A hit that is worth less than this share of the best one is not worth its tokens.
LEAST_SHARE = 0.5
# The client cuts what is longer.
MOST_CHARACTERS = 9500
STANDING = ("preferences", "decisions", "lessons")
STANDING_IMPORTANCE = 0.5
_STANDING_LOOKED_AT = 50
_SLASH_COMMAND = re.compile(r"/[\w:.-]+(\s|$)")


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is given at once: the memories, what each takes of a context, and the document that carries them."""

    memories: tuple[Memory, ...] = ()
    tokens: tuple[int, ...] = ()
    document: str = ""


def question(prompt: str) -> str:
    """What a prompt asks memory for; nothing where it is a command to the client."""
    asked = prompt.strip()
    return "" if _SLASH_COMMAND.match(asked) else asked[:HEAD_CHARACTERS]


def for_prompt(engine: Engine, asked: str, conversation: Conversation) -> list[Memory]:
    """The memories that matter for a prompt, best first, then what a compaction has taken away."""
    settings = engine.settings.agents
    answer = engine.recall(asked, limit=CONSIDERED, project=conversation.project, logged=False, hurried=True)
    found = _telling(engine, answer, conversation) if answer.confidence >= settings.least_confidence else []
    wanted = [*found[: settings.most], *regained(engine, conversation)]
    return _news(wanted, conversation)


def _telling(engine: Engine, answer: Answer, conversation: Conversation) -> list[Memory]:
    from triskele.recall.pipeline import pack

    best = answer.hits[0].score if answer.hits else 0.0
    near = [hit for hit in answer.hits if hit.score >= LEAST_SHARE * best and not hit.superseded]
    allowed = [hit for hit in near if conversation.may_see(hit.memory)]
    # Those that say the same again are left out, whatever the budget.
    packed = pack(replace(answer, hits=tuple(allowed)), validation.MAX_BUDGET)
    resolutions = current(engine, packed.resolutions, conversation)
    return [*(hit.memory for hit in packed.hits), *resolutions]


def regained(engine: Engine, conversation: Conversation) -> list[Memory]:
    """What the conversation was given before it was compacted, the newest first, as far as it still holds."""
    lost = conversation.lost()
    if not lost:
        return []
    standing, now = engine.store.memories(lost), timestamps.now()
    memories = [standing[id] for id in lost if id in standing]
    valid = [memory for memory in memories if memory.valid_to is None or memory.valid_to > now]
    return _news(current(engine, valid, conversation), conversation)


def standing(engine: Engine, conversation: Conversation) -> list[Memory]:
    """The most important preferences, decisions and lessons of a project and of everywhere."""
    found = [
        memory
        for category in STANDING
        if category in engine.settings.memory.categories
        for memory in engine.browse(
            sort=Sort.IMPORTANCE,
            limit=_STANDING_LOOKED_AT,
            any_time=False,
            project=conversation.project,
            category=category,
        )
        if memory.importance >= STANDING_IMPORTANCE
    ]
    found.sort(key=lambda memory: (memory.importance, memory.updated_at, memory.id), reverse=True)
    return _news(current(engine, found, conversation), conversation)


def parcel(engine: Engine, event: str, memories: Iterable[Memory], *, budget: int) -> Parcel:
    """As many of these memories as may be given at once, in their order; what does not fit is left out."""
    wanted = list({memory.id: memory for memory in memories}.values())
    short = engine.store.shorten(memory.id for memory in wanted)
    room, characters = budget - tokens_of(fence.fenced(())), MOST_CHARACTERS - len(_document(event, ()))
    chosen: list[tuple[Memory, str, int]] = []
    for memory in wanted:
        line = fence.line(memory, short)
        # In the document a line is quoted once more, and so is the break after it.
        tokens, length = tokens_of(line), len(_quoted(line))
        if len(chosen) < engine.settings.agents.most and tokens <= room and length < characters:
            chosen.append((memory, line, tokens))
            room, characters = room - tokens, characters - length
    if not chosen:
        return Parcel()
    taken, lines, tokens_each = zip(*chosen, strict=True)
    return Parcel(tuple(taken), tuple(tokens_each), _document(event, lines))


def _document(event: str, lines: Sequence[str]) -> str:
    """What clients read; they refuse or ignore any other key."""
    return _quoted({"hookSpecificOutput": {"hookEventName": event, "additionalContext": fence.fenced(lines)}})


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _news(memories: Sequence[Memory], conversation: Conversation) -> list[Memory]:
    return [memory for memory in memories if conversation.is_news(memory)]
