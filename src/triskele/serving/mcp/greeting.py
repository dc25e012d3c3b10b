"""What the server says of itself, known before anything heavy is imported; a test keeps it equal to the server."""

from __future__ import annotations

from typing import Any

from triskele.serving.hook_client import VERSION
from triskele.serving.mcp import wording

MODERN = "2026-07-28"
MODERN_KEY = "io.modelcontextprotocol/protocolVersion"
# The versions with a handshake in which a server is introduced in these words.
HANDSHAKES = ("2025-06-18", "2025-11-25")
LISTED_MS = 3_600_000
_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"

Message = dict[str, Any]


def greeting(message: Message) -> Message | None:
    """The answer to a client's first request, if it is a greeting that is well understood."""
    params = message.get("params")
    if "id" not in message or not isinstance(params, dict):
        return None
    result = _initialized(params) if message["method"] == "initialize" else None
    if message["method"] == "server/discover":
        result = _discovered(params.get("_meta"))
    return None if result is None else {"jsonrpc": "2.0", "id": message["id"], "result": result}


def _initialized(params: Message) -> Message | None:
    client, version = params.get("clientInfo"), params.get("protocolVersion")
    if version not in HANDSHAKES or not isinstance(client, dict) or not isinstance(params.get("capabilities"), dict):
        return None
    if not isinstance(client.get("name"), str) or not isinstance(client.get("version"), str):
        return None
    return {**_introduction(), "protocolVersion": version, "serverInfo": _server()}


def _discovered(meta: Any) -> Message | None:
    if not isinstance(meta, dict) or meta.get(MODERN_KEY) != MODERN:
        return None
    if not isinstance(meta.get(_CAPABILITIES_KEY), dict):
        return None
    return {
        **_introduction(),
        "supportedVersions": [MODERN],
        "resultType": "complete",
        "cacheScope": "public",
        "ttlMs": LISTED_MS,
        "_meta": {_SERVER_KEY: _server()},
    }


def _introduction() -> Message:
    return {
        "capabilities": {
            "prompts": {"listChanged": False},
            "resources": {"listChanged": False, "subscribe": False},
            "tools": {"listChanged": False},
        },
        "instructions": wording.INSTRUCTIONS,
    }


def _server() -> Message:
    return {
        "name": wording.NAME,
        "title": wording.TITLE,
        "version": VERSION,
        "description": wording.DESCRIPTION,
    }
