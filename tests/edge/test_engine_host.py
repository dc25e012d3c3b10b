"""The engine of the resident process: when it is idle, outdated or closed, and whom it serves."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from residents import OTHER

from triskele import config
from triskele.edge.hook import client as hook_client
from triskele.edge.hook.client import NO_CHOICE
from triskele.edge.process import connect
from triskele.edge.process.engine_host import EngineHost, PackageWatch
from triskele.engine.local import LocalEngine
from triskele.engine.models import Models
from triskele.errors import StoreClosed, StoreUnavailable
from triskele.replies.rooms import HookCall
from triskele.store.values import Cursor

pytestmark = pytest.mark.slow


def test_idle_is_counted_from_the_last_question(tmp_path: Path) -> None:
    now = [0.0]
    host = EngineHost(config.load({"TRISKELE_HOME": str(tmp_path)}), clock=lambda: now[0])
    allowed = host.idle_s
    assert allowed == 30 * 60
    now[0] = allowed - 1
    assert not host.is_idle()
    host.note_use()
    now[0] += allowed - 1
    assert not host.is_idle()
    now[0] += 1
    assert host.is_idle()


def test_another_build_of_the_same_version_is_noticed_once_its_installer_is_done(tmp_path: Path) -> None:
    now = [0.0]
    code, weights = tmp_path / "__init__.py", tmp_path / "manifest.json"
    for file in (code, weights):
        file.write_text("one")
    os.utime(code, ns=(1, 1))
    watch = PackageWatch([code, weights], clock=lambda: now[0])
    now[0] = 100.0
    assert not watch.is_replaced(), "nothing was written"
    (tmp_path / "new").write_text("one")
    os.utime(tmp_path / "new", ns=(1, 1))
    (tmp_path / "new").replace(code)
    assert not watch.is_replaced(), "the installer still writes"
    now[0] = 102.0
    weights.rename(tmp_path / "away")
    assert not watch.is_replaced(), "and goes on"
    now[0] = 104.0
    (tmp_path / "away").rename(weights)
    assert not watch.is_replaced()
    now[0] = 106.0
    assert not watch.is_replaced()
    now[0] = 107.0
    assert watch.is_replaced(), "of the same size and time, but another file"


def _hosted(home: Path) -> EngineHost:
    environ = {"TRISKELE_HOME": str(home)}
    return EngineHost(config.load(environ), read_settings=lambda: config.load(environ))


def _retire() -> None:
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "triskele-retire":
            thread.join()


def test_after_a_change_of_settings_the_next_request_is_served_by_the_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRISKELE_CONFIG", raising=False)
    host = _hosted(tmp_path)
    old = host.open_engine()
    old.remember("the heron fishes at dawn")
    written: list[str] = []
    old.deferred_writes.put(lambda: written.append("what was given"))
    (tmp_path / "config.toml").write_text("[agents]\nbudget_tokens = 300\nidle_minutes = 2\n")
    assert host.is_outdated()
    new = host.open_engine()
    assert (new.settings.agents.budget_tokens, host.idle_s, written) == (300, 120, ["what was given"])
    assert [hit.memory.content for hit in new.recall("heron").hits] == ["the heron fishes at dawn"]
    assert host.open_engine() is new and not host.is_outdated()
    store = old.store
    del old
    _retire()
    with pytest.raises(StoreClosed):
        store.census()
    (tmp_path / "config.toml").write_text("[agents]\nbudget_tokens = 400\n")
    assert host.renew() and host.open_engine().settings.agents.budget_tokens == 400
    _retire()
    host.close()


def test_a_request_in_flight_keeps_its_engine_when_the_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRISKELE_CONFIG", raising=False)
    host = _hosted(tmp_path)
    first = host.open_engine()
    store = first.store
    client = first.acting_as("client:codex").working_in(tmp_path)
    (tmp_path / "config.toml").write_text("[agents]\nbudget_tokens = 300\n")
    assert host.open_engine() is not first
    del first
    # Also where only a copy is left of what was opened.
    _retire()
    client.remember("the heron fishes at dawn")
    assert [hit.memory.content for hit in client.recall("heron").hits] == ["the heron fishes at dawn"]
    del client
    _retire()
    with pytest.raises(StoreClosed):
        store.census()
    assert host.open_engine().store.census().memories == 1
    host.close()


def test_a_file_that_names_another_store_is_not_answered_from_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRISKELE_CONFIG", raising=False)
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    file = tmp_path / "config.toml"
    file.write_text(f'[store]\nurl = "{one}"\n')
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path))
    monkeypatch.setenv("TRISKELE_STORE", one)
    host = EngineHost(config.load(), read_settings=config.load)
    assert host.serves(NO_CHOICE)
    file.write_text(f'[store]\nurl = "{other}"\n')
    chosen = (one, "", "", "")
    # Before and after the process has taken it over.
    assert (host.serves(NO_CHOICE), host.serves(chosen)) == (False, True)
    assert host.renew() and not host.is_outdated()
    assert (host.serves(NO_CHOICE), host.serves(chosen)) == (False, True)
    file.write_text(f'[store]\nurl = "{one}"\n# again\n')
    assert host.renew() and host.serves(NO_CHOICE)
    host.close()
    _retire()


@pytest.mark.parametrize(
    "changed",
    [
        '[store]\nurl = "sqlite:////nowhere/other.db"\n',
        '[memory]\nowner = "ada"\n',
        '[index]\nlanguage = "german"\n',
        '[server]\nurl = "https://memory.example.com"\n',
        "[sync]\nevery_s = 0\n",
        "[agents]\nbudget_tokens = many\n",
        "[agents]\nunknown = 1\n",
    ],
)
def test_settings_that_need_another_process_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    monkeypatch.delenv("TRISKELE_CONFIG", raising=False)
    host = _hosted(tmp_path)
    host.open_engine()
    (tmp_path / "config.toml").write_text(changed)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="settings have changed"):
            host.open_engine()
        assert not host.renew()
    host.close()


def test_a_changed_or_unreadable_key_for_the_server_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRISKELE_CONFIG", "TRISKELE_KEY", "TRISKELE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.toml").write_text('[server]\nurl = "https://memory.example.com"\n')
    key = tmp_path / "server.key"

    def put(text: str, mode: int = 0o600) -> None:
        # Neither the time nor the size of the file tells the difference.
        key.write_text(text)
        key.chmod(mode)
        os.utime(key, ns=(1, 1))

    put("tsk_bob\n")
    host = _hosted(tmp_path)
    assert not host.is_outdated()
    for text, mode in (("tsk_ada\n", 0o600), ("tsk_bob\n", 0o644)):
        put(text, mode)
        assert host.is_outdated()
        with pytest.raises(StoreUnavailable, match="settings have changed"):
            host.open_engine()
    put("tsk_bob")
    assert not host.is_outdated()
    assert "tsk_bob" not in repr(vars(host))


def test_a_request_that_comes_too_late_opens_no_engine(tmp_path: Path) -> None:
    host = EngineHost(config.load({"TRISKELE_HOME": str(tmp_path)}))
    engine = host.open_engine()
    host.close()
    with pytest.raises(StoreClosed, match="is stopping"):
        host.open_engine()
    with pytest.raises(StoreClosed):
        engine.store.census()
    host.process_new_memories()


def test_rows_of_other_processes_are_embedded_when_the_journal_grew(tmp_path: Path) -> None:
    class Counted:
        upkeep: Any
        background: Any
        seq, woken, curated, is_busy = 3, 0, 0, False
        settings = config.load({})

        def position(self) -> Cursor:
            return Cursor(self.seq)

        def work_in_background(self) -> None:
            self.woken += 1

        def has_pending(self) -> bool:
            return self.is_busy

        def curate_new(self) -> bool:
            self.curated += 1
            return True

    host = EngineHost(config.load({"TRISKELE_HOME": str(tmp_path)}))
    host.process_new_memories()
    engine = Counted()
    engine.upkeep = engine.background = engine
    host._engine = engine  # type: ignore[assignment]
    woken = []
    for engine.seq in (3, 3, 4, 4):
        host.process_new_memories()
        woken.append(engine.woken)
    assert (woken, engine.curated) == ([1, 1, 2, 2], 2)
    engine.seq, engine.is_busy = 5, True
    host.process_new_memories()
    assert engine.curated == 2
    for _ in range(10):
        host.process_new_memories()
    assert engine.curated == 3
    host._engine = None


def test_prompts_are_answered_by_words_until_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config.load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "shop"})
    with LocalEngine(settings, tmp_path) as engine:
        engine.remember("Mara waters the plants on Mondays")
    host = EngineHost(settings, read_settings=lambda: settings)
    call = HookCall(event="user-prompt-submit", prompt="who waters the plants?", project="shop")
    with monkeypatch.context() as patch:
        patch.setattr(Models, "semantic", lambda _: pytest.fail("the prompt waits for the model"))
        patch.setattr(Models, "_opened_as", lambda *_: pytest.fail("the prompt waits for the model"))
        assert "Mara" in host.open_engine().agents.respond(call).text
    host.warm_up()
    answer = connect.store_of(host.open_engine()).answer("who waters the plants?", local_only=True, project="shop")
    assert "dense" in answer.hits[0].legs
    host.close()


@pytest.mark.parametrize(
    ("served", "asked", "is_served"),
    [
        ({}, {}, True),
        ({}, OTHER, False),
        ({}, {"TRISKELE_MEMORY_OWNER": "ada"}, False),
        ({}, {"TRISKELE_CONFIG": "/nowhere/config.toml"}, False),
        ({}, {"TRISKELE_STORE": "sqlite:///{home}/memories.db", "TRISKELE_MEMORY_OWNER": "me"}, True),
        ({}, {"TRISKELE_CONFIG": "{home}/config.toml"}, True),
        (OTHER, OTHER, True),
        (OTHER, {}, False),
        ({"TRISKELE_MEMORY_OWNER": "ada"}, {"TRISKELE_MEMORY_OWNER": "ada"}, True),
        ({"TRISKELE_MEMORY_OWNER": "ada"}, {}, False),
    ],
)
def test_a_process_serves_one_store_and_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: dict[str, str], asked: dict[str, str], is_served: bool
) -> None:
    base = {"TRISKELE_HOME": str(tmp_path)}
    for name, value in {**base, **served}.items():
        monkeypatch.setenv(name, value)
    host = EngineHost(config.load({**base, **served}))
    environ = base | {name: value.format(home=tmp_path) for name, value in asked.items()}
    assert host.serves(hook_client.Address(environ).choice) is is_served
