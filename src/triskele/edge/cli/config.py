"""Settings on the command line: config list, get, set and unset."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from triskele.config import COMMANDS, NO_MODEL, converted, file_of, load, shown_url, source_of
from triskele.edge.cli.commands import command_group, did_you_mean
from triskele.edge.cli.invocation import Invocation
from triskele.edge.cli.view import ID, QUIET, Table, note
from triskele.edge.http.codec import to_json
from triskele.edge.http.connections import checked_address
from triskele.edge.install import config_files
from triskele.errors import BadInput, TriskeleError

if TYPE_CHECKING:
    from triskele.config import Settings
    from triskele.edge.cli.view import Renderable

_NEGATIVE = re.compile(r"-\.?\d")
_STILL_STARTED = (
    "The command line no longer starts the background process; hooks, MCP clients and `triskele ui` still do:"
    " without it they could not answer in time."
)


@command_group(
    "triskele config",
    "triskele config set recall.limit 5",
    "triskele config get recall.limit --json",
    alone=lambda invocation: _list(invocation),
)
def config() -> None:
    """Show and change settings."""


@config.subcommand("triskele config list", "TRISKELE_RECALL_LIMIT=5 triskele config list --json", name="list")
def list_settings(invocation: Invocation) -> None:
    """Show every setting, its value and where it came from."""
    _list(invocation)


def _list(invocation: Invocation) -> None:
    settings = invocation.stores.settings()
    values, file = _by_name(settings), file_of(os.environ, settings.home)

    def view() -> Iterator[Renderable]:
        rows = []
        for name, setting in values.items():
            origin = note(setting["origin"], QUIET if setting["origin"] == "default" else ID)
            rows.append((note(name), note(value_text(name, setting["value"])), origin))
        yield Table(("setting", "value", "from"), rows, wraps={1, 2})
        yield note(f"Settings file: {file}{'' if file.exists() else ' (does not exist yet)'}", QUIET)
        yield note("Change a setting with `triskele config set KEY VALUE`.", QUIET)

    invocation.emit({"settings": values, "file": str(file), "project": settings.project}, view)


@config.subcommand("triskele config get recall.limit", "triskele config get agents.private_to --json")
@click.argument("key")
def get(invocation: Invocation, key: str) -> None:
    """Show one setting."""
    settings = invocation.stores.settings()
    setting = _by_name(settings)[_checked_name(key, settings)]
    if key == "recall.model" and not invocation.as_json:
        model = settings.recall.model
        # Without a readable store the default is in use.
        with suppress(TriskeleError):
            if invocation.stores.exists():
                with invocation.stores.open_local() as engine:
                    model = engine.upkeep.model_in_force()
        if model != setting["value"]:
            click.echo(f"A switch overrides the default: {model} is in use (`triskele models list`).", err=True)
    invocation.emit({"key": key, **setting, "project": settings.project}, lambda: value_text(key, setting["value"]))


class _WithNegative(click.Command):
    """A command that reads a negative number as a value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        ctx.ignore_unknown_options = any(_NEGATIVE.match(word) for word in args)
        return super().parse_args(ctx, args)


@config.subcommand(
    "triskele config set recall.limit 5",
    "triskele config set agents.private_to claude-code,codex",
    "triskele config set agents.background false",
    "triskele config set llm.command 'ollama run gemma3'",
    name="set",
    cls=_WithNegative,
)
@click.argument("key")
@click.argument("value")
def set_setting(invocation: Invocation, key: str, value: str) -> None:
    """Change a setting in the settings file; a wrong value is refused.

    A list has commas between its words; a command is written as in a shell.
    """
    _change(invocation, key, value)


@config.subcommand("triskele config unset recall.limit", "triskele config unset project --json")
@click.argument("key")
def unset(invocation: Invocation, key: str) -> None:
    """Remove a setting from the settings file; its default applies again.

    Misspelt settings and sections are removed too.
    """
    _change(invocation, key, None)


