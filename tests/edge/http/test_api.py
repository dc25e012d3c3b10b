"""The API over one owner's memory: every operation, its limits and its refusals."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from triskele.edge.http.dispatch import OPERATIONS
from triskele.edge.http.problems import MEDIA_TYPE
from triskele.engine.local import LocalEngine
from triskele.types import GOOD_MATCH, Origin

pytestmark = pytest.mark.slow

PASSWORD = "The staging database password is hunter2-Rk4T9w"


def added(api: TestClient, content: str, **details: Any) -> str:
    answer = api.post("/v1/memories", json={"content": content, **details})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def test_api_stores_reads_edits_forgets_and_restores(api: TestClient) -> None:
    id = added(api, "We deploy with Argo CD", category="decisions", tags=["deploy"], project="shop")
    read = api.get(f"/v1/memories/{id}").json()
    assert (read["content"], read["tags"], read["category"]) == ("We deploy with Argo CD", ["deploy"], "decisions")
    assert (read["forgotten"], read["superseded"], read["origin"]) == (False, False, "user")
    assert api.post("/v1/memories", json={"content": "We deploy with Argo CD", "project": "shop"}).json()["action"] == (
        "duplicate"
    )
    edited = api.patch(f"/v1/memories/{id}", json={"content": "We deploy with Flux", "valid_to": "2030-01-01"})
    assert edited.json()[0]["action"] == "edited"
    assert api.patch(f"/v1/memories/{id}", json={"valid_to": None}).json()[0]["action"] == "edited"
    assert api.get(f"/v1/memories/{id}").json()["valid_to"] is None
    assert api.delete(f"/v1/memories/{id}").json()[0]["action"] == "forgotten"
    assert api.get(f"/v1/memories/{id}").json()["forgotten"] is True
    for nothing in ({}, {"tags": ["x"]}):
        assert api.patch(f"/v1/memories/{id}", json=nothing).status_code == 409
    assert api.get(f"/v1/memories/{id}").json()["forgotten"] is True
    assert api.post(f"/v1/memories/{id}/restore").json()[0]["action"] == "restored"
    assert api.patch(f"/v1/memories/{id}", json={}).json()[0]["action"] == "unchanged"
    assert api.post(f"/v1/memories/{id}/restore").status_code == 409
    journal = api.get("/v1/journal", params={"id": id}).json()
    assert [entry["action"] for entry in journal["entries"]] == ["restored", "forgotten", "edited", "edited", "added"]
    assert journal["versions"][0]["content"] == "We deploy with Argo CD"


def test_recall_returns_reasons_and_evidence(api: TestClient) -> None:
    id = added(api, "Releases reach the cluster through Argo CD")
    added(api, "The office plant drinks on Mondays")
    answer = api.post("/v1/recall", json={"text": "how do releases reach the cluster?", "limit": 1}).json()
    (hit,) = answer["hits"]
    assert hit["id"] == id and "releases" in hit["reason"].lower()
    lexical = hit["evidence"]["lexical"]
    assert lexical["rank"] == 1 and lexical["contribution"] > 0
    term = lexical["terms"][0]
    assert hit["content"][term["start"] : term["end"]].lower() == term["text"].lower()
    assert GOOD_MATCH <= answer["confidence"] <= 1 and answer["fit"] == "good"


def test_why_not_returns_stage_and_smallest_change(api: TestClient) -> None:
    id = added(api, "Releases reach the cluster through Argo CD", category="facts")
    asked = {"id": id, "text": "releases cluster", "category": "people"}
    found = api.post("/v1/why-not", json=asked).json()
    assert found["rank"] is None and "category" in found["verdict"]
    assert found["smallest_change"]["options"] == {"category": None}


def test_browse_pages_and_filters(api: TestClient) -> None:
    ids = [added(api, f"fact number {number}", tags=["even" if number % 2 == 0 else "odd"]) for number in range(5)]
    first = api.get("/v1/memories", params={"limit": 2}).json()
    assert ([each["id"] for each in first["memories"]], first["next_offset"]) == ([ids[4], ids[3]], 2)
    rest = api.get("/v1/memories", params={"limit": 3, "offset": 2}).json()
    assert [each["id"] for each in rest["memories"]] == [ids[2], ids[1], ids[0]]
    even = api.get("/v1/memories", params={"tags": "even"}).json()
    assert {each["id"] for each in even["memories"]} == {ids[0], ids[2], ids[4]} and even["next_offset"] is None
    assert api.get("/v1/memories", params={"category": "people"}).json()["memories"] == []


def test_remember_all_stores_all_or_none(api: TestClient) -> None:
    memories = [{"content": f"batch fact {number}"} for number in range(100)]
    outcomes = api.post("/v1/batch", json={"drafts": memories}).json()
    assert {each["action"] for each in outcomes} == {"added"} and len({each["batch"] for each in outcomes}) == 1
    bad = api.post("/v1/batch", json={"drafts": [{"content": "good"}, {"content": "bad", "category": "none"}]})
    assert bad.status_code == 422 and api.get("/v1/stats").json()["memories"] == 100
    assert len(api.delete(f"/v1/memories/{','.join(each['id'] for each in outcomes)}").json()) == 100
    assert api.get("/v1/stats").json()["memories"] == 0


def test_link_connects_and_supersedes(api: TestClient) -> None:
    old, new = added(api, "We deploy with Helm"), added(api, "We deploy with Flux")
    link = {"source": new, "kind": "supersedes", "target": old}
    assert api.post("/v1/links", json=link).json()["action"] == "linked"
    assert api.get(f"/v1/memories/{old}").json()["superseded"] is True
    (shown,) = api.get(f"/v1/memories/{new}").json()["links"]
    assert (shown["kind"], shown["target"]) == ("supersedes", old)
    assert api.delete("/v1/links", params=link).json()["action"] == "unlinked"
    assert api.get(f"/v1/memories/{old}").json()["superseded"] is False
    newest = added(api, "We deploy with Argo", supersedes=new)
    hits = api.post("/v1/recall", json={"text": "deploy Flux"}).json()["hits"]
    assert newest in {hit["id"] for hit in hits} and new not in {hit["id"] for hit in hits}


def test_undo_dry_run_returns_the_plan(api: TestClient) -> None:
    id = added(api, "The build takes nine minutes")
    plan = api.post("/v1/undo", json={"dry_run": True}).json()
    assert [entry["id"] for entry in plan["entries"]] == [id] and plan["outcomes"] == []
    (outcome,) = api.post("/v1/undo", json={"batch": plan["entries"][0]["batch"]}).json()["outcomes"]
    assert outcome == {**outcome, "action": "forgotten", "id": id}
    assert api.post("/v1/undo", json={"dry_run": True}).status_code == 404


def test_import_reads_an_export(api: TestClient, engine: LocalEngine) -> None:
    id = added(api, "The build takes nine minutes", project="shop")
    private = added(api, "My neighbour is called Ada", sensitivity="private")
    whole = api.get("/v1/export", params={"private": "true"})
    assert whole.headers["content-type"].startswith("application/x-ndjson")
    assert private not in api.get("/v1/export").text and private in whole.text
    engine.erase(id, private)
    tried = api.post("/v1/import", params={"dry_run": "true"}, content=whole.content)
    assert tried.json()["added"] == 2 and api.get("/v1/stats").json()["memories"] == 0
    report = api.post("/v1/import", params={"keep_origin": "true"}, content=whole.content).json()
    assert (report["added"], report["problems"]) == (2, [])
    assert api.get(f"/v1/memories/{id}").json()["project"] == "shop"
    again = api.post("/v1/import", content=whole.content).json()
    assert (again["added"], again["duplicates"]) == (0, 2)


def test_import_refuses_unreadable_files(api: TestClient) -> None:
    refused = api.post("/v1/import", content=b'{"content": "fine"}\n{"content": \n')
    assert refused.status_code == 422 and "line 2" in refused.json()["detail"]
    assert api.get("/v1/stats").json()["memories"] == 0


def test_reveal_returns_the_text_of_a_secret(api: TestClient, engine: LocalEngine) -> None:
    id = added(api, PASSWORD)
    read = api.get(f"/v1/memories/{id}")
    assert read.json()["sensitivity"] == "secret" and "hunter2" not in read.text
    assert "hunter2" not in api.get("/v1/export", params={"private": "true"}).text
    assert api.post(f"/v1/memories/{id}/reveal").json()["text"] == PASSWORD
    assert "hunter2" in api.get("/v1/export", params={"with_secrets": "true"}).text
    assert [entry.action for entry in engine.journal(id=id).entries][:2] == ["revealed", "revealed"]


def test_concepts_neighbourhood_returns_nodes(api: TestClient) -> None:
    added(api, "Argo CD deploys the billing service")
    added(api, "Argo CD runs on Kubernetes")
    found = api.get("/v1/concept", params={"name": "Argo CD"}).json()
    assert found["memories"] == 2 and found["concept"].lower() == "argo cd"
    assert api.get("/v1/concept", params={"name": "nothing at all"}).status_code == 404


def test_erase_leaves_no_history(api: TestClient) -> None:
    id = added(api, "a slip of the tongue")
    assert api.post(f"/v1/memories/{id}/erase").json()["outcomes"][0]["action"] == "erased"
    assert api.get(f"/v1/memories/{id}").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "details", "status"),
    [
        ("POST", "/v1/recall", {"json": {"text": "x", "limit": 201}}, 422),
        ("POST", "/v1/recall", {"json": {"text": "x", "limit": 0}}, 422),
        ("POST", "/v1/recall", {"json": {"text": "ä" * 2049}}, 422),
        ("POST", "/v1/recall", {"json": {"text": "x" * 4097}}, 422),
        ("POST", "/v1/recall", {"json": {"text": "x", "lmit": 5}}, 422),
        ("POST", "/v1/recall", {"json": {"text": "x", "limit": "5"}}, 422),
        ("POST", "/v1/recall", {"json": []}, 422),
        ("POST", "/v1/recall", {"content": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        (
            "POST",
            "/v1/recall",
            {"content": b'{"text": "\\ud800"}', "headers": {"Content-Type": "application/json"}},
            422,
        ),
        ("POST", "/v1/recall", {"content": b"query=x"}, 415),
        ("POST", "/v1/batch", {"json": {"drafts": [{"content": "x"}] * 101}}, 422),
        ("POST", "/v1/batch", {"json": {"drafts": []}}, 422),
        ("POST", "/v1/memories", {"json": {"content": "x" * 65536}}, 413),
        ("POST", "/v1/memories", {"json": {"content": "x" * 5000}}, 422),
        ("POST", "/v1/memories", {"json": {"content": "nul \0"}}, 422),
        ("POST", "/v1/memories", {"json": {"content": "x", "category": "none"}}, 422),
        ("GET", "/v1/memories?limit=abc", {}, 422),
        ("GET", "/v1/memories?limit=1.0", {}, 422),
        ("GET", "/v1/memories?limit=5&limit=6", {}, 422),
        ("GET", "/v1/memories?offset=99999999999999999999", {}, 422),
        ("GET", "/v1/memories?all_projects=on", {}, 422),
        ("GET", "/v1/memories?nothing=1", {}, 422),
        ("GET", "/v1/stats?nothing=1", {}, 422),
        ("GET", "/v1/memories/zzzzzzzz", {}, 404),
        ("GET", "/v1/memories/%F0%9F%98%80", {}, 422),
        ("PUT", "/v1/memories", {}, 405),
        ("GET", "/v1/nothing", {}, 404),
    ],
)
def test_bad_requests_are_problem_documents(
    api: TestClient, method: str, path: str, details: dict[str, Any], status: int
) -> None:
    answer = api.request(method, path, **details)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    problem = answer.json()
    assert problem["status"] == status and problem["detail"] and problem["title"] and problem["type"]


def test_problem_documents_name_the_remedy(api: TestClient) -> None:
    assert api.post("/v1/memories", json={"content": "x " * 2000}).json()["remedy"] == "split"


@pytest.mark.parametrize(
    ("method", "path", "body", "wrong", "near"),
    [
        ("POST", "/v1/memories", {"text": "Argo CD deploys"}, "text", "content"),
        ("POST", "/v1/memories", {"content": "x", "tag": ["a"]}, "tag", "tags"),
        ("PATCH", "/v1/memories/abcd1234", {"text": "Flux deploys"}, "text", "content"),
        ("POST", "/v1/recall", {"query": "who deploys?"}, "query", "text"),
        ("POST", "/v1/recall", {"text": "x", "lmit": 5}, "lmit", "limit"),
        ("POST", "/v1/batch", {"drafts": [{"text": "x"}]}, "text", "content"),
        ("GET", "/v1/memories?ofset=5", None, "ofset", "offset"),
    ],
)
def test_unknown_field_names_the_nearest(
    api: TestClient, method: str, path: str, body: Any, wrong: str, near: str
) -> None:
    problem = api.request(method, path, json=body).json()
    assert problem["status"] == 422 and problem["type"].endswith("bad-input")
    field = "drafts.0.text" if "batch" in path else wrong
    assert problem["detail"] == f"{field}: unknown field; did you mean {near!r}?"
    assert problem["remedy"] == f"send {near!r} instead of {wrong!r}"


def test_unknown_field_without_a_near_one_lists_the_fields(api: TestClient) -> None:
    problem = api.post("/v1/links", json={"xyzzy": 1, "source": "a", "kind": "see-also", "target": "b"}).json()
    assert problem["detail"].startswith("xyzzy: unknown field: choose from kind, source, target")
    # A field that is absent is no other one misspelt.
    problem = api.post("/v1/memories", json={"tags": ["a"]}).json()
    assert problem["detail"] == "content: Field required" and problem["remedy"] == "send 'content'"


@pytest.mark.parametrize(
    ("path", "details", "remedy"),
    [
        ("/v1/nothing", {}, "/openapi.json"),
        ("/v1/memories/abcd1234/erase", {"content": b"x" * 10}, "application/json"),
        ("/v1/stats", {}, "/openapi.json"),
        ("/v1/recall", {"headers": {"Authorization": "Bearer no"}}, "Bearer KEY"),
        ("/v1/recall", {"headers": {"Host": "other.example"}}, "server.allowed_hosts"),
        ("/v1/recall", {"json": {"text": "x" * 70_000}}, "less"),
    ],
)
def test_refused_requests_name_the_remedy(api: TestClient, path: str, details: dict[str, Any], remedy: str) -> None:
    assert remedy in api.post(path, **details).json()["remedy"]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_needs_a_token(api: TestClient, operation: Any) -> None:
    path = re.sub(r"{\w+}", "abcd1234", operation.path)
    del api.headers["Authorization"]
    unknown = api.request(operation.verb, path)
    assert unknown.status_code == 401 and unknown.headers["WWW-Authenticate"] == "Bearer"
    token = {"Authorization": "Bearer a-token-of-the-test"}
    assert api.request(operation.verb, path, headers={**token, "Host": "evil.example"}).status_code == 421
    assert api.request(operation.verb, path, headers={**token, "Origin": "http://evil.example"}).status_code == 403


def test_openapi_describes_every_operation(api: TestClient) -> None:
    found = api.get("/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    described = {(path, method.upper()) for path, methods in found["paths"].items() for method in methods}
    assert described == {(each.path, each.verb) for each in OPERATIONS}
    text = json.dumps(found)
    references = {part.split('"')[0] for part in text.split('"$ref": "#/components/schemas/')[1:]}
    assert references <= set(found["components"]["schemas"])


def test_docs_page_runs_no_script(api: TestClient) -> None:
    page = api.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text and "http" not in page.text.replace("http-equiv", "")
    assert "/v1/recall" in page.text and api.get("/docs/style.css").status_code == 200


def test_internal_errors_show_no_text(
    api: TestClient, engine: LocalEngine, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the words of a memory")

    monkeypatch.setattr(type(engine), "stats", fail)
    answer = api.get("/v1/stats")
    assert answer.status_code == 500 and "words" not in answer.text
    assert "RuntimeError in test_api.py" in lines[0] and "words" not in lines[0]


def test_client_header_limits_origin_and_private_reads(api: TestClient, engine: LocalEngine) -> None:
    agent = {"X-Triskele-Client": "cursor"}
    text = "Nadia keeps the heron medicine in the mill"
    private, open_one = added(api, text, sensitivity="private"), added(api, "The heron sleeps in the mill")
    draft = {"content": "Herons fish at dawn", "origin": "user"}
    stored = api.post("/v1/memories", json=draft, headers=agent).json()["id"]
    listed = api.post("/v1/batch", json={"drafts": [{"content": "Otters play"}]}, headers=agent).json()[0]["id"]
    api.patch(f"/v1/memories/{open_one}", json={"content": "The heron sleeps by the mill"}, headers=agent)
    assert [engine.get(id).origin for id in (stored, listed, open_one)] == [Origin.AGENT] * 3
    api.post("/v1/links", json={"source": open_one, "kind": "see-also", "target": private})
    readings = [
        api.post("/v1/recall", json={"text": "heron medicine"}, headers=agent),
        api.get("/v1/memories", headers=agent),
        api.post("/v1/lookup", json={"ids": [private, open_one]}, headers=agent),
        api.get("/v1/journal", headers=agent),
        api.get(f"/v1/memories/{open_one}", headers=agent),
        api.post("/v1/related", json={"content": text}, headers=agent),
        api.get("/v1/export", headers=agent),
        api.get("/v1/neighbourhood", params={"memory": open_one}, headers=agent),
    ]
    assert all(answer.status_code == 200 and "Nadia" not in answer.text for answer in readings)
    refused = [
        api.get(f"/v1/memories/{private}", headers=agent),
        api.get("/v1/journal", params={"id": private}, headers=agent),
        api.get("/v1/memories", params={"sensitivities": "private"}, headers=agent),
        api.get("/v1/export", params={"private": "true"}, headers=agent),
        api.patch(f"/v1/memories/{private}", json={"sensitivity": "open"}, headers=agent),
        api.delete(f"/v1/memories/{private}", headers=agent),
        api.post("/v1/why-not", json={"id": private, "text": "heron"}, headers=agent),
    ]
    assert [answer.status_code for answer in refused] == [403] * len(refused)
    assert not any("Nadia" in answer.text for answer in refused)
    assert api.post("/v1/memories", json={"content": text}, headers=agent).json()["action"] == "added"
    assert engine.get(private).known_to is None and engine.get(private).version == 1


def test_client_reads_private_memories_if_its_machine_says_so(api: TestClient) -> None:
    private = added(api, "Nadia keeps the heron medicine in the mill", sensitivity="private")
    allowed = {"X-Triskele-Client": "cursor", "X-Triskele-Private": "yes"}
    assert api.get(f"/v1/memories/{private}").status_code == 200
    assert api.get(f"/v1/memories/{private}", headers=allowed).status_code == 200
