"""The local model in force: the last switch of a store, by hand or by an update, with its evidence."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from triskele.config import BUNDLED, Settings
from triskele.errors import BadInput, Conflict, ModelUnavailable, NotFound
from triskele.store.owner import OwnerStore
from triskele.store.values import MODEL_IN_FORCE, Document
from triskele.text import timestamps

_KEY = "now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A switch of models with its evidence; a rollback returns to `before`.

    `weights` is the fingerprint of the bundled weights that it put in use; empty after a switch to another model.
    """

    name: str
    before: str
    at: str
    evidence: dict[str, Any]
    weights: str = ""


def switched(store: OwnerStore) -> Switched | None:
    """The last switch of models; None if there was none."""
    found = store.documents.all(MODEL_IN_FORCE).get(_KEY)
    return Switched(**found) if found else None


def in_force(store: OwnerStore, settings: Settings) -> str:
    """The name of the model to use: the chosen one, or the fingerprint of kept weights during an update."""
    name, weights = chosen(store, settings)
    return (earlier_weights(store, settings.home, weights) if name == BUNDLED else "") or name


def chosen(store: OwnerStore, settings: Settings) -> tuple[str, str | None]:
    """The model that a setting or else the last switch names, and the bundled weights that the switch put in use.

    The weights are None if there was no switch.
    """
    last = switched(store)
    name = settings.recall.model if last is None or is_set(settings) else last.name
    return name, None if last is None else last.weights


def earlier_weights(store: OwnerStore, home: Path, recorded: str | None) -> str:
    """Kept weights that answer in the place of the bundled ones, because an update is not over; empty if none do.

    Those that the last switch put in use, or before any switch those that have read most of the store.
    """
    from triskele.models.bundled import bundled, kept_names, kept_weights

    with suppress(ModelUnavailable):
        names = [name for name in kept_names(home) if recorded in (None, name)]
        if names and recorded is None:
            seen = store.models.seen()
            # Where both have read everything the switch itself is left to do.
            least = max(1, seen.get(bundled().fingerprint, 0))
            names = sorted((name for name in names if seen.get(name, 0) >= least), key=lambda name: -seen[name])
        return next((name for name in names if kept_weights(home, name)), "")
    return ""


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


def finish_update(store: OwnerStore, earlier: str) -> None:
    """Put the bundled weights in force in the place of kept ones, unless the model was switched meanwhile."""
    last = switched(store)
    if last is None or (last.name, last.weights) == (BUNDLED, earlier):
        _replaced(store, last, _change(BUNDLED, earlier, {}))


def roll_back(store: OwnerStore, home: Path) -> Switched:
    """Return to the model before the last switch; its vectors are still kept."""
    last = switched(store)
    if last is None:
        raise NotFound("no model was switched: there is nothing to return to")
    _refuse_lost(last.before, home)
    back = _change(last.before, last.name, {})
    store.documents.put(MODEL_IN_FORCE, {_KEY: Document(asdict(back))})
    return back


def _refuse_lost(name: str, home: Path) -> None:
    """Refuse to return to weights of an earlier version that were not kept."""
    from triskele.models.bundled import kept_weights, place_of, release

    if release(name) and place_of(name, home) != BUNDLED and kept_weights(home, name) is None:
        remedy = "save the folder triskele/models/weights of that version and run `triskele models switch FOLDER`"
        raise NotFound(f"the weights {name} are not in {home / 'models'}: {remedy}")


def _change(name: str, before: str, evidence: dict[str, Any]) -> Switched:
    from triskele.models.bundled import bundled

    weights = ""
    if name == BUNDLED:
        with suppress(ModelUnavailable):
            weights = bundled().fingerprint
    return Switched(
        name=name, before=before, at=timestamps.to_text(timestamps.now()), evidence=evidence, weights=weights
    )


def _replaced(store: OwnerStore, last: Switched | None, change: Switched) -> bool:
    return store.documents.swap(MODEL_IN_FORCE, _KEY, asdict(last) if last else None, asdict(change))
