"""Open the store that an address names; another kind of store is one more entry of the table."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from triskele.config import KEY_FILE, Settings, is_path, shown_url, source_of, sqlite_path
from triskele.errors import BadInput, StoreOlder, StoreUnavailable
from triskele.store.owner import Store
from triskele.store.sqlite import lost_writes, maintenance, store_file
from triskele.store.sqlite.schema import refuse_other_file
from triskele.store.sqlite.store import BUSY_TIMEOUT_S, SqliteStore
from triskele.store.writer import MemoryLimits
from triskele.text.ids import content_hash


def open_store(settings: Settings, *, limits: MemoryLimits | None = None) -> Store:
    """The store at the address of the settings, bound to no owner; created if it does not exist."""
    return _kind(settings).open(limits)


def exists(settings: Settings) -> bool:
    """Whether there is a store at the address; raise where other files show that it is lost."""
    return _kind(settings).exists()


def index_folder(settings: Settings) -> Path:
    """Where this machine keeps the files derived from the memories of the settings' owner."""
    return _kind(settings).index_folder()


def replace_damaged(settings: Settings, source: Path) -> Path | None:
    """Put a verified backup in the place of a store that cannot be opened; the folder that keeps its files."""
    return _kind(settings).replace_damaged(source)


def check_address(settings: Settings) -> None:
    """Raise if no kind of store has such an address, or no replica."""
    # A kind of store refuses an address that it cannot use.
    _kind(settings)
    if not settings.store.url.partition("://")[2]:
        raise _not_an_address(settings, "store.url", settings.store.url)
    if (url := settings.store.read_url) and not url.startswith(("postgresql://", "postgres://")):
        raise _not_an_address(settings, "store.read_url", url)


def _kind(settings: Settings) -> _Sqlite | _Postgres:
    scheme, _, _ = settings.store.url.partition(":")
    if scheme not in _KINDS:
        raise _not_an_address(settings, "store.url", settings.store.url)
    return _KINDS[scheme](settings)


def _not_an_address(settings: Settings, key: str, url: str) -> BadInput:
    files = "sqlite:///notes.db, sqlite:////absolute/notes.db or " if key == "store.url" else ""
    return BadInput(
        f"not a store address: {shown_url(url)!r}{source_of(settings.origins, key)}"
        f" (write {files}postgresql://user@host/database)"
    )


class _Sqlite:
    """A file on this machine; derived data is in folders next to it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._path = sqlite_path(settings.store.url)

    def open(self, limits: MemoryLimits | None) -> Store:
        folder = self._path.parent
        # A mistyped address must not make folders; the data folder is created at its own place.
        if not (folder.is_relative_to(self._settings.home) or folder.parent.is_dir()):
            raise BadInput(
                f"the folder of the store {self._path} does not exist: correct the address, or run `mkdir -p {folder}`"
            )
        return SqliteStore(self._path, traces=self._traces(), limits=limits)

    def exists(self) -> bool:
        store_file.refuse_lost(self._path, self._traces())
        return store_file.exists(self._path)

    def index_folder(self) -> Path:
        return store_file.index_folder(self._path, self._settings.memory.owner)

    def replace_damaged(self, source: Path) -> Path | None:
        path = self._path
        with suppress(StoreOlder):  # It is moved aside as a damaged one is.
            refuse_other_file(path)
        if not (store_file.looks_like_one(path) or any(trace.exists() for trace in self._traces())):
            raise StoreUnavailable(f"{path} is not a database, and nothing shows that it was: nothing was moved")
        return maintenance.replace_damaged(path, source, timeout_s=BUSY_TIMEOUT_S)

    def _traces(self) -> list[Path]:
        """The files that show that the database of these settings held memories."""
        # A key that the settings name may be there before the first memory.
        keys = [] if is_path(self._settings.privacy.key) else [self._path.with_name(KEY_FILE)]
        return [self.index_folder(), *keys, lost_writes.ledger(self._path)]


class _Postgres:
    """A database of a server; what is derived from it is in the data folder of this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # By the address: two databases share no index.
        self._folder = settings.home / f"postgres-{content_hash(shown_url(settings.store.url))[:12]}"

    def open(self, limits: MemoryLimits | None) -> Store:
        # By name: only here the core opens what belongs to a server, and the driver is an extra.
        try:
            module = import_module("triskele.server.postgres.truth")
        except ModuleNotFoundError as error:
            if error.name not in ("psycopg", "psycopg_pool"):
                raise
            raise BadInput("a Postgres store needs the extra `postgres`: pip install 'triskele[postgres]'") from error
        address = self._settings.store
        store: Store = module.PostgresStore(address.url, folder=self._folder, read_url=address.read_url, limits=limits)
        return store

    def exists(self) -> bool:
        # Opening it shows whether the server answers, and creates missing tables.
        return True

    def index_folder(self) -> Path:
        return self._folder / "index" / quote(self._settings.memory.owner, safe="")

    def replace_damaged(self, source: Path) -> Path | None:  # noqa: ARG002
        raise StoreUnavailable("a Postgres database that cannot be opened is repaired or restored by its own tools")


_KINDS: dict[str, type[_Sqlite | _Postgres]] = {"sqlite": _Sqlite, "postgresql": _Postgres, "postgres": _Postgres}
