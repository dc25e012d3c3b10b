"""Installs and uninstalls: plan the changes, then write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from triskele.config import Settings, sqlite_path
from triskele.edge.install import config_files
from triskele.edge.install.config_files import TOKEN_FILE_NAME, BackupFolder, TokenFile
from triskele.edge.install.entries import Entries, entries_of, text_of
from triskele.edge.install.table import TOKEN_FILE, Client, ConfigFile, has_tool_hooks, user_path
from triskele.errors import BadInput, Conflict
from triskele.text.files import expanded

_MASK = "(token)"


class FileRefused(BadInput):
    """A file cannot be changed safely; `by_hand` is the text to add."""

    def __init__(self, message: str, by_hand: str = "") -> None:
        super().__init__(message)
        self.by_hand = by_hand


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one file; uninstall restores `original`. None is no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    original: bytes | None = None
    folders: tuple[Path, ...] = ()
    backup: Path | None = None
    client: str = ""
    token: str = ""
    purpose: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether anything changes."""
        return self.before != self.after

    @property
    def difference(self) -> str:
        """The exact change as a unified diff; the token is masked."""
        diff = config_files.difference(self.path, self.before, self.after)
        diff = diff.replace(self.token, _MASK) if self.token else diff
        return TOKEN_FILE_NAME.sub(_MASK, diff)


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """The data folder, variables and project of an install."""

    home: Path
    environment: Mapping[str, str]
    passed_on: Mapping[str, str]
    project: Path | None = None

    @classmethod
    def of(cls, settings: Settings, environment: Mapping[str, str], project: Path | None) -> InstallTarget:
        """The target for this user.

        The entry always names store and settings file: a repository can set variables for the programs that an agent
        starts in it, and must not redirect them to another store.
        """
        is_chosen = settings.origins["store.url"] in ("environment TRISKELE_STORE", "argument")
        file = environment.get("TRISKELE_CONFIG")
        passed_on = {
            "TRISKELE_HOME": str(settings.home),
            "TRISKELE_STORE": _store(settings.store.url) if is_chosen else "",
            "TRISKELE_CONFIG": str(expanded(file)) if file else "",
        }
        return cls(settings.home, environment, passed_on, project)

    @property
    def tokens(self) -> TokenFile:
        """The hashes of the tokens in clients' entries."""
        return TokenFile.of(self.home)

    @property
    def backups(self) -> BackupFolder:
        """Where copies of changed files are kept."""
        return BackupFolder(self.home / "backups" / "clients")


def _store(url: str) -> str:
    if url.startswith("sqlite:"):
        return f"sqlite:///{sqlite_path(url)}"
    if "@" in url:
        raise BadInput("the store URL may hold a password: set it in config.toml ([store] url) instead")
    return url


class _TargetFile:
    """One file of a client in a target, as it is now."""

    def __init__(self, client: Client, file: ConfigFile, target: InstallTarget) -> None:
        self._client, self._file, self._target = client, file, target
        if target.project is not None:
            # A repository may hold links that others made: never follow them out of it.
            self.path = config_files.resolve_path(target.project / file.project, target.project, follow=False)
        else:
            self.path = config_files.resolve_path(user_path(file, target.environment), Path.home(), follow=True)
        self.before = config_files.read(self.path)

    @property
    def text(self) -> str:
        """The text of the file, if it can be changed."""
        return text_of(self._file, self.before or b"")

    @property
    def token(self) -> str:
        """The token of the present entry; empty without a valid one."""
        return self._target.tokens.known_in(self.before or b"", self._client.name) or ""

    def entries(self, token: str = "") -> Entries:
        """The entries for this file."""
        target = self._target
        environment = dict(target.passed_on)
        if token and self._file.events:
            environment[TOKEN_FILE] = str(target.tokens.file_of(token))
        elif token:
            environment["TRISKELE_CLIENT_TOKEN"] = token
        calls_tools = has_tool_hooks(self._client, target.environment.get("PATH", ""))
        for_project = target.project is not None
        return entries_of(self._client, self._file, environment, for_project=for_project, calls_tools=calls_tools)

    def without(self, entries: Entries, unknown: bytes | None = None) -> tuple[bytes | None, tuple[Path, ...]]:
        """The file without the entries, and the folders made for it."""
        if self.before is None:
            return None, ()
        receipt = self._target.backups.receipt(self.path)
        original = self._target.backups.original(receipt) if receipt else unknown
        folders = tuple(map(Path, receipt.folders)) if receipt else ()
        is_untouched = receipt is not None and config_files.is_unchanged(receipt, self.before)
        if receipt and is_untouched and (original is not None or receipt.original is None):
            return original, folders
        rest = entries.drop(self.text, None if original is None else original.decode("utf-8", "replace"))
        if receipt and receipt.original is None and rest != self.text and rest.strip() in ("", "{}"):
            return None, folders
        return rest.encode("utf-8"), folders

    def change(self, after: bytes | None, original: bytes | None, folders: tuple[Path, ...], token: str) -> Change:
        """The change of the file to this content."""
        client, file = self._client.name, self._file
        purpose = "the MCP server triskele, with tools to recall and store memories"
        if file.events is not None:
            purpose = f"hooks that give memories to the agent ({', '.join(file.events)})"
        if file.reserved_by is not None and self._target.project is None:
            purpose += f", and the name triskele in {file.reserved_by}: no repository can put a server in its place"
        return Change(self.path, self.before, after, original, folders, client=client, token=token, purpose=purpose)


