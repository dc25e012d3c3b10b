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
from triskele.config import ServerSettings
from triskele.edge.http.access import OWNER
from triskele.edge.http.app import Application, ListenerRules
from triskele.edge.http.metrics import Metrics
from triskele.edge.process.service import metrics_key
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, StoreUnavailable
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
    assert found["triskele_embed_waiting"] == found["triskele_names_waiting"] == found["triskele_memories"] == 1
    assert found["triskele_store_bytes"] > 1000


def test_metrics_of_a_store_that_cannot_be_read_leave_its_numbers_out(
    api: TestClient, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(engine, "stats", fail)
    assert series(api)["triskele_engines_open"] == 1 and "triskele_memories" not in series(api)


def test_metrics_count_the_confidence_of_answers(api: TestClient) -> None:
    api.post("/v1/memories", json={"content": "Argo CD deploys the shop"})
    shares = [api.post("/v1/recall", json={"text": text}).json()["confidence"] for text in ("Argo CD", "herons")]
    found = series(api)
    name = "triskele_recall_confidence"
    assert found[f"{name}_count"] == 2 and found[f"{name}_sum"] == pytest.approx(sum(shares), abs=0.001)
    assert found[f'{name}_bucket{{le="0.5"}}'] == sum(share <= 0.5 for share in shares) == 1
    assert found[f'{name}_bucket{{le="1.0"}}'] == 2


def test_metrics_time_hooks_and_count_silent_prompts(api: TestClient) -> None:
    api.post("/hook/stop", json={})
    api.post("/v1/memories", json={"content": "Argo CD deploys the shop", "project": ""})
    for prompt in ("which tool deploys the shop, Argo CD?", "what do herons eat in winter?"):
        api.post("/hook/user-prompt-submit", json={"prompt": prompt, "session_id": "s"})
    found = series(api)
    assert found["triskele_inject_seconds_count"] == 3
    assert found['triskele_prompts_total{result="memories"}'] == found['triskele_prompts_total{result="nothing"}'] == 1


PROBED = ("/health", "/metrics")
METRICS_KEY = "a-key-for-metrics"


def probe(application: Application, path: str, client: str = "127.0.0.1", method: str = "GET", **headers: str) -> Any:
    """The answer of a server with users to a request of a probe."""
    rules = ListenerRules(
        frozenset({"localhost", "memory.example.com"}),
        verify=lambda key: OWNER if key == TOKEN else None,
        proxies=frozenset({"127.0.0.1"}),
        metrics_key=METRICS_KEY,
    )
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    asking = TestClient(application.for_listener(rules), base_url="http://localhost", client=(client, 5000))
    return asking.request(method, path, headers=sent)


@pytest.mark.parametrize("path", PROBED)
def test_probes_on_this_machine_need_no_key(application: Application, path: str) -> None:
    for client in ("127.0.0.1", "::1"):
        assert probe(application, path, client).status_code == 200
    for refused in (
        {"client": "10.0.0.1"},
        {"method": "POST"},
        {"authorization": "Bearer wrong"},
        {"host": "memory.example.com"},
        # A proxy on this machine passes on what others ask.
        {"x_forwarded_for": "127.0.0.1"},
        {"forwarded": "for=10.0.0.1"},
    ):
        assert probe(application, path, **refused).status_code == 401, refused
    assert probe(application, path, origin="https://evil.example").status_code == 403
    assert probe(application, path, host="evil.example").status_code == 421


@pytest.mark.parametrize("path", PROBED)
def test_metrics_key_opens_health_and_metrics_from_everywhere(application: Application, path: str) -> None:
    key = f"Bearer {METRICS_KEY}"
    assert probe(application, path, "10.0.0.1", authorization=key).status_code == 200
    # Prometheus names a server by its address.
    assert probe(application, path, "10.0.0.1", authorization=key, host="10.0.0.9:8080").status_code == 200
    assert probe(application, path, "10.0.0.1", authorization=key, method="POST").status_code == 401
    for other in ("/v1/me", "/v1/memories", "/openapi.json", "/health/"):
        assert probe(application, other, "10.0.0.1", authorization=key).status_code == 401, other


def test_health_names_store_and_process_only_to_a_key(application: Application) -> None:
    assert set(probe(application, "/health").json()) == {"status", "version"}
    assert set(probe(application, "/health", authorization=f"Bearer {TOKEN}").json()) >= {"status", "version", "pid"}


def test_metrics_key_file_is_refused_if_others_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "metrics.key"
    settings = ServerSettings(metrics_key_file=str(file))
    with pytest.raises(BadInput, match="cannot read"):
        metrics_key(settings)
    file.write_text(f"{METRICS_KEY}\n")
    file.chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        metrics_key(settings)
    file.chmod(0o600)
    assert metrics_key(settings) == METRICS_KEY and metrics_key(ServerSettings()) == ""
    file.write_text("\n")
    with pytest.raises(BadInput, match="empty"):
        metrics_key(settings)


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
