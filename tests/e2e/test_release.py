"""What a tag publishes, built by the steps of the workflow: wheel, sdist, SBOM, bundle and the steps of the image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from triskele import __version__

pytestmark = [pytest.mark.e2e, pytest.mark.needs("pypi", "git"), pytest.mark.timeout(1800)]

ROOT = Path(__file__).parent.parent.parent
BUNDLER = "@anthropic-ai/mcpb@2.1.2"


def run(*command: str | Path, cwd: Path = ROOT, status: int = 0, **environ: str) -> str:
    """Standard output and errors of a program that must end with this status."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=kept | environ, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def copy_tree(target: Path) -> Path:
    """A copy of the files that git does not ignore, as a checkout has them."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


@pytest.fixture(scope="session")
def built(release_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the steps of the workflow have run that need no npm."""
    tree = copy_tree(tmp_path_factory.mktemp("checkout"))
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheel.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["build"]["steps"] if "run" in step]
    assert "locks/release.txt" in steps[0] and "npx" in steps[-1]
    for step in steps[1:-1]:
        run("bash", "-euo", "pipefail", "-c", step, cwd=tree, PATH=f"{release_tools}:{os.environ['PATH']}")
    return tree


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    return built / "dist" / f"triskele-{__version__}-py3-none-any.whl"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "src").splitlines()
    assert names == {name.removeprefix("src/") for name in listed if (ROOT / name).is_file()}


def test_sdist_holds_what_tests_and_maintainers_need(built: Path) -> None:
    with tarfile.open(built / "dist" / f"triskele-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = "Makefile CHANGELOG.md LICENSE tests/conftest.py scripts/check_wheel.py Dockerfile"
    needed += " locks/dev.txt locks/runtime.txt docs/site/server.md src/triskele/models/weights/minilm.onnx"
    assert set(needed.split()) <= names


def test_sbom_lists_every_locked_package_with_its_dependants(built: Path) -> None:
    sbom = json.loads((built / "build" / "triskele.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "triskele")
    assert sbom["metadata"]["component"]["version"] == __version__
    locked = re.findall(r"^([\w.-]+)==([^ ;\\]+)(.*)", (ROOT / "locks" / "runtime.txt").read_text(), re.MULTILINE)
    everywhere = {(name, version) for name, version, rest in locked if ";" not in rest}
    assert everywhere <= {(part["name"].lower().replace("_", "-"), part["version"]) for part in sbom["components"]}
    assert len(sbom["dependencies"]) > len(everywhere)


def test_wheel_works_in_empty_environments(wheel: Path) -> None:
    said = run(sys.executable, ROOT / "scripts" / "check_wheel.py", wheel)
    assert said.splitlines() == [
        "alone: demo, add, recall, hook, MCP",
        *(f"extra {name}" for name in ("code", "demo", "keyring", "postgres")),
    ]


def test_uvx_runs_the_demo_of_the_wheel(wheel: Path, release_tools: Path, tmp_path: Path) -> None:
    said = run(release_tools / "uvx", "--from", wheel, "triskele", "demo", HOME=str(tmp_path))
    assert "found by meaning" in said


@pytest.mark.parametrize(
    "checked", [("zizmor", "--offline", ".github"), ("hadolint", "Dockerfile")], ids=lambda c: c[0]
)
def test_tool_finds_nothing(release_tools: Path, checked: tuple[str, ...]) -> None:
    run(release_tools / checked[0], *checked[1:])


@pytest.mark.needs("npm")
def test_bundle_is_valid_and_starts_mcp(
    npm: Callable[..., Path], wheel: Path, release_tools: Path, tmp_path: Path
) -> None:
    bundler = npm(BUNDLER, into="mcpb") / "mcpb"
    assert f"npx --yes {BUNDLER} pack" in (ROOT / ".github" / "workflows" / "wheel.yml").read_text()
    run(bundler, "pack", ROOT / "integrations" / "mcpb", tmp_path / "triskele.mcpb")
    run(bundler, "unpack", tmp_path / "triskele.mcpb", tmp_path / "bundle")
    config = json.loads((tmp_path / "bundle" / "manifest.json").read_text())["server"]["mcp_config"]
    words = [word.replace("${__dirname}", str(tmp_path / "bundle")) for word in config["args"]]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    hello["params"] |= {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    own = {"TRISKELE_HOME": str(tmp_path / "home"), "UV_FIND_LINKS": str(wheel.parent)}
    done = subprocess.run(
        [release_tools / config["command"], *words],
        input=json.dumps(hello) + "\n",
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    run(sys.executable, "-m", "triskele", "serve", "--stop", **own)
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "triskele", done.stderr


class Image:
    """What the Dockerfile makes, as folders; `/opt` and `/data` lie below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
        text = (ROOT / "Dockerfile").read_text().replace("/opt/", f"{root}/opt/").replace("/data", f"{root}/data")
        steps = [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]
        (root / "source").mkdir()
        for verb, rest in steps:
            if verb == "COPY" and not rest.startswith("--from"):
                *names, target = rest.split()
                assert set(names) <= {*allowed, "locks/server.txt"}
                for name in names:
                    self._copy(ROOT / name, root / "source" / target)
            elif verb == "RUN" and not rest.startswith("install "):
                path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
                run("sh", "-ec", rest, cwd=root / "source", PATH=path)
        words = dict(steps)
        self.environ = dict(word.split("=", 1) for word in words["ENV"].replace("$PATH", os.environ["PATH"]).split())
        self.command: list[str] = json.loads(words["CMD"])
        self.health: list[str] = json.loads(words["HEALTHCHECK"].partition("CMD ")[2])

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(source, target)


@pytest.mark.usefixtures("release_tools")
def test_image_serves_a_team_as_compose_starts_it(tmp_path: Path, postgres_url: str) -> None:
    image = Image(tmp_path)
    service = yaml.safe_load((ROOT / "docs" / "deploy" / "compose.yaml").read_text())["services"]["triskele"]
    own = {**image.environ, **service["environment"], "TRISKELE_STORE": postgres_url}
    command = [word.replace("0.0.0.0:8080", "127.0.0.1:0") for word in image.command]
    with subprocess.Popen([*command, "--json"], env=own, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        address = json.loads("".join(iter(serving.stdout.readline, "}\n")) + "}")["http"]
        try:
            run(*image.health, **own)
            key = json.loads(run("triskele", "users", "create", "ada", "--admin", "--json", **own))["key"]
            request = urllib.request.Request(f"{address}/health", headers={"Authorization": f"Bearer {key}"})
            assert json.load(urllib.request.urlopen(request, timeout=30))["status"] == "ok"
        finally:
            serving.terminate()


def test_site_builds_strictly_and_loads_nothing_from_other_hosts(release_tools: Path, tmp_path: Path) -> None:
    tree = copy_tree(tmp_path)
    run(release_tools / "zensical", "build", "--strict", "--clean", cwd=tree)
    pages = sorted((tree / "build" / "site").rglob("*.html"))
    assert len(pages) > len(list((tree / "docs" / "site").glob("*.md")))
    loaded = r"<(?:script|img|iframe)[^>]* src=\"?https?:|<link[^>]*stylesheet[^>]*https?:"
    assert [page.name for page in pages if re.search(loaded, page.read_text(encoding="utf-8"))] == []
    (tree / "docs" / "site" / "index.md").write_text("[gone](nowhere.md)\n", encoding="utf-8")
    run(release_tools / "zensical", "build", "--strict", "--clean", cwd=tree, status=1)
