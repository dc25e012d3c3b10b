"""Histories of a sync with a server where users share with each other, over a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sync_history import HISTORIES, OPERATIONS, PLACE, UNHURRIED, History
from sync_world import LAPTOPS, Stores, World, opened

from triskele.engine.local import LocalEngine
from triskele.errors import NotFound
from triskele.server.accounts import Accounts
from triskele.types import Add, Sensitivity

pytestmark = pytest.mark.slow

SHARING = st.one_of(
    OPERATIONS,
    st.tuples(st.just("give"), st.just("server"), PLACE),
    st.tuples(st.just("give"), st.just("server"), PLACE),
    st.tuples(st.just("end"), st.just("server"), PLACE),
    st.tuples(st.just("receive"), st.just("server"), PLACE),
    st.tuples(st.just("friend_edits"), st.just("server"), PLACE),
)


class SharingHistory(History):
    """A history beside a friend on the same server: memories are shared both ways while laptops sync."""

    def __init__(self, world: World, stores: Stores, accounts: Accounts) -> None:
        super().__init__(world)
        self.owner = world.server.store.owner
        self.friend_name = f"friend-of-{self.owner}"
        for name in (self.owner, self.friend_name):
            accounts.create_user(name)
        found, store = stores["server"]
        chosen = replace(found, memory=replace(found.memory, owner=self.friend_name))
        self.friend = LocalEngine(chosen, found.home, store=store)
        self.received: set[str] = set()

    def _give(self, side: str, number: int) -> None:
        if (memory := self._pick(side, number)) is not None:
            access = "write" if number % 2 else "read"
            self.world.server.store.shares.share("memory", memory.id, "user", self.friend_name, access=access)

    def _end(self, _: str, number: int) -> None:
        shares = self.world.server.store.shares
        if shared := shares.given():
            chosen = shared[number % len(shared)]
            shares.unshare("memory", chosen.target, "user", self.friend_name)

    def _receive(self, _: str, number: int) -> None:
        id = self.friend.remember(f"of the friend: {self._text()}").id
        self.received.add(id)
        self.friend.store.shares.share("memory", id, "user", self.owner, access="write")

    def _friend_edits(self, _: str, number: int) -> None:
        """The friend changes what it may write; on the server that is a change like any other."""
        writable = [each for each in self.friend.store.shares.received() if each.access == "write"]
        writable = [each for each in writable if self._stands(each.id)]
        if writable:
            id = writable[number % len(writable)].id
            before, text = self.world.latest("server")[id], self._text()
            self._note("server", id, text, stands=True, before=before)
            self.friend.edit(id, content=text)

    def _stands(self, id: str) -> bool:
        try:
            return self.friend.get(id).known_to is None
        except NotFound:
            return False

    def check(self) -> None:
        """Nothing of the friend is on a laptop, and the friend has exactly what is shared, as it is now."""
        super().check()
        for side in LAPTOPS:
            assert not self.received & self.world.latest(side).keys(), side
        assert not any("of the friend" in each for each in self.world.heard)
        server = self.world.latest("server")
        shares = self.world.server.store.shares
        targets = {each.target for each in shares.given()}
        assert targets <= server.keys()
        assert all(server[id].sensitivity is Sensitivity.OPEN for id in targets)
        has = {each.id for each in self.friend.store.shares.received()}
        assert has == targets
        for id in targets:
            _, last = max(self.friend.store.versions([id]), key=lambda each: each[1].version)
            assert (last.content, last.known_to is None) == (server[id].content, server[id].known_to is None)
            assert last.shared_by == self.owner


@pytest.fixture
def sharing_stores(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Stores]:
    with opened(tmp_path_factory.mktemp("sharing"), server=postgres_url) as stores:
        yield stores


@pytest.fixture
def accounts(postgres_url: str) -> Iterator[Accounts]:
    found = Accounts(postgres_url)
    yield found
    found.close()


@pytest.mark.timeout(300 + HISTORIES)
@settings(max_examples=max(12, HISTORIES // 25), **UNHURRIED)
@given(operations=st.lists(SHARING, min_size=12, max_size=30))
def test_histories_converge_beside_shares(
    sharing_stores: Stores, accounts: Accounts, operations: list[tuple[str, str, int]]
) -> None:
    history = SharingHistory(World(sharing_stores), sharing_stores, accounts)
    history.run([*[("add", "a", 0)] * 3, ("sync", "a", 0), ("sync", "b", 0), ("give", "server", 0)])
    history.run(operations)
    history.check()


@pytest.mark.parametrize("end", ["erase", "unshare"])
def test_memory_shared_under_the_same_id_stays_with_its_owner(
    sharing_stores: Stores, accounts: Accounts, end: str
) -> None:
    history = SharingHistory(World(sharing_stores), sharing_stores, accounts)
    world, friend = history.world, history.friend
    a, text = world.engines["a"], "the pond has a heron"
    id = a.remember(text).id
    friend.apply([Add(replace(friend.draft("the friend's pond"), id=id))])
    friend.store.shares.share("memory", id, "user", history.owner, access="write")
    report = world.sync("a")
    assert report is not None and f"{history.friend_name} shares" in report.waiting[id]
    assert friend.get(id).content == "the friend's pond"
    if end == "erase":
        friend.erase(id)
    else:
        friend.store.shares.unshare("memory", id, "user", history.owner)
    report = world.sync("a")
    assert report is not None and not report.waiting
    assert world.standing("a") == world.standing("server") == [text]
    world.server.erase(id)
    world.settle()
    assert not world.latest("a")
