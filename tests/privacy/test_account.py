"""The doctor tells what left, when and to whom; nothing is lost from the account, whoever counts at the same time."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest
from capture import Capture, answer
from click.testing import CliRunner

from triskele.edge.cli.main import cli
from triskele.engine.local import LocalEngine
from triskele.errors import ModelUnavailable
from triskele.models.egress import Bill, Departure
from triskele.recall.hosted.egress_log import StoreLedger, days, sent
from triskele.store.sqlite.store import SqliteStore
from triskele.text import timestamps
from triskele.types import Add, Sensitivity

TEXTS = ("the heron nests by the mill", "the ferry leaves at noon", "bread is baked on Mondays")


@pytest.fixture
def server() -> Iterator[loopback.Loopback]:
    with loopback.serving(answer) as state:
        yield state


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: loopback.Loopback) -> Iterator[LocalEngine]:
    """A memory whose settings name the capture for everything."""
    opened = Capture(tmp_path, 10, monkeypatch, server).engine
    opened.apply([Add(opened.draft(text)) for text in TEXTS])
    yield opened
    opened.close()


def doctor(*options: str) -> str:
    done = CliRunner().invoke(cli, ["doctor", *options], prog_name="triskele")
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def told() -> dict[str, Any]:
    report: dict[str, Any] = json.loads(doctor("--json"))
    return report


def test_without_settings_nothing_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRISKELE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "none")
    assert (told()["outside"], told()["left"]) == ({}, [])
    assert (
        "No hosted model is configured; nothing leaves this machine. ✓ Nothing was sent from this machine." in doctor()
    )


def test_doctor_names_the_services_before_the_first_request(engine: LocalEngine) -> None:
    assert told()["outside"] == dict.fromkeys(("hosted", "hosted questions", "rerank", "llm"), "127.0.0.1")
    assert told()["left"] == []
    assert "Open memories and queries may be sent to 127.0.0.1 (hosted)" in doctor()
    assert "Nothing was sent from this machine." in doctor()


def test_doctor_counts_sent_texts_by_day_and_endpoint(engine: LocalEngine, server: loopback.Loopback) -> None:
    engine.upkeep.embed()
    engine.models.embed_hosted()
    engine.recall("who bakes the cake", rerank="cross")
    by_endpoint = {day["endpoint"]: day for day in told()["left"]}
    read = by_endpoint["hosted"]
    assert (read["requests"], read["texts"], read["characters"]) == (1, 3, sum(map(len, TEXTS)))
    assert (read["host"], read["day"]) == ("127.0.0.1", timestamps.now().date().isoformat())
    assert read["tokens"] == sum(map(len, TEXTS))
    assert by_endpoint["hosted questions"]["texts"] == 1
    # The question goes with every text in one request.
    assert by_endpoint["rerank"]["texts"] == by_endpoint["rerank"]["requests"] * (1 + len(TEXTS))
    assert sum(day["requests"] for day in by_endpoint.values()) == len(server.seen)
    output = doctor()
    assert f"3 texts, {read['characters']} characters to 127.0.0.1 (hosted), 1 request" in output
    assert not any(text in output or text in json.dumps(told()) for text in TEXTS)


def test_counts_of_sent_texts_outlive_the_settings(engine: LocalEngine, tmp_path: Path) -> None:
    engine.models.embed_hosted()
    (tmp_path / "home" / "config.toml").unlink()
    assert told()["outside"] == {} and told()["left"][0]["texts"] == 3
    assert "No hosted model" in doctor() and "3 texts" in doctor() and "Nothing was sent" not in doctor()


@pytest.mark.parametrize("status", [429, 500, 401])
def test_every_try_counts_and_failures_are_not_billed(
    engine: LocalEngine, server: loopback.Loopback, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    outside = engine.models.services()
    assert outside is not None
    monkeypatch.setattr(outside.client, "_pause", lambda seconds: None)
    server.turns.extend([loopback.refuse(status)] * 3)
    with pytest.raises(ModelUnavailable):
        engine.models.embed_hosted()
    tries = 1 if status == 401 else 3
    (day,) = told()["left"]
    assert (day["requests"], day["texts"], day["tokens"]) == (tries, 3 * tries, 0)
    assert len(server.seen) == tries
    # While the endpoint rests nothing leaves, and nothing is counted.
    if status != 401:
        with pytest.raises(ModelUnavailable, match="failed recently"):
            engine.models.embed_hosted()
        assert told()["left"] == [day]
    # What was tried was sent, as far as anybody knows.
    assert all(len(engine.get(memory.id).sent) == 1 for memory in engine.browse().memories)


def test_private_memories_are_in_no_account(engine: LocalEngine) -> None:
    hidden = engine.remember("the diary is under the bed", sensitivity=Sensitivity.PRIVATE).id
    engine.models.embed_hosted()
    assert list(engine.get(hidden).sent) == []
    (day,) = told()["left"]
    assert (day["texts"], day["characters"]) == (3, sum(map(len, TEXTS)))


def _departure(number: int) -> Departure:
    return Departure("far", "far.example", timestamps.now(), 1, 2, 30, frozenset())


def count_up(path: str, times: int) -> None:
    """In a process of its own."""
    unbound = SqliteStore(Path(path), busy_timeout_s=60.0)
    store = unbound.for_owner("me")
    ledger = StoreLedger(store)
    for number in range(times):
        ledger.leaving(_departure(number))
        ledger.billed(Bill("far", timestamps.now(), 5, 0.25, "far.example"))
    unbound.close()


def _in_processes(path: Path, times: int) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=count_up, args=(str(path), times)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]


def _in_threads(path: Path, times: int) -> None:
    threads = [threading.Thread(target=count_up, args=(str(path), times)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(("together", "counters"), [(_in_processes, 2), (_in_threads, 4)])
def test_concurrent_counts_lose_nothing(tmp_path: Path, together: Callable[[Path, int], None], counters: int) -> None:
    path, times = tmp_path / "store.db", 25
    together(path, times)
    unbound = SqliteStore(path, busy_timeout_s=60.0)
    store = unbound.for_owner("me")
    counts = days(store)
    unbound.close()
    assert {day.endpoint for day in counts} == {"far"}
    done = counters * times
    assert sum(day.requests for day in counts) == done
    assert sum(day.texts for day in counts) == 2 * done and sum(day.characters for day in counts) == 30 * done
    assert sum(day.tokens for day in counts) == 5 * done
    assert sum(day.cost for day in counts) == pytest.approx(0.25 * done)


def test_account_holds_the_first_and_last_time(engine: LocalEngine) -> None:
    memory = engine.browse().memories[0]
    ledger = StoreLedger(engine.store)
    for host in ("far.example", "near.example", "far.example"):
        ledger.leaving(Departure("far", host, timestamps.now(), 1, 1, 5, frozenset({memory.id})))
    hosts = {each.host: each for each in sent(engine.store, memory.id)}
    assert set(hosts) == {"far.example", "near.example"}
    assert hosts["far.example"].first < hosts["near.example"].first < hosts["far.example"].last
