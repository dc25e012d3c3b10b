"""Shares on a real Postgres, in engines: what a reader finds, may change and keeps in its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract import owner_walk

from triskele import config
from triskele.agents.injection import Conversation, Injector
from triskele.curation.curator import Curator
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, NotAllowed, NotFound
from triskele.exchange.archive import export_archive, import_archive
from triskele.exchange.transfer import export_memories
from triskele.models.bundled import BundledEmbedder
from triskele.recall.plan import Plan
from triskele.replies.rooms import HookCall
from triskele.server.accounts import Accounts
from triskele.store.values import EMBED
from triskele.types import Action, Add, LinkKind

Open = Callable[..., LocalEngine]
PEOPLE = ("alice", "bob", "carol")
HERON, OTTER = "the heron of Holm Bridge fishes at dawn", "the otter of Holm Bridge sleeps in the reeds"


@pytest.fixture(params=["local", "database"])
def corpus(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_as(tmp_path: Path, postgres_url: str, accounts: Accounts, corpus: str) -> Iterator[Open]:
    """Opens the engine of a person in a data folder of its own."""
    assert accounts.users()
    with ExitStack() as stack:

        def open_one(owner: str, home: str = "home") -> LocalEngine:
            environment = {"TRISKELE_HOME": str(tmp_path / home / owner), "TRISKELE_STORE_CORPUS": corpus}
            settings = config.load(environment, store_url=postgres_url)
            settings = replace(settings, project="demo", memory=replace(settings.memory, owner=owner))
            return stack.enter_context(LocalEngine(settings, tmp_path))

        yield open_one


def _shares(engine: LocalEngine) -> Any:
    return engine.store.shares


def _ids(engine: LocalEngine, text: str, **options: Any) -> list[str]:
    engine.upkeep.embed()
    return [hit.memory.id for hit in engine.recall(text, logged=False, **options).hits]


def test_recall_finds_shared_memories_until_unshare(open_as: Open, corpus: str) -> None:
    alice, bob, carol = map(open_as, PEOPLE)
    elsewhere = open_as("bob", "second")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    alice.link(heron, LinkKind.SEE_ALSO, otter)
    alice.upkeep.embed()
    bob.remember("a kettle of his own")
    assert heron not in {*_ids(bob, "heron"), *_ids(elsewhere, "heron")}
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")

    for engine in (bob, elsewhere):
        engine.upkeep.embed()
        for legs in ({"lexical"}, {"dense"}, {"lexical", "graph"}, None):
            answer = engine.recall("the heron of Holm Bridge", legs=legs, logged=False)
            assert answer.hits[0].memory.id == heron, legs
            assert answer.hits[0].memory.shared_by == "alice"
        bridge = engine.concepts.show("Holm Bridge")
        assert {each.id for each in (*bridge.subject_of, *bridge.mentioned_in)} == {heron, otter}
        assert {each.id for each in engine.browse().memories if each.shared_by} == {heron, otter}
        assert engine.get(heron[:12]).content == HERON
        assert [entry.action for entry in engine.journal(id=heron).entries] == [Action.SHARED]
        assert [(link.source, link.target) for link in engine.get(heron).links] == [(heron, otter)]
        assert engine.why_not(otter, "heron", legs={"lexical"}).stages
        assert engine.store.names.find(["holm bridge"])
        assert engine.store.census().memories == 1
    for text in ("heron", "the heron of Holm Bridge", "otter"):
        assert _ids(carol, text) == []
    with pytest.raises(NotFound):
        carol.get(heron)

    for id in (heron, otter):
        _shares(alice).unshare("memory", id, "user", "bob")
    for engine in (bob, elsewhere):
        assert not {heron, otter} & {*_ids(engine, "the heron of Holm Bridge"), *_ids(engine, "Holm Bridge", limit=50)}
        assert not {heron, otter} & {each.id for each in engine.browse().memories}
        assert list(engine.get(engine.browse().memories[0].id).links) == []
        assert not engine.store.names.find(["holm bridge"])
        with pytest.raises(NotFound):
            engine.journal(id=heron)
        with pytest.raises(NotFound):
            engine.concepts.show("Holm Bridge")
        assert engine.upkeep.inspect(deep=True, repair=False).findings == ()
    assert _ids(alice, "heron")[0] == heron


def test_graph_leg_uses_shared_memories_until_unshare(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    bob.remember("Invoices that fail are retried by Kestrel after an hour")
    bob.remember("Kestrel is the service that Marta Lindqvist maintains")
    far = alice.remember("Marta Lindqvist works from the Tromsø office on Thursdays").id
    plan = Plan(legs=frozenset({"lexical", "graph"}), fusion="rrf", rerank="late")

    def is_reached() -> bool:
        bob.upkeep.embed()
        return far in {hit.memory.id for hit in bob.ask("which service is Kestrel?", plan).hits}

    assert not is_reached()
    _shares(alice).share("memory", far, "user", "bob")
    assert is_reached()
    _shares(alice).unshare("memory", far, "user", "bob")
    assert not is_reached()


def test_changes_reach_the_reader_before_its_next_recall(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron = alice.remember(HERON, tags=["birds"]).id
    _shares(alice).share("tag", "birds", "user", "bob")
    assert _ids(bob, "heron") == [heron]
    alice.edit(heron, content="the heron of Holm Bridge moved to Skarn Lake")
    assert bob.recall("heron", logged=False).hits[0].memory.content.endswith("Skarn Lake")
    crane = alice.remember("a crane took the place at Holm Bridge", tags=["birds"], supersedes=heron).id
    assert _ids(bob, "heron", show_superseded=False)[:1] == [crane]
    alice.forget(crane)
    assert _ids(bob, "crane") == [heron]
    alice.undo()
    assert crane in _ids(bob, "crane")
    assert len(bob.store.history(heron)) == 2
    alice.erase(heron)
    assert heron not in _ids(bob, "heron")
    assert bob.store.history(heron) == [] and bob.store.journal(id=heron)[-1].action is Action.ERASED


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_share_copies_vectors(open_as: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    bob.upkeep.embed()
    heron = alice.remember(HERON).id
    alice.upkeep.embed()

    def refuse(*_: object) -> None:
        raise AssertionError("a text was embedded again")

    monkeypatch.setattr(BundledEmbedder, "encode_documents", refuse)
    _shares(alice).share("memory", heron, "user", "bob")
    assert bob.store.jobs.count(EMBED) == 0
    assert [hit.memory.id for hit in bob.recall("a bird at a river", legs={"dense"}, logged=False).hits] == [heron]


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_unshare_and_erase_clean_the_readers_files(
    open_as: Open, tmp_path: Path, new_word: Callable[[], str], traces: Callable[..., set[tuple[str, str]]]
) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    first, second = new_word(), new_word()
    ids = [alice.remember(f"{word} drinks tea").id for word in (first, second)]
    for id in ids:
        _shares(alice).share("memory", id, "user", "bob")
    bob.upkeep.reindex()
    assert {word for _, word in traces(tmp_path / "home" / "bob", [first, second])} == {first, second}
    _shares(alice).unshare("memory", ids[0], "user", "bob")
    alice.erase(ids[1])
    # The next answer makes the files again.
    assert _ids(bob, "tea") == []
    assert traces(tmp_path / "home" / "bob", [first, second]) == set()


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
@pytest.mark.parametrize(
    "act",
    [
        lambda engine, id: engine.edit(id, content="mine now"),
        lambda engine, id: engine.edit(id, importance=1.0),
        lambda engine, id: engine.forget(id),
        lambda engine, id: engine.erase(id),
        lambda engine, id: engine.seal(id),
        lambda engine, id: engine.edit(id, sensitivity="private"),
        lambda engine, id: engine.reveal(id),
        lambda engine, id: engine.undo(engine.store.journal(id=id)[-1].batch),
        lambda engine, id: engine.link(id, LinkKind.SUPERSEDES, engine.browse().memories[-1].id),
        lambda engine, id: _shares(engine).share("memory", id, "user", "carol"),
        lambda engine, id: engine.apply(
            [Add(replace(engine.store.history(id)[-1], version=9, known_to=engine.get(id).known_from))]
        ),
        lambda engine, id: engine.acting_as("client:agent").forget(id),
    ],
)
def test_reads_of_shared_memories_change_nothing(open_as: Open, act: Callable[[LocalEngine, str], object]) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")
    alice.edit(heron, importance=0.9)
    before = owner_walk.truth_of(alice.store), owner_walk.truth_of(bob.store)
    with pytest.raises((NotAllowed, BadInput)) as refusal:
        act(bob, heron)
    assert "\n" not in str(refusal.value)
    assert (owner_walk.truth_of(alice.store), owner_walk.truth_of(bob.store)) == before


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_undo_works_for_owner_and_writer(open_as: Open) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    id = alice.remember(HERON).id
    _shares(alice).share("memory", id, "user", "bob", access="write")
    bob.edit(id, content=OTTER)
    bob.undo()
    assert alice.get(id).content == bob.get(id).content == HERON
    with pytest.raises(NotFound, match="nothing to undo"):
        bob.undo()
    batch = bob.edit(id, content=OTTER)[0].batch
    alice.undo(batch)
    assert alice.get(id).content == bob.get(id).content == HERON
    assert alice.undo().outcomes[0].action is Action.FORGOTTEN
    assert bob.store.memories([id]) == {}


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_export_and_duplicates_leave_out_shared_memories(open_as: Open, tmp_path: Path) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron = alice.remember(HERON)
    _shares(alice).share("memory", heron.id, "user", "bob")
    outcome = bob.remember(HERON)
    assert outcome.action is Action.ADDED
    assert (
        Curator(bob).related(bob.store.history(outcome.id)[-1])
        == []
        == Curator(bob).related_by_words(bob.store.history(outcome.id)[-1])
    )
    report = export_memories(bob, tmp_path / "bob.jsonl")
    text = (tmp_path / "bob.jsonl").read_text(encoding="utf-8")
    assert report.written == 1 and outcome.id in text and heron.id not in text


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
def test_archive_holds_only_own_memories(open_as: Open, tmp_path: Path) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron, otter = (alice.remember(text).id for text in (HERON, OTTER))
    bob.remember("the garden of Holm Bridge is watered on Mondays")
    for id in (heron, otter):
        _shares(alice).share("memory", id, "user", "bob")
    bob.upkeep.embed()
    _shares(alice).unshare("memory", otter, "user", "bob")
    alice.edit(heron, content="the heron of Holm Bridge fishes at noon")
    for engine in (bob, alice):
        archive = tmp_path / f"{engine.store.owner}.archive"
        export_archive(engine, archive, include_private=True)
        home = {"TRISKELE_HOME": str(tmp_path / f"moved {engine.store.owner}"), "TRISKELE_PROJECT": "demo"}
        with LocalEngine(config.load(home), tmp_path) as moved:
            import_archive(moved, archive, keep_origin=True)
            assert moved.upkeep.inspect(deep=True).findings == ()
            assert moved.store.census().memories == engine.store.census().memories
    assert not any(word in (tmp_path / "bob.archive").read_text() for word in ("heron", "otter"))


@pytest.mark.parametrize("supersedes", [False, True])
def test_confidence_ignores_untrusted_successors(open_as: Open, supersedes: bool) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    question = "at which early hour does the orchard shop deploy its apple catalogue pages?"
    text = "The orchard shop deploys its apple catalogue pages at an early hour"
    old = alice.remember(f"{text}: eight").id
    new = alice.remember(f"{text}: nine", supersedes=old if supersedes else None).id
    bob.remember("Early trains are late in May")
    bob.remember("The dentist has moved to Bregenz")
    for engine in (alice, bob):
        engine.upkeep.embed()
    injector = Injector(bob, Conversation.of(bob, HookCall(event="", prompt=question, project="demo")))
    alone = injector.recalled(question).confidence
    for id in (old, new):
        _shares(alice).share("memory", id, "user", "bob")
    bob.upkeep.embed()
    assert bob.recall(question).confidence > 0.9
    assert injector.recalled(question).confidence == pytest.approx(alone, abs=0.05)


@pytest.mark.parametrize("corpus", ["local"], indirect=True)
@pytest.mark.parametrize("last", [Action.UNSHARED, Action.ERASED])
def test_undo_passes_over_lost_memories_and_names_them(open_as: Open, last: Action) -> None:
    alice, bob = open_as("alice"), open_as("bob")
    heron = alice.remember(HERON).id
    _shares(alice).share("memory", heron, "user", "bob", access="write")
    own = bob.remember(OTTER).id
    both = bob.edit(own, heron, importance=0.9)[0].batch
    batch = bob.edit(heron, content="the heron has left")[0].batch
    if last is Action.ERASED:
        alice.erase(heron)
    else:
        _shares(alice).unshare("memory", heron, "user", "bob")
    gone = "was erased" if last is Action.ERASED else "is no longer shared"
    with pytest.raises(BadInput, match=f"{heron} {gone}: this cannot be undone"):
        bob.undo(batch)
    undone = bob.undo()
    assert (undone.batch, [each.id for each in undone.outcomes]) == (both, [own])
    assert undone.passed_over == {heron: gone}
    assert bob.undo().outcomes[0].action is Action.FORGOTTEN
    with pytest.raises(NotFound, match=f"{heron} {gone}; there is nothing to undo"):
        bob.undo()
