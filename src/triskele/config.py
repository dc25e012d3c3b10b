"""Settings from defaults, the user's TOML file and the environment, parsed once."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from triskele.errors import BadInput
from triskele.text.files import check_utf8, expanded

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Reserved names of models.
BUNDLED, NO_MODEL = "bundled", "none"
KEY_FILE = "vault.key"
CONFIG_FILE = "config.toml"
SERVER_KEY_FILE, SYNC_KEY_FILE = "server.key", "sync.key"
# The fingerprint of every hosted model begins with this.
HOSTED = "hosted-"
DEFAULT_CATEGORIES = ("facts", "preferences", "projects", "people", "decisions", "lessons", "procedures")
# Where recall ranks over a Postgres store.
LOCAL, DATABASE = "local", "database"
LEARNING = ("off", "strict", "normal", "all")
KEY_SOURCES = ("auto", "keyring", "passphrase", "file", "environment", "command")

# Environment variables that are not named after their setting.
VARIABLES = {"store.url": "TRISKELE_STORE", "store.read_url": "TRISKELE_READ_STORE", "server.url": "TRISKELE_SERVER"}
# The variables that choose a store, an owner and a server.
_CHOICE = ("TRISKELE_STORE", "TRISKELE_MEMORY_OWNER", "TRISKELE_SERVER")
# Settings that may hold a path.
_PATHS = (".model", ".key", "_file")
# Settings that are a command with its arguments.
COMMANDS = ("llm.command", "privacy.key_command")
_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
# A variable of the environment, a path, or nothing.
_KEY_NAME = r"([A-Z_][A-Z0-9_]*)?\Z|~|.*[/\\]"
# The values of `curation.mode`.
OFF, PROPOSE, APPLY = "off", "propose", "apply"

Value = TypeVar("Value")


def _within(low: float, high: float, default: Value) -> Value:
    """A number with bounds."""
    value: Value = field(default=default, metadata={"bounds": (low, high)})
    return value


def _matching(pattern: str, problem: str, default: str = "") -> str:
    """A text that matches a pattern; `problem` may show the text."""
    text: str = field(default=default, metadata={"pattern": pattern, "problem": problem})
    return text


def _server_url() -> str:
    problem = " must begin with https:// (or http:// on this machine), not {!r}"
    return _matching(r"\Z|https?://[^/\s]", problem)


def _choice(*values: str) -> str:
    """One of these words; the first is the default."""
    word: str = field(default=values[0], metadata={"values": values})
    return word


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The address of the store: `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/name`.

    `corpus` says where recall ranks over Postgres: by indexes on this machine, `local`, or inside the `database`.
    `read_url` is the address of a replica that recall may read from.
    """

    url: str
    read_url: str = ""
    corpus: str = _choice(LOCAL, DATABASE)

    @property
    def is_file(self) -> bool:
        """Whether the store is a file of this machine, which has one user."""
        return self.url.startswith("sqlite:")


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Length, categories and owner of memories."""

    max_characters: int = _within(20, 100_000, 1400)
    categories: tuple[str, ...] = DEFAULT_CATEGORIES
    owner: str = "me"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The language that words are indexed in."""

    language: str = "english"


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """Length of answers, local model, log, and half-life of importance."""

    limit: int = _within(1, 200, 10)
    half_life_days: float = _within(0, 36_500, 0.0)
    model: str = BUNDLED
    log: bool = False


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Source of the vault's key: a kind or a file's path.

    `file` is `vault.key` in the data folder; `key_command` prints the key, in base64.
    """

    key: str = "auto"
    key_command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """A model behind a service; `key` names a variable or a file."""

    service: str = ""
    model: str = ""
    url: str = ""
    key: str = _matching(_KEY_NAME, " must name an environment variable or a file; the key itself does not belong here")
    timeout_s: float = _within(0.1, 600, 2.0)


@dataclass(frozen=True, slots=True)
class HostedSettings(ServiceSettings):
    """A hosted embedding model beside the local one; `timeout_s` bounds a question."""

    dimensions: int = _within(0, 100_000, 0)


@dataclass(frozen=True, slots=True)
class RerankSettings(ServiceSettings):
    """A cross-encoder, hosted if `service` is set; used on request or `always`."""

    always: bool = False


@dataclass(frozen=True, slots=True)
class LlmSettings(ServiceSettings):
    """A language model, hosted or a command; `expand` lets it rewrite queries."""

    command: tuple[str, ...] = ()
    price_per_million: float = 0.0
    timeout_s: float = _within(0.1, 600, 10.0)
    expand: bool = False


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """Curation mode: `propose` fills the review queue, `apply` applies sure decisions.

    `learn` lets conversations be learned from: off, strict, normal or all; a message that fits a pattern of
    `learn_skip` is left out. A language model judges undecided pairs and reads relations and conversations, with at
    most `llm_calls` requests a day.
    """

    mode: str = _choice(PROPOSE, APPLY, OFF)
    learn: str = _choice(*LEARNING)
    learn_skip: tuple[str, ...] = ()
    llm_calls: int = _within(0, 10_000, 0)


CURATION_OFF = CurationSettings(mode=OFF)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Limits of injections, clients that see private memories, and the background process.

    `background` lets the command line start it for texts that wait to be embedded; hooks and MCP always need it.
    """

    budget_tokens: int = _within(100, 2400, 1200)
    least_confidence: float = _within(0, 1, 0.15)
    private_to: tuple[str, ...] = ()
    idle_minutes: float = _within(0.01, 10_080, 30.0)
    background: bool = True

    def shows_private_to(self, client: str | None) -> bool:
        """Whether a client of this name may see private memories."""
        return (client or "").strip().lower() in {name.strip().lower() for name in self.private_to}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server for others: host names, proxies, TLS files, key of probes, quotas (0: none).

    `url` points commands, hooks and agents of this machine at such a server.
    """

    url: str = _server_url()
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    certificate_file: str = ""
    private_key_file: str = ""
    metrics_key_file: str = ""
    open_memories: int = _within(1, 10_000, 64)
    requests_per_minute: int = _within(0, 1_000_000, 1200)
    memories_per_user: int = _within(0, 1_000_000_000, 1_000_000)
    model_tokens_per_day: int = _within(0, 1_000_000_000, 0)


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """A server to sync this machine's own store with; none without `url`.

    The resident process syncs every `every_s` seconds; with 0 only `triskele sync` does.
    """

    url: str = _server_url()
    every_s: float = _within(0, 86_400, 60.0)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with the origin of each value."""

    home: Path
    project: str | None
    store: StoreSettings
    memory: MemorySettings = MemorySettings()
    index: IndexSettings = IndexSettings()
    recall: RecallSettings = RecallSettings()
    privacy: PrivacySettings = PrivacySettings()
    hosted: HostedSettings = HostedSettings()
    rerank: RerankSettings = RerankSettings()
    llm: LlmSettings = LlmSettings()
    agents: AgentSettings = AgentSettings()
    curation: CurationSettings = CurationSettings()
    server: ServerSettings = ServerSettings()
    sync: SyncSettings = SyncSettings()
    origins: Mapping[str, str] = field(default_factory=dict)


