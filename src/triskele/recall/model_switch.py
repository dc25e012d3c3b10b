"""Which local model is in force: the last switch of a store, made by hand or after an update, with its evidence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from triskele.base import timestamps
from triskele.config import BUNDLED, Settings
from triskele.errors import BadInput, Conflict, ModelUnavailable, NotFound
from triskele.stores.derived import MODEL_IN_FORCE
from triskele.stores.protocols import Document, OwnerStore

_KEY = "now"
# In the evidence, which programs of earlier versions read as it is.
_WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A switch of models with its evidence; a rollback returns to `before`."""

    name: str
    before: str
    at: str
    evidence: dict[str, Any]

    @property
    def weights(self) -> str:
        """The fingerprint of the bundled weights that were put in use or found worse; empty where it was about none."""
        return str(self.evidence.get(_WEIGHTS, ""))


def switched(store: OwnerStore) -> Switched | None:
    """The last switch of models; None if there was none."""
    found = store.documents.all(MODEL_IN_FORCE).get(_KEY)
    return Switched(**found) if found else None


def in_force(store: OwnerStore, settings: Settings) -> str:
    """The name of the model to use: a settings file or the environment overrides every switch."""
    found = None if is_set(settings) else switched(store)
    if found is None:
        return settings.recall.model
    return BUNDLED if found.weights and found.name != BUNDLED and _is_void(found, settings) else found.name


def _is_void(stay: Switched, settings: Settings) -> bool:
    """Whether the stay with earlier weights after an update no longer holds: for other new weights, or without them."""
    from triskele.models.bundled import bundled, is_kept

    with suppress(ModelUnavailable):
        return stay.weights != bundled().fingerprint or not is_kept(settings.home, stay.name)
    return False


def is_set(settings: Settings) -> bool:
    """Whether the settings name a model."""
    return settings.origins.get("recall.model", "default") != "default"


def refuse_if_set(settings: Settings) -> None:
    """Refuse a switch that the settings would override."""
    if is_set(settings):
        origin = settings.origins["recall.model"]
        raise BadInput(f"recall.model is set ({origin}), and a setting overrides a switch: remove it there first")


def put_in_force(store: OwnerStore, name: str, before: str, evidence: dict[str, Any]) -> Switched:
    """Use another model from now on."""
    change = _change(name, before, evidence)
    if not _replaced(store, switched(store), change):
        raise Conflict("the model was switched meanwhile: check with `triskele models list`")
    return change


def settle_update(
    store: OwnerStore, last: Switched | None, earlier: str, weights: str, evidence: dict[str, Any], *, is_worse: bool
) -> bool:
    """Put the weights of an update in use, or stay with the earlier ones; False if `last` is not the last switch."""
    name, before = (earlier, BUNDLED) if is_worse else (BUNDLED, earlier)
    return _replaced(store, last, _change(name, before, {**evidence, _WEIGHTS: weights}))


def roll_back(store: OwnerStore, earlier: str = "") -> Switched:
    """Return to the model before the last switch, or to `earlier` if there was none; its vectors are still kept."""
    found = switched(store)
    if found is None and not earlier:
        raise NotFound("no model was switched: there is nothing to return to")
    name, before = (found.before, found.name) if found else (earlier, BUNDLED)
    back = _change(name, before, {})
    store.documents.put(MODEL_IN_FORCE, {_KEY: Document(asdict(back))})
    return back


def _change(name: str, before: str, evidence: dict[str, Any]) -> Switched:
    from triskele.models.bundled import bundled

    if name == BUNDLED:
        with suppress(ModelUnavailable):
            # Chosen by hand, these weights are not compared again; those of the next update are.
            evidence = {_WEIGHTS: bundled().fingerprint, **evidence}
    return Switched(name=name, before=before, at=timestamps.to_text(timestamps.now()), evidence=evidence)


def _replaced(store: OwnerStore, last: Switched | None, change: Switched) -> bool:
    return store.documents.swap(MODEL_IN_FORCE, _KEY, asdict(last) if last else None, asdict(change))
