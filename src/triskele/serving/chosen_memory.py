"""Which memory this machine uses: its own store, or that of a server; the only place where this is decided."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from triskele.base.files import expanded
from triskele.config import SERVER_KEY_FILE, Settings
from triskele.errors import BadInput
from triskele.validation import check_name

if TYPE_CHECKING:
    from triskele.curation.decide import PairDecision
    from triskele.engine import Engine
    from triskele.serving.http.client import RemoteMemory
    from triskele.stores.vault import Ask
    from triskele.types import Memory

_MAX_KEY = 1000


def open_chosen(settings: Settings, environ: Mapping[str, str], folder: Path, ask: Ask | None = None) -> Engine:
    """The engine of the settings, or the memory on their server.

    That has the methods that commands, tools and hooks use, and refuses the others in words.
    """
    if settings.server.url:
        return cast("Engine", open_server(settings, environ, folder))
    from triskele.engine import Engine

    return Engine(settings, folder, ask=ask)


def open_server(settings: Settings, environ: Mapping[str, str], folder: Path) -> RemoteMemory:
    """The memory on the server that the settings name; its project is that of the settings, or of the folder."""
    from triskele.serving.http.client import RemoteMemory

    # What curation would propose is the server's to find.
    curation = replace(settings.curation, propose=False, learn="off")
    memory = RemoteMemory(settings.server.url, key_of(settings, environ), settings=replace(settings, curation=curation))
    if settings.project is None:
        return memory.working_in(folder)
    memory.project = check_name(settings.project, "the project")
    return memory


def hints_of(engine: Engine, memory: Memory) -> list[PairDecision]:
    """What a stored memory repeats, extends or contradicts; with a server, the server finds them."""
    if engine.settings.server.url:
        from triskele.serving.http.client import RemoteMemory

        if isinstance(engine, RemoteMemory):
            return engine.related(memory)
    if not engine.settings.curation.propose:
        return []
    from triskele.curation.curator import Curator

    return Curator(engine).hints(memory)


def key_of(settings: Settings, environ: Mapping[str, str]) -> str:
    """The key for the server of the settings; that of a file is never sent to a server that a variable names."""
    if key := environ.get("TRISKELE_KEY"):
        return key
    if settings.origins.get("server.url", "").startswith("environment"):
        raise BadInput("TRISKELE_SERVER needs TRISKELE_KEY: a key file is used only for the server in config.toml")
    path = expanded(settings.server.key_file) if settings.server.key_file else settings.home / SERVER_KEY_FILE
    return read_key(path, settings.server.url, ", or into TRISKELE_KEY")


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