# Sections that decide where texts are sent: only the user's file sets them, because a project's folder can set
# environment variables.
OUTSIDE = ("hosted", "rerank", "llm", "agents", "curation", "sync")
# In these sections, but harmless: it decides which process embeds.
_NOT_OUTSIDE = ("agents.background",)
# Run as a program: only the user's file names it.
_OF_FILE = ("privacy.key_command",)

Section = TypeVar("Section", bound="DataclassInstance")


class _BadSetting(BadInput):
    """A value that a setting cannot have; `load` adds its origin."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"setting {key}{problem}")
        self.key = key


def load(environment: Mapping[str, str] | None = None, *, store_url: str | None = None) -> Settings:
    """Read the user's settings; nothing comes from the working directory."""
    source = _Source(dict(os.environ if environment is None else environment))
    try:
        return _loaded(source, store_url)
    except _BadSetting as error:
        raise BadInput(f"{error}{source_of(source.origins, error.key)}") from error.__cause__


def _loaded(source: _Source, store_url: str | None) -> Settings:
    home = check_utf8(expanded(source.value("home", "") or _default_home()))
    source.read_file(file_of(source.environment, home))
    if store_url is not None:
        # The replica of another store is not a replica of this one.
        for key, url in (("store.url", store_url), ("store.read_url", "")):
            source.environment.pop(VARIABLES[key], None)
            source.values[key] = (url, "argument")
    project = source.value("project", "") or None
    defaults: dict[str, Any] = {"store": StoreSettings(url=f"sqlite:///{home / 'memories.db'}")}
    defaults |= {section.name: section.default for section in fields(Settings) if is_dataclass(section.default)}
    sections: dict[str, Any] = {name: source.section(name, default) for name, default in defaults.items()}
    settings = Settings(home=home, project=project, origins=source.origins, **sections)
    source.refuse_unknown()
    _check(settings)
    return settings


