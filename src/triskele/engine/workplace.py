"""The project of a folder, and moves of all memories of a project.

A folder becomes known when a memory is first written from it. From then on its git remote or its path identifies its
project; another folder of the same name gets another project.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from triskele import validation
from triskele.errors import BadInput, NotFound
from triskele.store.owner import OwnerStore
from triskele.store.values import FolderRow
from triskele.text import folders as project
from triskele.text.folders import REMOTE, FolderIdentity
from triskele.types import Add, Change, Memory, MoveFolder, Revise


@dataclass(frozen=True, slots=True)
class ProjectSummary:
    """A project with the number of its memories and the keys of its places."""

    name: str
    memories: int
    places: tuple[str, ...]


class ProjectFolder:
    """The folder in which memories are written and recalled; `named` is the project that the settings give instead."""

    def __init__(self, store: OwnerStore, folder: Path, named: str | None = None) -> None:
        self._store, self._folder = store, folder
        self._named = validation.check_name(named, "the project") if named else None

    @cached_property
    def project(self) -> str:
        """The project of the memories here; the store is read at the first use, for a damaged one must still open."""
        return project_of(self._store, self._folder) if self._named is None else self._named

    def register(self) -> None:
        """Register the folder, unless the settings name the project instead."""
        if self._named is None:
            self.project = project_of(self._store, self._folder, writing=True)

    def placed(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes; registers the folder first if they store memories of its project.

        Another folder may have taken the name since it was looked up.
        """
        before = self.project
        if self._named is not None or not any(_adds_to(each, before) for each in changes):
            return changes
        self.register()
        return [
            replace(each, memory=replace(each.memory, project=self.project)) if _adds_to(each, before) else each
            for each in changes
        ]


def project_of(store: OwnerStore, folder: Path, *, writing: bool = False) -> str:
    """The project of a folder; an unknown folder has the name that it would get.

    `writing` registers the folder, so that another folder of the same name gets another project.
    """
    place, known = project.discover(folder), store.folders()
    if writing and not set(place.keys) <= {each.key for each in known}:
        return store.register_folder(place.keys, lambda places: _chosen(place, places))
    return _chosen(place, known)


def _adds_to(change: Change, name: str) -> TypeGuard[Add]:
    return isinstance(change, Add) and not change.verbatim and change.memory.project == name


def _chosen(place: FolderIdentity, known: Sequence[FolderRow]) -> str:
    """The project of a place, by the known places."""
    projects = {each.key: each.project for each in known}
    here = projects.get(place.root_key)
    others = {each.key for each in known if each.project == here and each.key.startswith(REMOTE)}
    # A folder that got another remote holds another repository; one that got its first remote is what it was.
    if here is not None and (not place.remote or not others or place.remote_key in others):
        return here
    if place.remote_key in projects:
        return projects[place.remote_key]
    # A project whose only folders no longer exist was moved: its name is free for the folder that has it now.
    taken = {each.project for each in known if not project.is_gone(each.key)}
    names = (validation.check_name(name, "the project") for name in place.names())
    return next(name for name in names if name not in taken)


def summaries(store: OwnerStore) -> list[ProjectSummary]:
    """Every project that has memories or places, by name."""
    counts, known = store.census().by_project, store.folders()
    return [
        ProjectSummary(name, counts.get(name, 0), tuple(each.key for each in known if each.project == name))
        for name in sorted({*counts, *(each.project for each in known)} - {""})
    ]


def rename(store: OwnerStore, old: str, new: str) -> list[Change]:
    """The changes that give a project another name, which must be free."""
    name = validation.check_name(new, "the project")
    if not name:
        raise BadInput("a project needs a name: to share memories everywhere, edit them with --everywhere")
    if name in {each.name for each in summaries(store)}:
        raise BadInput(f"there is a project {name} already: `triskele projects merge` joins two projects")
    return _moved(store, old, name)


def merge(store: OwnerStore, source: str, target: str) -> list[Change]:
    """The changes that move all memories and places of a project into another one."""
    if source == target:
        raise BadInput("a project cannot be merged with itself")
    if target not in {each.name for each in summaries(store)}:
        raise NotFound(f"no project {target}: `triskele projects list` shows all")
    return _moved(store, source, target)


def _moved(store: OwnerStore, source: str, target: str) -> list[Change]:
    memories = [memory for memory in _standing(store) if memory.project == source]
    changes: list[Change] = [Revise(replace(each, project=target), base=each.version) for each in memories]
    changes += [MoveFolder(each.number, target) for each in store.folders() if each.project == source]
    if not source or not changes:
        raise NotFound(f"no project {source or '(everywhere)'}: `triskele projects list` shows all")
    return changes


def mixed(store: OwnerStore) -> dict[str, tuple[str, ...]]:
    """Projects that hold memories from before their folders were told apart, with the other projects of the name."""
    known = store.folders()
    found: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(each.project for each in known):
        folders = (each for each in known if not each.key.startswith(REMOTE))
        others = {each.project for each in folders if each.key.rpartition("/")[2] == name} - {name}
        since = min(each.at for each in known if each.project == name)
        if others and _has_older(store, name, since):
            found[name] = tuple(sorted(others))
    return found


def _has_older(store: OwnerStore, name: str, since: datetime) -> bool:
    """Whether a memory was stored in a project before its folder was known; one that was moved there was not."""
    standing = {each.id for each in _standing(store) if each.project == name}
    early = {each.id for _, each in store.versions() if each.project == name and each.known_from < since}
    # An import keeps the times of its versions: the journal has the time of the import.
    return any(entry.at < since for id in standing & early for entry in store.journal(id=id, limit=1))


def _standing(store: OwnerStore) -> Iterator[Memory]:
    return (memory for _, memory in store.versions() if memory.known_to is None and memory.shared_by is None)
