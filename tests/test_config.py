from __future__ import annotations

import re
from pathlib import Path

import pytest

from triskele import config
from triskele.errors import BadInput
from triskele.store import open as stores
from triskele.text import folders


def test_every_value_knows_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[recall]\nlimit = 7\nhalf_life_days = 80\n[memory]\ncategories = ['a', 'b']\n"
    )
    settings = config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_RECALL_HALF_LIFE_DAYS": "60"})
    assert (settings.recall.limit, settings.recall.half_life_days) == (7, 60)
    assert settings.memory.categories == ("a", "b")
    assert settings.origins["recall.limit"] == str(tmp_path / "config.toml")
    assert settings.origins["recall.half_life_days"] == "environment TRISKELE_RECALL_HALF_LIFE_DAYS"
    assert settings.origins["index.language"] == "default"
    assert settings.origins["home"] == "environment TRISKELE_HOME"


@pytest.mark.parametrize(("given", "meant"), [("true", True), ("On", True), ("1", True), ("no", False), ("0", False)])
def test_yes_and_no_may_be_said_in_several_ways(tmp_path: Path, given: str, meant: bool) -> None:
    home = {"TRISKELE_HOME": str(tmp_path)}
    assert config.load(home).recall.log is False
    assert config.load(home | {"TRISKELE_RECALL_LOG": given}).recall.log is meant
    (tmp_path / "config.toml").write_text("[recall]\nlog = true\n")
    assert config.load(home).recall.log is True
    with pytest.raises(BadInput, match=r"recall.log must be true or false, not 'perhaps'"):
        config.load(home | {"TRISKELE_RECALL_LOG": "perhaps"})


def test_the_store_follows_home_file_environment_and_argument_in_turn(tmp_path: Path) -> None:
    home = {"TRISKELE_HOME": str(tmp_path)}
    assert config.load(home).store.url == f"sqlite:///{tmp_path}/memories.db"
    (tmp_path / "config.toml").write_text("[store]\nurl = 'sqlite:////x/file.db'\n")
    assert config.load(home).store.url == "sqlite:////x/file.db"
    assert config.load(home | {"TRISKELE_STORE": "sqlite:////x/env.db"}).store.url == "sqlite:////x/env.db"
    chosen = config.load(home | {"TRISKELE_STORE": "sqlite:////x/env.db"}, store_url="sqlite:////x/arg.db")
    assert chosen.store.url == "sqlite:////x/arg.db"
    assert chosen.origins["store.url"] == "argument"


@pytest.mark.parametrize(
    "text",
    [
        "[recall]\nlimit = 'many'",
        "[recall]\nlimit = 0",
        "[recall]\nlimt = 3",
        "nonsense",
        "[store]\nurl = 3",
        "[memory]\ncategories = []",
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        config.load({"TRISKELE_HOME": str(tmp_path)})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TRISKELE_RECALL_LIMIT", "many", "recall.limit must be a whole number, not 'many'"),
        ("TRISKELE_RECALL_LIMIT", "900", "recall.limit must be between 1 and 200, not 900"),
        ("TRISKELE_RECALL_LOG", "perhaps", "recall.log must be true or false, not 'perhaps'"),
        ("TRISKELE_SERVER", "example.com", "server.url must begin with https://"),
        ("TRISKELE_MEMORY_OWNER", " ", "memory.owner must be a name on one line, not ' '"),
        ("TRISKELE_STORE", "foo://x", "not a store address: 'foo://x'"),
    ],
)
def test_an_error_names_the_environment_variable_that_caused_it(
    tmp_path: Path, variable: str, value: str, words: str
) -> None:
    with pytest.raises(BadInput, match=re.escape(words)) as refused:
        stores.check_address(config.load({"TRISKELE_HOME": str(tmp_path), variable: value}))
    assert f"(from the environment variable {variable})" in str(refused.value)
    (tmp_path / "config.toml").write_text("[recall]\nlimit = 900\n")
    with pytest.raises(BadInput, match=re.escape(f"not 900 (in {tmp_path / 'config.toml'})")):
        config.load({"TRISKELE_HOME": str(tmp_path)})


def test_what_agents_get_is_set_in_the_users_file_alone(tmp_path: Path) -> None:
    variables = {"TRISKELE_AGENTS_BUDGET_TOKENS": "100", "TRISKELE_AGENTS_PRIVATE_TO": "stranger"}
    home = {"TRISKELE_HOME": str(tmp_path), **variables}
    assert config.load(home).agents == config.AgentSettings()
    assert config.load(home).agents.private_to == ()
    (tmp_path / "config.toml").write_text(
        "[agents]\nbudget_tokens = 300\nprivate_to = ['claude-code', 'codex']\nidle_minutes = 0.5\n"
    )
    agents = config.load(home).agents
    assert (agents.budget_tokens, agents.private_to, agents.idle_minutes) == (300, ("claude-code", "codex"), 0.5)
    (tmp_path / "config.toml").write_text("[agents]\nprivate_to = []\n")
    assert config.load(home).agents.private_to == ()


