"""Sources of the vault's key, and the errors of a lost one."""

from __future__ import annotations

import base64
import errno
import os
import re
import secrets
import stat
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from triskele.errors import BadInput, Unavailable, VaultLocked
from triskele.text.files import is_full, settle_folder

KEY_BYTES = 32
SALT_BYTES = 16
LEAST_PASSPHRASE = 8
STAYS = "titles, tags and every other memory stay readable"

_SERVICE = "triskele vault"
# Fewer characters than a whole key has.
_UNFINISHED = re.compile(rb"[A-Za-z0-9+/]{0,43}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_MOST_MEMORY_KIB = 1 << 20
_MOST_ROUNDS = 64

Details = Mapping[str, Any]
Answer = TypeVar("Answer")


class VaultDamaged(Unavailable):
    """A sealed text or the key document was altered or moved."""


def lost(what: str, advice: str) -> VaultLocked:
    """The error of a lost key, with what stays readable."""
    return VaultLocked(f"{what}: {advice}; without it the contents of secret memories cannot be read, {STAYS}")


class KeySource(Protocol):
    """Returns the key for public details stored beside the wrapped keys."""

    @property
    def kind(self) -> str:
        """The name of this way to a key, stored with every wrap."""

    def fresh(self) -> dict[str, Any]:
        """Store a new key and return its details."""

    def key(self, details: Details) -> bytearray:
        """The key of these details; the caller wipes it."""


def wipe(key: bytearray) -> None:
    """Overwrite a key in memory; copies made by libraries are beyond reach."""
    key[:] = bytes(len(key))


@dataclass(frozen=True, slots=True)
class Cost:
    """Argon2id cost of one guess at a passphrase (RFC 9106, low memory)."""

    memory_kib: int = 64 * 1024
    rounds: int = 3
    lanes: int = 4


@dataclass(frozen=True, slots=True)
class Passphrase:
    """A key made from a passphrase with argon2id."""

    passphrase: str = field(repr=False)
    cost: Cost = Cost()
    kind: str = field(default="passphrase", init=False)

    def fresh(self) -> dict[str, Any]:
        """A new salt; refuses a passphrase that is quickly guessed."""
        if len(self.passphrase) < LEAST_PASSPHRASE:
            raise BadInput(f"the passphrase is too short: take at least {LEAST_PASSPHRASE} characters")
        cost = {"memory_kib": self.cost.memory_kib, "rounds": self.cost.rounds, "lanes": self.cost.lanes}
        return {"salt": base64.b64encode(secrets.token_bytes(SALT_BYTES)).decode(), **cost}

    def key(self, details: Details) -> bytearray:
        """The key; the same whichever way the keyboard composes an accent."""
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        salt, memory, rounds, lanes = _argon_details(details)
        passphrase = unicodedata.normalize("NFC", self.passphrase).encode(errors="surrogatepass")
        maker = Argon2id(salt=salt, length=KEY_BYTES, iterations=rounds, lanes=lanes, memory_cost=memory)
        return bytearray(maker.derive(passphrase))


def _argon_details(details: Details) -> tuple[bytes, int, int, int]:
    """The parameters, bounded: an altered document must not demand all memory."""
    try:
        salt = base64.b64decode(details["salt"], validate=True)
        memory, rounds, lanes = (int(details[name]) for name in ("memory_kib", "rounds", "lanes"))
    except (KeyError, TypeError, ValueError):
        raise VaultDamaged("the document of the vault's keys is damaged: restore the store from a backup") from None
    fits = 1 <= lanes <= 64 and 8 * lanes <= memory <= _MOST_MEMORY_KIB and 1 <= rounds <= _MOST_ROUNDS
    if not fits or len(salt) < 8:
        raise VaultDamaged(
            "the document of the vault's keys asks for an impossible cost: restore the store from a backup"
        )
    return salt, memory, rounds, lanes


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A random key in a file that only its owner can read."""

    path: Path
    # Only if no sealed text can need it.
    replaces_unfinished: bool = False
    kind: str = field(default="key-file", init=False)

    def fresh(self) -> dict[str, Any]:
        """Create the file atomically; an existing key file is used."""
        try:
            if self.replaces_unfinished and self.is_unfinished():
                self._discard_unfinished()
            if not self.path.exists():
                self._make()
        except OSError as error:
            if is_full(error):
                raise Unavailable(f"no space left for the key file {self.path}: nothing was sealed") from None
            raise BadInput(f"the key file {self.path} cannot be written: {error.strerror}") from None
        wipe(self.key({}))
        return {"path": str(self.path.absolute())}

    def is_unfinished(self) -> bool:
        """Whether the file is empty or holds part of a key."""
        try:
            return _UNFINISHED.fullmatch(self.path.read_bytes()) is not None
        except OSError:
            return False

    def _make(self) -> None:
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            try:
                written = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
                if os.write(handle, written) != len(written):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)
            _put(Path(name), self.path)
        finally:
            Path(name).unlink(missing_ok=True)
        settle_folder(self.path.parent)

    def _discard_unfinished(self) -> None:
        """Remove the file, unless another process has completed it."""
        aside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            self.path.rename(aside)
            if not KeyFile(aside).is_unfinished():
                _put(aside, self.path)
            aside.unlink(missing_ok=True)

    def key(self, details: Details) -> bytearray:  # noqa: ARG002
        """The key in the file, unless others could have read it too."""
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except OSError:
            raise lost(f"the key file {self.path} cannot be read", "restore it from a backup") from None
        with os.fdopen(handle, "rb") as file:
            self._refuse_if_open(os.fstat(file.fileno()))
            return _decoded(file.read(4096), f"the key file {self.path}")

    def _refuse_if_open(self, status: os.stat_result) -> None:
        # Windows has no such bits; there the folder of the user is private.
        if os.name == "posix" and (status.st_mode & _OTHERS or status.st_uid not in {os.getuid(), 0}):
            raise VaultLocked(f"others can read the key file {self.path}: run chmod 600 on it, then rotate the key")


def _put(file: Path, target: Path) -> None:
    """Rename a complete file, unless the name is taken."""
    try:
        os.link(file, target)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links.
        if not target.exists():
            file.rename(target)


def _decoded(written: bytes, what: str) -> bytearray:
    try:
        key = bytearray(base64.b64decode(written.strip(), validate=True))
    except ValueError:
        key = bytearray()
    if len(key) != KEY_BYTES:
        raise lost(f"{what} holds no key", "restore it from a backup")
    return key


@dataclass(frozen=True, slots=True)
class EnvironmentKey:
    """A key in the environment, as secret managers of servers provide it."""

    variable: str
    kind: str = field(default="environment", init=False)

    def fresh(self) -> dict[str, Any]:
        """The name of the variable, once it holds a key."""
        wipe(self.key({}))
        return {"variable": self.variable}

    def key(self, details: Details) -> bytearray:  # noqa: ARG002
        """The key in the variable."""
        written = os.environ.get(self.variable)
        if not written:
            raise lost(f"the variable {self.variable} is not set", f"set it to {KEY_BYTES} random bytes in base64")
        return _decoded(written.encode(), f"the variable {self.variable}")


@dataclass(frozen=True, slots=True)
class KeyCommand:
    """A key that a command prints in base64."""

    command: tuple[str, ...]
    timeout_s: float = 30.0
    kind: str = field(default="command", init=False)

    def fresh(self) -> dict[str, Any]:
        """Nothing to keep, once the command has printed a key."""
        wipe(self.key({}))
        return {}

    def key(self, details: Details) -> bytearray:  # noqa: ARG002
        """The key that the command prints; other output is never shown."""
        if not self.command:
            raise lost("the vault's key comes from a command", "set privacy.key_command in config.toml")
        try:
            done = subprocess.run(self.command, capture_output=True, timeout=self.timeout_s, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            name = type(error).__name__
            raise lost(f"the command {self.command[0]} gave no key ({name})", "run it by hand to see why") from None
        return _decoded(done.stdout, f"the output of {self.command[0]}")


class PasswordStore(Protocol):
    """The two calls of a keyring that are used here."""

    def get_password(self, service: str, username: str) -> str | None:
        """What is kept under these names."""

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep this under these names."""


@dataclass(frozen=True, slots=True)
class SystemKeyring:
    """A random key in the keyring of the operating system."""

    store: PasswordStore = field(repr=False)
    kind: str = field(default="keyring", init=False)

    def fresh(self) -> dict[str, Any]:
        """Store a new key under its own name, beside the old one."""
        name = secrets.token_hex(8)
        encoded = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
        _asked(lambda: self.store.set_password(_SERVICE, name, encoded))
        if _asked(lambda: self.store.get_password(_SERVICE, name)) != encoded:
            raise VaultLocked("the keyring did not keep the key: use a passphrase or a key file")
        return {"entry": name}

    def key(self, details: Details) -> bytearray:
        """The key under the name in the details."""
        entry = _asked(lambda: self.store.get_password(_SERVICE, str(details.get("entry", ""))))
        if entry is None:
            raise lost("the keyring has no key for this vault", "unlock or restore the keyring of your system")
        return _decoded(entry.encode(), "the entry of the keyring")


def _asked(call: Callable[[], Answer]) -> Answer:
    """Ask a keyring; every failure of a backend means a locked vault."""
    try:
        return call()
    except Exception as error:
        raise VaultLocked(
            f"the keyring refused ({type(error).__name__}): unlock it, or use another key source"
        ) from None


def system_keyring() -> SystemKeyring | None:
    """The keyring of this machine; None if it keeps no secrets."""
    try:
        import keyring
        from keyring.backends import fail, null
    except ImportError:
        return None
    backend = keyring.get_keyring()
    inside = list(getattr(backend, "backends", [backend]))
    real = [one for one in inside if not isinstance(one, fail.Keyring | null.Keyring) and one.priority >= 1]
    return SystemKeyring(backend) if real else None
