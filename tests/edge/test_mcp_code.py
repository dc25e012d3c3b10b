"""The tools over indexed source code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from agents import connected

from triskele.code.search import CodeSearch
from triskele.engine.local import LocalEngine
from triskele.types import Sensitivity

pytestmark = pytest.mark.anyio
Open = Callable[..., LocalEngine]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "payment.py").write_text("class PaymentService:\n    def retry(self):\n        return 1\n")
    (root / "mail.py").write_text("from payment import PaymentService\n\nPaymentService().retry()\n")
    return root


async def test_code_search_uses_the_tree_of_the_client(open_engine: Open, tree: Path) -> None:
    engine = open_engine()
    CodeSearch(engine.settings.home, tree).index()
    async with connected(engine, folder=tree) as agent:
        found = await agent.call("code_search", query="who tries a payment again")
        named = await agent.call("code_search", query="PaymentService", path=str(tree / "mail.py"))
        [known] = (await agent.call("code_status"))["trees"]
    assert found["hits"][0]["path"] == "payment.py"
    assert {hit["path"] for hit in named["hits"]} == {"mail.py"}
    assert (found["root"], found["waiting"]) == (str(tree), 0)
    assert (known["root"], known["files"]) == (str(tree), 2)


async def test_code_symbol_lists_only_readable_memories(open_engine: Open, tree: Path) -> None:
    engine = open_engine()
    CodeSearch(engine.settings.home, tree).index()
    open_one = engine.remember("PaymentService.retry must not run twice").id
    engine.remember("PaymentService.retry was written by a private person", sensitivity=Sensitivity.PRIVATE)
    async with connected(engine, folder=tree) as agent:
        found = await agent.call("code_symbol", name="PaymentService.retry")
    assert [(each["path"], each["start_line"]) for each in found["definitions"]] == [("payment.py", 2)]
    assert [(each["path"], each["line"]) for each in found["references"]] == [("mail.py", 3)]
    assert [each["id"] for each in found["memories"]] == [open_one]


async def test_code_tools_refuse_a_path_with_a_nul(open_engine: Open, tree: Path) -> None:
    async with connected(open_engine(), folder=tree) as agent:
        assert "not a usable path" in await agent.refusal("code_search", query="payment", path="a\0b")
        assert "not a usable path" in await agent.refusal("code_symbol", name="x", path="\0")


async def test_code_search_refuses_trees_that_are_not_indexed(open_engine: Open, tree: Path, tmp_path: Path) -> None:
    async with connected(open_engine(), folder=tree) as agent:
        assert "not indexed" in await agent.refusal("code_search", query="payment")
        assert "not indexed" in await agent.refusal("code_symbol", name="x", path=str(tmp_path))
        assert (await agent.call("code_status"))["trees"] == []