def plan_install(client: Client, target: InstallTarget) -> list[Change]:
    """The changes of an install."""
    files = [_TargetFile(client, file, target) for file in client.files]
    # A project's file may be published, so it gets no token.
    token = "" if target.project else next(filter(None, (file.token for file in files)), config_files.new_token())
    changes = []
    for file in files:
        entries = file.entries(token)
        try:
            after = entries.put(file.text).encode("utf-8")
        except BadInput as error:
            # Without the token, which must not be shown: such an entry sees no private memories.
            by_hand = file.entries().shown()
            raise FileRefused(f"{file.path} was not changed: {error}. Add the entries by hand", by_hand) from error
        changes.append(file.change(after, *file.without(entries, unknown=file.before), token))
    return changes


def plan_uninstall(client: Client, target: InstallTarget) -> list[Change]:
    """The changes of an uninstall."""
    changes = []
    for file in (_TargetFile(client, file, target) for file in client.files):
        try:
            after, folders = file.without(file.entries())
        except BadInput as error:
            raise FileRefused(f"{file.path} was not changed: {error}. Remove the triskele entries by hand") from error
        changes.append(file.change(after, None, folders, file.token))
    return changes


def install(changes: list[Change], target: InstallTarget) -> list[Change]:
    """Write all planned changes or none; return them with their backups."""
    for change in changes:
        if change.token and change.is_needed:
            target.tokens.add(change.client, change.token)
    backups, done = target.backups, _write(changes, target.backups)
    for change in done:
        if change.is_needed and change.after is not None:
            # Uninstall restores the file without entries that were there before.
            original = None if change.original is None else change.backup
            if change.original is not None and change.original != change.before:
                original = backups.keep(change.path, change.original, "-without-triskele")
            backups.note(change.path, change.after, original, change.folders)
    return done


def uninstall(changes: list[Change], target: InstallTarget) -> list[Change]:
    """Write the planned changes and remove the receipts."""
    done = _write(changes, target.backups)
    config_files.remove_empty({folder for change in done if change.after is None for folder in change.folders})
    for change in done:
        target.backups.forget(change.path)
        if change.token and change.is_needed:
            target.tokens.drop(change.token)
    return done


def _write(changes: list[Change], backups: BackupFolder) -> list[Change]:
    done: list[Change] = []
    try:
        for change in changes:
            if not change.is_needed:
                done.append(change)
                continue
            if config_files.read(change.path) != change.before:
                raise Conflict(f"{change.path} was changed by another program: nothing was written. Try again")
            backup = None if change.before is None else backups.keep(change.path, change.before)
            new_folders: list[Path] = []
            if change.after is None:
                config_files.remove(change.path)
            else:
                new_folders = config_files.write(change.path, change.after)
            done.append(replace(change, backup=backup, folders=(*new_folders, *change.folders)))
    except BaseException:
        _roll_back(done)
        raise
    return done


def _roll_back(done: list[Change]) -> None:
    """Restore the files of an install that failed half-way."""
    for change in done:
        if change.before is None:
            config_files.remove(change.path)
        elif change.is_needed:
            config_files.write(change.path, change.before)
    config_files.remove_empty({folder for change in done for folder in change.folders})
