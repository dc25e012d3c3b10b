"""Open a memory in a store of this machine or on a server; only this module decides which."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from triskele.config import SERVER_KEY_FILE, SYNC_KEY_FILE, Settings, shown_url
from triskele.edge.error_messages import store_elsewhere
from triskele.errors import BadInput
from triskele.validation import check_name

if TYPE_CHECKING:
    from triskele.edge.http.client import RemoteEngine
    from triskele.engine.local import LocalEngine
    from triskele.engine.protocol import Engine
    from triskele.store.vault import Ask

_MAX_KEY = 1000


def server_of(settings: Settings) -> str:
    """The address of the server that has the memory; empty if a store of this machine has it."""
    return settings.server.url.rstrip("/")


def address_of(settings: Settings) -> str:
    """The server, or the store without its password."""
    return server_of(settings) or shown_url(settings.store.url)


def exists(settings: Settings) -> bool:
    """Whether the memory exists already; that of a server does."""
    from triskele.store import open as stores

    return bool(server_of(settings)) or stores.exists(settings)


def open_engine(settings: Settings, environ: Mapping[str, str], folder: Path, ask: Ask | None = None) -> Engine:
    """Open the store of the settings, or the memory on their server."""
    return open_server(settings, environ, folder) if server_of(settings) else open_store(settings, folder, ask)


def open_store(settings: Settings, folder: Path, ask: Ask | None = None) -> LocalEngine:
    """Open the store of the settings; refused if they name a server."""
    require_store(settings)
    from triskele.engine.local import LocalEngine

    return LocalEngine(settings, folder, ask=ask)


def require_store(settings: Settings) -> None:
    """Refuse settings that name a server."""
    if url := server_of(settings):
        raise store_elsewhere(url)


def local(engine: Engine) -> LocalEngine | None:
    """The engine itself, if its store is open in this process."""
    return engine if _is_local(engine) else None


def _is_local(engine: Engine) -> TypeGuard[LocalEngine]:
    return not server_of(engine.settings)


def store_of(engine: Engine) -> LocalEngine:
    """The engine itself; refused if its store is elsewhere."""
    if (store := local(engine)) is None:
        raise store_elsewhere(server_of(engine.settings))
    return store


def open_server(settings: Settings, environ: Mapping[str, str], folder: Path) -> RemoteEngine:
    """Open the memory on the server of the settings, in their project or that of the folder."""
    memory = _connect(settings.server.url, key_of(settings, environ), settings)
    if settings.project is None:
        return memory.working_in(folder)
    memory.project = check_name(settings.project, "the project")
    return memory


@contextmanager
def open_sync_server(settings: Settings) -> Iterator[RemoteEngine]:
    """Open the server that the settings name for syncing."""
    if not settings.sync.url:
        raise BadInput("no server to sync with: `triskele config set sync.url https://…`, and its key in sync.key")
    with closing(_connect(settings.sync.url, read_key(settings.home / SYNC_KEY_FILE, settings.sync.url))) as server:
        yield server


def _connect(url: str, key: str, settings: Settings | None = None) -> RemoteEngine:
    # Imported here: most stores are on this machine.
    from triskele.edge.http.client import connect

    return connect(url, key, settings=settings)


def key_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """The key for the server of the settings, empty without one; a key file serves only the server in config.toml."""
    if not settings.server.url:
        return ""
    if key := environ.get("TRISKELE_KEY"):
        return key
    if settings.origins.get("server.url", "").startswith("environment"):
        raise BadInput("TRISKELE_SERVER needs TRISKELE_KEY: a key file is used only for the server in config.toml")
    return read_key(settings.home / SERVER_KEY_FILE, settings.server.url, ", or into TRISKELE_KEY")


def read_key(path: Path, url: str, or_else: str = "") -> str:
    """The key for a server in a file that only its owner can read."""
    try:
        with path.open(encoding="ascii") as file:
            # Windows has no such bits.
            is_open_to_others = os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077
            key = file.read(_MAX_KEY).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the key of {url} in {path}: put it there{or_else}") from error
    if is_open_to_others:
        raise BadInput(f"other users can read the key in {path}: `chmod 600` it, and ask for a new one")
    return key
