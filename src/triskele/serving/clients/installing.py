"""Putting triskele into a client and taking it out: first a plan that changes nothing, then the writing of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from triskele.config import Settings, sqlite_path
from triskele.errors import BadInput, Conflict
from triskele.serving.clients import files, receipts
from triskele.serving.clients.entries import Entries, entries_of, text_of
from triskele.serving.clients.receipts import Drawer
from triskele.serving.clients.table import Client, ConfigFile, place


class LeftAlone(BadInput):
    """A file of somebody else that cannot be changed safely; `by_hand` is what belongs into it."""

    def __init__(self, message: str, by_hand: str = "") -> None:
        super().__init__(message)
        self.by_hand = by_hand


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file: `None` is a file that is not there; `original` is what uninstalling will give."""

    path: Path
    before: bytes | None
    after: bytes | None
    original: bytes | None = None
    folders: tuple[Path, ...] = ()
    backup: Path | None = None

    @property
    def is_needed(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    @property
    def difference(self) -> str:
        """The exact change as a unified diff."""
        return files.difference(self.path, self.before, self.after)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where an install works: the data folder, what the clients pass on, and the project if it is for one alone."""

    home: Path
    environment: Mapping[str, str]
    passed_on: Mapping[str, str]
    project: Path | None = None

    @classmethod
    def of(cls, settings: Settings, environment: Mapping[str, str], project: Path | None) -> Setting:
        """The setting of this user. Where store and settings lie is written down, chosen or not: a repository can
        set variables for what an agent starts in it, and must not lead anything elsewhere.
        """
        is_chosen = settings.origins["store.url"] in ("environment TRISKELE_STORE", "argument")
        file = environment.get("TRISKELE_CONFIG")
        passed_on = {
            "TRISKELE_HOME": str(settings.home),
            "TRISKELE_STORE": _store(settings.store.url) if is_chosen else "",
            "TRISKELE_CONFIG": str(Path(file).expanduser().absolute()) if file else "",
        }
        return cls(settings.home, environment, passed_on, project)

    @property
    def drawer(self) -> Drawer:
        """Where files are kept aside."""
        return Drawer(self.home / "backups" / "clients")


def _store(url: str) -> str:
    if url.startswith("sqlite:"):
        return f"sqlite:///{sqlite_path(url)}"
    if "@" in url:
        raise BadInput("the store's address may hold a password: put it into config.toml ([store] url), not here")
    return url


def plan_install(client: Client, setting: Setting) -> list[Change]:
    """What installing would write."""
    changes = []
    for file in client.files:
        path, entries = _path(file, setting), _entries(client, file, setting)
        before = files.read(path)
        try:
            after = entries.put(text_of(file, before or b"")).encode("utf-8")
        except BadInput as error:
            raise LeftAlone(f"{path} is left as it is: {error}; add the entries by hand", entries.shown()) from error
        original, folders = _without(file, entries, setting, path, before, unknown=before)
        changes.append(Change(path, before, after, original, folders))
    return changes


def plan_uninstall(client: Client, setting: Setting) -> list[Change]:
    """What uninstalling would write."""
    changes = []
    for file in client.files:
        path, entries = _path(file, setting), _entries(client, file, setting)
        before = files.read(path)
        try:
            after, folders = _without(file, entries, setting, path, before)
        except BadInput as error:
            raise LeftAlone(f"{path} is left as it is: {error}; remove what is triskele's by hand") from error
        changes.append(Change(path, before, after, folders=folders))
    return changes


def install(changes: list[Change], setting: Setting) -> list[Change]:
    """Write what was planned, all of it or nothing, and note how to undo it; gives the changes with their backups."""
    drawer, done = setting.drawer, _write(changes, setting.drawer)
    for change in done:
        if change.is_needed and change.after is not None:
            drawer.note(change.path, change.after, _original(change, drawer), change.folders)
    return done


def _original(change: Change, drawer: Drawer) -> Path | None:
    """The copy that uninstalling gives back; a file that had entries of ours already is kept without them too."""
    if change.original is None or change.original == change.before:
        return change.backup if change.original is not None else None
    return drawer.keep(change.path, change.original, "-without-triskele")


def uninstall(changes: list[Change], setting: Setting) -> list[Change]:
    """Write what was planned, and forget that anything was installed."""
    done = _write(changes, setting.drawer)
    files.tidy({folder for change in done if change.after is None for folder in change.folders})
    for change in done:
        setting.drawer.forget(change.path)
    return done


def _path(file: ConfigFile, setting: Setting) -> Path:
    if setting.project is not None:
        # A repository may hold links of strangers: those are never followed out of it.
        return files.settle(setting.project / file.project, setting.project, follow=False)
    path = place(file, setting.environment)
    return files.settle(path, Path.home(), follow=True)


def _entries(client: Client, file: ConfigFile, setting: Setting) -> Entries:
    return entries_of(client, file, setting.passed_on, for_project=setting.project is not None)


def _without(
    file: ConfigFile,
    entries: Entries,
    setting: Setting,
    path: Path,
    before: bytes | None,
    *,
    unknown: bytes | None = None,
) -> tuple[bytes | None, tuple[Path, ...]]:
    """The file as it is without us, and the folders made for it; `unknown` is taken for an original not known."""
    if before is None:
        return None, ()
    receipt = setting.drawer.receipt(path)
    original = setting.drawer.original(receipt) if receipt else unknown
    folders = tuple(map(Path, receipt.folders)) if receipt else ()
    if receipt and receipts.matches(receipt, before) and (original is not None or receipt.original is None):
        return original, folders
    text = text_of(file, before)
    rest = entries.drop(text, None if original is None else original.decode("utf-8", "replace"))
    if receipt and receipt.original is None and rest != text and rest.strip() in ("", "{}"):
        return None, folders
    return rest.encode("utf-8"), folders


def _write(changes: list[Change], drawer: Drawer) -> list[Change]:
    done: list[Change] = []
    try:
        for change in changes:
            done.append(_write_one(change, drawer) if change.is_needed else change)
    except BaseException:
        _take_back(done)
        raise
    return done


def _write_one(change: Change, drawer: Drawer) -> Change:
    if files.read(change.path) != change.before:
        raise Conflict(f"{change.path} was changed by somebody else just now: nothing was written; run it again")
    backup = None if change.before is None else drawer.keep(change.path, change.before)
    if change.after is None:
        files.remove(change.path)
        return replace(change, backup=backup)
    made = files.write(change.path, change.after)
    return replace(change, backup=backup, folders=(*made, *change.folders))


def _take_back(done: list[Change]) -> None:
    """Give back the files of an install that could not be finished."""
    for change in done:
        if change.before is None:
            files.remove(change.path)
        elif change.is_needed:
            files.write(change.path, change.before)
    files.tidy({folder for change in done for folder in change.folders})
