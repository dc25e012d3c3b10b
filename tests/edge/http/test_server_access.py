"""Who reaches a server: keys on every route and tool, host and origin, proxies, TLS by files."""

from __future__ import annotations

import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from loopback_server import TOKEN, serving
from test_tenants import Server, server, settings  # noqa: F401

from triskele.config import ServerSettings
from triskele.edge.http import openapi
from triskele.edge.http.access import OWNER, SCOPES, Quotas
from triskele.edge.http.app import METADATA_PATH, Application
from triskele.edge.http.dispatch import OPERATIONS
from triskele.edge.install.table import HOOK_TOOL
from triskele.edge.mcp import registry
from triskele.edge.mcp.registry import READS, REVEALS
from triskele.edge.process.service import server_rules
from triskele.models.egress import Bill
from triskele.recall.hosted.egress_log import StoreLedger
from triskele.text import timestamps

pytestmark = pytest.mark.slow

KEYS = {"key": "Bearer tsk_unknown_nothing", "basic": "Basic dXNlcjpwYXNz", "none": ""}


def _routes() -> list[tuple[str, str]]:
    """Every route of the OpenAPI document, and those beside it."""
    described = openapi.document(OPERATIONS)["paths"]
    routes = [(method.upper(), path.replace("{id}", "abcdefgh")) for path in described for method in described[path]]
    assert len(routes) >= len(OPERATIONS)
    beside = ("/openapi.json", "/docs", "/metrics", "/health", "/v1/nothing", "/nothing")
    posted = ("/mcp", "/mcp/", "/hook/user-prompt-submit", "/command-line")
    return [*routes, *(("GET", path) for path in beside), *(("POST", path) for path in posted)]


def test_every_route_needs_key_host_and_origin(server: Server) -> None:  # noqa: F811
    key = server.user("ada")
    with httpx.Client(base_url=server.url) as client:
        for method, path in _routes():
            for kind, said in KEYS.items():
                if kind == "none" and path in ("/health", "/metrics"):
                    continue
                refused = client.request(method, path, headers={"Authorization": said} if said else {})
                assert refused.status_code == 401, (method, path, kind)
                assert "resource_metadata=" in refused.headers["WWW-Authenticate"]
                assert "x-triskele-version" not in refused.headers
            bearer = {"Authorization": f"Bearer {key}"}
            evil = client.request(method, path, headers={**bearer, "Host": "evil.example"})
            assert evil.status_code == 421, (method, path)
            for origin in ("https://evil.example", "null"):
                assert client.request(method, path, headers={**bearer, "Origin": origin}).status_code == 403, path
        for path in (METADATA_PATH, f"{METADATA_PATH}/mcp"):
            assert client.get(path, headers={"Host": "evil.example"}).status_code == 421


ARGUMENTS: dict[str, dict[str, Any]] = {
    "memory_store": {"content": "x"},
    "memory_recall": {"query": "x"},
    "memory_get": {"id": "abcdefgh"},
    "memory_update": {"id": "abcdefgh", "content": "y"},
    "memory_forget": {"ids": ["abcdefgh"]},
    "memory_link": {"source": "abcdefgh", "kind": "see-also", "target": "abcdefgi"},
    "memory_why_not": {"id": "abcdefgh", "query": "x"},
    "memory_reveal": {"id": "abcdefgh"},
    "code_search": {"query": "x"},
    "code_symbol": {"name": "x"},
}


def test_every_tool_needs_its_scope(server: Server) -> None:  # noqa: F811
    server.user("ada")
    keys = {
        scope: server.tenants.accounts.create_key("ada", scopes=tuple(each for each in SCOPES[:3] if each != scope))[0]
        for scope in SCOPES[:3]
    }
    for tool in registry.tools(shares=True):
        if tool.name == HOOK_TOOL:
            continue
        scope = "read" if tool.annotations == READS else "reveal" if tool.annotations == REVEALS else "write"
        call = {"name": tool.name, "arguments": ARGUMENTS.get(tool.name, {})}
        answer = json.dumps(server.mcp(keys[scope], "tools/call", call))
        assert f"lacks the scope {scope}" in answer, (tool.name, answer)
    # A hook is silent where it may not speak, and a resource says why.
    hidden = server.mcp(keys["read"], "tools/call", {"name": HOOK_TOOL, "arguments": {"event": "user-prompt-submit"}})
    assert "lacks" not in json.dumps(hidden) and hidden["result"]["content"][0]["text"] == ""
    for uri in ("memory://digest", "memory://memories/abcdefgh"):
        assert "scope read" in json.dumps(server.mcp(keys["read"], "resources/read", {"uri": uri})), uri
    told = server.tenants.accounts.audit(user="ada")
    assert {each.status for each in told} == {403} and len(told) >= len(registry.tools(shares=True)) - 1


