"""Who may learn of a memory may change: what that means for its versions, and for the journal."""

from __future__ import annotations

from triskele.config import MemorySettings
from triskele.errors import BadInput
from triskele.ingest import classified
from triskele.stores.protocol import Store
from triskele.stores.vault import StoreVault, row_of
from triskele.types import Change, Memory, Reveal, Revise, Sealed, Sensitivity, Withdraw, is_raised, is_secret


def text_of(store: Store, safe: StoreVault, memory: Memory) -> str:
    """The text of a secret version."""
    if not is_secret(memory):
        raise BadInput(f"{memory.id} is no secret: `triskele show` tells its text")
    return safe.open(next(row for row in store.sealed([memory.id]) if row.version == memory.version))


def revision(memory: Memory, revised: Memory) -> list[Change]:
    """The changes that put a version in the place of another; one that closes it closes the older ones too."""
    changes: list[Change] = [Revise(revised, base=memory.version)]
    if is_secret(memory) and not is_secret(revised):
        changes.append(Reveal(memory.id))
    if revised.sensitivity is Sensitivity.PRIVATE and is_raised(memory.sensitivity, Sensitivity.PRIVATE):
        changes.append(Withdraw(memory.id))
    return changes


def sealed_versions(
    store: Store, safe: StoreVault, id: str, title: str | None, settings: MemorySettings
) -> list[tuple[Memory, Sealed]]:
    """Every version of a memory as a secret, oldest first; a version that is one already keeps its title."""
    texts = {row.version: safe.open(row) for row in store.sealed([id])}
    versions: list[tuple[Memory, Sealed]] = []
    for memory in store.history(id):
        text = texts.get(memory.version)
        row = memory if text is not None else row_of(classified(memory, Sensitivity.SECRET, settings, title=title))
        versions.append((row, safe.seal(id, memory.version, memory.content if text is None else text)))
    return versions