@pytest.mark.parametrize(
    "line",
    [
        "budget_tokens = 99",
        "budget_tokens = 2401",
        "least_confidence = 1.1",
        "least_confidence = -0.1",
        "idle_minutes = 0",
        "private_to = ['']",
        "private_to = 3",
    ],
)
def test_what_agents_get_has_bounds(tmp_path: Path, line: str) -> None:
    (tmp_path / "config.toml").write_text(f"[agents]\n{line}\n")
    with pytest.raises(BadInput, match=f"agents.{line.split(' ')[0]}"):
        config.load({"TRISKELE_HOME": str(tmp_path)})


@pytest.mark.parametrize("url", ["notes.db", "sqlite:///", "mysql://x", "postgresql://x/y"])
def test_an_address_of_no_known_store_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        config.sqlite_path(url)


def test_addresses_are_relative_with_three_slashes_and_absolute_with_four() -> None:
    assert config.sqlite_path("sqlite:////data/notes.db") == Path("/data/notes.db")
    assert config.sqlite_path("sqlite:///notes.db") == Path.cwd() / "notes.db"


def test_a_folder_belongs_to_its_repository(tmp_path: Path) -> None:
    repository = tmp_path / "harbour"
    (repository / ".git" / "worktrees" / "fix").mkdir(parents=True)
    (repository / "src" / "deep").mkdir(parents=True)
    assert folders.discover(repository / "src" / "deep").root.name == "harbour"
    worktree = tmp_path / "harbour-fix"
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {repository}/.git/worktrees/fix\n")
    (repository / ".git" / "worktrees" / "fix" / "gitdir").write_text(f"{worktree}/.git\n")
    assert folders.discover(worktree).root.name == "harbour"
    plain = tmp_path / "notes"
    plain.mkdir()
    assert folders.discover(plain).root.name == "notes"


def test_a_submodule_keeps_its_own_name(tmp_path: Path) -> None:
    module = tmp_path / "outer" / "inner"
    module.mkdir(parents=True)
    (module / ".git").write_text("gitdir: ../.git/modules/inner\n")
    assert folders.discover(module).root.name == "inner"


def test_a_store_and_owner_named_as_in_the_file_are_those_of_the_file(tmp_path: Path) -> None:
    home = {"TRISKELE_HOME": str(tmp_path)}
    (tmp_path / "config.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/notes.db"\n[memory]\nowner = "ada"\n')
    for more, is_same in (
        ({}, True),
        ({"TRISKELE_STORE": f"sqlite:///{tmp_path}/notes.db", "TRISKELE_MEMORY_OWNER": "ada"}, True),
        ({"TRISKELE_STORE": f"sqlite:///{tmp_path}/memories.db"}, False),
        ({"TRISKELE_MEMORY_OWNER": "me"}, False),
    ):
        environ = {**home, **more}
        assert config.is_of_file(config.load(environ), environ) is is_same
    assert not config.is_of_file(config.load(home, store_url="sqlite:////elsewhere/x.db"), home)


@pytest.mark.parametrize("key", ["sk-ant-123", "aB3" * 13, "NAME OF KEY", "1KEY"])
def test_a_key_itself_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    (tmp_path / "config.toml").write_text(f'[llm]\nkey = "{key}"\n')
    with pytest.raises(BadInput, match=r"llm\.key must name an environment variable") as refused:
        config.load({"TRISKELE_HOME": str(tmp_path)})
    assert key not in str(refused.value)


def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[curation]\nllm_cals = 3\n")
    with pytest.raises(
        BadInput, match=r"curation\.llm_cals in .*`triskele config unset .* \(did you mean curation\.llm_calls\?\)"
    ):
        config.load({"TRISKELE_HOME": str(tmp_path)})


def test_the_vaults_key_is_at_a_source_or_a_path(tmp_path: Path) -> None:
    home = {"TRISKELE_HOME": str(tmp_path)}
    for key in ("file", "keyring", "/stick/my.key", "~/my.key"):
        assert config.load(home | {"TRISKELE_PRIVACY_KEY": key}).privacy.key == key
    with pytest.raises(BadInput, match=r"privacy\.key must be one of auto, .* or the path of a file, not 'my\.key'"):
        config.load(home | {"TRISKELE_PRIVACY_KEY": "my.key"})
