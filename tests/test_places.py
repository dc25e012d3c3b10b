"""A field, an option or a fusion that misses one of its places fails a test that names the file to edit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import apsw
import click
import pytest

import triskele
from triskele import requests, validation
from triskele.edge.cli import memory_view, read, write
from triskele.edge.mcp import schemas, tools_write
from triskele.engine import column_listing
from triskele.engine.local import LocalEngine
from triskele.exchange import markdown
from triskele.index import catalog, shard
from triskele.recall import why_not
from triskele.recall.fusion import METHODS
from triskele.requests import AskOptions, Changes, Details, FusionName, Labels, ListOptions, RecallOptions
from triskele.server.postgres.migrations import MIGRATIONS
from triskele.server.sync_receiver import SyncRecord
from triskele.store import owner
from triskele.store.rows import LATER_COLUMNS, VERSION_NAMES, from_memory, to_memory
from triskele.store.sqlite import schema
from triskele.sync.states import FINGERPRINTED, Record
from triskele.types import SPOKEN, Memory, Origin, Query, Role, Scope, Sensitivity

ROOT, SOURCE = Path(__file__).parent.parent, Path(triskele.__file__).parent
TEMPLATES = SOURCE / "edge" / "web" / "templates"
MEMORY = [field.name for field in fields(Memory)]
# What the store says about a memory, not its writer.
OF_THE_STORE = {"id", "content", "owner", "updated_at", "version", "known_from", "known_to", "content_hash"}
OF_THE_STORE |= {"shared_by"}
# A flag needs no check.
FLAGS = {name for name, kind in get_type_hints(RecallOptions).items() if kind is bool}
FLAGS |= {name for name, kind in get_type_hints(ListOptions).items() if kind is bool}


def missing_from(file: str, names: Iterable[str], present: Iterable[str]) -> str:
    """The complaint about the first name that a place does not have; empty if it has all."""
    left = sorted(set(names) - set(present))
    return f"{left[0]!r} is missing: add it to {file}" if left else ""


def keys(request: Any) -> set[str]:
    return set(request.__required_keys__ | request.__optional_keys__)


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def options_of(command: click.Command) -> set[str]:
    return {parameter.name or "" for parameter in command.params}


def check(problem: str) -> None:
    assert not problem, problem


# A field of a memory.


def test_memory_field_is_a_column() -> None:
    check(missing_from("VERSION_LISTS of store/rows.py, as a new list", set(MEMORY) - {"shared_by"}, VERSION_NAMES))


def test_column_is_in_the_schema_of_sqlite() -> None:
    connection = apsw.Connection(":memory:")
    schema.create(connection)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(versions)")]
    check(missing_from("the table versions of store/sqlite/schema.py", VERSION_NAMES, columns))


def test_column_is_in_the_migrations_of_postgres() -> None:
    text = "\n".join(migration.sql for migration in MIGRATIONS)
    created = re.search(r"CREATE TABLE versions \((.*?)\n\)", text, re.DOTALL)
    assert created
    columns = re.findall(r"\w+", created[1]) + re.findall(r"ALTER TABLE versions ADD COLUMN (\w+)", text)
    check(missing_from("a new Migration in server/postgres/migrations.py", VERSION_NAMES, columns))


def test_column_keeps_its_value() -> None:
    moment = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
    samples = {str: "text", int: 3, float: 0.25, datetime: moment, tuple: ("one", "two")}
    samples |= {Role: Role.TOOL, Sensitivity: Sensitivity.PRIVATE, Origin: Origin.WEB}
    hints = get_type_hints(Memory)
    kinds = {name: next(kind for kind in (*get_args(hints[name]), hints[name]) if kind is not None) for name in MEMORY}
    kinds["tags"] = tuple
    memory = Memory(**{name: samples[kinds[name]] for name in VERSION_NAMES})
    assert to_memory(from_memory(memory)) == memory, "convert the value in _CONVERSIONS and to_memory of store/rows.py"


def test_later_column_is_optional() -> None:
    defaults = {field.name: field.default for field in fields(Memory)}
    required = [name for name in LATER_COLUMNS if defaults[name] is not None or defaults[name] is MISSING]
    assert not required, f"{required[0]!r} needs None as its default in types.py: older rows and files lack it"


def test_memory_field_can_be_given() -> None:
    check(missing_from("Labels or Details of requests.py", set(MEMORY) - OF_THE_STORE, keys(Details)))


def test_given_field_is_one_of_a_memory() -> None:
    check(missing_from("Memory in types.py", keys(Details) - {"title"}, MEMORY))


@pytest.mark.parametrize("request_type", [Details, Changes, AskOptions, RecallOptions])
def test_keyword_is_checked(request_type: Any) -> None:
    check(missing_from("FIELDS (a free text: LABELS) of validation.py", keys(request_type) - FLAGS, validation.FIELDS))


def test_later_column_is_synced() -> None:
    record = [field.name for field in fields(Record)]
    check(missing_from("Record of sync/states.py", LATER_COLUMNS, record))
    check(missing_from("SyncRecord of server/sync_receiver.py", record, SyncRecord.model_fields))
    check(missing_from("Record of sync/states.py", SyncRecord.model_fields, record))
    check(missing_from("FINGERPRINTED of sync/states.py", LATER_COLUMNS, (n for names in FINGERPRINTED for n in names)))


def test_given_field_is_exported_as_markdown() -> None:
    check(missing_from("_WRITTEN of exchange/markdown.py", keys(Details) - {"title", "origin"}, markdown._WRITTEN))


def test_given_field_is_an_option_of_add_and_edit() -> None:
    file = "edge/cli/write.py, as an option of `{}`"
    check(missing_from(file.format("add"), keys(Labels), options_of(write.add)))
    check(missing_from(file.format("edit"), keys(Labels), options_of(write.edit)))


def test_given_field_is_an_argument_of_the_tools() -> None:
    file = "edge/mcp/tools_write.py, as an argument of {}"
    check(missing_from(file.format("memory_store"), keys(Labels), parameters(tools_write.memory_store)))
    check(missing_from(file.format("memory_update"), keys(Labels) - {"title"}, parameters(tools_write.memory_update)))
    shown = schemas.MemoryDetails.model_fields
    check(missing_from("MemoryDetails of edge/mcp/schemas.py", keys(Labels) - {"title"}, shown))


def test_given_field_is_shown() -> None:
    given = keys(Details) - {"title"}
    view = [*SPOKEN, *re.findall(r"memory\.(\w+)", inspect.getsource(memory_view))]
    check(missing_from("memory_view of edge/cli/memory_view.py", given, view))
    template = (TEMPLATES / "memory.html").read_text(encoding="utf-8")
    check(missing_from("edge/web/templates/memory.html", given, re.findall(r"memory\.(\w+)", template)))


# An option of recall.


def test_option_of_recall_is_read() -> None:
    source = inspect.getsource(LocalEngine.answer)
    present = {*re.findall(r'"(\w+)"', source), *(field.name for field in fields(Query))}
    present |= parameters(validation.narrowed) | parameters(LocalEngine.ask)
    file = "Query in types.py (a filter: narrowed() of validation.py), or to LocalEngine.answer of engine/local.py"
    check(missing_from(file, keys(RecallOptions), present))


def test_every_field_of_a_query_is_read_by_a_step_of_recall() -> None:
    steps = "\n".join(path.read_text() for path in (SOURCE / "recall").glob("*.py"))
    present = re.findall(r"\bquery\.(\w+)", steps)
    check(missing_from("the step of recall/ that uses it", (field.name for field in fields(Query)), present))


def test_option_that_nothing_reads_is_refused(open_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triskele.engine.local._RECALL_OPTIONS", keys(RecallOptions) | {"unread"})
    with pytest.raises(TypeError, match="unread"):
        open_engine().recall("herons", unread=1)


def test_filter_reaches_every_leg() -> None:
    filters = {field.name for field in fields(Scope)} - {"owner", "projects", "any_time", "trusted"}
    everywhere = {"in_scope of store/owner.py": owner, "_filters of index/shard.py": shard}
    for file, module in everywhere.items():
        check(missing_from(file, filters, re.findall(r"scope\.(\w+)", inspect.getsource(module))))
    # Who may read a row is a mask of its own.
    rows = filters - {"sensitivities", "origins"}
    check(missing_from("_mask of index/catalog.py", rows, re.findall(r"scope\.(\w+)", inspect.getsource(catalog))))
    listed = re.findall(r"scope\.(\w+)", inspect.getsource(column_listing))
    check(missing_from("_is_in of engine/column_listing.py", filters - {"as_of", "known_at"}, listed))
    stages = re.findall(r"scope\.(\w+)", inspect.getsource(why_not))
    check(missing_from("_scope_stages of recall/why_not.py", filters, stages))


def test_filter_is_a_parameter_of_the_scope() -> None:
    filters = keys(requests.Filters) - {"project", "all_projects"}
    check(missing_from("narrowed() of validation.py", filters, parameters(validation.narrowed)))


def test_option_of_a_question_is_an_option_of_the_commands() -> None:
    # Commands show private memories and those of every origin.
    asked = keys(AskOptions) - {"sensitivities", "origins", "show_superseded"}
    check(missing_from("asking_options of edge/cli/options.py", asked, options_of(read.recall)))
    check(missing_from("asking_options of edge/cli/options.py", asked - {"fusion", "rerank"}, options_of(read.why_not)))


# A fusion.


def test_fusion_has_a_row() -> None:
    names = set(get_args(FusionName)) - {"default"}
    check(missing_from("METHODS of recall/fusion.py", names, METHODS))
    check(missing_from("FusionName of requests.py", METHODS, names))


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w/.*-]+\.(?:py|html|toml))`", text)
    assert names
    gone = [name for name in names if not (list(ROOT.glob(name)) or list(SOURCE.glob(name)))]
    assert not gone, f"{gone[0]} has moved: name its new place in CONTRIBUTING.md"


def test_missing_place_is_named() -> None:
    assert missing_from("x.py", ["a", "b"], ["a"]) == "'b' is missing: add it to x.py"
    assert missing_from("x.py", ["a"], ["a", "b"]) == ""
