"""The files of docs/deploy: their syntax, and that what they name exists."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from triskele import __version__, config
from triskele.edge.cli.main import cli

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
KINDS = ["Cluster", "Secret", "Deployment", "Service", "Ingress"]


def variables(text: str) -> set[str]:
    """Every setting of ours that a text names."""
    words = text.replace("=", " ").replace(":", " ").replace('"', " ").split()
    return {word for word in words if word.startswith("TRISKELE_")}


def test_server_page_names_the_deploy_files_at_its_top() -> None:
    page = (DEPLOY.parent / "site" / "server.md").read_text(encoding="utf-8")
    top = page[: page.index("\n## ", page.index("\n## ") + 1)]
    # A cluster of Citus is for the page about scale.
    names = {file.name for file in DEPLOY.iterdir()} - {"citus.sql"}
    assert {name for name in names if f"/blob/main/docs/deploy/{name})" in top} == names


def test_compose_file_has_database_and_server() -> None:
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = found["services"]
    assert set(services) == {"database", "triskele"}
    assert services["triskele"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    used = {volume.partition(":")[0] for each in services.values() for volume in each["volumes"]}
    assert used == set(found["volumes"])
    assert (DEPLOY / services["triskele"]["build"] / "Dockerfile").is_file()


def test_both_files_run_the_image_of_this_version() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    _, _, deployment, _, _ = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    image = f"ghcr.io/triskele/triskele:{__version__}"
    assert container["image"] == compose["services"]["triskele"]["image"] == image


def test_commands_in_the_container_reach_the_database() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    # A command that `docker compose exec` starts has the environment of the service and nothing of its command line.
    assert "command" not in services["triskele"]
    password = "${DATABASE_PASSWORD"
    assert services["database"]["environment"]["POSTGRES_PASSWORD"].startswith(f"{password}:?")
    assert f":{password}}}@database/" in services["triskele"]["environment"]["TRISKELE_STORE"]


def test_manifest_has_every_kind_and_a_replica() -> None:
    found: list[Any] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert [each["kind"] for each in found] == KINDS
    assert all(each["apiVersion"] and each["metadata"]["name"] for each in found)
    cluster, _, deployment, service, _ = found
    assert cluster["spec"]["instances"] == 2
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    container = pod["spec"]["containers"][0]
    [read] = [each["value"] for each in container["env"] if each["name"] == "TRISKELE_READ_STORE"]
    assert f"@{cluster['metadata']['name']}-ro/{cluster['spec']['bootstrap']['initdb']['database']}" in read
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["spec"]["volumes"]}


def test_systemd_unit_starts_a_confined_server() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / "triskele.service").read_text())
    assert unit["Service"]["ExecStart"].endswith("triskele serve --http 127.0.0.1:8080")
    assert unit["Service"]["ProtectSystem"] == "strict" and unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.parametrize("name", ["compose.yaml", "triskele.service", "kubernetes.yaml", "../../Dockerfile"])
def test_deploy_files_use_existing_settings_and_commands(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / name).read_text()
    known = {
        f"TRISKELE_{key}".upper().replace(".", "_") for key in config.load({"TRISKELE_HOME": str(tmp_path)}).origins
    }
    assert variables(text) <= known | {"TRISKELE_STORE", "TRISKELE_READ_STORE"}
    # The image knows how it is started.
    assert "serve" in text or name == "compose.yaml"
    assert CliRunner().invoke(cli, ["serve", "--help"]).exit_code == 0
