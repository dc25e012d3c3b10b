"""Changes of a memory's sensitivity, and what they mean for its versions and the journal."""

from __future__ import annotations

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.ingest import classified
from triskele.store.protocols import OwnerStore
from triskele.store.vault import StoreVault, row_of
from triskele.types import Change, MakePrivate, Memory, Reveal, Revise, Sealed, Sensitivity, is_raised, is_secret


def text_of(store: OwnerStore, vault: StoreVault, memory: Memory) -> str:
    """The text of a secret version."""
    if not is_secret(memory):
        raise BadInput(f"{memory.id} is not a secret: `triskele show` prints its text")
    return vault.open(next(row for row in store.sealed([memory.id]) if row.version == memory.version))


def revision(memory: Memory, revised: Memory) -> list[Change]:
    """The changes that replace a version; raising the sensitivity also raises it for older versions."""
    changes: list[Change] = [Revise(revised, base=memory.version)]
    if is_secret(memory) and not is_secret(revised):
        changes.append(Reveal(memory.id))
    if revised.sensitivity is Sensitivity.PRIVATE and is_raised(memory.sensitivity, Sensitivity.PRIVATE):
        changes.append(MakePrivate(memory.id))
    return changes


def sealed_versions(
    store: OwnerStore, vault: StoreVault, id: str, title: str | None, settings: MemorySettings
) -> list[tuple[Memory, Sealed]]:
    """Every version of a memory as a secret, oldest first; versions that are already secret keep their titles."""
    texts = {row.version: vault.open(row) for row in store.sealed([id])}
    versions: list[tuple[Memory, Sealed]] = []
    for memory in store.history(id):
        text = texts.get(memory.version)
        row = memory if text is not None else row_of(classified(memory, Sensitivity.SECRET, settings, title=title))
        versions.append((row, vault.seal(id, memory.version, memory.content if text is None else text)))
    return versions
