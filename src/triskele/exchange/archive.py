"""Export and import archives: everything of one or all owners, with vectors, to move to another store.

Nothing is embedded again. Secrets stay sealed: reading them needs the key of their vault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from triskele.config import HOSTED, NO_MODEL, Settings
from triskele.errors import BadInput, ModelUnavailable
from triskele.exchange import sources
from triskele.exchange.export import Progress, complete_file, refuse_other_than_file, silent
from triskele.index.local import ModelIndexes
from triskele.index.token_vectors import from_row, to_row
from triskele.models.bundled import place_of
from triskele.models.embedder import Embedder
from triskele.models.local import local_embedder
from triskele.recall.model_switch import in_force
from triskele.store import archive
from triskele.store import open as stores
from triskele.store.access import StoreAccess
from triskele.store.archive import OwnerRows, Summary
from triskele.store.owner import OwnerStore, Store
from triskele.store.values import EMBED
from triskele.store.vector_bytes import row_bytes
from triskele.text.files import disk_errors

FORMAT = "archive"


def recognises(path: Path) -> bool:
    """Whether a file is an archive."""
    return path.is_file() and archive.recognises(sources.head(path))


def export_archive(
    access: StoreAccess,
    target: Path | TextIO,
    *,
    include_private: bool,
    all_owners: bool = False,
    progress: Progress = silent,
) -> Summary:
    """Write everything of one owner, or of all, at one moment."""
    if not include_private:
        raise BadInput("an archive holds private memories too: add --private, or export as jsonl")
    with ExitStack() as stack:
        put = stack.enter_context(_output(target.expanduser())) if isinstance(target, Path) else target.write
        models = stack.enter_context(_Models(access.store, access.settings))
        reader = stack.enter_context(access.maintenance.archive.reading())
        owners = reader.owners() if all_owners else [access.settings.memory.owner]
        return archive.write(reader, owners, models.tokens, put, progress)


def import_archive(
    access: StoreAccess,
    source: Path,
    *,
    keep_origin: bool,
    all_owners: bool = False,
    dry_run: bool = False,
    progress: Progress = silent,
) -> Summary:
    """Import an archive, all or nothing, for owners without memories.

    The archive of one owner becomes that of the owner of `access`, whatever the name was.
    """
    if not keep_origin:
        raise BadInput("an archive keeps the origins of its memories: add --keep-origin if it is your own")
    path = sources.resolved(source)
    # Read whole before anything is written: numbers that a database reserves are not given back.
    with open(path, "rb") as file:
        checked = archive.check(archive.lines_of(file))
    if (count := checked.head.owners) != 1 and not all_owners:
        raise BadInput(f"the archive holds {count:,} owners: add --all-owners to import them under their names")
    _refuse_other_widths(access.store, access.settings, checked.widths)
    if dry_run:
        return checked.summary
    own = None if all_owners else access.settings.memory.owner

    def owner_as(name: str) -> str:
        return name if own is None else own

    with open(path, "rb") as file, access.maintenance.archive.writing(own) as writer:
        slots = archive.load(writer, checked, archive.lines_of(file), owner_as, progress)
    with _Models(access.store, access.settings) as models:
        waiting = sum(map(models.settle, slots))
        if not access.store.vectors.keeps_tokens:
            for owner, rows in _token_rows(path):
                models.add_tokens(owner_as(owner), rows, slots[owner_as(owner)])
    return replace(checked.summary, to_embed=waiting)


def _refuse_other_widths(store: OwnerStore, settings: Settings, widths: Mapping[str, int]) -> None:
    """Refuse vectors that the model in force cannot have made."""
    embedder = _embedder(store, settings) if widths else None
    expected = row_bytes(embedder.dimensions) if embedder is not None else 0
    if embedder is not None and widths.get(embedder.fingerprint, expected) != expected:
        raise BadInput("the archive has vectors of another size than their model makes: nothing was imported")


def _embedder(store: OwnerStore, settings: Settings) -> Embedder | None:
    """The model in force, where it is on this machine."""
    if (model := in_force(store, settings)) == NO_MODEL:
        return None
    try:
        return local_embedder(place_of(model, settings.home))
    except (BadInput, ModelUnavailable):
        # As in a recall: without its model, an owner has the words alone.
        return None


class _Models:
    """The model of each owner in turn, with its token vectors."""

    def __init__(self, own: OwnerStore, settings: Settings) -> None:
        self._settings = settings
        self._own = own
        self._opened = ExitStack()
        self._owner: str | None = None
        self._indexes: ModelIndexes | None = None

    def __enter__(self) -> _Models:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        self._opened.close()

    def tokens(self, owner: str, fingerprint: str, slots: Sequence[int]) -> Mapping[int, bytes]:
        """The token vectors of some slots of the model in force."""
        semantic = self._semantic(owner)
        if semantic is None or semantic.embedder.fingerprint != fingerprint:
            return {}
        bits, counts = semantic.tokens.view().gather(np.array(slots, dtype=np.int64))
        pieces = np.split(bits, np.cumsum(counts)[:-1])
        return {slot: to_row(piece) for slot, piece in zip(slots, pieces, strict=True) if len(piece)}

    def settle(self, owner: str) -> int:
        """Drop vectors of models not in force here, and queue what the one in force has not seen; how many texts."""
        semantic, store = self._semantic(owner), self._store(owner)
        if semantic is None:
            return 0
        fingerprint = semantic.embedder.fingerprint
        for other in store.models.seen():
            # A hosted model need not be asked again for what it has read.
            if other != fingerprint and not other.startswith(HOSTED):
                while page := store.vectors.page(other):
                    store.vectors.drop([slot for slot, _, _ in page])
        store.vectors.use_model(fingerprint)
        return store.jobs.count(EMBED)

    def add_tokens(self, owner: str, rows: Sequence[archive.Values], added: int) -> None:
        """Write token vectors into files; `added` turns slots of the archive into slots of the store."""
        semantic = self._semantic(owner)
        if semantic is None:
            return
        own = [row for row in rows if row["fingerprint"] == semantic.embedder.fingerprint]
        width = semantic.embedder.token_dimensions
        token_vectors = {row["slot"] + added: from_row(row["tokens"], width) for row in own}
        semantic.tokens.add({slot: bits for slot, bits in token_vectors.items() if bits is not None})

    def _store(self, owner: str) -> OwnerStore:
        return self._own if owner == self._own.owner else self._unbound.for_owner(owner)

    @cached_property
    def _unbound(self) -> Store:
        opened = stores.open_store(self._settings)
        self._opened.callback(opened.close)
        return opened

    def _semantic(self, owner: str) -> ModelIndexes | None:
        if owner != self._owner:
            self._leave()
            settings = replace(self._settings, memory=replace(self._settings.memory, owner=owner))
            store = self._store(owner)
            if (embedder := _embedder(store, settings)) is not None:
                self._indexes = ModelIndexes.of(embedder, stores.index_folder(settings), store)
            self._owner = owner
        return self._indexes

    def _leave(self) -> None:
        if self._indexes is not None:
            self._indexes.close()
        self._owner = self._indexes = None


def _token_rows(path: Path) -> Iterator[tuple[str, list[archive.Values]]]:
    """The rows with token vectors, in batches, each with its owner."""
    owner = ""
    with open(path, "rb") as file:
        records = archive.records(archive.lines_of(file))
        next(records)
        for table, batch in archive.batches(records):
            if isinstance(batch, OwnerRows):
                owner = batch.owner
            elif table == "vectors":
                yield owner, [row for row in batch if row["tokens"] is not None]


@contextmanager
def _output(target: Path) -> Iterator[Callable[[str], Any]]:
    """A writer of a private file that appears when complete."""
    refuse_other_than_file(target)
    if not target.parent.is_dir():
        raise BadInput(f"no such folder: {sources.printable(str(target.parent))}")
    with disk_errors(f"the archive {sources.printable(str(target))}"), complete_file(target) as file:
        yield file.write
