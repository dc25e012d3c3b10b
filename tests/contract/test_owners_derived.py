"""The owner is a boundary for what is derived, documents, jobs and usage too; and the same id can be two owners'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from contract import owner_walk

from triskele.store.corpus_protocol import CorpusStore
from triskele.store.derived_rows import JobStore, ModelStore, VectorStore
from triskele.store.documents import DocumentStore
from triskele.store.name_rows import NameStore
from triskele.store.owner import OwnerStore, Store
from triskele.store.sharing import ShareStore
from triskele.store.usage import UsageStore
from triskele.store.values import BY_HAND, EMBED, NAMES, Named, Use
from triskele.text import timestamps
from triskele.types import Add, Forget, MakePrivate, Memory, Sensitivity

pytestmark = pytest.mark.slow

PROTOCOLS: dict[str, tuple[type, owner_walk.Calls]] = {
    "whole": (OwnerStore, owner_walk.WHOLE),
    "vectors": (VectorStore, owner_walk.VECTORS),
    "names": (NameStore, owner_walk.MENTIONED_NAMES),
    "jobs": (JobStore, owner_walk.JOBS),
    "models": (ModelStore, owner_walk.MODELS),
    "corpus": (CorpusStore, owner_walk.CORPUS),
    "documents": (DocumentStore, owner_walk.DOCUMENTS),
    "usage": (UsageStore, owner_walk.USAGE),
    "shares": (ShareStore, owner_walk.SHARES),
}


def test_every_method_of_every_protocol_has_a_row() -> None:
    of_truth = {*owner_walk.TRUTH, "owner"}
    parts = {name for name in OwnerStore.__annotations__ if not name.startswith("_")} - of_truth
    assert parts == PROTOCOLS.keys() - {"whole"}
    for part, (protocol, calls) in PROTOCOLS.items():
        methods = {name for name in vars(protocol) if not name.startswith("_")}
        if part == "whole":
            methods -= {*parts, *of_truth}
        assert calls.keys() == methods, protocol.__name__


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(0, id="nothing", marks=pytest.mark.slow),
        pytest.param(1, id="truth", marks=pytest.mark.slow),
        pytest.param(2, id="everything"),
    ],
)
@pytest.mark.parametrize("part", PROTOCOLS)
def test_another_owner_is_as_if_never_there(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory], part: str, seeds: int
) -> None:
    """Whether bob has nothing, or memories with the very ids and texts of alice's, or all that she has."""
    first = open_unbound()
    alice, drafts = first.for_owner("alice"), owner_walk.made(make_memory)
    known = owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    before = _everything(alice)
    for place, call in owner_walk.each_call(PROTOCOLS[part][1]):
        # Changes stay, so each call needs an owner who has made none, and a store where nobody else is.
        stores = [each.for_owner(f"bob {place}") for each in (first, open_unbound(place))]
        own = [known, known]
        for number, store in enumerate(stores):
            if seeds:
                own[number] = replace(owner_walk.seed_truth(store, drafts), slots=known.slots, names=known.names)
            if seeds == 2:
                own[number] = owner_walk.seed_derived(store, own[number])
        _assert_alike(call, stores, own, place)
        assert _everything(alice) == before, place


def _assert_alike(
    call: owner_walk.Call, stores: Sequence[OwnerStore], own: Sequence[owner_walk.Known], place: str
) -> None:
    """The call gives the same beside another owner as alone, and leaves the same."""
    beside, alone = (owner_walk.outcome_of(call, *each) for each in zip(stores, own, strict=True))
    assert beside == alone, place
    left, left_alone = (owner_walk.shape(_everything(store)) for store in stores)
    assert left == left_alone, place


def test_a_change_derives_nothing_for_another_owner(
    open_unbound: Callable[..., Store], make_memory: Callable[..., Memory]
) -> None:
    """What an owner changes or erases queues and drops values of that owner alone, though another has the same text."""
    first = open_unbound()
    alice, drafts = first.for_owner("alice"), owner_walk.made(make_memory)
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, drafts))
    before = _everything(alice)
    for place, call in owner_walk.each_call({name: owner_walk.TRUTH[name] for name in ("apply", "erase", "seal")}):
        stores = [each.for_owner(f"bob {place}") for each in (first, open_unbound(place))]
        own = [owner_walk.seed_truth(store, drafts) for store in stores]
        for _ in range(2):
            _assert_alike(call, stores, own, place)
            assert _everything(alice) == before, place


