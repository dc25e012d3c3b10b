"""The API over a real engine, asked in this process or over a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from loopback_server import TOKEN
from starlette.testclient import TestClient

from triskele.edge.http.app import AppContext, Application, ListenerRules
from triskele.engine.local import LocalEngine

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


@pytest.fixture
def lines() -> list[str]:
    """What the process logs."""
    return []


@pytest.fixture
def requests_logged() -> list[dict[str, Any]]:
    """What the process logs of requests."""
    return []


@pytest.fixture
def application(engine: LocalEngine, lines: list[str], requests_logged: list[dict[str, Any]]) -> Application:
    return Application(
        AppContext(
            lambda: engine,
            dict,
            lines.append,
            lambda: None,
            lambda _: None,
            log_request=requests_logged.append,
            open_memories=lambda: [engine],
        )
    )


@pytest.fixture
def api(application: Application) -> TestClient:
    """A client with the token."""
    return TestClient(
        application.for_listener(ListenerRules.local(TOKEN, 8377)), base_url="http://localhost", headers=BEARER
    )
