"""Settings: defaults, then the user's TOML file, then the environment, parsed once and frozen."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
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

# The variables that choose a store, an owner and a server.
_CHOICE = ("TRISKELE_STORE", "TRISKELE_MEMORY_OWNER", "TRISKELE_SERVER")
# Settings that may hold a path.
_PATHS = (".model", ".key_file", ".certificate_file", ".private_key_file")
# Settings that are a command with its arguments.
COMMANDS = ("llm.command", "privacy.key_command")
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The address of the store: `sqlite:///relative.db`, `sqlite:////absolute.db` or `postgresql://user@host/name`.

    `corpus` says where recall ranks over Postgres: by indexes on this machine, `local`, or inside the `database`.
    `read_url` is the address of a replica that recall may read from.
    """

    url: str
    read_url: str = ""
    busy_timeout_s: float = 30.0
    corpus: str = LOCAL


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Limits, categories and owner of memories."""

    max_characters: int = 1400
    max_label_characters: int = 500
    categories: tuple[str, ...] = DEFAULT_CATEGORIES
    owner: str = "me"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """How words are indexed."""

    language: str = "english"
    tail_cap: int = 256


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """How answers are ranked and how long they are; with `half_life_days` importance halves after that many days."""

    limit: int = 10
    depth: int = 100
    importance_prior: float = 0.3
    half_life_days: float = 0.0
    model: str = BUNDLED
    embed_first: int = 16
    log: bool = False


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Where the vault's key is kept: auto, keyring, passphrase, file, environment or command.

    `key_file` is in the data folder by default; `key_command` prints the key, in base64.
    """

    key: str = "auto"
    key_file: str = ""
    key_command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostedSettings:
    """A hosted embedding model, used in addition to the local one; off without `service`."""

    service: str = ""
    model: str = ""
    url: str = ""
    key_variable: str = ""
    key_file: str = ""
    dimensions: int = 0
    price_per_million: float = 0.0
    timeout_s: float = 10.0
    question_timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class RerankSettings:
    """A cross-encoder: hosted if `service` is set, else `bundled`, a folder or a hub model; on request or `always`."""

    model: str = ""
    service: str = ""
    url: str = ""
    key_variable: str = ""
    key_file: str = ""
    price_per_million: float = 0.0
    timeout_s: float = 2.0
    depth: int = 30
    always: bool = False


@dataclass(frozen=True, slots=True)
class LlmSettings:
    """A language model: openai, anthropic, compatible, or your own command; `expand` lets it rewrite queries."""

    service: str = ""
    model: str = ""
    url: str = ""
    key_variable: str = ""
    key_file: str = ""
    command: tuple[str, ...] = ()
    price_per_million: float = 0.0
    timeout_s: float = 10.0
    expand: bool = False


@dataclass(frozen=True, slots=True)
class CurationSettings:
    """How the store is kept clean: `propose` fills the review queue, `apply` applies sure decisions without a review.

    `daily_share` of the memories is the most that may be changed in a day without a review. `learn` lets conversations
    be learned from: off, strict, normal or all; a message that fits a pattern of `learn_skip` is left out. `llm` lets
    the language model judge undecided pairs, and read relations and conversations, at most `llm_calls` times a day.
    """

    propose: bool = True
    apply: bool = False
    daily_share: float = 0.05
    learn: str = "off"
    learn_skip: tuple[str, ...] = ()
    llm: bool = False
    llm_calls: int = 50