def test_model_quota_bounds_every_way_to_ask(server: Server) -> None:  # noqa: F811
    key = server.user("ada", quotas=Quotas(model_tokens_per_day=100))
    ledger = StoreLedger(server.tenants.engine("ada").store)
    bill = Bill(endpoint="embeddings", at=timestamps.now(), tokens=99, cost=0.0, host="models.example")
    ledger.billed(bill)
    assert server.ask(key, "POST", "/v1/recall", json={"text": "x"}).status_code == 200
    assert "quota is 100" not in server.tool(key, "memory_recall", query="x")
    ledger.billed(replace(bill, tokens=1))
    assert server.ask(key, "POST", "/v1/recall", json={"text": "x"}).status_code == 429
    assert "quota is 100" in server.tool(key, "memory_recall", query="x")
    assert "quota is 100" in server.tool(key, "memory_why_not", id="abcdefgh", query="x")
    # What asks no model goes on.
    assert "quota is 100" not in server.tool(key, "memory_store", content="y")


def test_request_quota_bounds_tools(server: Server) -> None:  # noqa: F811
    key = server.user("slow", quotas=Quotas(requests_per_minute=2))
    answers = [server.tool(key, "memory_stats") for _ in range(3)]
    assert ["requests in a minute" in each for each in answers] == [False, False, True]


def test_resource_metadata_names_resource_and_header(server: Server) -> None:  # noqa: F811
    for path in (METADATA_PATH, f"{METADATA_PATH}/mcp"):
        told = httpx.get(server.url + path).json()
        assert told["resource"] == "http://memory.example.com/mcp"
        assert told["bearer_methods_supported"] == ["header"] and told["scopes_supported"] == list(SCOPES)
        # An admin issues the keys: there is no authorization server to send anyone to.
        assert "authorization_servers" not in told


@contextmanager
def _behind(server: Server, limits: ServerSettings) -> Iterator[str]:  # noqa: F811
    """The same users behind another listener."""
    from triskele.edge.http.app import AppContext

    tenants = server.tenants
    context = AppContext(lambda: tenants.engine("me"), dict, print, lambda: None, lambda _: None, users=tenants)
    with serving(Application(context), lambda port: server_rules(limits, tenants.verify, port)) as url:
        yield url


def test_forwarded_addresses_count_only_from_trusted_proxies(server: Server) -> None:  # noqa: F811
    key = server.user("ada")
    bearer = {"Authorization": f"Bearer {key}"}

    def addresses(url: str, *forwarded: str) -> list[str]:
        headers = [*bearer.items(), *(("X-Forwarded-For", each) for each in forwarded)]
        assert httpx.post(f"{url}/v1/memories", json={"content": "x"}, headers=headers).status_code == 200
        return [each.address for each in server.tenants.accounts.audit(user="ada")][:1]

    assert addresses(server.url, "203.0.113.9") == ["127.0.0.1"]
    with _behind(server, ServerSettings(trusted_proxies=("127.0.0.1", "10.0.0.7"))) as url:
        assert addresses(url) == ["127.0.0.1"]
        assert addresses(url, "203.0.113.9") == ["203.0.113.9"]
        # Only the hop that a trusted proxy saw counts: the client itself can claim the ones before it.
        assert addresses(url, "6.6.6.6, 203.0.113.9") == ["203.0.113.9"]
        assert addresses(url, "6.6.6.6", "203.0.113.9, 10.0.0.7") == ["203.0.113.9"]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return files


def test_server_serves_tls_from_files(certificate: tuple[Path, Path], application: Application) -> None:
    import asyncio

    from triskele.edge.process.listener import ExtraListener, tcp_socket
    from triskele.edge.process.service import HttpServer, Service

    limits = ServerSettings(certificate_file=str(certificate[0]), private_key_file=str(certificate[1]))
    sock = tcp_socket("127.0.0.1", 0)
    port = sock.getsockname()[1]
    rules = server_rules(limits, lambda key: OWNER if key == TOKEN else None, port)
    service = Service.__new__(Service)
    service._settings, service._tenants, service._extra = limits, object(), [ExtraListener(sock)]  # type: ignore[assignment]
    service._address = type("Address", (), {"socket": lambda _, kind: kind})()  # type: ignore[assignment]
    assert service.addresses()["http"] == f"https://127.0.0.1:{port}"
    loop, stopping = asyncio.new_event_loop(), asyncio.Event()
    serve = HttpServer(application.for_listener(rules), stopping, **service._tls()).serve(sockets=[sock])
    thread = threading.Thread(target=loop.run_until_complete, args=(serve,))
    thread.start()
    try:
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{port}/v1/health"
            assert httpx.get(url, verify=trusted).status_code == 401
            assert httpx.get(url, verify=trusted, headers=bearer).json()["status"] == "ok"
            assert httpx.get(url, verify=trusted, headers={**bearer, "Origin": f"https://{host}:{port}"}).is_success
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://127.0.0.1:{port}/v1/health")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/v1/health", headers=bearer)
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.run_until_complete(application.close())
        sock.close()
        loop.close()