def store_setting(key: str, value: str | None) -> Path:
    """Write or remove a setting in the settings file; returns the file."""
    # Not those in force: a wrong value in the file, or in the environment, must not keep it from being corrected.
    home = {name: os.environ[name] for name in ("TRISKELE_HOME",) if name in os.environ}
    settings = load({**home, "TRISKELE_CONFIG": os.devnull})
    file = file_of(os.environ, settings.home)
    before = _read(file)
    document = tomllib.loads(before)
    is_section = isinstance(document.get(key), dict) and is_dataclass(getattr(settings, key, None))
    is_in_file = value is None and bool(_occurrences(document, key)) and not is_section
    # The settings file is in the data folder: it cannot set the path of that folder.
    if not is_in_file and _checked_name(key, settings) == "home":
        raise BadInput("home is not in the settings file: set the environment variable TRISKELE_HOME")
    typed = None if value is None else _typed(key, value, _by_name(settings)[key]["value"])
    text = _changed(before, key, typed)
    try:
        changed = _check(text, settings.home)
    except BadInput:
        try:
            _check(before, settings.home)
        except BadInput:
            # The file was wrong before: the new value alone decides.
            changed = _check(_changed("", key, typed), settings.home)
        else:
            raise
    # An empty service means none; an empty model is a mistake.
    if key in _CHECKS and (value or (key == "recall.model" and value is not None)):
        _CHECKS[key](changed, key, value)
    config_files.write(file.resolve(), text.encode())
    if value is not None and (section := _no_section(before, key)):
        click.echo(f"{section} was not a section in {file}: its value is replaced by [{section}].", err=True)
    return file


def _change(invocation: Invocation, key: str, value: str | None) -> None:
    """Write or remove a setting, and show its value now."""
    file = store_setting(key, value)
    try:
        settings = invocation.stores.settings()
    except BadInput as error:
        raise BadInput(f"{key} is changed in {file}, but a setting is wrong: {error}") from None
    setting = _by_name(settings).get(key, {"value": None, "origin": "unknown"})
    kind, _, variable = setting["origin"].partition(" ")
    in_force = f"{key} is {value_text(key, setting['value']) or 'empty'}"
    lines = {
        "default": f"{in_force} (default).",
        "environment": f"{key} is changed in {file}.",
        "unknown": f"{key} is removed from {file}.",
    }
    line = lines.get(kind, f"{in_force} ({file}).")
    invocation.emit({"key": key, **setting, "file": str(file), "project": settings.project}, lambda: line)
    if invocation.as_json:
        return
    if kind == "environment":
        click.echo(f"The environment variable {variable} overrides the file: {in_force}.", err=True)
    elif key == "agents.background" and not setting["value"]:
        click.echo(_STILL_STARTED, err=True)


def _checked_name(key: str, settings: Settings) -> str:
    names = list(_by_name(settings))
    if key in names:
        return key
    hint = did_you_mean(key, names) or ": `triskele config` lists all of them"
    raise BadInput(f"unknown setting {key!r}{hint}")


def _typed(key: str, value: str, now: Any) -> Any:
    """Convert a text to the setting's type."""
    if isinstance(now, list):
        return list(converted(key, value, tuple(now)))
    return value if now is None else converted(key, value, now)


def _read(file: Path) -> str:
    """Read the settings file; refuse what is not TOML."""
    import tomlkit

    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        # Both: one reads settings, the other changes them, and they do not refuse the same texts.
        tomllib.loads(text)
        tomlkit.parse(text)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the settings in {file}: {error}") from error
    except RecursionError:
        raise BadInput(f"cannot read the settings in {file}: they are nested too deep") from None
    return text


def _changed(text: str, key: str, value: Any) -> str:
    """Change one value in the text of a settings file, keeping comments."""
    import tomlkit

    document = tomlkit.parse(text)
    if wrong := _no_section(text, key):
        del document[wrong]
    if value is None:
        for section_table, name in _occurrences(document, key):
            del section_table[name]
        return tomlkit.dumps(document)
    section, _, name = key.rpartition(".")
    if not section and name not in document:
        # A key at the end would belong to the last table.
        return tomlkit.dumps({name: value}) + tomlkit.dumps(document)
    section_table = document.setdefault(section, tomlkit.table()) if section else document
    section_table[name] = value
    return tomlkit.dumps(document)