CURATION_OFF = CurationSettings(propose=False)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Limits of what is injected into agents, which clients may see private memories, and the resident process.

    `background` lets the command line start it for texts that wait to be embedded; hooks and MCP always need it.
    """

    most: int = 5
    budget_tokens: int = 1200
    least_confidence: float = 0.15
    private_to: tuple[str, ...] = ()
    idle_minutes: float = 30.0
    background: bool = True

    def shows_private_to(self, client: str | None) -> bool:
        """Whether a client of this name may see private memories."""
        return (client or "").strip().lower() in {name.strip().lower() for name in self.private_to}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server for others: accepted host names, trusted proxies, TLS files, quotas per user (0: none).

    `url` points commands, hooks and agents of this machine at such a server; the key is in `key_file`, by default
    `server.key` in the data folder.
    """

    url: str = ""
    key_file: str = ""
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    certificate_file: str = ""
    private_key_file: str = ""
    open_memories: int = 64
    requests_per_minute: int = 1200
    memories_per_user: int = 1_000_000
    model_tokens_per_day: int = 0


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """A server to sync this machine's own store with; none without `url`.

    The key is in `key_file`, by default `sync.key` in the data folder. `automatic` syncs while the resident process
    runs, every `every_s` seconds.
    """

    url: str = ""
    key_file: str = ""
    automatic: bool = True
    every_s: float = 60.0


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
    """A value that a setting cannot have, until `load` knows where it came from."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"setting {key}{problem}")
        self.key = key


def load(environment: Mapping[str, str] | None = None, *, store_url: str | None = None) -> Settings:
    """Read the settings of this user; nothing is read from the working directory."""
    source = _Source(dict(os.environ if environment is None else environment))
    try:
        return _loaded(source, store_url)
    except _BadSetting as error:
        raise BadInput(f"{error}{source_of(source.origins, error.key)}") from error.__cause__


def _loaded(source: _Source, store_url: str | None) -> Settings:
    home = check_utf8(expanded(source.value("home", "TRISKELE_HOME", lambda: str(_default_home()))))
    source.read_file(file_of(source.environment, home))
    if store_url is not None:
        # The replica of another store is not a replica of this one.
        for variable in ("TRISKELE_STORE", "TRISKELE_READ_STORE"):
            source.environment.pop(variable, None)
        source.given |= {"store.url": (store_url, "argument"), "store.read_url": (None, "argument")}
    url = source.value("store.url", "TRISKELE_STORE", lambda: f"sqlite:///{home / 'memories.db'}")
    read_url = source.value("store.read_url", "TRISKELE_READ_STORE", lambda: "")
    server = source.value("server.url", "TRISKELE_SERVER", lambda: "")
    project = source.value("project", "TRISKELE_PROJECT", lambda: "") or None
    # Sections that other values are part of; the rest are as the defaults of `Settings`.
    given = {"store": StoreSettings(url=url, read_url=read_url), "server": ServerSettings(url=server)}
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Settings) if is_dataclass(each.default)}
    sections: dict[str, Any] = {name: source.section(name, section) for name, section in (defaults | given).items()}
    settings = Settings(home=home, project=project, origins=source.origins, **sections)
    source.refuse_unknown()
    _check(settings)
    return settings


def file_of(environment: Mapping[str, str], home: Path) -> Path:
    """The path of the user's settings file, whether or not it exists."""
    return Path(environment.get("TRISKELE_CONFIG") or home / CONFIG_FILE)


def source_of(origins: Mapping[str, str], key: str) -> str:
    """Which environment variable or file set a value, in brackets, for an error about it."""
    kind, _, variable = (origin := origins.get(key, "default")).partition(" ")
    file = "" if kind in ("default", "argument") else f" (in {origin})"
    return f" (from the environment variable {variable})" if kind == "environment" else file


