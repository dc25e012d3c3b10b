"""Sent texts, secrets, process, indexes and backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import Response

from triskele import config
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.text import timestamps

_SECRETS = 20
_MICROS = 1_000_000


def show(request: PageRequest) -> Response:
    """Show the state of the store without a check for damage."""
    engine, upkeep, is_local = request.engine, request.engine.upkeep, request.principal.user is None
    secrets = engine.browse(all_projects=True, sensitivities=["secret"], limit=_SECRETS)
    return page(
        request,
        "health.html",
        "Health",
        # Facts about the whole server are not shown to a single user.
        process=request.http.app.state.process() if is_local else {},
        model=upkeep.model_in_force(),
        is_at_work=upkeep.is_embedding(),
        state=upkeep.state(),
        synced=upkeep.synced_servers() if is_local else [],
        secrets=secrets,
        copies=[_copy(path) for path in upkeep.copies()] if is_local else [],
        short=engine.shorten([memory.id for memory in secrets.memories]),
    )


def store(request: PageRequest) -> Response:
    """Count what is stored; fetched apart because it takes longer."""
    engine, is_local = request.engine, request.principal.user is None
    return fragment(
        "_store.html",
        viewer=request.principal,
        census=engine.stats(),
        address=config.shown_url(engine.settings.store.url) if is_local else "",
        owner=engine.settings.memory.owner,
    )


def _copy(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError:
        return {"path": str(path), "size": None, "at": None}
    return {"path": str(path), "size": status.st_size, "at": timestamps.from_micros(int(status.st_mtime * _MICROS))}


def check(request: PageRequest) -> Response:
    """Look for damage; nothing is repaired from here."""
    return fragment("_check.html", health=request.engine.upkeep.inspect(repair=False))


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/health", show, title="Health"),
    PageRoute("GET", "/health/store", store),
    # It reads the whole database, which has one owner on a personal machine only.
    PageRoute("POST", "/health/check", check, is_local=True),
)
