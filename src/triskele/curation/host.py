"""What curation needs of the memory that it curates; `Engine` is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from triskele.config import Settings
from triskele.stores.protocols import OwnerStore
from triskele.types import Answer, Change, Memory, Outcome

if TYPE_CHECKING:
    from triskele.recall.runtime import ModelRuntime


class Host(Protocol):
    """A memory that drafts, recalls and applies changes."""

    settings: Settings
    store: OwnerStore
    actor: str
    runtime: ModelRuntime

    def acting_as(self, actor: str) -> Host:
        """The same memory under another name in the journal."""
        ...

    def draft(self, content: str, **details: Any) -> Memory:
        """A checked memory that is not stored yet."""
        ...

    def apply(self, changes: Sequence[Change], *, batch: str | None = None) -> list[Outcome]:
        """Apply changes as one journaled transaction."""
        ...

    def recall(self, text: str, *, limit: int | None = None, logged: bool = True, **options: Any) -> Answer:
        """The memories that answer a question."""
        ...

    def superseded(self, ids: Sequence[str]) -> set[str]:
        """Those of these memories that another one replaces."""
        ...
