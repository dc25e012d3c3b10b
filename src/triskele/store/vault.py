"""The vault of a store: sealed texts under a key that is made at the first secret and changed step by step."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from triskele.config import KEY_FILE, PrivacySettings, is_path
from triskele.errors import BadInput, Conflict, Unavailable, VaultLocked
from triskele.privacy import envelope as vaults
from triskele.privacy.envelope import KeyDocument, Vault
from triskele.privacy.key_sources import (
    EnvironmentKey,
    KeyCommand,
    KeyFile,
    KeySource,
    Passphrase,
    lost,
    system_keyring,
)
from triskele.store.owner import OwnerStore
from triskele.store.values import VAULT, SealedRow
from triskele.text.files import disk_errors
from triskele.text.ids import content_hash
from triskele.types import Add, Change, Memory, Revise, Sealed, SecretDraft, is_secret

PASSPHRASE, NEW_PASSPHRASE = "TRISKELE_PASSPHRASE", "TRISKELE_NEW_PASSPHRASE"
KEY_VARIABLE = "TRISKELE_VAULT_KEY"
_DOCUMENT = "keys"

# Asks the person at the terminal for a passphrase, twice for a new one; None without a terminal.
Ask = Callable[[str, bool], str | None]


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a change of keys did; `resealed` counts the texts that were sealed again."""

    source: str
    renewed: bool
    resealed: int


