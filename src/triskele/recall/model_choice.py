"""Which local model is in force, and which was before: decided by `models switch`, taken back by `models rollback`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from triskele.base import timestamps
from triskele.config import Settings
from triskele.errors import BadInput, Conflict, NotFound
from triskele.stores.protocol import Document, Store

_KIND, _KEY = "model in force", "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A change of models with its evidence; `before` is what a rollback returns to."""

    name: str
    before: str
    at: str
    evidence: dict[str, Any]


def switched(store: Store) -> Switched | None:
    """The last change of models; None where the settings' own model was never left."""
    found = store.shelved(_KIND).get(_KEY)
    return Switched(**found) if found else None


def in_force(store: Store, settings: Settings) -> str:
    """The name of the model to use: what a settings file or the environment says goes before every switch."""
    if is_set(settings):
        return settings.recall.model
    found = switched(store)
    return found.name if found else settings.recall.model


def refuse_if_set(settings: Settings) -> None:
    """Nothing can be switched where the settings have the last word."""
    if is_set(settings):
        origin = settings.origins["recall.model"]
        raise BadInput(f"recall.model is set ({origin}), and a setting goes before a switch: remove it there first")


def put_in_force(store: Store, name: str, before: str, evidence: dict[str, Any]) -> Switched:
    """Use another model from now on."""
    change = Switched(name=name, before=before, at=timestamps.to_text(timestamps.now()), evidence=evidence)
    if not store.swap(_KIND, _KEY, store.shelved(_KIND).get(_KEY), asdict(change)):
        raise Conflict("the model was switched meanwhile: look with `triskele models list`")
    return change


def roll_back(store: Store) -> Switched:
    """Return to the model before the last switch, whose vectors are still there."""
    found = switched(store)
    if found is None:
        raise NotFound("no model was ever switched: there is nothing to return to")
    back = Switched(name=found.before, before=found.name, at=timestamps.to_text(timestamps.now()), evidence={})
    store.shelve(_KIND, {_KEY: Document(asdict(back))})
    return back


def is_set(settings: Settings) -> bool:
    """Whether somebody has named a model in the settings."""
    return settings.origins.get("recall.model", "default") != "default"
