"""Explain why the hook gives memories for an event, or none; nothing is counted as injected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from triskele.agents import injection
from triskele.agents.injection import Conversation, Injector
from triskele.agents.respond import EVENTS
from triskele.config import AgentSettings
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.replies.rooms import HookCall
from triskele.types import Answer, Hit, Memory

_SILENT = ("pre-compact", "stop", "session-end")


@dataclass(frozen=True, slots=True)
class Considered:
    """A memory that the hook looked at, and why it is left out; empty if it is injected."""

    memory: Memory
    left_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the hook does with an event, in a sentence, and the memories it looked at."""

    verdict: str
    folder: str = ""
    project: str = ""
    confidence: float | None = None
    considered: tuple[Considered, ...] = ()

    @property
    def has_looked(self) -> bool:
        """Whether the hook looked for memories at all."""
        return bool(self.considered) or self.confidence is not None

    @property
    def where(self) -> str:
        """The folder that was used, in a sentence."""
        if self.folder:
            return f"Folder of the event: {self.folder}"
        narrowed = "" if self.project else ": only memories that belong everywhere count"
        return f"The event names no folder (cwd){narrowed}."


def explain(engine: LocalEngine, event: str, payload: Mapping[str, Any], *, project: str = "") -> Explanation:
    """Why the hook would give memories or none; a project goes before the folder of the event."""
    if event not in EVENTS:
        raise BadInput(f"unknown hook event {event[:40]!r}: choose one of {', '.join(EVENTS)}")
    call = replace(HookCall.of_payload(event, payload), project=project)
    if not injection.is_from_user(call):
        return Explanation(verdict="silent: no person caused the event, but a subagent, a loop or the client")
    if event in _SILENT:
        return Explanation(verdict=f"silent: {event} never gives memories, it only updates the records")
    conversation = Conversation.of(engine, call)
    injector = Injector(engine, conversation)
    if call.event == "session-start":
        explanation = _session_start(injector)
    elif query := injection.query_of(call.prompt):
        explanation = _prompt(engine.settings.agents, injector, query, conversation)
    else:
        explanation = Explanation(verdict="silent: the prompt is empty or a command to the client")
    return replace(explanation, folder=call.folder, project=conversation.project)


def _prompt(settings: AgentSettings, injector: Injector, query: str, conversation: Conversation) -> Explanation:
    answer = injector.recalled(query)
    chosen = injector.for_prompt(query, answer)
    injected = injector.prompt_text(chosen).memories
    is_sure = answer.confidence >= settings.least_confidence
    untrusted = _untrusted(injector, answer, conversation)
    trusted = [hit for hit in answer.hits if conversation.trusts(hit.memory)]
    holder_ids = {hit.memory.id for hit in injector.holders(query, trusted)}
    best, count = conversation.best_score(answer), len(injected)
    reasons = {hit.memory.id: _left_out(hit, best, count, conversation, holder_ids, is_sure) for hit in answer.hits}
    reasons |= {memory.id: "" for memory in injected} | untrusted
    memories = {memory.id: memory for memory in (*(hit.memory for hit in answer.hits), *injected)}
    considered = tuple(Considered(memory, reasons[id]) for id, memory in memories.items())
    if injected:
        verdict = _speaks(injected)
    elif answer.hits and not chosen and all(hit.memory.id in untrusted for hit in answer.hits):
        verdict = "silent: everything found is shared or written by users whom you do not trust"
    elif is_sure and not chosen and any(hit.memory.id in untrusted for hit in trusted[:1]):
        verdict = "silent: the best hit is written by a user whom you do not trust"
    else:
        verdict = f"silent: {injector.why_nothing(query, answer, chosen)}"
    return Explanation(verdict=verdict, confidence=answer.confidence, considered=considered)


def _untrusted(injector: Injector, answer: Answer, conversation: Conversation) -> dict[str, str]:
    """Why hits are left out that users share or wrote whom the reader does not trust, by id."""
    memories = [hit.memory for hit in answer.hits]
    writers = injector.untrusted_writers(memories)
    sharers = {each.id: each.shared_by for each in memories if not conversation.trusts(each)}
    reason = "{0} {1} it, and you do not trust {0} (`triskele shares trust {0}`)"
    written = {id: reason.format(name, "wrote") for id, name in writers.items()}
    return written | {id: reason.format(name, "shares") for id, name in sharers.items()}


def _left_out(
    hit: Hit, best: float, injected: int, conversation: Conversation, holder_ids: Set[str], is_sure: bool
) -> str:
    """The first reason that keeps a hit out of a prompt."""
    if not is_sure:
        return "the answer is not sure enough"
    if hit.memory.id not in holder_ids:
        return "it does not hold the word as a word of its own"
    if not conversation.is_not_in_context(hit.memory):
        return "this conversation has it already"
    if hit.superseded:
        return "superseded"
    if hit.score < injection.LEAST_SHARE * best:
        return f"its score {hit.score:.2f} is below half of the best ({best:.2f})"
    if injected >= injection.MOST_MEMORIES:
        return f"a prompt gets at most {injection.MOST_MEMORIES} memories"
    return "a near-duplicate of another hit, or too long for agents.budget_tokens"


def _session_start(injector: Injector) -> Explanation:
    text, memories = injector.start_text()
    injected_ids = {memory.id for memory in text.memories}
    left_out = "the most memories or the budget are reached"
    considered = tuple(Considered(each, "" if each.id in injected_ids else left_out) for each in memories)
    if text.memories:
        return Explanation(verdict=_speaks(text.memories), considered=considered)
    categories, least = ", ".join(injection.STANDING), injection.STANDING_IMPORTANCE
    return Explanation(
        verdict=f"silent: no {categories} of importance {least} or more that are not given yet", considered=considered
    )


def _speaks(injected: Sequence[Memory]) -> str:
    return f"gives {len(injected)} {'memory' if len(injected) == 1 else 'memories'}"
