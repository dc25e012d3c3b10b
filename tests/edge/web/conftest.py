"""Pages over a small store, asked through the guard as a browser asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from page_client import Browser

from triskele.edge.http.app import AppContext, Application
from triskele.engine.local import LocalEngine


@pytest.fixture
def stranger(open_engine: Callable[..., LocalEngine]) -> Browser:
    """A browser that is not signed in."""
    engine, lines = open_engine(), list[str]()
    context = AppContext(lambda: engine, lambda: {"engine": "open"}, lines.append, lambda: None, lambda _: None)
    return Browser(Application(context), engine, lines)


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    """A browser that is signed in."""
    assert stranger.sign_in().status_code == 204
    return stranger
