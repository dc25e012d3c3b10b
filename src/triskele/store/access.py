"""An open store, as the rooms that curate, transfer and sync memories use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.models.embedder import Embedder
    from triskele.models.llm import Llm
    from triskele.privacy.clearance import ClearedText
    from triskele.recall.question import Sources
    from triskele.requests import Details, RecallOptions
    from triskele.store.owner import Maintenance, OwnerStore
    from triskele.store.vault import StoreVault
    from triskele.types import Answer, Change, Erasure, Memory, Outcome, Scope


class LaterWrites(Protocol):
    """A queue of small writes that an answer does not wait for."""

    def put(self, write: Callable[[], None]) -> None:
        """Queue a write."""

    def flush(self) -> None:
        """Write what waits."""


class EgressRules(Protocol):
    """Which texts may leave the machine."""

    def question(self, text: str) -> tuple[ClearedText | None, str]:
        """Clear a question, or say why it stays here."""

    def memory(self, memory: Memory) -> ClearedText | None:
        """Clear the text of a memory; None if it stays here."""


class StoreAccess(Protocol):
    """What drafts, applies and recalls on an open store; `LocalEngine` implements it."""

    settings: Settings
    actor: str
    reads_private: bool
    store: OwnerStore

    @property
    def project(self) -> str:
        """The current project."""

    @property
    def vault(self) -> StoreVault:
        """The vault that seals secrets."""

    @property
    def maintenance(self) -> Maintenance:
        """The care for the files of the store; raises if it has none."""

    @property
    def egress_policy(self) -> EgressRules:
        """Which texts may leave."""

    @property
    def llm(self) -> Llm | None:
        """The language model that curation may ask."""

    @property
    def embedder(self) -> Embedder | None:
        """The local model, if the settings name one."""

    @property
    def deferred_writes(self) -> LaterWrites:
        """What answers leave to write."""

    def acting_as(self, actor: str) -> Self:
        """Return the same memory for another actor."""

    def working_in(self, folder: Path, project: str | None = None) -> Self:
        """Return the same memory for another folder, or for a named project."""

    def draft(self, content: str, **details: Unpack[Details]) -> Memory:
        """Check and classify a memory that is not stored yet."""

    def apply(self, changes: Sequence[Change], *, batch: str | None = None, undoes: int | None = None) -> list[Outcome]:
        """Apply changes as one journaled transaction."""

    def erase(self, *ids: str) -> Erasure:
        """Remove memories for good."""

    def seal(self, id: str, *, title: str | None = None) -> Erasure:
        """Make all versions of a memory secret."""

    def answer(self, text: str, *, trusted: frozenset[str] | None = None, **options: Unpack[RecallOptions]) -> Answer:
        """Recall without counting it as use; confidence does not rest on what users outside `trusted` share."""

    def open_sources(self) -> Sources:
        """Return what recall reads, with vectors if the model is open; loads none."""

    def scope(self, *, project: str | None = None, all_projects: bool = False, **filters: Any) -> Scope:
        """Return what a reader may see: of a project and what belongs everywhere, narrowed by filters."""

    def superseded(self, ids: Sequence[str]) -> set[str]:
        """Return the ids of those memories that another one replaces."""
