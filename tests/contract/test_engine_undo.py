"""Taking back what one batch did, whatever else happened before, after or in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from triskele.engine.local import LocalEngine
from triskele.engine.undo import inverse
from triskele.errors import BadInput, Conflict, NotFound
from triskele.replies import Undone
from triskele.store.owner import OwnerStore
from triskele.text import timestamps
from triskele.text.ids import content_hash
from triskele.types import (
    Action,
    Add,
    Forget,
    LinkKind,
    MakePrivate,
    Memory,
    Outcome,
    Revise,
    Sensitivity,
    client_actor,
)


@pytest.fixture
def engine(open_engine: Callable[..., LocalEngine]) -> LocalEngine:
    return open_engine()


def _saying(memory: Memory, content: str) -> Memory:
    return replace(memory, content=content, content_hash=content_hash(content))


def _contents(engine: LocalEngine) -> set[str]:
    return {memory.content for memory in engine.browse().memories}


def _planned(engine: LocalEngine, **wider: bool) -> Undone:
    return engine.undo(dry_run=True, **wider)


def _last_batch(engine: LocalEngine) -> str:
    return engine.store.newest_entries()[0].batch


def test_a_batch_that_changed_a_memory_several_times_is_taken_back_whole(engine: LocalEngine) -> None:
    memory = engine.draft("first")
    engine.apply([Add(memory)])
    engine.apply([Revise(_saying(memory, "second"), base=1), Revise(_saying(memory, "third"), base=2)])
    engine.undo()
    assert _contents(engine) == {"first"}
    engine.undo(_last_batch(engine))
    assert _contents(engine) == {"third"}


def test_an_edit_and_a_forgetting_in_one_batch_are_taken_back_together(engine: LocalEngine) -> None:
    memory = engine.draft("first")
    engine.apply([Add(memory)])
    engine.apply([Revise(_saying(memory, "second"), base=1), Forget(memory.id)])
    engine.undo()
    assert _contents(engine) == {"first"}


def test_undo_and_its_undoing_go_back_and_forth(engine: LocalEngine) -> None:
    memory = engine.draft("first")
    engine.apply([Add(memory), Revise(_saying(memory, "second"), base=1)])
    engine.undo()
    for expected in ({"second"}, set(), {"second"}, set()):
        engine.undo(_last_batch(engine))
        assert _contents(engine) == expected


def test_steps_are_taken_back_one_by_one_through_edits_and_forgettings(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    for content in ("two", "three"):
        engine.edit(id, content=content)
    engine.forget(id)
    for expected in ({"three"}, {"two"}, {"one"}, set()):
        engine.undo()
        assert _contents(engine) == expected
    with pytest.raises(NotFound):
        engine.undo()


def test_an_edit_is_not_taken_back_over_a_later_forgetting(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    engine.edit(id, content="two")
    edit = _last_batch(engine)
    engine.forget(id)
    with pytest.raises(Conflict):
        engine.undo(edit)
    assert _contents(engine) == set()


def test_a_forgetting_is_not_taken_back_twice(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    engine.forget(id)
    forgetting = _last_batch(engine)
    engine.undo(forgetting)
    engine.edit(id, content="two")
    with pytest.raises(Conflict):
        engine.undo(forgetting)
    assert _contents(engine) == {"two"}


def test_undo_takes_back_an_interleaved_batch_at_once(engine: LocalEngine) -> None:
    engine.apply([Add(engine.draft("import 1"))], batch="import")
    engine.remember("meanwhile")
    engine.apply([Add(engine.draft("import 2"))], batch="import")
    engine.undo()
    assert _contents(engine) == {"meanwhile"}
    engine.undo()
    assert _contents(engine) == set()
    with pytest.raises(NotFound):
        engine.undo()


def test_a_long_batch_is_taken_back_whole(engine: LocalEngine) -> None:
    engine.remember("kept")
    engine.apply([Add(engine.draft(f"number {number}")) for number in range(1300)])
    assert len(engine.undo().outcomes) == 1300
    assert _contents(engine) == {"kept"}


def test_a_link_taken_away_and_brought_back_did_not_stand_in_between(engine: LocalEngine) -> None:
    one, other = engine.remember("one").id, engine.remember("other").id
    engine.link(one, LinkKind.SUPERSEDES, other)
    engine.unlink(one, LinkKind.SUPERSEDES, other)
    between = timestamps.now()
    engine.undo()
    assert len(engine.get(one).links) == 1
    assert engine.store.links([one], known_at=between) == []
    assert [outcome.action for outcome in engine.undo().outcomes] == [Action.UNLINKED]


def test_undo_leaves_out_erased_memories(engine: LocalEngine) -> None:
    drafts = [engine.draft(f"number {number}") for number in range(3)]
    addition = engine.apply([Add(draft) for draft in drafts])[0].batch
    for one, other in pairwise(drafts):
        engine.link(one.id, LinkKind.SEE_ALSO, other.id)
    engine.erase(drafts[1].id)
    with pytest.raises(Conflict, match="erased"):
        engine.undo()
    assert {outcome.id for outcome in engine.undo(addition).outcomes} == {drafts[0].id, drafts[2].id}
    assert _contents(engine) == set()


def test_an_erasing_is_never_taken_back(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    addition = _last_batch(engine)
    engine.erase(id)
    for batch in (addition, _last_batch(engine)):
        with pytest.raises(BadInput):
            engine.undo(batch)
    with pytest.raises(Conflict, match="the last change erased a memory"):
        engine.undo()


def test_undo_never_passes_over_an_erasure_or_a_sealing(engine: LocalEngine) -> None:
    memory = engine.remember("kept")
    engine.seal(engine.remember("the meeting is at nine").id)
    engine.remember("added later")
    engine.undo()
    with pytest.raises(Conflict, match="the last change sealed a memory"):
        engine.undo()
    assert engine.store.memories([memory.id])


def test_undo_names_an_unknown_batch(engine: LocalEngine) -> None:
    with pytest.raises(NotFound):
        engine.undo("nothing")


def test_undo_restores_every_detail_for_recall(engine: LocalEngine) -> None:
    id = engine.remember("a blue heron", tags=["bird"], keywords="wader", importance=0.9).id
    engine.edit(id, content="a grey goose", tags=["fowl"], keywords="", importance=0.1)
    before = timestamps.now()
    engine.undo()
    [hit] = engine.recall("heron").hits
    assert (hit.memory.tags, hit.memory.keywords, hit.memory.importance) == (("bird",), "wader", 0.9)
    assert [hit.memory.content for hit in engine.recall("goose", known_at=before).hits] == ["a grey goose"]


def test_a_client_undoes_only_its_own_changes(engine: LocalEngine) -> None:
    agent, other = engine.acting_as(client_actor("agent")), engine.acting_as(client_actor("other"))
    noted = agent.remember("noted by the agent")
    kept = engine.remember("kept by the user")
    with pytest.raises(NotFound, match="only its own"):
        agent.undo(kept.batch)
    with pytest.raises(NotFound, match="nothing to undo"):
        other.undo()
    assert [outcome.id for outcome in agent.undo().outcomes] == [noted.id]
    assert engine.store.memories([noted.id, kept.id]).keys() == {kept.id}
    assert [outcome.id for outcome in engine.undo().outcomes] == [kept.id]


def test_undo_stays_in_the_project_and_with_the_actor_by_default(engine: LocalEngine) -> None:
    here = engine.remember("kept here")
    everywhere = engine.remember("kept everywhere", project="")
    there = engine.remember("kept elsewhere", project="other")
    by_agent = engine.acting_as(client_actor("agent")).remember("kept by an agent")
    assert [outcome.id for outcome in engine.undo().outcomes] == [everywhere.id]
    assert [outcome.id for outcome in engine.undo().outcomes] == [here.id]
    with pytest.raises(NotFound, match="nothing to undo"):
        engine.undo()
    assert _planned(engine, anyone=True).batch == by_agent.batch
    assert _planned(engine, all_projects=True).batch == there.batch
    assert [outcome.id for outcome in engine.undo(project="other").outcomes] == [there.id]
    assert engine.store.memories([by_agent.id])


def test_a_memory_that_moved_here_or_away_counts_as_here(engine: LocalEngine) -> None:
    moved = engine.remember("on the move", project="other")
    engine.edit(moved.id, project=engine.project)
    assert [outcome.action for outcome in engine.undo().outcomes] == [Action.EDITED]
    assert engine.get(moved.id).project == "other"


def test_an_import_is_undone_as_the_users_own(engine: LocalEngine) -> None:
    imported = engine.acting_as("import").apply([Add(engine.draft("one")), Add(engine.draft("two"))])
    planned = _planned(engine)
    assert (planned.batch, planned.size, planned.is_own(engine.actor)) == (imported[0].batch, 2, True)


def test_an_erasure_of_whatever_project_is_not_passed_over(engine: LocalEngine) -> None:
    engine.remember("kept here")
    engine.erase(engine.remember("gone from elsewhere", project="other").id)
    with pytest.raises(Conflict, match="erased"):
        engine.undo()


def test_a_plan_names_texts_projects_and_who_changed_them(engine: LocalEngine) -> None:
    older = engine.remember("first text").id
    engine.acting_as(client_actor("agent")).remember("second text", supersedes=older)
    planned = _planned(engine, anyone=True)
    assert (planned.size, planned.projects, planned.is_own(engine.actor)) == (1, (engine.project,), False)
    assert [memory.content for _, versions in planned.named() for memory in versions] == ["second text"] * 2


def _states(engine: LocalEngine, id: str) -> tuple[str, Sensitivity]:
    memory = engine.get(id)
    return memory.content, memory.sensitivity


def test_the_users_undo_opens_again_and_goes_on_to_earlier_changes(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    engine.edit(id, content="two")
    engine.edit(id, sensitivity=Sensitivity.PRIVATE)
    engine.edit(id, content="three")
    engine.edit(id, sensitivity=Sensitivity.OPEN)
    engine.edit(id, content="four", sensitivity=Sensitivity.PRIVATE)
    closed, opened = Sensitivity.PRIVATE, Sensitivity.OPEN
    for expected in (("three", opened), ("three", closed), ("two", closed), ("two", opened), ("one", opened)):
        assert [outcome.action for outcome in engine.undo().outcomes] == [Action.EDITED]
        assert _states(engine, id) == expected
    assert [outcome.action for outcome in engine.undo().outcomes] == [Action.FORGOTTEN]
    with pytest.raises(NotFound):
        engine.undo()


def test_taking_back_an_opening_closes_every_version(engine: LocalEngine) -> None:
    id = engine.remember("one", sensitivity=Sensitivity.PRIVATE).id
    engine.edit(id, sensitivity=Sensitivity.OPEN)
    assert [outcome.action for outcome in engine.undo().outcomes] == [Action.EDITED]
    assert {version.sensitivity for version in engine.store.history(id)} == {Sensitivity.PRIVATE}
    engine.undo(_last_batch(engine))
    assert _states(engine, id) == ("one", Sensitivity.OPEN)
    engine.undo(_last_batch(engine))
    assert {version.sensitivity for version in engine.store.history(id)} == {Sensitivity.PRIVATE}


def test_a_closing_is_not_taken_back_over_a_later_one(engine: LocalEngine) -> None:
    id = engine.remember("one").id
    closing = engine.edit(id, sensitivity=Sensitivity.PRIVATE)[0]
    engine.edit(id, sensitivity=Sensitivity.OPEN)
    with pytest.raises(Conflict, match="changed later"):
        engine.undo(closing.batch)
    assert _states(engine, id) == ("one", Sensitivity.OPEN)


def test_undo_of_a_client_never_opens_a_private_memory(engine: LocalEngine) -> None:
    agent = engine.acting_as(client_actor("agent"))
    added = agent.remember("one")
    with_text = agent.edit(added.id, content="two", sensitivity=Sensitivity.PRIVATE)[0]
    assert [outcome.sensitivity for outcome in agent.undo(with_text.batch).outcomes] == [Sensitivity.PRIVATE]
    assert _states(engine, added.id) == ("one", Sensitivity.PRIVATE)
    other = agent.remember("other")
    closing = agent.edit(other.id, sensitivity=Sensitivity.PRIVATE)[0]
    for batch in (None, closing.batch):
        with pytest.raises(Conflict, match=f"{other.id} stays private.*triskele edit {other.id} --open"):
            agent.undo(batch)
    with pytest.raises(Conflict, match=f"the change before it is batch {other.batch}") as refused:
        agent.undo()
    assert refused.value.remedy == f"batch {other.batch}"
    assert [outcome.action for outcome in agent.undo(other.batch).outcomes] == [Action.FORGOTTEN]
    assert [outcome.sensitivity for outcome in engine.undo(_last_batch(engine)).outcomes] == [Sensitivity.PRIVATE]


def test_undo_of_a_client_names_a_closing_as_its_only_change(engine: LocalEngine) -> None:
    agent, id = engine.acting_as(client_actor("agent")), engine.remember("one").id
    agent.edit(id, sensitivity=Sensitivity.PRIVATE)
    with pytest.raises(Conflict, match=r"--open`\)$"):
        agent.undo()
    assert [outcome.action for outcome in engine.undo(anyone=True).outcomes] == [Action.EDITED]
    assert _states(engine, id) == ("one", Sensitivity.OPEN)


def test_every_store_keeps_the_class_that_an_edit_changed(
    store: OwnerStore, add: Callable[..., Memory], do: Callable[..., list[Outcome]]
) -> None:
    memory = add("one", owner="me")
    closed = replace(_saying(memory, "two"), sensitivity=Sensitivity.PRIVATE)
    do(Revise(closed, base=1), MakePrivate(memory.id))
    assert store.journal(id=memory.id)[-1].other == "open"
    assert {version.sensitivity for version in store.history(memory.id)} == {Sensitivity.PRIVATE}
    outcomes = _taken_back(store, store.newest_entries()[0].batch, by="undo")
    assert [outcome.sensitivity for outcome in outcomes] == [Sensitivity.OPEN]
    current = store.history(memory.id)[-1]
    assert (current.content, current.sensitivity) == ("one", Sensitivity.OPEN)
    assert [outcome.action for outcome in _taken_back(store, "undo", by="again")] == [Action.EDITED]
    assert {version.sensitivity for version in store.history(memory.id)} == {Sensitivity.PRIVATE}


def _taken_back(store: OwnerStore, batch: str, *, by: str) -> list[Outcome]:
    entries = store.journal(batch=batch)
    changes = inverse(entries, store)
    outcomes = zip(changes, store.apply(changes, batch=by, undoes=entries[0].seq), strict=True)
    return [outcome for change, outcome in outcomes if not isinstance(change, MakePrivate)]