def _occurrences(document: dict[str, Any], key: str) -> list[tuple[Any, str]]:
    """The tables that hold a key, each with its name there."""
    occurrences = [(document, key)] if key in document else []
    for section, values in document.items():
        name = key.removeprefix(f"{section}.")
        if isinstance(values, dict) and name != key and name in values:
            occurrences.append((values, name))
    return occurrences


def _no_section(text: str, key: str) -> str:
    """The setting's section if the file has a value instead."""
    section, _, _ = key.rpartition(".")
    value = tomllib.loads(text).get(section)
    return section if value is not None and not isinstance(value, dict) else ""


def _check(text: str, home: Path) -> Settings:
    """Read the settings of a text, without the environment; refuse wrong ones."""
    # Imported here: the help of a command does not need them.
    from triskele.store import open as stores
    from triskele.text.analysis import Analyzer

    with TemporaryDirectory(prefix="triskele-") as folder:
        tried = Path(folder) / "config.toml"
        tried.write_text(text, encoding="utf-8")
        try:
            settings = load({"TRISKELE_HOME": str(home), "TRISKELE_CONFIG": str(tried)})
            stores.check_address(settings)
            Analyzer(settings.index.language, source=source_of(settings.origins, "index.language"))
        except BadInput as error:
            raise BadInput(str(error).replace(f" (in {tried})", "").replace(f" in {tried}", "")) from None
    return settings


def _check_model(settings: Settings, key: str, name: str) -> None:
    from triskele.models.local import local_cross_encoder, local_embedder

    if key == "recall.model" and name != NO_MODEL:
        local_embedder(name)
    elif key == "rerank.model" and not settings.rerank.service:
        try:
            local_cross_encoder(name)
        except BadInput as error:
            raise BadInput(f"{error}; for a hosted one set rerank.service first") from None


def _check_address(_: Settings, key: str, url: str) -> None:
    from triskele.models.egress import Endpoint

    try:
        if key in _SERVERS:
            checked_address(url)
        else:
            Endpoint(url=url, words=frozenset())
    except BadInput as error:
        raise BadInput(f"setting {key}: {error}") from None


def _check_service(_: Settings, key: str, name: str) -> None:
    """Refuse an unknown service; its model and key may be set afterwards."""
    module, *more = _SERVICES[key]
    services = (*import_module(module).SERVICES, *more)
    if name not in services:
        raise BadInput(f"setting {key} must be one of {', '.join(services)}, not {name!r}")


# The module that knows the services of a section, and what else the setting can be.
_SERVICES = {
    "hosted.service": ("triskele.models.hosted_embedder",),
    "rerank.service": ("triskele.models.hosted_reranker",),
    "llm.service": ("triskele.models.llm", "command"),
}
_SERVERS = ("server.url", "sync.url")
# Only when they are set: every other command does without what a mistake here switches off.
_CHECKS: dict[str, Callable[[Settings, str, str], None]] = {
    **dict.fromkeys(("recall.model", "rerank.model"), _check_model),
    **dict.fromkeys(_SERVICES, _check_service),
    **dict.fromkeys(("hosted.url", "rerank.url", "llm.url", *_SERVERS), _check_address),
}


def value_text(key: str, value: Any) -> str:
    """Write a value as `config set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return shlex.join(value) if key in COMMANDS else ", ".join(map(str, value))
    return "" if value is None else str(value)


def _by_name(settings: Settings) -> dict[str, Any]:
    values: dict[str, Any] = {"home": str(settings.home), "project": settings.project}
    for section in fields(settings):
        if is_dataclass(part := getattr(settings, section.name)):
            values |= {f"{section.name}.{field.name}": to_json(getattr(part, field.name)) for field in fields(part)}
    values["store.url"] = shown_url(settings.store.url)
    values["store.read_url"] = settings.store.read_url and shown_url(settings.store.read_url)
    return {name: {"value": value, "origin": settings.origins.get(name, "default")} for name, value in values.items()}
