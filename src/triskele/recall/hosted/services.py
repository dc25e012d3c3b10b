"""From the user's settings to the models that they name, and to the one door that leads to those elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from triskele.config import HostedSettings, LlmSettings, RerankSettings, Settings
from triskele.errors import BadInput, ModelUnavailable, Unavailable
from triskele.models.egress import EgressClient, Endpoint
from triskele.models.hosted_embedder import EndpointEmbedder, HostedModel
from triskele.models.hosted_reranker import EndpointCrossEncoder, HostedReranker
from triskele.models.llm import COMMAND, CommandLlm, EndpointLlm, HostedLlm, Llm, LlmCommand
from triskele.models.reranker import Reranker
from triskele.recall.expansion import WORDS
from triskele.recall.hosted.egress_log import StoreLedger
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.recall.hosted.reranking import CandidateReranker, HostedReviewer, LocalReviewer
from triskele.recall.hosted.rewording import QueryRewriter
from triskele.recall.hosted.vectors import Hosted
from triskele.stores.protocol import Store

TEXTS, QUESTIONS, RERANK, LLM = "hosted", "hosted questions", "rerank", "llm"
_Named = TypeVar("_Named", HostedSettings, RerankSettings, LlmSettings)
_Made = TypeVar("_Made")
_Hosted = TypeVar("_Hosted", HostedModel, HostedReranker, HostedLlm)
_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "cohere": "COHERE_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}


@dataclass(frozen=True, slots=True)
class HostedServices:
    """Models besides the local one; None where the settings name none."""

    door: EgressClient
    hosted: Hosted | None = None
    reviewer: CandidateReranker | None = None
    rewording: QueryRewriter | None = None
    command: str = ""
    problems: tuple[str, ...] = ()

    @staticmethod
    def open(settings: Settings, folder: Path, store: Store, clearing: EgressPolicy) -> HostedServices:
        """Everything that the settings name, behind a door that knows these endpoints and no others."""
        problems: list[str] = []
        model = _usable("hosted", HostedModel, settings.hosted, problems, dimensions=settings.hosted.dimensions)
        reranker = _usable("rerank", HostedReranker, settings.rerank, problems)
        asks = settings.llm.expand
        language = _usable("llm", HostedLlm, settings.llm, problems, words=WORDS) if asks else None
        endpoints: dict[str, Endpoint] = {}
        if model is not None:
            patience = settings.hosted.question_timeout_s
            endpoints |= {TEXTS: model.endpoint, QUESTIONS: replace(model.endpoint, timeout_s=patience, attempts=1)}
        if reranker is not None:
            endpoints[RERANK] = reranker.endpoint
        if language is not None:
            endpoints[LLM] = language.endpoint
        ledger = StoreLedger(store)
        door = EgressClient(endpoints, ledger)
        hosted = None
        if model is not None:
            both = EndpointEmbedder(door, TEXTS, model), EndpointEmbedder(door, QUESTIONS, model)
            cap = settings.index.tail_cap
            hosted = _tried("hosted", lambda: Hosted.open(folder, store, *both, clearing, cap), problems)
        llm: Llm | None = EndpointLlm(door, LLM, language) if language is not None else None
        if asks and llm is None:
            llm = _tried("llm", lambda: _command(settings.llm, ledger), problems)
        rewording = QueryRewriter(llm, clearing) if llm is not None else None
        reviewer = _tried("rerank", lambda: _reviewer(settings.rerank, reranker, door, clearing), problems)
        command = llm.name if isinstance(llm, CommandLlm) else ""
        return HostedServices(door, hosted, reviewer, rewording, command, tuple(problems))

    @property
    def hosts(self) -> dict[str, str]:
        """The machines that texts may be sent to, by what for; a command counts, for nobody knows whom it tells."""
        return self.door.hosts | ({LLM: self.command} if self.command else {})

    def close(self) -> None:
        """Let go of files and connections."""
        if self.hosted is not None:
            self.hosted.close()
        self.door.close()


def _usable(section: str, kind: type[_Hosted], settings: _Named, problems: list[str], **details: Any) -> _Hosted | None:
    """What the settings name, if it can be used: a mistake in them, or a key that is not there, costs no answer."""
    if settings.service in ("", COMMAND):
        return None

    def make() -> _Hosted:
        given: dict[str, Any] = {
            "service": settings.service,
            "model": settings.model,
            "url": settings.url,
            "key": _key(section, settings),
            "timeout_s": settings.timeout_s,
            "price_per_million": settings.price_per_million or None,
        }
        made = kind(**given, **details)
        # Refuses an address that nothing may be sent to.
        _ = made.endpoint
        return made

    return _tried(section, make, problems)


def _tried(section: str, make: Callable[[], _Made | None], problems: list[str]) -> _Made | None:
    try:
        return make()
    except (BadInput, Unavailable) as error:
        problems.append(f"[{section}] of your settings is not used: {error}")
        return None


def _command(settings: LlmSettings, ledger: StoreLedger) -> CommandLlm | None:
    if settings.service != COMMAND:
        return None
    return CommandLlm(ledger, LLM, LlmCommand(arguments=settings.command, words=WORDS, timeout_s=settings.timeout_s))


def _reviewer(
    settings: RerankSettings, hosted: HostedReranker | None, door: EgressClient, clearing: EgressPolicy
) -> CandidateReranker | None:
    timeout_s, depth = settings.timeout_s, settings.depth
    if hosted is not None:
        return HostedReviewer(
            Reranker(EndpointCrossEncoder(door, RERANK, hosted), timeout_s=timeout_s, depth=depth), clearing
        )
    if not settings.model or settings.service:
        return None
    from triskele.models.local import local_cross_encoder

    return LocalReviewer(Reranker(local_cross_encoder(settings.model), timeout_s=timeout_s, depth=depth))


def _key(section: str, settings: HostedSettings | RerankSettings | LlmSettings) -> str:
    """The key that the settings lead to: in a file of the user's, or in a variable of the environment."""
    if settings.key_file:
        try:
            return Path(settings.key_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ModelUnavailable(f"{section}.key_file: the file {settings.key_file} cannot be read") from None
    named = settings.key_variable or _VARIABLES.get(settings.service, "")
    key = os.environ.get(named, "") if named else ""
    if named and not key:
        raise ModelUnavailable(f"{section}.key_variable: the environment has no {named}")
    return key
