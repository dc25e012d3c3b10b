"""Whatever an agent sends is answered within bounds, and every failure is one clear line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from agents import ERAS, connected

from triskele.edge.mcp.schemas import ANSWER_CHARACTERS, MAX_CONTENT_CHARACTERS, MAX_QUERY_CHARACTERS
from triskele.engine.local import LocalEngine
from triskele.errors import StoreUnavailable

pytestmark = pytest.mark.anyio
Open = Callable[..., LocalEngine]
PASSWORD = "hunter2-Zx9!kq"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("memory_recall", {"query": "x", "limit": 201}, "limit"),
    ("memory_recall", {"query": "x", "limit": 0}, "limit"),
    ("memory_recall", {"query": ""}, "query"),
    ("memory_recall", {"query": "x" * (MAX_QUERY_CHARACTERS + 1)}, "query"),
    ("memory_recall", {}, "query"),
    ("memory_recall", {"query": ["a", "b"]}, "query"),
    ("memory_recall", {"query": "x", "as_of": "soon"}, "not a date"),
    ("memory_recall", {"query": "x", "category": "nonsense"}, "unknown category"),
    ("memory_list", {"limit": 201}, "limit"),
    ("memory_list", {"offset": -1}, "offset"),
    ("memory_list", {"sort": "relevance"}, "sort"),
    ("memory_get", {"id": "zzz"}, "id"),
    ("memory_get", {"id": "zzzz"}, "no memory starts with zzzz"),
    ("memory_get", {"id": "../../etc"}, "no memory"),
    ("memory_store", {"content": "   "}, "empty"),
    ("memory_store", {"content": "a\x00b"}, "NUL"),
    ("memory_store", {"content": "x" * 1401}, "several memories, one fact each"),
    ("memory_store", {"content": "x" * (MAX_CONTENT_CHARACTERS + 1)}, "content"),
    ("memory_store", {"content": "x", "importance": 2}, "importance"),
    ("memory_store", {"content": "x", "origin": "user"}, "origin"),
    ("memory_store", {"content": "x", "sensitivity": "open"}, "sensitivity"),
    ("memory_store", {"content": "x", "supersedes": "0000"}, "no memory starts with 0000"),
    ("memory_store", {"content": "x", "superseeds": "0000"}, "no argument superseeds"),
    ("memory_store", {"content": "x", "tags": ["t"] * 51}, "tags"),
    ("memory_store", {"content": "x", "project": "a", "everywhere": True}, "not both"),
    ("memory_store", {"content": "x", "valid_from": "2026-02-01", "valid_to": "2026-01-01"}, "later"),
    ("memory_update", {"id": "0000", "content": "x"}, "no memory starts with 0000"),
    ("memory_forget", {"ids": []}, "ids"),
    ("memory_forget", {"ids": ["0000"] * 51}, "ids"),
    ("memory_link", {"source": "0000", "kind": "likes", "target": "0001"}, "kind"),
    ("memory_undo", {"batch": "none-such"}, "no batch none-such"),
    ("memory_undo", {}, "nothing to undo"),
    ("memory_why_not", {"id": "0000", "query": "x"}, "no memory starts with 0000"),
    ("memory_reveal", {"id": "0000"}, "no memory starts with 0000"),
    ("memory_nothing", {}, "memory_nothing"),
]


@pytest.mark.parametrize("era", ERAS)
async def test_tools_refuse_bad_input_in_one_line(open_engine: Open, era: str) -> None:
    async with connected(open_engine(), era=era) as agent:
        for tool, arguments, words in REFUSED:
            assert words in await agent.refusal(tool, **arguments), (tool, arguments)


async def test_memory_update_refuses_an_empty_change(open_engine: Open) -> None:
    async with connected(open_engine()) as agent:
        id = await agent.store("The gate opens at nine")
        assert "nothing to change" in await agent.refusal("memory_update", id=id)
        assert "several memories" in await agent.refusal("memory_update", id=id, content="x" * 1401)


async def test_memory_recall_cuts_long_answers_and_counts_omitted_hits(open_engine: Open) -> None:
    engine = open_engine()
    engine.remember_all([{"content": f"weir {number} " + "heron " * 200} for number in range(60)])
    async with connected(engine) as agent:
        found = await agent.call("memory_recall", query="heron weir", limit=60)
        page = await agent.call("memory_list", limit=60)
        rest = await agent.call("memory_list", limit=60, offset=page["next_offset"])
    for answer, lines in ((found, found["hits"]), (page, page["memories"])):
        assert 1 < len(lines) < 60 and len(json.dumps(answer)) < ANSWER_CHARACTERS + 2000
    assert len(found["hits"]) + found["omitted"] == 60
    assert page["next_offset"] == len(page["memories"])
    assert rest["memories"][0]["id"] not in {line["id"] for line in page["memories"]}


async def test_memory_recall_returns_one_memory_above_the_budget(open_engine: Open) -> None:
    from triskele.edge.mcp import schemas

    line = schemas.Changed(id="x" * 100, action="added")
    assert schemas.fitting([line, line], budget=10) == [line]


async def test_unavailable_store_is_a_tool_error(open_engine: Open) -> None:
    engine = open_engine()

    def closed(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the store is busy: try again")

    engine.recall = closed  # type: ignore[method-assign]
    async with connected(engine) as agent:
        assert await agent.refusal("memory_recall", query="x") == "the store is busy: try again"


@pytest.mark.parametrize("era", ERAS)
async def test_internal_error_hides_texts_from_agent_and_log(
    open_engine: Open, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = open_engine()

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"the text was: {PASSWORD}")

    engine.recall = broken  # type: ignore[method-assign]
    caplog.set_level(logging.DEBUG)
    async with connected(engine, era=era) as agent:
        said = await agent.refusal("memory_recall", query="x")
    assert "RuntimeError" in said and "memory_recall" in said
    assert PASSWORD not in said + caplog.text


async def test_tool_errors_mask_secrets(open_engine: Open) -> None:
    key = "ghp_" + "Ab3dEf6hJ" * 4
    async with connected(open_engine()) as agent:
        said = await agent.refusal("memory_recall", query="x", category=key)
    assert "unknown category" in said and "Ab3dEf6h" not in said, said


async def test_tools_accept_arguments_as_json_text(open_engine: Open) -> None:
    async with connected(open_engine()) as agent:
        id = await agent.store('{"json": ["is", "text"]}', tags='["mill", "weir"]', importance="0.7")
        shown = await agent.call("memory_get", id=id)
        updated = await agent.call("memory_update", id=id, content='["still", "text"]')
    assert (shown["content"], shown["tags"], shown["importance"]) == ('{"json": ["is", "text"]}', ["mill", "weir"], 0.7)
    assert updated["action"] == "edited"
