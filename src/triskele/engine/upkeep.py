"""Upkeep by the owner of a store: files, indexes, models, keys, projects, curation, learning, relations, sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from triskele import validation
from triskele.agents import learning
from triskele.agents.learning import Learned
from triskele.config import MemorySettings
from triskele.curation import whole_store
from triskele.curation.curator import Curator
from triskele.curation.whole_store import ReviewResult
from triskele.engine import health, model_choice, views, workplace
from triskele.engine.health import Health, StoreState
from triskele.engine.model_choice import Comparison, ModelsInUse, ModelSwitch, Rollback
from triskele.engine.workplace import ProjectSummary
from triskele.graph.relations import Estimate, Extracted, RelationEdge, RelationReader, relations
from triskele.index.local import ModelIndexes
from triskele.index.name_linking import read_names
from triskele.ingest import classified
from triskele.recall.hosted import egress_log
from triskele.replies import NameCounts
from triskele.store.owner import Maintenance, OwnerStore
from triskele.store.values import Cursor
from triskele.store.vault import Rotation, StoreVault, row_of
from triskele.sync.loop import Sync, SyncReport, SyncServer
from triskele.sync.notes import Notes
from triskele.text import timestamps
from triskele.text.ids import new_batch
from triskele.types import Action, Erasure, Memory, Outcome, Sealed, Sensitivity, Sent

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine

_CLOSED = (Sensitivity.PRIVATE, Sensitivity.SECRET)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class MovedProject:
    """A project that was renamed or merged: its memories now belong to `name`."""

    name: str
    memories: int
    batch: str


@dataclass(frozen=True, slots=True)
class CurationPlan:
    """How many memories a review would change, of how many, and how many a day may change without consent."""

    changes: int
    memories: int
    most_a_day: int

    @property
    def needs_consent(self) -> bool:
        """Whether it is more than a day may change."""
        return self.changes > self.most_a_day


@dataclass(frozen=True, slots=True)
class RebuiltGraph:
    """The number of versions whose names were read again, and the names that they have."""

    read: int
    names: NameCounts


@dataclass(frozen=True, slots=True)
class SyncState:
    """What waits to be synced, and why; `left_here` counts memories that are private or secret."""

    url: str
    user: str
    at: str
    error: str
    unsent: tuple[str, ...]
    waiting: dict[str, str]
    conflicts: tuple[str, ...]
    left_here: int


@dataclass(frozen=True, slots=True)
class SyncedServer:
    """A server that this store is or was synced with; `sent` counts the changes pushed in all, if that is known."""

    url: str
    user: str
    at: datetime | None
    sent: int | None
    is_set: bool


class Upkeep:
    """The upkeep of one store; it may run beside other processes that use the store."""

    def __init__(self, engine: LocalEngine, maintenance: Maintenance | None) -> None:
        self._engine = engine
        self._store = engine.store
        self._maintenance = maintenance

    # Files

    def backup(self, target: validation.FilePath) -> Path:
        """Write a verified copy of the live store."""
        path = validation.check_path(target)
        self._engine.maintenance.backup(path)
        return path

    def restore_backup(self, source: validation.FilePath) -> Path | None:
        """Replace the store by a verified backup; the backup of what was there, or the folder of its damaged files."""
        kept = self._engine.maintenance.restore(validation.check_path(source))
        # Opened again: the backup may use another model.
        self._engine.models.forget()
        self.reindex()
        return kept

    def inspect(self, *, deep: bool = False, repair: bool = True) -> Health:
        """Check the database and repair what is derived from it."""
        return health.inspect(self._engine, self._engine.models, self._maintenance, deep=deep, repair=repair)

    def state(self) -> StoreState:
        """Describe indexes, vault and hosted models as they are now, without a look for damage."""
        return health.state(self._engine, self._engine.models)

    def copies(self) -> list[Path]:
        """List earlier backups and copies of the store; they may be gone."""
        return self._engine.maintenance.earlier_copies()

    def erase(self, ids: Sequence[str]) -> Erasure:
        """Remove memories, by their whole ids, from every file of the store."""
        sent = views.sent(self._store, ids)
        outcomes = self._store.erase(ids, batch=new_batch(), actor=self._engine.actor)
        return self._erasure(outcomes, ids, sent)

    def seal(self, id: str, title: str | None) -> Erasure:
        """Make a memory secret in all its versions, and erase what was derived from its text."""
        engine, sent = self._engine, views.sent(self._store, [id])
        versions = _sealed_versions(self._store, engine.vault, id, title, engine.settings.memory)
        outcome = self._store.seal(versions, batch=new_batch(), actor=engine.actor)
        return self._erasure([outcome], [id], sent)

    def _erasure(self, outcomes: Sequence[Outcome], ids: Sequence[str], sent: Sequence[Sent]) -> Erasure:
        """Erase texts also from the indexes and the copies next to the store."""
        self.reindex()
        care = self._maintenance
        copies = [] if care is None else care.erase_from_copies(ids, self._store.owner)
        erased = self._engine.lexical.drop_ahead() + copies
        remaining = [] if care is None else [copy for copy in care.earlier_copies() if copy not in erased]
        return Erasure(
            outcomes=tuple(outcomes),
            erased_copies=tuple(map(str, erased)),
            remaining_copies=tuple(map(str, remaining)),
            out_of_reach=() if care is None else tuple(care.out_of_reach()),
            sent=tuple(sent),
        )

    # Indexes and models

    def reindex(self, progress: Progress | None = None) -> None:
        """Rebuild every derived index."""
        self._engine.lexical.rebuild(progress)
        self._engine.models.rebuild()

    def embed(self, *, limit: int | None = None, wait: bool = True, progress: Progress | None = None) -> int:
        """Embed memories without vectors and read their names; returns how many; without `wait` writers go first."""
        return self._engine.models.embed(limit=limit, wait=wait, progress=progress)

    def embed_hosted(self) -> int:
        """Embed open memories with the hosted model, if the settings name one; returns how many."""
        return self._engine.models.embed_hosted()

    def model_in_force(self) -> str:
        """Name the local model that embeds, by the settings or the last switch."""
        return self._engine.models.model

    def is_embedding(self) -> bool:
        """Whether this process embeds new memories in the background."""
        return self._engine.models.has_worker

    def models(self) -> ModelsInUse:
        """Describe the models in use and how much each has embedded."""
        return model_choice.in_use(self._engine)

    def update(self) -> tuple[str, int] | None:
        """Name the weights that an update brings into use, and count the texts that they have not embedded."""
        return self._engine.models.update()

    def advance_update(self, progress: Progress | None = None) -> int:
        """Embed with the weights of an update, and put them in use when nothing is left; returns how many."""
        return self._engine.models.advance_update(progress=progress) or 0

    def hosted_tokens_today(self) -> int:
        """Count the tokens that hosted models were sent today."""
        today = timestamps.now().date().isoformat()
        return sum(day.tokens for day in egress_log.days(self._store) if day.day == today)

    def model_problems(self) -> tuple[str, ...]:
        """List why models that the settings name cannot be used."""
        return self._engine.models.problems()

    def switch_model(
        self,
        name: str,
        compare: Callable[[LocalEngine, ModelIndexes], Comparison | None],
        *,
        untested: bool = False,
        progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
    ) -> ModelSwitch[Comparison]:
        """Embed everything with another local model, and use it if `compare` shows no loss."""
        return model_choice.switch(self._engine, name, compare, untested=untested, progress=progress)

    def rollback_model(self) -> Rollback:
        """Return to the model before the last switch or update."""
        return model_choice.roll_back(self._engine)

    # The vault

    def has_vault(self) -> bool:
        """Tell whether a secret was ever kept here."""
        return self._engine.vault.exists()

    def rotate_key(self, to: str | None = None, *, renew: bool = False) -> Rotation:
        """Lock the vault by another key source, or renew the data key too."""
        return self._engine.vault.rotate(to, renew=renew)

    # Projects

    def projects(self) -> list[ProjectSummary]:
        """List every project that has memories or folders, by name."""
        return workplace.summaries(self._store)

    def move_project(self, source: str, target: str, *, merge: bool = False) -> MovedProject:
        """Rename a project, or merge it into another one; undo takes it back."""
        if self._engine.project == source:
            # This folder moves with its project, even if nothing was written from it yet.
            self._engine.workplace.register()
        change = workplace.merge if merge else workplace.rename
        outcomes = self._engine.apply(change(self._store, source, target))
        moved = sum(outcome.action is Action.EDITED for outcome in outcomes)
        return MovedProject(outcomes[0].project, moved, outcomes[0].batch)

    # Curation

    def plan_curation(self, threshold: float) -> CurationPlan:
        """Count what `curate` would change at once; changes nothing."""
        findings = self.curate(is_dry=True).findings
        sure = [each for each in findings if each.decision.is_sure and each.decision.confidence >= threshold]
        return CurationPlan(len(sure), self._store.census().memories, self._curator().most_a_day())

    def curate(
        self,
        *,
        threshold: float | None = None,
        is_dry: bool = False,
        limit: int | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> ReviewResult:
        """Review the whole store: apply what is sure to at least `threshold`, and propose the rest."""
        return whole_store.curate(self._engine, threshold=threshold, is_dry=is_dry, limit=limit, progress=progress)

    def learn(
        self, transcript: Path, *, dial: str = "normal", project: str | None = None, is_dry: bool = False
    ) -> Learned:
        """Keep what the user said in a transcript, as far as it was not read yet."""
        return learning.learn(self._engine, transcript, dial=dial, project=project, is_dry=is_dry)

    def learn_queued(self) -> int:
        """Learn from the transcripts that hooks queued; returns how many were read."""
        return learning.work_off(self._engine)

    def curate_new(self) -> bool:
        """Compare a bounded number of new memories with older ones; returns whether none is left."""
        return self._curator().follow().is_done

    def position(self) -> Cursor:
        """The position of the newest change."""
        return self._store.position()

    def estimate_relations(self) -> Estimate:
        """Tell how much is left to read for relations and what it would cost; sends nothing."""
        return self._relations().estimate()

    def extract_relations(self, *, limit: int | None = None, progress: Progress = lambda _done: None) -> Extracted:
        """Let the language model read relations between names, of at most `limit` memories."""
        return self._relations().extract(limit=limit, progress=progress)

    def relations(self, name: str | None = None, *, closed: bool = False) -> Sequence[RelationEdge]:
        """List the relations that the language model read, of all or of one name."""
        return relations(self._engine, about=name, closed=closed)

    def rebuild_graph(self, progress: Progress | None = None) -> RebuiltGraph:
        """Read the names of all versions again; merges and splits by hand stay."""
        self._store.names.forget()
        # The file still holds deleted mentions.
        self._engine.models.open_indexes().mentions.rebuild()
        read = read_names(self._store, self._engine.lexical, progress=progress)
        return RebuiltGraph(read, self._store.names.counts())

    def _curator(self) -> Curator:
        return Curator(self._engine)

    def _relations(self) -> RelationReader:
        return RelationReader(self._engine, self._curator().may_call)

    # Sync

    def sync(self, server: SyncServer, address: str, *, is_elsewhere: bool = False) -> SyncReport:
        """Sync the store once with a server, which `address` identifies."""
        report = Sync(self._engine, server, address).run(is_elsewhere=is_elsewhere)
        self.note_sync_error("")
        return report

    def note_sync_error(self, reason: str) -> None:
        """Keep why the last sync failed for `sync_state`; empty if it did not."""
        Notes(self._store).put_state(error=reason)

    def sync_state(self) -> SyncState:
        """Tell what a sync would have to do, and what keeps the rest; nothing is asked of the server."""
        notes = Notes(self._store)
        found, waiting = notes.state(), notes.waiting()
        return SyncState(
            url=self._engine.settings.sync.url,
            user=found.get("user", ""),
            at=found.get("at", ""),
            error=found.get("error", ""),
            unsent=tuple(id for id in notes.unsent() if id not in waiting),
            waiting=waiting,
            conflicts=tuple(notes.conflicts()),
            left_here=self._engine.browse(all_projects=True, sensitivities=_CLOSED, limit=1).total,
        )

    def synced_servers(self) -> list[SyncedServer]:
        """List the server of the settings, and the one that the store was synced with."""
        found, url = Notes(self._store).state(), self._engine.settings.sync.url.rstrip("/")
        noted = found.get("address", "")
        servers = [] if url in ("", noted) else [SyncedServer(url, "", None, None, is_set=True)]
        if noted:
            at = timestamps.parse(found["at"]) if found.get("at") else None
            sent = int(found["sent"]) if "sent" in found else None
            servers.append(SyncedServer(noted, found.get("user", ""), at, sent, is_set=noted == url))
        return servers


def _sealed_versions(
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