def without_choice(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment that leaves store, owner and server to the settings file."""
    return {name: value for name, value in environment.items() if name not in _CHOICE}


def is_of_file(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Whether store, owner and server are those of the settings file, however they were named."""
    chosen = ("store.url", "memory.owner", "server.url")
    if not any(settings.origins[key].startswith(("environment", "argument")) for key in chosen):
        return True
    named = load(without_choice(environment))
    is_same = (named.memory.owner, named.server.url) == (settings.memory.owner, settings.server.url)
    return is_same and is_same_store(named.store.url, settings.store.url)


def is_same_store(one: str, other: str) -> bool:
    """Whether two addresses name the same store; the same file can be written in several ways."""
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
    """The address of a store without user and password, for messages and names."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    return url if scheme == "sqlite" else f"{scheme}{separator}{place.rpartition('@')[2]}{slash}{path}"


class _Source:
    """Looks a value up in the environment, then in the file, then in the defaults, and records its origin."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.given: dict[str, tuple[Any, str]] = {}
        self.origins: dict[str, str] = {}

    def read_file(self, path: Path) -> None:
        """Read the values of a TOML file; a missing file is an empty one."""
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
            self.given |= {key: (v, str(path)) for key, v in pairs.items()}

    def value(self, key: str, variable: str, default: Callable[[], str]) -> str:
        """One text value; its origin is recorded."""
        if self.environment.get(variable):
            self.origins[key] = f"environment {variable}"
            self.given.pop(key, None)
            return self.environment[variable]
        value, origin = self.given.pop(key, (None, "default"))
        self.origins[key] = origin
        if value is None:
            return default()
        if not isinstance(value, str):
            raise _BadSetting(key, f" must be text, not {value!r}")
        return value

    def section(self, name: str, defaults: Section) -> Section:
        """A section's settings: each field can be set as NAME.FIELD or, except in OUTSIDE, as TRISKELE_NAME_FIELD."""
        values = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
        for key, default in values.items():
            full, variable = f"{name}.{key}", f"TRISKELE_{name}_{key}".upper()
            if full in self.origins:
                continue
            given, origin = self.given.pop(full, (default, "default"))
            is_open = full not in _OF_FILE and (name not in OUTSIDE or full in _NOT_OUTSIDE)
            if self.environment.get(variable) and is_open:
                given, origin = self.environment[variable], f"environment {variable}"
            self.origins[full] = origin
            values[key] = _converted(full, given, default)
        return type(defaults)(**values)

    def refuse_unknown(self) -> None:
        """Refuse a setting that does not exist, because it is probably misspelled."""
        for key, (_, origin) in self.given.items():
            if any(known.startswith(f"{key}.") for known in self.origins):
                raise BadInput(f"{key} in {origin} must be a section [{key}]: `triskele config unset {key}` removes it")
            raise BadInput(f"unknown setting {key} in {origin}: correct it or run `triskele config unset {key}`")


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nul, (*value, *value.values())))
    return any(map(_holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _converted(key: str, given: object, default: object) -> object:
    if isinstance(default, bool):
        word = str(given).lower()
        if word in _YES | _NO:
            return word in _YES
        raise _BadSetting(key, f" must be true or false, not {given!r}")
    if isinstance(default, tuple):
        items = words_of(key, given) if isinstance(given, str) else given
        if isinstance(items, list | tuple) and (items or not default) and all(isinstance(i, str) and i for i in items):
            return tuple(items)
        raise _BadSetting(key, f" must be a list of words, not {given!r}")
    if isinstance(default, str) or isinstance(given, bool):
        if isinstance(given, str):
            if key.endswith(_PATHS):
                expanded(given)
            return given
        raise _BadSetting(key, f" must be {'text' if isinstance(default, str) else 'a number'}, not {given!r}")
    try:
        return type(default)(given)  # type: ignore[call-arg]
    except (TypeError, ValueError) as error:
        raise _BadSetting(key, f" must be a number, not {given!r}") from error


def words_of(key: str, text: str) -> list[str]:
    """A list setting written as text: a command is split like a shell does, everything else at commas."""
    if key not in COMMANDS:
        return [part.strip() for part in text.split(",")]
    # Imported here: few settings are commands.
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        raise _BadSetting(key, f" must be a command with its arguments, not {text!r}: a quote is open") from None


def _check(settings: Settings) -> None:
    store = settings.store
    for key, chosen, known in (
        ("store.corpus", store.corpus, (LOCAL, DATABASE)),
        ("privacy.key", settings.privacy.key, KEY_SOURCES),
        ("curation.learn", settings.curation.learn, LEARNING),
    ):
        if chosen not in known:
            raise _BadSetting(key, f" must be one of {', '.join(known)}, not {chosen!r}")
    if store.corpus == DATABASE and store.url.startswith("sqlite:"):
        raise _BadSetting("store.corpus", f": only a Postgres store has a {DATABASE} corpus; write {LOCAL}")
    if store.read_url and not store.url.startswith("postgres"):
        raise _BadSetting("store.read_url", ": only a Postgres store has replicas; remove it")
    for key, url in (("server.url", settings.server.url), ("sync.url", settings.sync.url)):
        if url and not re.match(r"https?://[^/\s]", url):
            raise _BadSetting(key, f" must begin with https:// (or http:// on this machine), not {url!r}")
    if not settings.memory.owner.strip() or not settings.memory.owner.isprintable():
        raise _BadSetting("memory.owner", f" must be a name on one line, not {settings.memory.owner!r}")
    for pattern in settings.curation.learn_skip:
        try:
            re.compile(pattern)
        except re.error:
            raise _BadSetting("curation.learn_skip", f": {pattern!r} is not a regular expression") from None
    bounds: list[tuple[str, float, float, float]] = [
        ("memory.max_characters", settings.memory.max_characters, 20, 100_000),
        ("memory.max_label_characters", settings.memory.max_label_characters, 20, 10_000),
        ("index.tail_cap", settings.index.tail_cap, 1, 10_000),
        ("recall.limit", settings.recall.limit, 1, 200),
        ("recall.depth", settings.recall.depth, 1, 1000),
        ("recall.embed_first", settings.recall.embed_first, 0, 10_000),
        ("recall.importance_prior", settings.recall.importance_prior, 0, 1),
        ("recall.half_life_days", settings.recall.half_life_days, 0, 36_500),
        ("store.busy_timeout_s", settings.store.busy_timeout_s, 0, 600),
        ("hosted.dimensions", settings.hosted.dimensions, 0, 100_000),
        ("hosted.timeout_s", settings.hosted.timeout_s, 0.1, 600),
        ("hosted.question_timeout_s", settings.hosted.question_timeout_s, 0.1, 60),
        ("rerank.timeout_s", settings.rerank.timeout_s, 0.1, 60),
        ("rerank.depth", settings.rerank.depth, 2, 200),
        ("llm.timeout_s", settings.llm.timeout_s, 0.1, 600),
        ("curation.daily_share", settings.curation.daily_share, 0, 1),
        ("curation.llm_calls", settings.curation.llm_calls, 0, 10_000),
        ("agents.most", settings.agents.most, 1, 5),
        ("agents.budget_tokens", settings.agents.budget_tokens, 100, 2400),
        ("agents.least_confidence", settings.agents.least_confidence, 0, 1),
        ("agents.idle_minutes", settings.agents.idle_minutes, 0.01, 10_080),
        ("server.open_memories", settings.server.open_memories, 1, 10_000),
        ("server.requests_per_minute", settings.server.requests_per_minute, 0, 1_000_000),
        ("server.memories_per_user", settings.server.memories_per_user, 0, 1_000_000_000),
        ("sync.every_s", settings.sync.every_s, 1, 86_400),
        ("server.model_tokens_per_day", settings.server.model_tokens_per_day, 0, 1_000_000_000),
    ]
    for key, value, low, high in bounds:
        if not low <= value <= high:
            raise _BadSetting(key, f" must be between {low} and {high}, not {value}")


def _default_home() -> Path:
    # Imported here: not needed if TRISKELE_HOME is set.
    import platformdirs

    return Path(platformdirs.user_data_dir("triskele", appauthor=False))
