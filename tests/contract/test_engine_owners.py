"""Two owners on one file: neither reaches the other's memories by any way into the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triskele.engine.local import LocalEngine
from triskele.errors import NotFound
from triskele.exchange.transfer import export_memories, import_memories
from triskele.recall import plan as plans
from triskele.recall.plan import Plan
from triskele.types import CURATION, IMPORT, USER, Add, LinkKind, Sensitivity, client_actor

OpenEngine = Callable[..., LocalEngine]


@pytest.fixture
def alice(open_engine: OpenEngine) -> LocalEngine:
    return open_engine(owner="alice", model="bundled")


@pytest.fixture
def bob(open_engine: OpenEngine) -> LocalEngine:
    return open_engine(owner="bob", model="bundled")


@pytest.fixture
def hers(alice: LocalEngine) -> str:
    """The id of a memory of alice's, embedded, with its names read."""
    id = alice.remember("the heron of Holm Bridge fishes at dawn").id
    alice.upkeep.embed()
    return id


@pytest.mark.parametrize(
    "act",
    [
        lambda engine, id: engine.get(id),
        lambda engine, id: engine.journal(id=id),
        lambda engine, id: engine.edit(id, content="the heron sleeps"),
        lambda engine, id: engine.forget(id),
        lambda engine, id: engine.erase(id),
        lambda engine, id: engine.restore(id),
        lambda engine, id: engine.related(id=id),
        lambda engine, id: engine.link(engine.remember("mine").id, LinkKind.SEE_ALSO, id),
        lambda engine, id: engine.unlink(id, LinkKind.SEE_ALSO, id),
        lambda engine, id: engine.remember("mine too", supersedes=id),
        lambda engine, id: engine.reveal(id),
        lambda engine, id: engine.seal(id),
        lambda engine, id: engine.concepts.neighbourhood(memory=id),
        lambda engine, id: engine.why_not(id, "heron"),
        lambda engine, id: engine.undo("a batch of hers"),
        lambda engine, _: engine.undo(),
    ],
)
def test_an_id_of_another_owner_is_unknown(
    alice: LocalEngine, bob: LocalEngine, hers: str, act: Callable[[LocalEngine, str], object]
) -> None:
    alice.apply([Add(alice.draft("a line of hers"))], batch="a batch of hers")
    before = list(alice.store.versions()), alice.store.journal()
    for reference in (hers, hers[:8]):
        with pytest.raises(NotFound):
            act(bob, reference)
    assert (list(alice.store.versions()), alice.store.journal()) == before


def test_recall_stats_and_export_leave_out_other_owners(
    alice: LocalEngine, bob: LocalEngine, hers: str, tmp_path: Path
) -> None:
    bob.remember("the heron of the mill is grey")
    bob.upkeep.embed()
    for engine, mine in ((alice, "dawn"), (bob, "grey")):
        [hit] = engine.recall("heron").hits
        assert mine in hit.memory.content
        assert (engine.store.census().memories, len(engine.browse().memories)) == (1, 1)
        export_memories(engine, tmp_path / f"{mine}.jsonl")
        assert (tmp_path / f"{mine}.jsonl").read_text().count("heron") == 1
    assert [hit.memory.content for hit in bob.recall("Holm Bridge").hits if "Holm" in hit.memory.content] == []


def test_owners_have_separate_undo_plan_log_and_vault(alice: LocalEngine, bob: LocalEngine, hers: str) -> None:
    plans.adopt(alice.store, Plan(fusion="cc"), fingerprint="any", questions=40)
    assert plans.adopted(bob.store) is None
    code, hidden = "the code is 7391", Sensitivity.SECRET
    secrets = {engine: engine.remember(code, sensitivity=hidden).id for engine in (alice, bob)}
    for engine, id in secrets.items():
        assert engine.reveal(id).text == code
        assert [row.id for row in engine.store.sealed()] == [id]
    alice.vault.rotate(renew=True)
    assert bob.reveal(secrets[bob]).text == code
    assert alice.reveal(secrets[alice]).text == code
    assert [outcome.id for outcome in bob.undo().outcomes] == [secrets[bob]]
    assert alice.get(hers).known_to is None


def test_owners_have_separate_index_files(alice: LocalEngine, bob: LocalEngine, hers: str, tmp_path: Path) -> None:
    bob.remember("the heron of the mill is grey")
    for engine in (alice, bob):
        engine.upkeep.embed()
        engine.upkeep.reindex()
        engine.recall("heron")
    folders = sorted(path.name for path in (tmp_path / "home").glob("memories.db.index*"))
    assert folders == ["memories.db.index.alice", "memories.db.index.bob"]
    alice.erase(hers)
    assert [hit.memory.content for hit in bob.recall("heron").hits] == ["the heron of the mill is grey"]
    assert bob.upkeep.inspect(deep=True).findings == ()


def test_a_name_of_an_owner_is_no_path(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(owner="../../eve/x")
    engine.remember("the heron fishes at dawn")
    engine.upkeep.reindex()
    assert {path.parent for path in tmp_path.rglob("*.index*")} == {tmp_path / "home"}


def test_the_journal_tells_who_acted(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine()
    id = engine.remember("the heron fishes at dawn").id
    engine.acting_as(client_actor("codex")).edit(id, importance=0.9)
    engine.acting_as(CURATION).forget(id)
    (tmp_path / "notes.md").write_text("- the otter sleeps at noon\n")
    import_memories(engine, tmp_path / "notes.md", format="markdown")
    engine.erase(id)
    actors = [entry.actor for entry in engine.store.journal()]
    assert actors == [USER, "client:codex", CURATION, IMPORT, USER]
