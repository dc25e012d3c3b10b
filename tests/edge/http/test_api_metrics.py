"""Metrics and logs: what is counted, in the format of Prometheus, and that no text of a memory is in either."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from loopback_server import TOKEN
from starlette.testclient import TestClient
from starlette.types import Message

from triskele import config
from triskele.edge.http.app import Application, ListenerRules
from triskele.edge.http.metrics import Metrics
from triskele.engine.local import LocalEngine
from triskele.recall.scores import timed

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? [0-9.e+-]+(nan)?')


def series(api: TestClient) -> dict[str, float]:
    """Every series of the process, and that each line is well-formed."""
    answer = api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert all(line.startswith("# ") or LINE.fullmatch(line) for line in lines), lines
    values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in values}


def test_metrics_time_recalls_by_leg_and_writes(api: TestClient) -> None:
    api.post("/v1/memories", json={"content": "Argo CD deploys the shop"})
    api.post("/v1/recall", json={"text": "what deploys the shop?"})
    api.get("/v1/memories/zzzzzzzz")
    found = series(api)
    assert found['triskele_recall_seconds_count{leg="lexical"}'] == 1
    assert found['triskele_recall_seconds_count{leg="all"}'] == 1
    assert found['triskele_recall_seconds_bucket{leg="all",le="+Inf"}'] == 1
    assert 0 < found['triskele_recall_seconds_sum{leg="lexical"}'] <= found['triskele_recall_seconds_sum{leg="all"}']
    assert found["triskele_store_seconds_count"] == 1
    assert found['triskele_requests_total{operation="get",status="404"}'] == 1
    assert found['triskele_errors_total{kind="NotFound"}'] == 1
    assert found["triskele_embed_waiting"] == 1


def test_metrics_time_hooks(api: TestClient) -> None:
    api.post("/hook/stop", json={})
    assert series(api)["triskele_inject_seconds_count"] == 1


def test_metrics_buckets_add_up_and_labels_are_escaped() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.003, 99.0):
        metrics.observe("triskele_request_seconds", seconds, operation='a"b\\c\nd')
    text = metrics.render({})
    label = 'operation="a\\"b\\\\c\\nd"'
    assert f'triskele_request_seconds_bucket{{{label},le="0.001"}} 1\n' in text
    assert f'triskele_request_seconds_bucket{{{label},le="10.0"}} 2\n' in text
    assert f'triskele_request_seconds_bucket{{{label},le="+Inf"}} 3\n' in text
    assert f"triskele_request_seconds_count{{{label}}} 3\n" in text


@pytest.mark.parametrize("fault", [False, True])
def test_request_log_holds_no_text(
    api: TestClient,
    lines: list[str],
    requests_logged: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    fault: bool,
) -> None:
    id = api.post("/v1/memories", json={"content": "the zeppelin lands in Friedrichshafen"}).json()["id"]
    if fault:
        from triskele.engine.local import LocalEngine

        monkeypatch.setattr(LocalEngine, "ask", lambda *_, **__: 1 / 0)
    for method, path, body in (
        ("POST", "/v1/recall", {"text": "zeppelin"}),
        ("POST", "/v1/why-not", {"id": id, "text": "zeppelin"}),
        ("PATCH", f"/v1/memories/{id}", {"content": "the zeppelin flies"}),
        ("POST", "/v1/memories", {"content": "the zeppelin", "category": "zeppelin"}),
        ("GET", "/v1/memories/zeppelin", None),
        ("GET", "/v1/concept?name=zeppelin", None),
    ):
        api.request(method, path, json=body)
    logged = "\n".join([*lines, *map(json.dumps, requests_logged), api.get("/metrics").text])
    assert "zeppelin" not in logged.lower()
    assert len(requests_logged) == 7 and bool(lines) is fault
    assert requests_logged[0] == {**requests_logged[0], "operation": "remember", "status": 200, "id": id}
    assert requests_logged[0]["bytes"] > 0


@pytest.mark.parametrize("corpus", ["local", "database"])
def test_recall_times_its_legs(tmp_path: Path, postgres_url: str, corpus: str) -> None:
    environment = {"TRISKELE_HOME": str(tmp_path), "TRISKELE_STORE_CORPUS": corpus}
    with LocalEngine(config.load(environment, store_url=postgres_url), tmp_path) as engine:
        engine.remember("Argo CD deploys the shop")
        engine.upkeep.embed()
        started = time.perf_counter()
        with timed() as spent_s:
            engine.answer("what deploys the shop?")
        elapsed_s = time.perf_counter() - started
    assert sum(spent_s.values()) < elapsed_s
    assert all(seconds > 0 for seconds in spent_s.values())
    assert {"lexical", "dense", "late"} <= spent_s.keys()


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/import"])
def test_body_that_stops_arriving_is_logged_as_the_clients_408(
    application: Application, lines: list[str], requests_logged: list[dict[str, Any]], path: str
) -> None:
    sent: list[Message] = []
    received = iter(({"type": "http.request", "body": b'{"con', "more_body": True}, {"type": "http.disconnect"}))

    async def receive() -> Message:
        return next(received)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = {"host": "localhost", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"format=jsonl",
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }

    async def serve() -> None:
        await application.for_listener(ListenerRules.local(TOKEN, 8377))(scope, receive, send)
        await application.close()

    anyio.run(serve)
    assert sent[0]["status"] == 408
    assert [each["status"] for each in requests_logged] == [408] and not lines
