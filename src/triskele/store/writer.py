"""The rules of writing, the same for every database: versions, links and journal of one owner move together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from triskele.errors import BadInput, Conflict, NotFound, QuotaExceeded
from triskele.store.derived_rows import drop_unused
from triskele.store.truth_rows import TruthRows
from triskele.store.values import FolderRow, SealedRow, WrittenEntry
from triskele.text.ids import same_words
from triskele.types import (
    Action,
    Add,
    Change,
    Connect,
    Disconnect,
    Forget,
    Link,
    LinkKind,
    MakePrivate,
    Memory,
    MoveFolder,
    Origin,
    Outcome,
    Reveal,
    Revise,
    Sealed,
    Sensitivity,
    is_raised,
    is_secret,
)


class _Counted(NamedTuple):
    """A bound of the current memories after a journal entry."""

    memories: int
    seq: int
    batch: str


class MemoryLimits:
    """Limits how many memories of each owner are current."""

    def __init__(self, usual: int = 0) -> None:
        # For owners without a limit of their own; 0 means no limit.
        self.usual = usual
        self._counted: dict[str, _Counted] = {}

    def hold(self, rows: TruthRows, added: int, seq: int, batch: str) -> None:
        """Raise if the owner has more memories than allowed; `added` are new.

        The caller holds the owner's lock; `seq` and `batch` come from the newest journal entry.
        """
        most = rows.memory_limit(self.usual)
        if not most:
            return
        # Counting 100,000 memories takes 50 ms. The journal bounds at once how many were added since the last count.
        counted = self._counted.get(rows.owner)
        later = None if counted is None else rows.additions_after(counted.seq, counted.batch)
        memories = most + 1 if counted is None or later is None else counted.memories + later
        if memories > most:
            memories = rows.count_current()
        if memories > most:
            raise QuotaExceeded(
                f"{memories - added:,} memories are stored and the quota is {most:,}: forget some, or ask an admin"
            )
        self._counted[rows.owner] = _Counted(memories, seq, batch)


class Writer:
    """Writes the changes of one transaction, all of one owner, at one moment and under one batch.

    Rows of another owner are unknown here. `entries` records what it wrote into the journal.
    """

    def __init__(
        self,
        rows: TruthRows,
        at: datetime,
        batch: str,
        actor: str,
        undoes: int | None = None,
        limits: MemoryLimits | None = None,
    ) -> None:
        self.owner = rows.owner
        self.at = at
        self.batch = batch
        self.actor = actor
        self.undoes = undoes
        self._rows = rows
        self._limits = limits
        self.entries: list[WrittenEntry] = []
        # How many more memories are current than before.
        self._added = 0

    def apply(self, change: Change) -> Outcome:
        """Carry out one change and journal it."""
        match change:
            case Add():
                return self._add(change)
            case Revise(memory, base, sealed):
                return self._revise(memory, base, sealed)
            case Forget(id):
                return self._forget(id)
            case Connect(link):
                return self._connect(link)
            case Disconnect(link):
                return self._disconnect(link)
            case Reveal(id):
                latest = self.latest(id)
                return self._note(Action.REVEALED, latest, version=latest.version)
            case MakePrivate(id):
                return self._make_private(id)
            case MoveFolder(number, project):
                return self._move_folder(number, project)

    def hold_limit(self) -> None:
        """Raise if more memories are current than before, and than allowed."""
        if self._limits is not None and self._added > 0:
            self._limits.hold(self._rows, self._added, self.entries[-1].seq, self.batch)

    def erase(self, ids: Sequence[str]) -> list[Outcome]:
        """Delete every row that holds anything of these memories; the journal keeps only their ids."""
        self._rows.mark_unscrubbed()
        outcomes = []
        for id in dict.fromkeys(ids):
            latest = self.latest(id)
            self._rows.delete_links([id])
            self._rows.delete_memories([id])
            outcomes.append(self._note(Action.ERASED, latest))
        drop_unused(self._rows)
        return outcomes

    def seal(self, versions: Sequence[tuple[Memory, Sealed]]) -> Outcome:
        """Replace every version of a memory by its title and sealed text; what was derived from the text goes."""
        last = versions[-1][0]
        for memory, _ in versions:
            self._refuse_foreign(memory)
        there = self._rows.version_numbers(last.id)
        if not there:
            raise NotFound(f"no memory {last.id}")
        if there != [memory.version for memory, _ in versions]:
            raise Conflict(f"memory {last.id} was changed meanwhile: try again")
        self._rows.mark_unscrubbed()
        self._rows.delete_memories([last.id])
        # An erasure makes every index start over, also in other processes and instances.
        self._note(Action.ERASED, last)
        for memory, sealed in versions:
            self._rows.insert_version(memory)
            self._keep_sealed(memory, sealed)
        drop_unused(self._rows)
        return self._note(Action.SEALED, last, version=last.version)

    def reseal(self, blobs: Mapping[tuple[str, int], bytes]) -> None:
        """Replace sealed texts by the same texts under another key; those erased meanwhile stay erased."""
        self._rows.mark_unscrubbed()
        for (id, version), blob in blobs.items():
            row = self._rows.sealed_text(id, version)
            if row is not None:
                self._rows.replace_sealed(row._replace(blob=blob))

    def register_folders(self, keys: Sequence[str], choose: Callable[[Sequence[FolderRow]], str]) -> str:
        """Give the project that is chosen to the keys that have none."""
        folders = self._rows.folders()
        project = choose(folders)
        for key in dict.fromkeys(keys):
            if key not in {place.key for place in folders}:
                self._rows.insert_folder(key, project, self.at)
        return project

    def latest(self, id: str) -> Memory:
        """The newest version of a memory, current or not."""
        memory = self._rows.latest(id)
        if memory is None:
            raise NotFound(f"no memory {id}")
        return memory

    def write_entry(
        self,
        action: Action,
        id: str,
        *,
        version: int | None = None,
        previous: int | None = None,
        kind: str | None = None,
        other: str | None = None,
    ) -> int:
        """Write one journal entry and record it; its number."""
        details = [id, version, previous, kind, other]
        seq = self._rows.insert_entry(self.at, [action.value, *details, self.batch, self.undoes, self.actor])
        self.entries.append(WrittenEntry(seq, action, id, version, previous, kind, other))
        return seq

    def _add(self, change: Add) -> Outcome:
        memory, verbatim, sealed = change.memory, change.verbatim, change.sealed
        self._refuse_foreign(memory)
        # Two passwords may have the same title.
        if not verbatim and sealed is None:
            same = self._rows.same_content(memory, but_private=change.beside_private)
            if same is not None:
                return self._stated_again(same, memory)
        clash = self._rows.clash(memory)
        if clash == memory.version:
            raise Conflict(f"memory {memory.id} already has a version {memory.version}")
        if clash is not None:
            raise Conflict(f"memory {memory.id} already has a current version")
        # Knowledge begins with the write, however long ago the memory was drafted.
        self._rows.insert_version(memory if verbatim else replace(memory, known_from=self.at))
        self._keep_sealed(memory, sealed)
        self._added += memory.known_to is None
        return self._note(Action.ADDED, memory, version=memory.version)

    def _stated_again(self, same: Memory, memory: Memory) -> Outcome:
        """Return the stored memory of a text; what the user says too gets the origin `user`."""
        if memory.origin is not Origin.USER or same.origin is Origin.USER:
            return self._outcome(Action.DUPLICATE, same)
        raised = replace(same, origin=Origin.USER, updated_at=memory.updated_at)
        return replace(self._revise(raised, same.version, None), action=Action.DUPLICATE, origin=Origin.USER)

    def _revise(self, memory: Memory, base: int, sealed: Sealed | None) -> Outcome:
        self._refuse_foreign(memory)
        current = self._rows.current(memory.id)
        latest = self.latest(memory.id)
        if latest.version != base:
            raise Conflict(
                f"memory {memory.id} was changed meanwhile (version {latest.version}, the edit was made on {base})"
            )
        if current is not None and sealed is None and self._is_same(current, memory):
            return self._outcome(Action.UNCHANGED, current, version=current.version)
        moment = max(self.at, latest.known_to or latest.known_from)
        if current is not None:
            self._rows.end_version(replace(current, known_to=moment))
        revised = replace(memory, version=latest.version + 1, known_from=moment, known_to=None)
        self._rows.insert_version(revised)
        if revised.sensitivity is Sensitivity.SECRET and sealed is None:
            self._copy_sealed(memory.id, memory.version, revised.version)
        else:
            self._keep_sealed(revised, sealed)
        self._added += current is None
        action = Action.EDITED if current is not None else Action.RESTORED
        # A later closing also closes the older versions: the journal keeps the class that the edit changed.
        changed = latest.sensitivity.value if latest.sensitivity is not revised.sensitivity else None
        return self._note(action, revised, version=revised.version, previous=latest.version, other=changed)

    def _is_same(self, standing: Memory, memory: Memory) -> bool:
        """Equal in words and, behind equal titles, in the sealed text."""
        texts = [self._rows.sealed_text(each.id, each.version) for each in (standing, memory)]
        return same_words(standing, memory) and len({text and text.sealed_as for text in texts}) == 1

    def _keep_sealed(self, memory: Memory, sealed: Sealed | None) -> None:
        """Write the sealed text of a new version; refuse a secret without one, and one on anything else."""
        if (memory.sensitivity is Sensitivity.SECRET) != (sealed is not None):
            raise BadInput(f"memory {memory.id} is {memory.sensitivity}: exactly the secret ones have a sealed text")
        if sealed is not None:
            if self._rows.state_of_keys() != sealed.keys:
                raise Conflict("the keys of the vault were changed meanwhile: try again")
            self._rows.insert_sealed(SealedRow(memory.id, memory.version, memory.version, sealed.blob))

    def _copy_sealed(self, id: str, source: int, target: int) -> None:
        """Give a new version the sealed text of an older one; it stays bound to the version that it was sealed as."""
        row = self._rows.sealed_text(id, source)
        if row is None:
            raise Conflict(f"version {source} of {id} has no sealed text that could be kept")
        self._rows.insert_sealed(row._replace(version=target))

    def _make_private(self, id: str) -> Outcome:
        latest = self.latest(id)
        self._rows.close(id)
        self._rows.drop_copies(id)
        return self._outcome(Action.UNCHANGED, latest, version=latest.version)

    def _forget(self, id: str) -> Outcome:
        current = self._rows.current(id)
        if current is None:
            latest = self.latest(id)
            return self._outcome(Action.UNCHANGED, latest, version=latest.version)
        self._rows.end_version(replace(current, known_to=max(self.at, current.known_from)))
        self._added -= 1
        return self._note(Action.FORGOTTEN, current, previous=current.version)

    def _connect(self, link: Link) -> Outcome:
        source, _ = (self.latest(end) for end in (link.source, link.target))
        if link.source == link.target:
            raise Conflict(f"memory {link.source} cannot be linked to itself")
        if link.known_to is None:
            if self._rows.open_link(link) is not None:
                return self._outcome(Action.UNCHANGED, source)
            if link.kind is LinkKind.SUPERSEDES and self._rows.is_superseded_by(link.source, link.target):
                raise Conflict(f"{link.target} already supersedes {link.source}: that would be a circle")
        self._rows.insert_link(link)
        return self._note(Action.LINKED, source, link=link)

    def _disconnect(self, link: Link) -> Outcome:
        open_link = self._rows.open_link(link)
        if open_link is None:
            return Outcome(action=Action.UNCHANGED, id=link.source, batch=self.batch)
        row, opened = open_link
        self._rows.end_link(row, replace(opened, known_to=max(self.at, opened.known_from)))
        return self._note(Action.UNLINKED, self.latest(link.source), link=link)

    def _move_folder(self, number: int, project: str) -> Outcome:
        folder = self._rows.folder(number)
        if folder is None:
            raise NotFound(f"no place {number}")
        # The journal names the number: a path or a remote stays in its own table.
        id = f"place {number}"
        if folder.project == project:
            return Outcome(action=Action.UNCHANGED, id=id, project=project)
        self._rows.move_folder(folder._replace(project=project))
        seq = self.write_entry(Action.BOUND, id, other=folder.project)
        return Outcome(action=Action.BOUND, id=id, seq=seq, batch=self.batch, project=project)

    def _refuse_foreign(self, memory: Memory) -> None:
        """Raise if a memory is another owner's, as for an unknown id."""
        if memory.owner != self.owner:
            raise NotFound(f"no memory {memory.id}")

    def _note(
        self,
        action: Action,
        memory: Memory,
        *,
        version: int | None = None,
        previous: int | None = None,
        link: Link | None = None,
        other: str | None = None,
    ) -> Outcome:
        kind, other = (link.kind.value, link.target) if link else (None, other)
        seq = self.write_entry(action, memory.id, version=version, previous=previous, kind=kind, other=other)
        return self._outcome(action, memory, version=version, seq=seq)

    def _outcome(
        self, action: Action, memory: Memory, *, version: int | None = None, seq: int | None = None
    ) -> Outcome:
        return Outcome(
            action=action,
            id=memory.id,
            version=version,
            seq=seq,
            batch=self.batch if seq is not None else "",
            project=memory.project,
            sensitivity=memory.sensitivity,
        )


def revision(memory: Memory, revised: Memory) -> list[Change]:
    """The changes that replace a version; raising the sensitivity also raises it for older versions."""
    changes: list[Change] = [Revise(revised, base=memory.version)]
    if is_secret(memory) and not is_secret(revised):
        changes.append(Reveal(memory.id))
    if revised.sensitivity is Sensitivity.PRIVATE and is_raised(memory.sensitivity, Sensitivity.PRIVATE):
        changes.append(MakePrivate(memory.id))
    return changes
