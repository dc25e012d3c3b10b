"""The plugin, the bundle and the registry entry: versions that agree, and shapes that their readers take."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from triskele import __version__
from triskele.edge.cli.main import COMMANDS, cli
from triskele.edge.install.table import CLIENTS, hook

ROOT = Path(__file__).parent.parent.parent
PLUGIN = ROOT / "integrations" / "plugin"
BUNDLE = ROOT / "integrations" / "mcpb"
PLAIN_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_plugin_versions_equal_the_package() -> None:
    server = load(ROOT / "server.json")
    bundled = tomllib.loads((BUNDLE / "pyproject.toml").read_text())["project"]
    versions = {
        "server.json": server["version"],
        "server.json package": server["packages"][0]["version"],
        "Claude Code": load(PLUGIN / ".claude-plugin/plugin.json")["version"],
        "Codex": load(PLUGIN / ".codex-plugin/plugin.json")["version"],
        "marketplace.json": load(ROOT / ".claude-plugin/marketplace.json")["plugins"][0]["version"],
        "bundle": load(BUNDLE / "manifest.json")["version"],
        "project of the bundle": bundled["version"],
        "package in the bundle": bundled["dependencies"][0].removeprefix("triskele=="),
    }
    assert versions == dict.fromkeys(versions, __version__)


TEXT = {"type": "string"}
REGISTRY_FORM = {
    "type": "object",
    "required": ["$schema", "name", "description", "version", "packages"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"pattern": r"^https://static\.modelcontextprotocol\.io/schemas/[\d-]+/server\.schema\.json$"},
        "name": {"pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "title": {"minLength": 1, "maxLength": 100},
        "description": {"minLength": 1, "maxLength": 100},
        "version": {"pattern": r"^\d+\.\d+\.\d+$"},
        "repository": {"required": ["url", "source"], "properties": {"url": TEXT, "source": {"const": "github"}}},
        "packages": {
            "minItems": 1,
            "items": {
                "required": ["registryType", "identifier", "version", "transport"],
                "additionalProperties": False,
                "properties": {
                    **dict.fromkeys(("registryBaseUrl", "identifier", "version", "runtimeHint"), TEXT),
                    "registryType": {"enum": ["pypi", "oci", "mcpb"]},
                    "transport": {"properties": {"type": {"enum": ["stdio", "streamable-http"]}}},
                    "packageArguments": {"items": {"required": ["type", "value"]}},
                    "environmentVariables": {
                        "items": {
                            "required": ["name"],
                            "properties": {"format": {"enum": ["string", "number", "boolean", "filepath"]}},
                        }
                    },
                },
            },
        },
    },
}


def test_registry_entry_has_the_form_of_the_registry() -> None:
    server = load(ROOT / "server.json")
    jsonschema.validate(server, REGISTRY_FORM)
    [package] = server["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", "triskele")
    assert package["transport"] == {"type": "stdio"}
    assert [argument["value"] for argument in package["packageArguments"]] == ["mcp"]
    assert all(variable["name"].startswith("TRISKELE_") for variable in package["environmentVariables"])


def test_every_file_names_the_same_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project["urls"]["Source"]
    assert all(url.startswith(address) for url in project["urls"].values())
    server, bundle = load(ROOT / "server.json"), load(BUNDLE / "manifest.json")
    # The registry gives a name below io.github only to the owner of the repository.
    assert server["name"] == address.replace("https://github.com/", "io.github.")
    assert f"mcp-name: {server['name']} " in (ROOT / "README.md").read_text()
    plugins = {load(PLUGIN / f".{name}-plugin" / "plugin.json")["repository"] for name in ("claude", "codex")}
    assert plugins | {server["repository"]["url"], bundle["repository"]["url"]} == {address}


def test_marketplace_lists_the_plugin() -> None:
    market, *plugins = (load(ROOT / ".claude-plugin/marketplace.json"), *map(load, PLUGIN.glob(".*/plugin.json")))
    assert PLAIN_NAME.fullmatch(market["name"]) and market["owner"]["name"]
    [listed] = market["plugins"]
    assert [listed["name"]] * 2 == [plugin["name"] for plugin in plugins]
    assert ROOT / listed["source"] == PLUGIN


@pytest.mark.parametrize(("client", "file"), [("claude-code", "hooks.json"), ("codex", "codex.json")])
def test_plugin_hooks_the_events_of_install(client: str, file: str) -> None:
    hooks = load(PLUGIN / "hooks" / file)["hooks"]
    events = CLIENTS[client].files[1].events
    assert events is not None
    for event, name in events.items():
        [[entry]] = [group["hooks"] for group in hooks[event]]
        assert entry == hook(CLIENTS[client], name, None)
    assert set(hooks) == set(events)


def test_plugin_calls_existing_commands() -> None:
    assert load(PLUGIN / ".mcp.json")["mcpServers"]["triskele"] == {"command": "triskele", "args": ["mcp"]}
    assert {"mcp", "hook"} <= set(COMMANDS)
    command = cli.get_command(None, "hook")  # type: ignore[arg-type]
    assert command is not None and any("--client" in parameter.opts for parameter in command.params)


def test_bundle_starts_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    server = load(BUNDLE / "manifest.json")["server"]
    assert server["mcp_config"]["args"][-1] == server["entry_point"]
    started: list[list[str]] = []
    monkeypatch.setattr("triskele.__main__.main", lambda: started.append(sys.argv))
    monkeypatch.setattr(sys, "argv", ["server.py"])
    runpy.run_path(str(BUNDLE / server["entry_point"]))
    assert started == [["server.py", "mcp"]]


@pytest.mark.parametrize("name", ["remember", "recall"])
def test_skills_have_descriptions(name: str) -> None:
    _, head, body = (PLUGIN / "skills" / name / "SKILL.md").read_text().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == name
    assert 50 < len(fields["description"]) < 1024
    assert f"memory_{'store' if name == 'remember' else 'recall'}" in body