def file_of(environment: Mapping[str, str], home: Path) -> Path:
    """The path of the user's settings file, whether or not it exists."""
    return Path(environment.get("TRISKELE_CONFIG") or home / CONFIG_FILE)


def source_of(origins: Mapping[str, str], key: str) -> str:
    """The origin of a value in brackets, for an error message."""
    kind, _, variable = (origin := origins.get(key, "default")).partition(" ")
    file = "" if kind in ("default", "argument") else f" (in {origin})"
    return f" (from the environment variable {variable})" if kind == "environment" else file


def without_choice(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that leaves store, owner and server to the settings file."""
    return {name: value for name, value in environment.items() if name not in _CHOICE}


def is_of_file(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether store, owner and server equal those in the settings file."""
    chosen = ("store.url", "memory.owner", "server.url")
    if not any(settings.origins[key].startswith(("environment", "argument")) for key in chosen):
        return True
    named = load(without_choice(environment))
    is_same = (named.memory.owner, named.server.url) == (settings.memory.owner, settings.server.url)
    return is_same and is_same_store(named.store.url, settings.store.url)


def is_same_store(one: str, other: str) -> bool:
    """Whether two addresses name the same store, however they are written."""
    if one.startswith("sqlite:") and other.startswith("sqlite:"):
        return sqlite_path(one) == sqlite_path(other)
    return one == other


def sqlite_path(url: str) -> Path:
    """The file of a `sqlite:///` address."""
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise BadInput(f"not a store address: {url!r} (write sqlite:///notes.db or sqlite:////absolute/notes.db)")
    return check_utf8(expanded(url.removeprefix(prefix)))


def shown_url(url: str) -> str:
    """A store's address without user and password."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return url if scheme == "sqlite" else f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


class _Source:
    """Looks values up in environment, file and defaults; records their origins."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.values: dict[str, tuple[Any, str]] = {}
        self.origins: dict[str, str] = {}

    def read_file(self, path: Path) -> None:
        """Read the values of a TOML file, if it exists."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            if _holds_nul(document):
                raise ValueError("a value holds a NUL character")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot read the settings in {path}: {error}") from error
        except RecursionError:
            raise BadInput(f"cannot read the settings in {path}: they are nested too deep") from None
        for name, value in document.items():
            pairs = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
            self.values |= {key: (v, str(path)) for key, v in pairs.items()}

    def value(self, key: str, default: Value) -> Value:
        """A setting's value from its variable, the file or the default."""
        section, _, _ = key.partition(".")
        value, origin = self.values.pop(key, (default, "default"))
        variable = VARIABLES.get(key, f"TRISKELE_{key}".replace(".", "_").upper())
        is_open = key not in _OF_FILE and (section not in OUTSIDE or key in _NOT_OUTSIDE)
        if self.environment.get(variable) and is_open:
            value, origin = self.environment[variable], f"environment {variable}"
        self.origins[key] = origin
        return converted(key, value, default)

    def section(self, name: str, defaults: Section) -> Section:
        """The settings of a section."""
        values = {
            each.name: self.value(f"{name}.{each.name}", getattr(defaults, each.name)) for each in fields(defaults)
        }
        return type(defaults)(**values)

    def refuse_unknown(self) -> None:
        """Refuse a setting that does not exist, because it is probably misspelled."""
        for key, (_, origin) in self.values.items():
            if any(known.startswith(f"{key}.") for known in self.origins):
                raise BadInput(f"{key} in {origin} must be a section [{key}]: `triskele config unset {key}` removes it")
            # Imported here: a wrong setting is rare.
            from difflib import get_close_matches

            hint = "".join(f" (did you mean {name}?)" for name in get_close_matches(key, self.origins, n=1, cutoff=0.7))
            raise BadInput(f"unknown setting {key} in {origin}: correct it or run `triskele config unset {key}`{hint}")


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nul, (*value, *value.values())))
    return any(map(_holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def converted(key: str, value: object, default: Value) -> Value:
    """A value of the type of the default, from text or TOML."""
    kind = type(default)
    result: object = None
    if isinstance(default, bool):
        expected, result = "true or false", _TRUTH.get(str(value).lower())
    elif isinstance(default, tuple):
        expected, words = "a list of words", words_of(key, value) if isinstance(value, str) else value
        if isinstance(words, list | tuple) and all(isinstance(word, str) and word for word in words):
            result = tuple(words) if words or not default else None
    elif isinstance(default, str):
        expected, result = "text", value
        if isinstance(value, str) and key.endswith(_PATHS):
            expanded(value)
    else:
        expected = "a whole number" if isinstance(default, int) else "a number"
        with suppress(ValueError, OverflowError):
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                result = int(value) if isinstance(default, int) else float(value)
    if isinstance(result, kind):
        return result
    raise _BadSetting(key, f" must be {expected}, not {value!r}")


def words_of(key: str, text: str) -> list[str]:
    """Split a list setting at commas, and a command like a shell."""
    if key not in COMMANDS:
        return [word for part in text.split(",") if (word := part.strip())]
    # Imported here: few settings are commands.
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        raise _BadSetting(key, f" must be a command with its arguments, not {text!r}: a quote is open") from None


def _check(settings: Settings) -> None:
    store = settings.store
    if store.corpus == DATABASE and store.is_file:
        raise _BadSetting("store.corpus", f": only a Postgres store has a {DATABASE} corpus; write {LOCAL}")
    if store.read_url and not store.url.startswith("postgres"):
        raise _BadSetting("store.read_url", ": only a Postgres store has replicas; remove it")
    if not settings.memory.owner.strip() or not settings.memory.owner.isprintable():
        raise _BadSetting("memory.owner", f" must be a name on one line, not {settings.memory.owner!r}")
    key = settings.privacy.key
    if key not in KEY_SOURCES and not is_path(key):
        raise _BadSetting("privacy.key", f" must be one of {', '.join(KEY_SOURCES)} or the path of a file, not {key!r}")
    for pattern in settings.curation.learn_skip:
        try:
            re.compile(pattern)
        except re.error:
            raise _BadSetting("curation.learn_skip", f": {pattern!r} is not a regular expression") from None
    for section in fields(settings):
        part = getattr(settings, section.name)
        if is_dataclass(part) and not isinstance(part, type):
            _check_fields(section.name, part)


def _check_fields(section: str, part: DataclassInstance) -> None:
    for setting in fields(part):
        key, value = f"{section}.{setting.name}", getattr(part, setting.name)
        low, high = setting.metadata.get("bounds", (value, value))
        if not low <= value <= high:
            raise _BadSetting(key, f" must be between {low} and {high}, not {value}")
        values = setting.metadata.get("values", (value,))
        if value not in values:
            raise _BadSetting(key, f" must be one of {', '.join(values)}, not {value!r}")
        if "pattern" in setting.metadata and not re.match(setting.metadata["pattern"], value):
            raise _BadSetting(key, setting.metadata["problem"].format(value))


def is_path(text: str) -> bool:
    """Whether a text is written as a path."""
    return text.startswith("~") or bool({"/", os.sep} & set(text))


def _default_home() -> Path:
    # Imported here: not needed if TRISKELE_HOME is set.
    import platformdirs

    return Path(platformdirs.user_data_dir("triskele", appauthor=False))
