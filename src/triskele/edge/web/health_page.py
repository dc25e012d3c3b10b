"""The health page: what left this machine, secrets, the process, the indexes and the backups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.responses import Response

from triskele import config
from triskele.edge.web.rendering import PageRequest, PageRoute, fragment, page
from triskele.recall.hosted import egress_log
from triskele.text import timestamps

_SECRETS = 20
_MICROS = 1_000_000


def show(asked: PageRequest) -> Response:
    """The state of everything that needs no check for damage."""
    engine, is_local = asked.local, asked.viewer.user is None
    secrets = engine.browse(all_projects=True, sensitivities=["secret"], limit=_SECRETS)
    return page(
        asked,
        "health.html",
        "health",
        # Facts about the whole server are not shown to a single user.
        process=asked.request.app.state.process() if is_local else {},
        model=engine.runtime.model,
        is_at_work=engine.runtime.is_at_work,
        jobs=engine.store.jobs.counts(),
        behind=engine.lexical.behind(),
        hosts=engine.runtime.hosts(),
        problems=engine.runtime.problems(),
        synced=engine.upkeep.synced_servers() if is_local else [],
        left=list(reversed(egress_log.days(engine.store))),
        secrets=secrets,
        vault_problem=engine.vault.problem(),
        copies=[_copy(each) for each in engine.maintenance.earlier_copies()] if is_local else [],
        short=asked.short([each.id for each in secrets.memories]),
    )


def store(asked: PageRequest) -> Response:
    """Counts of everything that is stored, which takes longer than the rest of the page."""
    engine, is_local = asked.local, asked.viewer.user is None
    return fragment(
        "_store.html",
        viewer=asked.viewer,
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


def check(asked: PageRequest) -> Response:
    """Look for damage; nothing is repaired from here."""
    return fragment("_check.html", health=asked.local.upkeep.inspect(repair=False))


ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/health", show),
    PageRoute("GET", "/health/store", store),
    # It reads the whole database, which has one owner on a personal machine only.
    PageRoute("POST", "/health/check", check, is_local=True),
)
