"""Links: which may be made, which stand, and which stood."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from triskele.errors import Conflict, NotFound
from triskele.store.owner import OwnerStore
from triskele.text import timestamps
from triskele.types import Action, Add, Connect, Disconnect, Forget, Link, LinkKind, Memory, Outcome

Do = Callable[..., list[Outcome]]
Make = Callable[..., Memory]

TRUTH = True

LONG_AGO = datetime(2021, 3, 4, tzinfo=UTC)


def _link(source: Memory, target: Memory, kind: LinkKind = LinkKind.SUPERSEDES) -> Link:
    return Link(source=source.id, kind=kind, target=target.id, known_from=timestamps.now())


@pytest.mark.parametrize("kind", list(LinkKind))
def test_links_reads_a_link_from_either_end(store: OwnerStore, do: Do, add: Make, kind: LinkKind) -> None:
    one, other, stranger = add(), add(), add()
    link = _link(one, other, kind)
    [outcome] = do(Connect(link))
    assert (outcome.action, outcome.id) == (Action.LINKED, one.id)
    assert store.links([one.id]) == store.links([other.id]) == store.links([one.id, other.id]) == [link]
    assert store.links([stranger.id]) == []
    assert store.links([]) == []


def test_rows_tell_which_memories_replace_or_were_replaced(store: OwnerStore, do: Do, add: Make) -> None:
    newer, older, once, friend, alone = (add() for _ in range(5))
    rows = {memory.id: row for row, memory in store.versions()}
    assert store.superseding_ids(rows.values()) == {}
    link = _link(newer, once)
    do(Connect(_link(newer, older)), Connect(link), Connect(_link(friend, alone, LinkKind.SEE_ALSO)))
    do(Disconnect(link))
    assert store.superseding_ids(rows.values()) == {rows[each.id]: each.id for each in (newer, older, once)}
    assert store.superseding_ids([rows[older.id], rows[alone.id]]) == {rows[older.id]: older.id}
    assert store.superseding_ids([]) == {}


def test_succession_reads_the_links_of_a_chain_nearest_first(store: OwnerStore, do: Do, add: Make) -> None:
    chain, other, friend = [add() for _ in range(6)], add(), add()
    links = [_link(newer, older) for older, newer in pairwise(chain)]
    branch = _link(other, chain[2])
    do(*map(Connect, [*links, branch, _link(friend, chain[2], LinkKind.SEE_ALSO)]))
    assert store.succession([chain[0].id], 0) == links[:1]
    assert store.succession([chain[0].id], 2) == [*links[:3], branch]
    assert store.succession([chain[3].id], 1) == [links[2], links[3], links[1], links[4], branch]
    assert store.succession([chain[0].id, chain[5].id], 1) == [links[0], links[4], links[1], links[3]]
    assert set(store.succession([other.id], 9)) == {*links, branch}
    assert store.succession([friend.id, "nobody"], 9) == store.succession([], 9) == []
    stood = timestamps.now()
    do(Disconnect(links[1]))
    assert store.succession([chain[0].id], 9) == links[:1]
    assert store.succession([chain[0].id], 1, known_at=stood)[1].source == chain[2].id
    assert store.succession([chain[0].id], 9, known_at=LONG_AGO) == []


def test_links_filters_by_kind(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    links = [_link(one, other, kind) for kind in LinkKind]
    do(*map(Connect, links))
    assert store.links([one.id]) == links
    for link in links:
        assert store.links([other.id], kind=link.kind) == [link]


def test_connect_does_not_repeat_an_open_link(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    do(Connect(_link(one, other)))
    entries = store.position()
    [outcome] = do(Connect(_link(one, other)))
    assert (outcome.action, outcome.seq) == (Action.UNCHANGED, None)
    assert (len(list(store.all_links())), store.position()) == (1, entries)


@pytest.mark.parametrize("kind", list(LinkKind))
def test_a_memory_is_not_linked_to_itself(store: OwnerStore, do: Do, add: Make, kind: LinkKind) -> None:
    memory = add()
    with pytest.raises(Conflict):
        do(Connect(_link(memory, memory, kind)))
    assert list(store.all_links()) == []


def test_both_ends_must_exist(store: OwnerStore, do: Do, add: Make, make_memory: Make) -> None:
    memory, absent = add(), make_memory()
    for link in (_link(memory, absent), _link(absent, memory)):
        with pytest.raises(NotFound):
            do(Connect(link))


def test_a_circle_of_successors_is_refused_at_any_length(store: OwnerStore, do: Do, add: Make) -> None:
    chain = [add() for _ in range(13)]
    for older, newer in pairwise(chain):
        do(Connect(_link(newer, older)))
    for number in (1, 2, 12):
        with pytest.raises(Conflict):
            do(Connect(_link(chain[0], chain[number])))
    assert len(store.links([memory.id for memory in chain])) == 12


def test_a_branch_is_no_circle_and_other_kinds_may_go_round(store: OwnerStore, do: Do, add: Make) -> None:
    one, two, three = add(), add(), add()
    do(Connect(_link(two, one)), Connect(_link(three, one)), Connect(_link(three, two)))
    do(Connect(_link(one, two, LinkKind.SEE_ALSO)), Connect(_link(two, one, LinkKind.SEE_ALSO)))
    assert len(store.links([one.id])) == 4


def test_closed_link_stays_in_the_history_and_allows_its_reverse(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    link = _link(one, other)
    do(Connect(link))
    stood = timestamps.now()
    [outcome] = do(Disconnect(link))
    ended = timestamps.now()
    assert outcome.action is Action.UNLINKED
    assert store.links([one.id]) == store.links([one.id], known_at=ended) == []
    [closed] = store.links([one.id], known_at=stood)
    assert list(store.all_links()) == [closed]
    assert stood <= (closed.known_to or LONG_AGO) <= ended
    assert store.links([one.id], known_at=link.known_from - timestamps.MICROSECOND) == []
    do(Connect(_link(other, one)))
    assert [found.source for found in store.links([one.id])] == [other.id]


def test_reopened_link_is_another_link(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    do(Connect(_link(one, other)))
    do(Disconnect(_link(one, other)))
    between = timestamps.now()
    while timestamps.now() <= between:
        pass
    do(Connect(_link(one, other)))
    assert [link.known_to is None for link in store.all_links()] == [False, True]
    assert store.links([one.id], known_at=between) == []


def test_disconnect_of_no_open_link_changes_nothing(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    do(Connect(_link(one, other)))
    entries = store.position()
    for link in (_link(other, one), _link(one, other, LinkKind.PART_OF)):
        [outcome] = do(Disconnect(link))
        assert (outcome.action, outcome.seq) == (Action.UNCHANGED, None)
    assert (len(store.links([one.id])), store.position()) == (1, entries)


def test_a_closed_link_can_be_taken_over(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    past = Link(source=one.id, kind=LinkKind.PART_OF, target=other.id, known_from=LONG_AGO, known_to=timestamps.now())
    do(Connect(past))
    assert list(store.all_links()) == [past]
    assert store.links([one.id]) == []
    assert store.links([one.id], known_at=LONG_AGO) == [past]


def test_links_outlive_the_forgetting_of_an_end(store: OwnerStore, do: Do, add: Make) -> None:
    one, other = add(), add()
    link = _link(one, other)
    do(Connect(link))
    do(Forget(other.id))
    assert store.links([one.id]) == [link]


def test_a_refused_link_takes_its_whole_list_back(store: OwnerStore, do: Do, add: Make, make_memory: Make) -> None:
    one, newcomer = add(), make_memory()
    with pytest.raises(Conflict):
        do(Add(newcomer), Connect(_link(newcomer, one)), Connect(_link(one, newcomer)))
    assert store.history(newcomer.id) == []
    assert list(store.all_links()) == []


def test_links_of_many_memories_come_once(store: OwnerStore, do: Do, make_memory: Make) -> None:
    memories = [make_memory(f"number {number}") for number in range(1100)]
    do(*map(Add, memories))
    links = [_link(memories[place], memories[-1 - place], LinkKind.SEE_ALSO) for place in range(550)]
    do(*map(Connect, links))
    assert store.links([memory.id for memory in memories]) == links


def test_snapshot_contains_links_committed_before_it(open_store: Callable[..., OwnerStore], add: Make) -> None:
    store, other = open_store(), open_store()
    one, second, third = add(), add(), add()
    ids = [one.id, second.id, third.id]

    def seen(kind: LinkKind | None = None) -> list[Link]:
        with store.snapshot():
            return store.links(ids, kind=kind)

    assert seen() == seen(LinkKind.SUPERSEDES) == []
    related = _link(one, second, LinkKind.SEE_ALSO)
    other.apply([Connect(related)], batch="one")
    assert (seen(), seen(LinkKind.SUPERSEDES)) == ([related], [])
    with store.snapshot():
        # Of a moment before the next one, whatever others read meanwhile.
        replaced = _link(third, one)
        other.apply([Connect(replaced)], batch="two")
        with other.snapshot():
            assert other.links(ids, kind=LinkKind.SUPERSEDES) == [replaced]
        assert store.links(ids) == [related]
    assert (seen(), seen(LinkKind.SUPERSEDES)) == ([related, replaced], [replaced])
    beside = _link(third, one, LinkKind.SEE_ALSO)
    other.apply([Connect(beside)], batch="beside")
    assert seen(LinkKind.SUPERSEDES) == [replaced]
    moment = timestamps.now()
    other.apply([Disconnect(related)], batch="three")
    assert seen() == [replaced, beside]
    with store.snapshot():
        assert len(store.links([second.id], known_at=moment)) == 1
    other.erase([third.id], batch="four")
    assert seen() == []
    again = _link(second, one)
    other.apply([Connect(again)], batch="five")
    assert seen(LinkKind.SUPERSEDES) == [again]
