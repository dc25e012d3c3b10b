"""Long-term memory for AI agents: words, meaning and connections."""

from __future__ import annotations

# `typing` itself would cost the command line as much as the rest of this import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from triskele.engine import Engine
    from triskele.serving.http.client import RemoteMemory

__all__ = ["__version__", "connect", "open"]
__version__ = "0.1.0"


def open(store: str | None = None) -> Engine:
    """Open the memory at a store address such as `sqlite:///notes.db`, or the user's own."""
    # Imported here: `triskele --version` must not pay for the engine.
    from triskele.engine import open_memory

    return open_memory(store)


def connect(url: str, key: str, *, project: str = "") -> RemoteMemory:
    """Open the memory on a server, by its address and a key; `project` is the default of calls without one."""
    from triskele.serving.http.client import connect

    return connect(url, key, project=project)