def _everything(store: OwnerStore) -> list[object]:
    return [owner_walk.truth_of(store), owner_walk.derived_of(store)]


def test_conversations_of_one_name_belong_to_their_owners(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    draft = make_memory("the heron fishes at dawn")
    uses = [Use(draft.id, 3, draft.content_hash, ("print",))]
    for store in (alice, bob):
        store.apply([Add(replace(draft, owner=store.owner))], batch="one")
        store.usage.injected("talk", uses)
        store.usage.flush()
    alice.usage.lose("talk")
    alice.usage.flush()
    injections = alice.usage.given("talk")
    bob.usage.injected("talk", uses)
    bob.usage.end("talk")
    bob.usage.flush()
    assert injections and alice.usage.given("talk") == injections
    # A new conversation takes the place of those that are over, or too old, of its owner alone.
    now += timedelta(days=8)
    alice.usage.injected("another", uses)
    alice.usage.flush()
    assert alice.usage.given("talk") == injections
    now += timedelta(days=31)
    bob.usage.injected("another", uses)
    bob.usage.flush()
    assert (bob.usage.given("talk"), alice.usage.given("talk")) == ([], injections)
    assert alice.usage.echoed(["print"])


def test_an_owner_of_nothing_takes_no_room(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    alice = open_store(owner="alice")
    owner_walk.seed_derived(alice, owner_walk.seed_truth(alice, owner_walk.made(make_memory)))
    assert open_store(owner="bob").names.counts().bytes == 0
    assert alice.names.counts().bytes > 0


def test_two_owners_may_have_the_same_id_and_text(
    open_store: Callable[..., OwnerStore], make_memory: Callable[..., Memory]
) -> None:
    hers = make_memory("the heron fishes at dawn", owner="alice")
    his = replace(hers, owner="bob")
    alice, bob = open_store(owner="alice"), open_store(owner="bob")
    for store, memory in ((alice, hers), (bob, his)):
        store.apply([Add(memory)], batch="one")
        store.vectors.save("model", {memory.content_hash: memory.owner.encode()})
    alice.apply([Forget(hers.id)], batch="two")
    assert (alice.memories([hers.id]), bob.memories([his.id]).keys()) == ({}, {his.id})
    alice.erase([hers.id], batch="three")
    assert [vector for _, _, vector in bob.vectors.page("model")] == [b"bob"]
    assert alice.vectors.page("model") == []
    assert len(bob.history(his.id)) == 1


Pair = tuple[OwnerStore, OwnerStore]


@pytest.fixture
def pair(open_store: Callable[..., OwnerStore]) -> Pair:
    return open_store(owner="alice"), open_store(owner="bob")


def _add(store: OwnerStore, *memories: Memory) -> None:
    """One by one, so that each has the next row."""
    for memory in memories:
        store.apply([Add(replace(memory, owner=store.owner))], batch=f"add {memory.id}")


def test_embed_jobs_are_per_owner_and_model(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    alice, bob = pair
    one, again = make_memory("a heron"), make_memory("a heron", project="pond")
    alice.vectors.use_model("model of alice")
    bob.vectors.use_model(owner_walk.MODEL)
    _add(alice, one)
    alice.vectors.save(owner_walk.MODEL, {one.content_hash: b"alice"})
    _add(bob, one)
    assert [digest for digest, _ in bob.vectors.waiting()] == [one.content_hash]
    bob.vectors.save(owner_walk.MODEL, {one.content_hash: b"bob"})
    _add(bob, again)
    assert (alice.jobs.count(EMBED), bob.jobs.count(EMBED)) == (1, 0)
    alice.vectors.save("model of alice", {one.content_hash: b"alice"})
    assert (alice.jobs.count(EMBED), bob.jobs.count(EMBED)) == (0, 0)


def test_a_slot_is_one_owners_own(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    memory = make_memory("a heron")
    for store in pair:
        _add(store, memory)
        store.vectors.save(owner_walk.MODEL, {memory.content_hash: store.owner.encode()})
    for store in pair:
        saved = store.vectors.save(owner_walk.MODEL, {memory.content_hash: b"again"})
        assert store.vectors.page(owner_walk.MODEL) == [
            (saved[memory.content_hash], memory.content_hash, store.owner.encode())
        ]


def test_jobs_of_another_model_belong_to_one_owner(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    alice, bob = pair
    memory = make_memory("a heron")
    alice.vectors.use_model("model of alice")
    bob.vectors.use_model(owner_walk.MODEL)
    for store in pair:
        _add(store, memory)
    slots = list(bob.vectors.save(owner_walk.MODEL, {memory.content_hash: b"bob"}).values())
    assert bob.vectors.contents(slots, queued=False) == {slots[0]: "a heron"}
    alice.vectors.save("model of alice", {memory.content_hash: b"alice"})
    bob.jobs.add(EMBED, [memory.content_hash])
    assert bob.vectors.contents(slots, queued=False) == {}


def test_withheld_text_is_withheld_for_its_owner_only(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    alice, bob = pair
    one, two = make_memory("the first text"), make_memory("the second text")
    private = replace(two, id=one.id, sensitivity=Sensitivity.PRIVATE)
    _add(bob, one, two)
    _add(alice, private, replace(one, id=two.id))
    assert bob.models.count_clear_for("hosted-any") == len(bob.models.clear_for("hosted-any")) == 2
    for store in pair:
        store.vectors.save(owner_walk.HOSTED, {memory.content_hash: b"vector" for memory in (one, two)})
    bob.apply([MakePrivate(one.id)], batch="private")
    digests = [[digest for _, digest, _ in store.vectors.page(owner_walk.HOSTED)] for store in (bob, alice)]
    assert digests == [[two.content_hash], [one.content_hash, two.content_hash]]


def test_names_join_and_are_read_for_one_owner_alone(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    alice, bob = pair
    memory = make_memory("Argo is run by Helm", project="garden")
    _add(alice, memory)
    _add(bob, replace(memory, project="pond"))
    argo, helm = (Named(text.lower(), text[:1], text, False, "title") for text in ("Argo", "Helm"))
    [hers], [his] = ([row for row, _ in store.versions()] for store in pair)
    alice.names.save({hers: [argo]}, read=[hers])
    bob.names.save({his: [helm, replace(argo, key="argos", joins=("argo", "alike"))]}, read=[his])
    assert bob.names.grouped() == []
    helms = bob.names.find(["helm"])["helm"].name
    assert (len(bob.names.edges(helms, projects=["pond"])), bob.names.edges(helms, projects=["garden"])) == (
        2,
        [],
    )
    bob.jobs.add(NAMES, [str(hers)])
    assert bob.names.unread() == []


def test_an_erasure_regroups_no_name_of_another_owner(pair: Pair, make_memory: Callable[..., Memory]) -> None:
    """Not even one whose concept is gone, because only what a person decided outlasts a forgetting."""
    alice, bob = pair
    memory = make_memory("Argo, Brig, Cog and Dhow")
    for store in pair:
        _add(store, memory)
        [row] = [row for row, _ in store.versions()]
        texts = ("Argo", "Brig", "Cog", "Dhow")
        store.names.save({row: [Named(text.lower(), text[:1], text, False, "name") for text in texts]}, read=[row])
    argo, brig, cog, dhow = (name.name for name in alice.names.known())
    alice.names.set_concepts({argo: brig}, BY_HAND)
    alice.names.set_concepts({argo: cog}, "alike")
    alice.names.set_concepts({cog: dhow}, "alike")
    alice.names.forget()
    before = [list(alice.names.known()), alice.names.merges([argo, brig, cog, dhow])]
    bob.erase([memory.id], batch="gone")
    assert [list(alice.names.known()), alice.names.merges([argo, brig, cog, dhow])] == before


def test_fingerprints_of_injections_belong_to_one_owner(
    pair: Pair, make_memory: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timestamps.now()
    monkeypatch.setattr(timestamps, "now", lambda: now)
    one, two = make_memory("one"), make_memory("two")
    for store in pair:
        _add(store, one, two)
        store.usage.injected("talk", [Use(one.id, 3, one.content_hash, ("print",))])
        store.usage.flush()
    _, bob = pair
    now += timedelta(days=40)
    bob.usage.injected("another", [Use(two.id, 3, two.content_hash, ())])
    assert [store.usage.echoed(["print"]) for store in pair] == [{"print": [one.id]}, {}]