class StoreVault:
    """Seals and opens the secrets of one store."""

    def __init__(self, store: OwnerStore, settings: PrivacySettings, home: Path, ask: Ask | None = None) -> None:
        self._store = store
        self._settings = settings
        self._key_file = Path(settings.key).expanduser() if is_path(settings.key) else home / KEY_FILE
        self._ask = ask
        self._opened: tuple[str, Vault] | None = None
        self._lock = threading.RLock()

    def seal(self, id: str, version: int, text: str) -> Sealed:
        """A text as only the vault can read it; the first one makes the vault."""
        with self._lock:
            stored, vault = self._opened_or_made()
            return Sealed(vault.seal(id, version, text), content_hash(stored))

    def sealed(self, change: Change) -> Change:
        """The change as the store takes it: the text of a secret is sealed, and nothing else holds it."""
        match change:
            case Add(SecretDraft() as memory, verbatim):
                return Add(row_of(memory), verbatim, self.seal(memory.id, memory.version, memory.text))
            case Revise(SecretDraft() as memory, base):
                return Revise(row_of(memory), base, self.seal(memory.id, base + 1, memory.text))
        return change

    def open(self, row: SealedRow) -> str:
        """The text of a sealed row."""
        with self._lock:
            return self._open()[1].open(row.id, row.sealed_as, row.blob)

    def text_of(self, memory: Memory) -> str:
        """The text of a secret version."""
        if not is_secret(memory):
            raise BadInput(f"{memory.id} is not a secret: `triskele show` prints its text")
        return self.open(next(row for row in self._store.sealed([memory.id]) if row.version == memory.version))

    def exists(self) -> bool:
        """Whether a secret was ever kept here."""
        return self._stored() is not None

    def problem(self) -> str | None:
        """Why secrets can be neither read nor written; None if they can."""
        try:
            with self._lock:
                if self.exists():
                    self._open()
        except Unavailable as error:
            return str(error)
        return None

    def rotate(self, to: str | None = None, *, renew: bool = False) -> Rotation:
        """Lock the vault by another key source, or renew the data key too; after an interruption it continues there."""
        with self._lock:
            stored, vault = self._open()
            settled = vaults.abandon(stored)
            stored = self._exchange(stored, settled)
            source = self._new_source(to, vaults.sources_of(stored)[0])
            stored = self._exchange(stored, vaults.begin_rotation(stored, vault, source, renew=renew))
            confirmed, vault = vaults.confirm(stored, source)
            stored = self._exchange(stored, confirmed)
            resealed = self._reseal(vault)
            if len(vault.copy_of_keys()) > 1:
                rows = [(row.id, row.version, row.blob) for row in self._store.sealed()]
                stored = self._exchange(stored, vaults.begin_retirement(stored, vault, source, rows))
                confirmed, vault = vaults.confirm(stored, source)
                self._exchange(stored, confirmed)
            self.close()
            return Rotation(source.kind, renew, resealed)

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """Do not ask for a passphrase inside this context."""
        with self._lock:
            ask, self._ask = self._ask, None
            try:
                yield
            finally:
                self._ask = ask

    def close(self) -> None:
        """Forget the keys; they are asked for again when needed."""
        with self._lock:
            if self._opened is not None:
                self._opened[1].close()
                self._opened = None

    def _reseal(self, vault: Vault) -> int:
        rows = {(row.id, row.version): row for row in self._store.sealed()}
        old = list(vaults.stale(vault, ((row.id, row.version, row.blob) for row in rows.values())))
        if old:
            resealed = {place: vault.reseal(place[0], rows[place].sealed_as, rows[place].blob) for place in old}
            self._store.reseal(resealed)
        return len(old)

    def _exchange(self, before: str | None, after: str) -> str:
        if after != before and not self._store.documents.swap(VAULT, _DOCUMENT, before, after):
            raise Conflict("the keys of the vault were changed meanwhile: try again")
        return after

    def _stored(self) -> str | None:
        document = self._store.documents.get(VAULT, _DOCUMENT)
        return None if document is None else str(document)

    def _opened_or_made(self) -> tuple[str, Vault]:
        if not self.exists():
            return self._create()
        try:
            return self._open()
        except VaultLocked:
            if self._needs_key():
                raise
            return self._create(self._stored())

    def _needs_key(self) -> bool:
        """Whether a sealed text, or a key that may reappear, forbids creating a new vault."""
        key = KeyFile(self._key_file)
        stored = self._stored()
        by_file = stored is not None and vaults.sources_of(stored) == [key.kind]
        return not by_file or (self._key_file.exists() and not key.is_unfinished()) or bool(self._store.sealed())

    def _create(self, before: str | None = None) -> tuple[str, Vault]:
        kind = self._settings.key
        if kind == "auto":
            kind = "keyring" if system_keyring() is not None else "file"
        elif is_path(kind):
            kind = "file"
        source = self._source(kind, PASSPHRASE, is_new=True)
        if isinstance(source, KeyFile):
            source = KeyFile(source.path, replaces_unfinished=not self._store.sealed())
        document, vault = vaults.create(source)
        self._exchange(before, document)
        self._opened = (document, vault)
        return self._opened

    def _open(self) -> tuple[str, Vault]:
        stored = self._stored()
        if stored is None:
            raise BadInput("there is no vault yet: the first secret makes one")
        if self._opened is None or self._opened[0] != stored:
            self.close()
            self._opened = (stored, self._unlocked(stored))
        return self._opened

    def _unlocked(self, stored: str) -> Vault:
        failure: VaultLocked | None = None
        for source in self._candidates(stored):
            try:
                return vaults.unlock(stored, source)
            except VaultLocked as error:
                failure = failure or error
        raise failure or lost("the vault cannot be opened", "its key source is not on this machine")

    def _candidates(self, stored: str) -> Iterator[KeySource]:
        """The sources that may open this document, the confirmed one first."""
        seen: set[str] = set()
        for wrap in KeyDocument.from_json(stored).wraps():
            paths = [str(wrap.details.get("path", "")), str(self._key_file)] if wrap.source == "key-file" else [""]
            for path in paths:
                if f"{wrap.source} {path}" in seen or (path == "" and wrap.source == "key-file"):
                    continue
                seen.add(f"{wrap.source} {path}")
                yield KeyFile(Path(path)) if path else self._source(wrap.source, PASSPHRASE)

    def _new_source(self, to: str | None, now: str) -> KeySource:
        kind = to or {"key-file": "file"}.get(now, now)
        return self._source(kind, NEW_PASSPHRASE, is_new=True) if to else self._source(kind, PASSPHRASE)

    def _source(self, kind: str, variable: str, *, is_new: bool = False) -> KeySource:
        if kind == "file":
            with disk_errors(f"the key file {self._key_file}"):
                self._key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return KeyFile(self._key_file)
        if kind == "keyring":
            keyring = system_keyring()
            if keyring is None:
                raise lost("this machine has no keyring", "unlock it, or set privacy.key to passphrase or file")
            return keyring
        if kind == "environment":
            return EnvironmentKey(KEY_VARIABLE)
        if kind == "command":
            return KeyCommand(self._settings.key_command)
        return Passphrase(self._passphrase(variable, is_new))

    def _passphrase(self, variable: str, is_new: bool) -> str:
        prompt = "New passphrase of the vault" if is_new else "Passphrase of the vault"
        passphrase = os.environ.get(variable) or (self._ask(prompt, is_new) if self._ask else None)
        if not passphrase:
            what = "a new passphrase is needed" if is_new else "the vault is locked by a passphrase"
            raise lost(what, f"set {variable}, or run this in a terminal")
        return passphrase


def row_of(memory: Memory) -> Memory:
    """The memory without a text that is not for the rows."""
    return Memory(**{each.name: getattr(memory, each.name) for each in fields(Memory)})
