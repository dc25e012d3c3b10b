"""A browser without a browser: asks an application through its guard and keeps cookies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from triskele.edge.http.app import Application, ListenerRules
from triskele.engine.local import LocalEngine

HOST = "127.0.0.1:8377"
OWN = {"Origin": f"http://{HOST}", "HX-Request": "true"}


@dataclass
class Browser:
    """Asks one application; keeps cookies like a browser."""

    app: Application
    engine: LocalEngine
    lines: list[str] = field(default_factory=list)
    cookies: httpx.Cookies = field(default_factory=httpx.Cookies)
    rules: ListenerRules = field(default_factory=lambda: ListenerRules.local("token", 8377))

    def ask(self, method: str, path: str, **details: Any) -> httpx.Response:
        """One request with the cookies so far."""

        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(self.app.for_listener(self.rules))
            async with httpx.AsyncClient(
                transport=transport, base_url=f"http://{HOST}", cookies=self.cookies
            ) as client:
                answer = await client.request(method, path, **details)
                self.cookies = client.cookies
            return answer

        return asyncio.run(request())

    def get(self, path: str, **details: Any) -> httpx.Response:
        """A page."""
        return self.ask("GET", path, **details)

    def post(self, path: str, data: Any = None, *, headers: dict[str, str] | None = None) -> httpx.Response:
        """A change, sent as the script of a page does."""
        return self.ask("POST", path, data=data, headers=OWN if headers is None else headers)

    def sign_in(self, proof: str = "") -> httpx.Response:
        """Exchange a fresh code, or a key, for a session."""
        return self.ask("POST", "/ui/session", content=proof or self.app.sessions.code(), headers=OWN)
