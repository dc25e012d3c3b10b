"""Choose the local model that embeds a store: the models in use, a safe switch, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from triskele.config import BUNDLED
from triskele.errors import BadInput
from triskele.index.worker import embed_beside
from triskele.recall import model_switch
from triskele.recall.model_switch import switched
from triskele.text.files import expanded

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.index.local import ModelIndexes

Comparison = TypeVar("Comparison", bound="Compared")


class Compared(Protocol):
    """What comparing two models found."""

    @property
    def is_not_worse(self) -> bool:
        """Whether the other model may be used."""

    def evidence(self) -> dict[str, Any]:
        """The result as JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """The local model in force, and the one that a rollback returns to."""

    name: str
    fingerprint: str | None
    read: int
    waiting: int
    before: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUpdate:
    """The weights that take the place of kept ones once they have embedded everything."""

    fingerprint: str
    read: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModelUse:
    """The hosted model, and how much it has embedded."""

    fingerprint: str
    host: str
    read: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsInUse:
    """The models in use; `kept` counts vectors of others."""

    local: LocalModel
    update: ModelUpdate | None
    hosted: HostedModelUse | None
    rerank: str | None
    kept: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSwitch(Generic[Comparison]):
    """The model asked for, the one in force before, and what comparing them found."""

    name: str
    before: str
    is_switched: bool
    comparison: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """The model in use again, the one that it replaced, and how many texts it has not embedded."""

    model: str
    before: str
    waiting: int


def in_use(engine: LocalEngine) -> ModelsInUse:
    """Describe the models with their progress, and hosted ones with their hosts."""
    store, models = engine.store, engine.models
    last, embedder, services = switched(store), engine.embedder, models.services()
    update, seen = models.update(), store.models.seen()
    own = embedder.fingerprint if embedder is not None else None
    hosted = services.hosted.texts.fingerprint if services is not None and services.hosted is not None else None
    shown = (own, hosted, update[0] if update else None)
    return ModelsInUse(
        local=LocalModel(
            name=models.model,
            fingerprint=own,
            read=seen.get(own or "", 0),
            waiting=store.models.count_lacking(own) if own else 0,
            before=last.before if last else None,
        ),
        update=ModelUpdate(fingerprint=update[0], read=seen.get(update[0], 0), waiting=update[1]) if update else None,
        hosted=None
        if hosted is None
        else HostedModelUse(
            fingerprint=hosted,
            host=models.hosts()["hosted"],
            read=seen.get(hosted, 0),
            waiting=store.models.count_clear_for(hosted),
        ),
        rerank=services.reranker.name if services is not None and services.reranker is not None else None,
        kept={name: count for name, count in seen.items() if name not in shown},
    )


def switch(
    engine: LocalEngine,
    name: str,
    compare: Callable[[LocalEngine, ModelIndexes], Comparison | None],
    *,
    untested: bool,
    progress: Callable[[str, int, int], None],
) -> ModelSwitch[Comparison]:
    """Embed everything with another model, compare it with the one in force, and use it if it is not worse."""
    model_switch.refuse_if_set(engine.settings)
    before = engine.models.model
    # Stored as an absolute path: other processes run in other folders.
    name = str(expanded(name)) if expanded(name).is_dir() else name
    if name == before:
        raise BadInput(f"{name} is already in use")
    if name == BUNDLED and engine.models.update() is not None:
        raise BadInput("an update is bringing it into use: see `triskele models list`")
    candidate_model = engine.models.candidate_model(name)
    try:
        fingerprint = candidate_model.embedder.fingerprint
        total = engine.store.models.count_lacking(fingerprint)
        reads = f"{fingerprint.split('@')[0]} reads"
        progress(reads, 0, total)
        embed_beside(engine.store, candidate_model, set(), progress=lambda done: progress(reads, done, total))
        comparison = compare(engine, candidate_model)
        is_switched = untested or (comparison is not None and comparison.is_not_worse)
        if is_switched:
            model_switch.put_in_force(engine.store, name, before, comparison.evidence() if comparison else {})
            engine.store.vectors.use_model(fingerprint)
    finally:
        candidate_model.close()
    return ModelSwitch(name=name, before=before, is_switched=is_switched, comparison=comparison)


def roll_back(engine: LocalEngine) -> Rollback:
    """Return to the model before the last switch."""
    model_switch.refuse_if_set(engine.settings)
    back = model_switch.roll_back(engine.store, engine.settings.home)
    embedder = engine.embedder
    waiting = engine.store.models.count_lacking(embedder.fingerprint) if embedder is not None else 0
    return Rollback(model=back.name, before=back.before, waiting=waiting)
