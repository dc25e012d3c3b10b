"""The modules that frequent commands import, so that none of them gets slower by an import.

The lists may only get shorter; TRISKELE_WRITE_GOLDEN=1 rewrites them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import frozen
import pytest
from residents import CLIENT, Host
from test_hook_client import FakeResident, host, listener, said  # noqa: F401 - fixtures

from triskele import __main__ as program
from triskele import config
from triskele.edge.http.codec import to_json
from triskele.edge.process.listener import make_folders
from triskele.engine.local import LocalEngine
from triskele.text.files import file_lock
from triskele.types import Action, Answer, Outcome

GOLDEN = frozen.DATA / "imported_modules.json"
RECORDER = str(Path(__file__).parent / "record_imports.py")
PROGRAM = str(Path(program.__file__))
# The modules of the standard library differ between versions of Python.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
OWN = ("triskele", "client", "__main__")
ANSWER = "{}\n"

Imports = dict[str, str]


class Recorder:
    """Runs a program in a data folder and reads what it imported."""

    def __init__(self, environ: dict[str, str], folder: Path) -> None:
        self._environ = environ
        self._lines = folder / "imports.txt"

    def __call__(self, *command: str, flags: str = "-I", stdin: str = "") -> tuple[str, Imports]:
        """The output of a command, and for each module the one that imported it first."""
        run = subprocess.run(
            [sys.executable, *flags.split(), RECORDER, str(self._lines), *command],
            env=self._environ, input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        return run.stdout, _imports(self._lines.read_text())


def _imports(lines: str) -> Imports:
    """Modules of ours, and the packages that others belong to, each with its first importer."""
    imports: Imports = {}
    for line in lines.splitlines():
        name, importer, result = line.split()
        package = name.partition(".")[0]
        # What others look for and do not find depends on the platform.
        if result == "found" or importer.startswith(OWN):
            imports.setdefault(name, importer)
            imports.setdefault(package, importer)
    return {name: importer for name, importer in imports.items() if "." not in name or name.startswith(OWN)}


@pytest.fixture
def record(host: Host, tmp_path: Path) -> Recorder:  # noqa: F811
    """A recorder over a store that exists."""
    host.environ |= {"TRISKELE_PRIVACY_KEY": "file", "TRISKELE_PROJECT": "shop"}
    del host.environ["TRISKELE_RECALL_MODEL"]
    with LocalEngine(config.load(host.environ), tmp_path):
        return Recorder(host.environ, tmp_path)


@pytest.fixture
def resident_lock(host: Host) -> Iterator[None]:  # noqa: F811
    """The lock of a background process that does not answer: a command leaves texts to embed to it."""
    make_folders(host.address)
    with file_lock(Path(host.address.file("lock")), timeout_s=1) as is_held:
        assert is_held
        yield


def _check(run: str, imports: Imports) -> None:
    agreed = json.loads(GOLDEN.read_text())
    shown = {name for name in imports if agreed["python"] == PYTHON or name not in sys.stdlib_module_names}
    if frozen.WRITES:
        agreed |= {"python": PYTHON, run: sorted(imports)}
        GOLDEN.write_text(json.dumps(agreed, indent=1, sort_keys=True) + "\n")
        shown = set(imports)
    new = shown - {*agreed[run]}
    # The others came in through those that a module of ours imports.
    first = {name for name in new if imports[name].startswith(OWN)} or new
    sentences = [f"`{run}` imports {name}, through {_path(name, imports)}" for name in sorted(first)]
    assert not new, "\n".join([*sentences, f"{len(new)} new modules in all"])
    gone = {*agreed[run]} - imports.keys()
    if gone and agreed["python"] == PYTHON:
        names = ", ".join(sorted(gone))
        advice = f"shorten {GOLDEN.name} with TRISKELE_WRITE_GOLDEN=1"
        warnings.warn(f"`{run}` no longer imports {names}: {advice}", stacklevel=2)


def _path(name: str, imports: Imports) -> str:
    """The modules that led to an import, from the module that names it to the program."""
    path = [imports[name]]
    while (importer := imports.get(path[-1])) is not None and importer not in path:
        path.append(importer)
    return " ← ".join(path)


# A shorter list is an advice, not an error.
pytestmark = pytest.mark.filterwarnings("default:.*no longer imports")


@pytest.mark.slow
def test_version_imports_no_more(record: Recorder) -> None:
    output, imports = record(PROGRAM, "--version")
    assert output.startswith("triskele ")
    _check("triskele --version", imports)


@pytest.mark.slow
def test_a_cold_add_imports_no_more(record: Recorder, resident_lock: None) -> None:
    output, imports = record(PROGRAM, "add", "We deploy with Argo CD", "--json")
    assert json.loads(output)["action"] == "added"
    _check("triskele add", imports)


RECALLED = Answer(hits=(), resolutions=(), confidence=0.0, project="shop", took_ms=1.0)
ADDED = Outcome(action=Action.ADDED, id="1kpn46aaaaaaaaaa", batch="b", project="shop")
REPLIES: dict[str, list[object]] = {"recall": [RECALLED], "add": [ADDED, [], {}]}


@pytest.mark.slow
@pytest.mark.parametrize("command", REPLIES)
def test_a_command_that_the_resident_answers_imports_no_more(
    record: Recorder,
    listener: FakeResident,  # noqa: F811
    command: str,
) -> None:
    listener.answers = [
        said(json.dumps(to_json(reply))) for reply in ({"project": "shop", "address": "here"}, *REPLIES[command])
    ]
    output, imports = record(PROGRAM, command, "how do we deploy?", "--json")
    assert json.loads(output) and listener.requests[0].startswith(b"POST /command-line")
    _check(f"triskele {command}, answered by the background process", imports)


@pytest.mark.slow
def test_the_hook_imports_no_more(record: Recorder, listener: FakeResident) -> None:  # noqa: F811
    listener.answers = [said(ANSWER)]
    output, imports = record(CLIENT, "user-prompt-submit", flags="-I -S", stdin='{"prompt": "deploy?"}')
    # First the check: a module that the hook cannot find leaves it without an answer.
    _check("the hook", imports)
    assert output == ANSWER
