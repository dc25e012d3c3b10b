"""The OpenAPI document as agreed."""

from __future__ import annotations

import frozen
from starlette.testclient import TestClient


def test_openapi_is_as_agreed(api: TestClient) -> None:
    document = api.get("/openapi.json").json()
    document["info"]["version"] = "<version>"
    frozen.check(document, frozen.DATA / "openapi.json")
