"""Erasing texts for good: from the store, the indexes and the copies beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triskele.curation import secrecy
from triskele.engine import views
from triskele.replies import Erasure, Sent
from triskele.text.ids import new_batch
from triskele.types import Outcome

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine
    from triskele.store.protocols import Maintenance


def erase(engine: LocalEngine, care: Maintenance | None, ids: Sequence[str]) -> Erasure:
    """Remove memories from every file of the store."""
    sent = views.sent(engine.store, ids)
    outcomes = engine.store.erase(ids, batch=new_batch(), actor=engine.actor)
    return _erasure(care, outcomes, _erase_copies(engine, care, ids), sent)


def seal(engine: LocalEngine, care: Maintenance | None, id: str, title: str | None) -> Erasure:
    """Make a memory secret in all its versions, and erase what was derived from its text."""
    sent = views.sent(engine.store, [id])
    versions = secrecy.sealed_versions(engine.store, engine.vault, id, title, engine.settings.memory)
    outcome = engine.store.seal(versions, batch=new_batch(), actor=engine.actor)
    return _erasure(care, [outcome], _erase_copies(engine, care, [id]), sent)


def _erase_copies(engine: LocalEngine, care: Maintenance | None, ids: Sequence[str]) -> list[Path]:
    """Erase texts also from the indexes and the copies next to the store."""
    engine.upkeep.reindex()
    copies = [] if care is None else care.erase_from_copies(ids, engine.store.owner)
    return engine.lexical.drop_ahead() + copies


def _erasure(
    care: Maintenance | None, outcomes: Sequence[Outcome], erased: Sequence[Path], sent: Sequence[Sent]
) -> Erasure:
    remaining = [] if care is None else [copy for copy in care.earlier_copies() if copy not in erased]
    return Erasure(
        outcomes=tuple(outcomes),
        erased_copies=tuple(map(str, erased)),
        remaining_copies=tuple(map(str, remaining)),
        out_of_reach=() if care is None else tuple(care.out_of_reach()),
        sent=tuple(sent),
    )
