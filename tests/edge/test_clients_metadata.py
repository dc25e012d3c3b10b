"""The plugin and the registry entry: versions that agree with the package, and shapes that their readers take."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from triskele import __version__
from triskele.edge.cli.main import COMMANDS, cli
from triskele.edge.install.table import CLIENTS

ROOT = Path(__file__).parent.parent.parent
PLUGIN = ROOT / "integrations" / "claude-code"
PLAIN_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_plugin_versions_equal_the_package() -> None:
    server = load(ROOT / "server.json")
    versions = {
        "server.json": server["version"],
        "server.json package": server["packages"][0]["version"],
        "plugin.json": load(PLUGIN / ".claude-plugin/plugin.json")["version"],
        "marketplace.json": load(PLUGIN / ".claude-plugin/marketplace.json")["plugins"][0]["version"],
    }
    assert versions == dict.fromkeys(versions, __version__)


def test_registry_entry_fits_its_schema() -> None:
    server = load(ROOT / "server.json")
    assert set(server) <= {"$schema", "name", "title", "description", "version", "packages", "repository", "websiteUrl"}
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"])
    assert 1 <= len(server["description"]) <= 100
    [package] = server["packages"]
    assert (package["registryType"], package["identifier"]) == ("pypi", "triskele")
    assert package["transport"] == {"type": "stdio"}
    assert [argument["value"] for argument in package["packageArguments"]] == ["mcp"]
    assert all(variable["name"].startswith("TRISKELE_") for variable in package["environmentVariables"])


def test_marketplace_lists_the_plugin() -> None:
    market, plugin = (load(PLUGIN / ".claude-plugin" / name) for name in ("marketplace.json", "plugin.json"))
    assert PLAIN_NAME.fullmatch(market["name"]) and market["owner"]["name"]
    [listed] = market["plugins"]
    assert (listed["name"], listed["source"]) == (plugin["name"], "./")


def test_plugin_hooks_the_events_of_install() -> None:
    hooks = load(PLUGIN / "hooks/hooks.json")["hooks"]
    events = CLIENTS["claude-code"].files[1].events
    assert events is not None
    for event, name in events.items():
        [[entry]] = [group["hooks"] for group in hooks[event]]
        assert (entry["type"], entry["command"]) == ("command", "triskele")
        assert entry["args"] == ["hook", name, "--client", "claude-code"]
    assert set(hooks) == set(events)


def test_plugin_calls_existing_commands() -> None:
    assert load(PLUGIN / ".mcp.json")["mcpServers"]["triskele"] == {"command": "triskele", "args": ["mcp"]}
    assert {"mcp", "hook"} <= set(COMMANDS)
    hook = cli.get_command(None, "hook")  # type: ignore[arg-type]
    assert hook is not None and any("--client" in parameter.opts for parameter in hook.params)


@pytest.mark.parametrize("name", ["remember", "recall"])
def test_skills_have_descriptions(name: str) -> None:
    _, head, body = (PLUGIN / "skills" / name / "SKILL.md").read_text().split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == name
    assert 50 < len(fields["description"]) < 1024
    assert f"memory_{'store' if name == 'remember' else 'recall'}" in body
