"""Open the memory of a store, and restore one that cannot be opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from triskele import config
from triskele.config import NO_MODEL, Settings, source_of
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, ModelUnavailable, StoreDamaged, StoreNewer, StoreOlder
from triskele.models.bundled import place_of
from triskele.models.local import local_embedder
from triskele.store import open as stores

if TYPE_CHECKING:
    from triskele.store.vault import Ask


def open(store: str | None = None) -> LocalEngine:
    """Open the memory at a store address such as `sqlite:///notes.db`, or the user's own."""
    return open_memory(store)


def open_memory(
    store: str | None = None, *, settings: Settings | None = None, folder: Path | None = None, ask: Ask | None = None
) -> LocalEngine:
    """Open the memory at a store address, or the user's own; `ask` supplies the passphrase of a vault."""
    settings = settings or config.load(store_url=store)
    return LocalEngine(settings, folder or Path.cwd(), ask=ask)


def restore_memory(source: Path, *, settings: Settings, ask: Ask | None = None) -> tuple[LocalEngine, Path | None]:
    """Replace a store by a verified backup, even one that cannot be opened; returns the memory and the old files."""
    _refuse_unknown_model(settings)
    try:
        if not stores.exists(settings):
            raise StoreDamaged(f"the store {settings.store.url} is missing or empty")
        engine = open_memory(settings=settings, ask=ask)
    except (StoreDamaged, StoreNewer, StoreOlder):
        kept = stores.replace_damaged(settings, source)
        engine = open_memory(settings=settings, ask=ask)
        engine.upkeep.reindex()
        return engine, kept
    try:
        return engine, engine.upkeep.restore_backup(source)
    except BaseException:
        engine.close()
        raise


def _refuse_unknown_model(settings: Settings) -> None:
    """Refuse a model that could not index what is restored; one that cannot be loaded leaves recall to the words."""
    try:
        if settings.recall.model != NO_MODEL:
            local_embedder(place_of(settings.recall.model, settings.home))
    except ModelUnavailable:
        pass
    except BadInput as error:
        raise BadInput(f"{error}{source_of(settings.origins, 'recall.model')}: nothing was restored") from error
