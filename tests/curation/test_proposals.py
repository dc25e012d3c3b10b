"""The review queue, and carrying decisions out: journaled, reversible, and only by the user where trust would rise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from triskele.curation.curator import LEAST_A_DAY, Curator
from triskele.curation.decide import NEAREST, PairDecision, changes_of
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, Conflict, NotFound
from triskele.replies.rooms import Rationale
from triskele.types import CURATION, USER, Add, LinkKind, Memory, Origin, Sensitivity, Verdict, client_actor

OpenEngine = Callable[..., LocalEngine]

OLD, NEW = "Payroll runs on Nomad", "Payroll now runs on Kubernetes"


def following(engine: LocalEngine, *, apply: bool = False) -> Curator:
    """A curator that has seen the store so far."""
    engine.settings = replace(
        engine.settings, curation=replace(engine.settings.curation, mode="apply" if apply else "propose")
    )
    curator = Curator(engine)
    curator.follow()
    return curator


def state(engine: LocalEngine) -> set[tuple[object, ...]]:
    """Everything that recall depends on: live rows, their validity, and the links between them."""
    rows = engine.store.memories(
        [memory.id for memory in engine.store.browse(engine.scope(all_projects=True), limit=10_000)]
    ).values()
    links = engine.store.links([memory.id for memory in rows])
    shown = {(m.id, m.content_hash, m.valid_from, m.valid_to, m.tags, m.sensitivity, m.origin) for m in rows}
    return shown | {(link.source, link.kind, link.target) for link in links}


def test_a_new_state_of_things_is_proposed_and_nothing_changes(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    old, new = engine.remember(OLD).id, engine.remember(NEW).id
    before = state(engine)
    assert curator.follow().proposed == 1
    [proposal] = engine.proposals.list()
    assert (proposal.kind, proposal.new.id) == (Verdict.SUPERSEDE, new)
    assert proposal.old is not None and proposal.old.id == old
    assert proposal.reasons[0].after == "Kubernetes"
    assert state(engine) == before
    assert curator.follow().proposed == 0


def test_follow_encodes_no_text(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(model="bundled")
    curator = following(engine)
    engine.remember("I prefer tabs over spaces")
    engine.remember("I like tabs better than spaces")
    engine.upkeep.embed()
    for encode in ("encode_query", "encode_documents"):
        monkeypatch.setattr(type(engine.embedder), encode, lambda *_: pytest.fail("a text is encoded once"))
    assert curator.follow().proposed == 1
    [proposal] = engine.proposals.list()
    assert proposal.kind is Verdict.NOOP


def test_related_leaves_out_replaced_memories_before_the_cut(open_engine: OpenEngine) -> None:
    engine = open_engine()
    older = [engine.remember(f"Payroll runs on Nomad, {number} nodes").id for number in range(3 * NEAREST)]
    for old in older[1:]:
        engine.link(older[0], "supersedes", old)
    engine.semantic()
    [decision] = Curator(engine).related(engine.draft("Payroll runs on Nomad, 0 nodes!"))
    assert decision.old is not None and decision.old.id == older[0]


def test_an_accepted_proposal_supersedes_and_undo_brings_everything_back(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    old, new = engine.remember(OLD).id, engine.remember(NEW).id
    before = state(engine)
    curator.follow()
    outcomes = engine.proposals.accept(engine.proposals.list()[0].id[:5])
    assert engine.superseded([old]) == {old}
    assert engine.get(old).valid_to == engine.get(new).created_at
    assert [hit.memory.id for hit in engine.recall("payroll runs").hits] == [new]
    entries = engine.store.journal(batch=outcomes[0].batch)
    assert {entry.actor for entry in entries} == {CURATION}
    assert engine.proposals.list() == []
    engine.undo(outcomes[0].batch)
    assert state(engine) == before
    [again] = engine.proposals.list()
    assert (again.kind, again.new.id, again.reasons[0].after) == (Verdict.SUPERSEDE, new, "Kubernetes")
    engine.proposals.accept(again.id)
    assert engine.superseded([old]) == {old} and engine.proposals.list() == []


def test_undo_brings_back_only_the_proposals_of_its_batch(open_engine: OpenEngine) -> None:
    engine = open_engine()
    drafts = [engine.draft(text, category="decisions") for text in ("We test with hypothesis", "We deploy with Flux")]
    engine.proposals.offer_texts((draft, 0.7, (Rationale("decision"),)) for draft in drafts)
    first, second = engine.proposals.list()
    batches = [engine.proposals.accept(each.id)[0].batch for each in (first, second)]
    engine.undo(batches[0])
    assert [each.id for each in engine.proposals.list()] == [first.id]
    engine.undo(batches[1])
    assert {each.id for each in engine.proposals.list()} == {first.id, second.id}


def test_undo_of_an_undo_accepts_a_proposal_again(open_engine: OpenEngine) -> None:
    engine = open_engine()
    drafts = [engine.draft(text, category="decisions") for text in ("We test with hypothesis", "We deploy with Flux")]
    engine.proposals.offer_texts((draft, 0.7, (Rationale("decision"),)) for draft in drafts)
    first, second = engine.proposals.list()
    [outcome] = engine.proposals.accept(first.id)
    # Each one undoes the one before: out, in, out, in.
    for waiting in ([first, second], [second]) * 2:
        [outcome] = engine.undo(outcome.batch).outcomes
        assert {each.id for each in engine.proposals.list()} == {each.id for each in waiting}
        assert (engine.get(outcome.id).known_to is None) is (first not in waiting)
    engine.erase(outcome.id)
    assert set(engine.store.documents.all("proposal")) == {second.id}
    assert engine.store.documents.all("proposal-accepted") == {}


@pytest.mark.parametrize("is_undone", [False, True])
def test_erase_removes_the_proposal_of_the_memory(open_engine: OpenEngine, is_undone: bool) -> None:
    engine = open_engine()
    draft = engine.draft("We test with hypothesis", category="decisions")
    engine.proposals.offer_texts([(draft, 0.7, (Rationale("decision"),))])
    [outcome] = engine.proposals.accept(engine.proposals.list()[0].id)
    if is_undone:
        engine.undo(outcome.batch)
    engine.erase(outcome.id)
    assert engine.store.documents.all("proposal") == engine.store.documents.all("proposal-accepted") == {}


def test_a_rejected_proposal_does_not_come_back(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    engine.remember(OLD)
    new = engine.remember(NEW)
    curator.follow()
    engine.proposals.reject(engine.proposals.list()[0].id)
    assert engine.proposals.offer(curator.related(engine.store.history(new.id)[-1])) == 0
    assert engine.proposals.list() == []
    with pytest.raises(NotFound):
        engine.proposals.accept("0")


def test_a_proposal_goes_when_its_memories_change(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    old = engine.remember(OLD).id
    engine.remember(NEW)
    curator.follow()
    engine.edit(old, content="Payroll ran on Nomad until 2024")
    assert engine.proposals.list() == []


def test_an_erased_memory_takes_its_proposals_with_it(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    old = engine.remember(OLD).id
    engine.remember(NEW)
    curator.follow()
    engine.erase(old)
    assert engine.store.documents.all("proposal") == {}


def test_a_client_may_not_accept(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine)
    engine.remember(OLD)
    engine.remember(NEW)
    curator.follow()
    waiting = engine.proposals.list()
    with pytest.raises(Conflict):
        engine.acting_as(client_actor("codex")).proposals.accept(waiting[0].id)
    assert engine.proposals.list() == waiting


def test_sure_decisions_apply_by_themselves_only_if_the_settings_say_so(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine, apply=True)
    old = engine.remember(OLD).id
    engine.remember(NEW)
    before = state(engine)
    result = curator.follow()
    assert (len(result.outcomes), result.proposed) == (2, 0)
    assert engine.superseded([old]) == {old}
    # The user's own undo reaches what curation did.
    engine.undo()
    assert state(engine) == before


def test_text_of_an_agent_is_only_proposed_against_the_user(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine, apply=True)
    old = engine.remember(OLD).id
    engine.acting_as(client_actor("codex")).remember(NEW, origin=Origin.AGENT)
    assert curator.follow().proposed == 1
    assert engine.superseded([old]) == set()


def test_an_agents_copy_yields_to_the_users_memory_whichever_is_newer(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine, apply=True)
    first = engine.remember("the kettle is red", origin=Origin.AGENT).id
    own = engine.remember("The kettle is red.").id
    second = engine.remember("the kettle is RED", origin=Origin.AGENT).id
    curator.follow()
    curator.apply_or_propose(curator.related(engine.store.history(second)[-1]), apply=True)
    assert engine.superseded([first, own, second]) == {first, second}
    assert engine.get(own).origin is Origin.USER


def test_a_merge_takes_the_closer_sensitivity_and_the_lesser_trust(open_engine: OpenEngine) -> None:
    engine = open_engine()
    private = engine.remember(OLD, sensitivity=Sensitivity.PRIVATE, origin=Origin.AGENT, tags=["hr"]).id
    new = engine.remember("Payroll runs on Nomad, with two replicas", tags=["ops"]).id
    decision = PairDecision(Verdict.UPDATE, engine.store.history(new)[-1], engine.store.history(private)[-1], 1.0)
    assert decision.needs_consent
    before = engine.get(new)
    outcomes = engine.apply(changes_of(decision))
    merged = engine.get(new)
    assert (merged.sensitivity, merged.origin) == (Sensitivity.PRIVATE, Origin.AGENT)
    assert set(merged.tags) == {"hr", "ops"}
    assert engine.superseded([private]) == {private}
    engine.undo(outcomes[0].batch)
    # What was withdrawn from others stays so.
    assert replace(engine.store.history(new)[-1], sensitivity=before.sensitivity).tags == before.tags
    assert engine.get(new).origin is Origin.USER


def test_the_brake_stops_a_run_and_the_rest_is_proposed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    curator = following(engine, apply=True)
    number = LEAST_A_DAY + 5
    engine.apply([Add(engine.draft(f"The limit of queue {chr(97 + n)}{n}x is {n} jobs")) for n in range(number)])
    news = engine.apply(
        [Add(engine.draft(f"The limit of queue {chr(97 + n)}{n}x was raised to {n + 500} jobs")) for n in range(number)]
    )
    decisions = [each for new in news for each in curator.related(engine.store.history(new.id)[-1])[:1]]
    result = curator.apply_or_propose(decisions, apply=True)
    assert curator.today() == {"changed": LEAST_A_DAY}
    assert result.proposed == 5
    assert curator.apply_or_propose(decisions[-1:], apply=True).outcomes == ()
    assert len({outcome.batch for outcome in result.outcomes}) == 1


def test_a_captured_text_waits_outside_the_store(open_engine: OpenEngine) -> None:
    engine = open_engine()
    draft = engine.draft("We test with hypothesis", category="decisions", speaker="Mira", role="user")
    assert engine.proposals.offer_texts([(draft, 0.7, (Rationale("decision"),))]) == 1
    assert engine.proposals.offer_texts([(draft, 0.7, (Rationale("decision"),))]) == 0
    assert engine.store.census().memories == 0
    [proposal] = engine.proposals.list()
    assert (proposal.kind, proposal.old, proposal.is_stored) == (Verdict.ADD, None, False)
    [outcome] = engine.proposals.accept(proposal.id)
    memory = engine.get(outcome.id)
    assert (memory.content, memory.category, memory.speaker) == ("We test with hypothesis", "decisions", "Mira")
    assert memory.created_at == draft.created_at


def test_a_secret_never_waits_in_the_queue(open_engine: OpenEngine) -> None:
    engine = open_engine()
    secret = engine.draft("the door code", sensitivity=Sensitivity.SECRET, title="a code")
    with pytest.raises(BadInput):
        engine.proposals.offer_texts([(secret, 0.9, ())])
    assert engine.store.documents.all("proposal") == {}


def test_words_alone_find_a_near_duplicate(open_engine: OpenEngine) -> None:
    engine = open_engine()
    id = engine.remember("The VPN is needed for the archive").id
    engine.remember("The kettle is red")
    [hint] = Curator(engine).related_by_words(engine.draft("The VPN is no longer needed for the archive"))
    assert hint.old is not None
    assert (hint.old.id, hint.verdict) == (id, Verdict.SUPERSEDE)


def test_earlier_memories_reach_the_review(open_engine: OpenEngine) -> None:
    engine = open_engine()
    engine.remember(OLD)
    engine.remember(NEW)
    assert Curator(engine).follow().proposed == 1
    assert Curator(engine).follow().read == 0


def test_a_large_store_is_left_to_the_command(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triskele.curation.curator._MOST_AT_FIRST", 1)
    engine = open_engine()
    engine.remember(OLD)
    engine.remember(NEW)
    assert Curator(engine).follow().read == 0
    assert engine.proposals.list() == []


def test_curation_leaves_its_own_changes_and_memories_that_it_read_alone(open_engine: OpenEngine) -> None:
    engine = open_engine()
    engine.remember(OLD)
    engine.remember(NEW)
    curator = following(engine)
    assert curator.follow().read == 0
    engine.link(*[memory.id for memory in engine.browse().memories][:1], LinkKind.SEE_ALSO, _other(engine).id)
    assert curator.follow().read == 0


def _other(engine: LocalEngine) -> Memory:
    return engine.browse().memories[1]


def test_switched_off_it_reads_nothing(open_engine: OpenEngine) -> None:
    engine = open_engine()
    off = replace(engine.settings.curation, mode="off")
    engine.settings = replace(engine.settings, curation=off)
    engine.remember(OLD)
    assert Curator(engine).follow().read == 0
    assert engine.store.documents.all("curation") == {}
    assert engine.actor == USER
