"""The book of names: mentions by version, concepts that can be joined and parted, edges that follow their evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from triskele.errors import NotFound
from triskele.replies import NameCounts
from triskele.store.owner import OwnerStore
from triskele.store.values import BY_HAND, NAMES, Named
from triskele.text import timestamps
from triskele.types import Connect, Forget, Link, LinkKind, Memory, Outcome, Revise

Make = Callable[..., Memory]
Do = Callable[..., list[Outcome]]


def _named(text: str, kind: str = "name", joins: tuple[str, str] | None = None) -> Named:
    return Named(text.lower(), text.lower()[:1], text, text.islower(), kind, joins)


def _read(store: OwnerStore, mentioned: dict[str, list[Named]]) -> None:
    """Read everything that waits; what a memory mentions is told by its content."""
    unread = store.names.unread(1000)
    store.names.save(
        {row: mentioned[memory.content] for row, memory in unread if memory.content in mentioned},
        read=[row for row, _ in unread],
    )


def test_versions_are_read_once_in_order(store: OwnerStore, do: Do, add: Make) -> None:
    first, second = add("one"), add("two")
    assert [memory.id for _, memory in store.names.unread()] == [first.id, second.id]
    assert [memory.id for _, memory in store.names.unread(1)] == [first.id]
    store.names.save({}, read=[store.names.unread(1)[0][0]])
    assert [memory.id for _, memory in store.names.unread()] == [second.id]
    _read(store, {})
    assert store.jobs.count(NAMES) == 0
    do(Revise(replace(first, content="one again"), base=1))
    assert [memory.content for _, memory in store.names.unread()] == ["one again"]


def test_a_version_may_be_read_twice_and_out_of_order(store: OwnerStore, add: Make) -> None:
    for text in ("one", "two", "three"):
        add(text)
    rows = [row for row, _ in store.names.unread()]
    for _ in range(2):
        store.names.save({}, read=rows[1:2])
    assert [row for row, _ in store.names.unread()] == [rows[0], rows[2]]


def test_name_is_stored_once_with_mentions_in_order(store: OwnerStore, add: Make) -> None:
    add("one")
    add("two")
    _read(store, {"one": [_named("Argo", "title"), _named("Helm")], "two": [_named("Argo")]})
    names = store.names.find(["argo", "helm", "nobody"])
    assert {key: name.text for key, name in names.items()} == {"argo": "Argo", "helm": "Helm"}
    mentions = store.names.mentions()
    assert [(m.name, m.kind) for m in mentions] == [
        (names["argo"].name, "title"),
        (names["helm"].name, "name"),
        (names["argo"].name, "name"),
    ]
    assert store.heads().mention == mentions[-1].mention
    assert store.names.mentions(after=mentions[0].mention) == mentions[1:]
    assert [name.text for name in store.names.known()] == ["Argo", "Helm"]
    assert [name.text for name in store.names.akin(["h", "z"])] == ["Helm"]
    assert store.names.numbered([names["helm"].name])[names["helm"].name].key == "helm"


def test_reading_a_version_again_adds_only_new_mentions(store: OwnerStore, add: Make) -> None:
    add("one")
    [(row, _)] = store.names.unread()
    store.names.save({row: [_named("Argo", "title"), _named("Helm")]}, read=[row])
    newest = store.heads().mention
    store.names.save({row: [_named("Helm", "found"), _named("Kite", "found"), _named("Kite")]})
    names = store.names.find(["argo", "helm", "kite"])
    mentions = [(mention.row, mention.name, mention.kind) for mention in store.names.mentions()]
    assert mentions == [
        (row, names[key].name, kind) for key, kind in (("argo", "title"), ("helm", "name"), ("kite", "found"))
    ]
    assert [mention.name for mention in store.names.mentions(after=newest)] == [names["kite"].name]
    assert store.names.counts().mentions == 3
    store.names.save({row: [_named("Argo")]})
    assert store.heads().mention == store.names.mentions()[-1].mention


def test_names_with_a_common_prefix_stay_apart(store: OwnerStore, add: Make) -> None:
    add("one")
    blocks = ("harbourmaster", "harbourmistress", "harbour")
    _read(store, {"one": [Named(block, block, block.title(), False, "name") for block in blocks]})
    for block in blocks:
        assert [name.key for name in store.names.akin([block])] == [block]
    assert [name.key for name in store.names.akin(["harbourm"])] == []


def test_edges_are_those_of_one_number_and_not_of_longer_ones(store: OwnerStore, add: Make) -> None:
    """Numbers with the same digits: 1, 11, 21, 111."""
    memories = [add(f"memory {number}") for number in range(60)]
    spoken = {
        memory.content: [_named(f"Title {number}", "title"), _named(f"Name {number}"), _named(f"Other {number}")]
        for number, memory in enumerate(memories)
    }
    _read(store, spoken)
    for number, memory in enumerate(memories):
        title, said = (store.names.find([key])[key].concept for key in (f"title {number}", f"name {number}"))
        assert {(edge.source, edge.evidence) for edge in store.names.edges(said)} == {(title, memory.id)}
        assert len(store.names.edges(title)) == 2
    four, five = (store.names.find([key])[key].concept for key in ("name 4", "name 5"))
    store.names.set_concepts({five: four}, BY_HAND)
    assert {edge.evidence for edge in store.names.edges(four)} == {memories[4].id, memories[5].id}
    assert store.names.edges(five) == []


def test_a_name_met_in_small_letters_may_be_written_so(store: OwnerStore, add: Make) -> None:
    add("one")
    add("two")
    _read(store, {"one": [Named("argo", "a", "Argo", False, "name")], "two": [Named("argo", "a", "argo", True, "tag")]})
    assert store.names.find(["argo"])["argo"].any_case


def test_a_name_whose_words_stand_in_many_texts_is_common(store: OwnerStore, add: Make) -> None:
    add("one")
    add("two")
    rare, once, often = (Named("film", "f", "Film", False, "name", spread=number) for number in (3, 21, 40))
    _read(store, {"one": [once], "two": [often, rare, _named("Helm")]})
    film = store.names.find(["film"])["film"]
    assert store.names.common(20) == [(film.name, 40)]
    assert store.names.common(40) == []
    assert store.names.common(20, {film.name}) == [(film.name, 40)]
    assert store.names.common(20, [store.names.find(["helm"])["helm"].name]) == []


def test_names_can_be_joined_and_parted_again(store: OwnerStore, add: Make) -> None:
    add("one")
    add("two")
    joined = _named("CI", joins=("continuous integration", "acronym"))
    _read(store, {"one": [_named("Continuous Integration")], "two": [joined]})
    whole, short = (store.names.find([key])[key] for key in ("continuous integration", "ci"))
    assert short.concept == whole.concept == whole.name
    assert store.names.grouped() == [(short.name, whole.name)]
    before = store.heads().regrouping
    store.names.set_concepts({short.name: short.name}, "split")
    assert store.names.grouped() == []
    assert store.heads().regrouping > before
    merges = [(merge.before, merge.after, merge.reason) for merge in store.names.merges([short.name])]
    assert merges == [(short.name, whole.name, "acronym"), (whole.name, short.name, "split")]
    assert store.names.merges([whole.name]) == []
    with pytest.raises(NotFound):
        store.names.set_concepts({short.name: 10**6}, "merge")


def test_names_move_all_at_once_or_not_at_all(store: OwnerStore, add: Make) -> None:
    add("one")
    _read(store, {"one": [_named("Argo"), _named("Helm"), _named("Kite")]})
    argo, helm, kite = (store.names.find([key])[key].name for key in ("argo", "helm", "kite"))
    with pytest.raises(NotFound):
        store.names.set_concepts({argo: kite, helm: 10**6}, BY_HAND)
    assert store.names.grouped() == []
    store.names.set_concepts({argo: kite, helm: kite}, BY_HAND)
    assert [name.key for name in store.names.members([kite])] == ["argo", "helm", "kite"]
    assert store.names.members([argo]) == []
    assert len({merge.at for merge in store.names.merges([argo, helm])}) == 1


def test_edges_run_from_the_subject_and_close_with_their_evidence(store: OwnerStore, do: Do, add: Make) -> None:
    forgotten, superseded, current = add("one", valid_from=timestamps.parse("2024-01-01")), add("two"), add("three")
    said = [_named("Argo", "title"), _named("Helm")]
    _read(store, {"one": said, "two": said, "three": said})
    do(Forget(forgotten.id))
    link = Link(source=current.id, kind=LinkKind.SUPERSEDES, target=superseded.id, known_from=timestamps.now())
    do(Connect(link))
    names = store.names.find(["argo", "helm"])
    edges = {edge.evidence: edge for edge in store.names.edges(names["helm"].concept)}
    assert {(edge.source, edge.target) for edge in edges.values()} == {(names["argo"].name, names["helm"].name)}
    assert edges[current.id].known_to is None
    assert edges[superseded.id].known_to == link.known_from
    assert edges[forgotten.id].known_to is not None
    assert edges[forgotten.id].valid_from == timestamps.parse("2024-01-01")
    assert store.names.edges(names["argo"].concept, limit=1)[0].evidence == current.id


def test_edges_filters_by_project_and_open_evidence(store: OwnerStore, do: Do, add: Make) -> None:
    here, there, gone = add("one", project="here"), add("two", project="there"), add("three", project="here")
    names = [_named("Argo", "title"), _named("Helm"), _named("helm charts", joins=("helm", "alias"))]
    _read(store, {"one": names, "two": names, "three": names})
    do(Forget(gone.id))
    helm = store.names.find(["helm"])["helm"].concept
    # Two names of one thing in one memory are one edge.
    assert [edge.evidence for edge in store.names.edges(helm, projects=["there"])] == [there.id]
    assert [edge.evidence for edge in store.names.edges(helm, projects=["here"], closed=False)] == [here.id]
    assert [edge.evidence for edge in store.names.edges(helm, projects=["here"])] == [here.id, gone.id]
    assert {edge.evidence for edge in store.names.edges(helm)} == {here.id, there.id, gone.id}


def test_everything_is_counted(store: OwnerStore, add: Make) -> None:
    assert replace(store.names.counts(), bytes=0) == NameCounts(
        names=0, concepts=0, mentions=0, merges=0, by_hand=0, read=0, waiting=0, bytes=0
    )
    add("one")
    add("two")
    said = [_named("Argo"), _named("Helm"), _named("helms", joins=("helm", "plural"))]
    _read(store, {"one": said, "two": [_named("Argo")]})
    names = store.names.find(["argo", "helm"])
    store.names.set_concepts({names["argo"].name: names["helm"].name}, BY_HAND)
    add("three")
    counts = store.names.counts()
    assert (counts.names, counts.concepts, counts.mentions, counts.merges, counts.by_hand) == (3, 1, 4, 2, 1)
    assert (counts.read, counts.waiting) == (2, 1)
    assert counts.bytes > 0


def test_erase_removes_names_without_other_mentions(store: OwnerStore, add: Make) -> None:
    first, _ = add("one"), add("two")
    _read(
        store,
        {
            "one": [_named("Zephyrine", "title"), _named("Helm")],
            "two": [_named("Helm"), _named("ZP", joins=("zephyrine", "acronym"))],
        },
    )
    store.erase([first.id], batch="gone")
    left = {name.key: name for name in store.names.known()}
    assert set(left) == {"helm", "zp"}
    assert left["zp"].concept == left["zp"].name
    assert {m.name for m in store.names.mentions()} == {left["helm"].name, left["zp"].name}


def test_a_group_that_loses_its_first_name_stays_together(store: OwnerStore, add: Make) -> None:
    first, _ = add("one"), add("two")
    names = [_named(text, joins=("zephyrine", "alias")) for text in ("ZP", "Zephyr", "Zeph")]
    _read(store, {"one": [_named("Zephyrine")], "two": names})
    store.erase([first.id], batch="gone")
    left = list(store.names.known())
    assert [name.key for name in left] == ["zp", "zephyr", "zeph"]
    assert {name.concept for name in left} == {left[0].name}


def test_a_spelling_goes_with_the_last_text_that_had_it(store: OwnerStore, add: Make) -> None:
    first, _, _ = add("ZePhyr and HELM"), add("zephyr and HELM"), add("zephyr")
    _read(
        store,
        {
            "ZePhyr and HELM": [_named("ZePhyr"), _named("HELM")],
            "zephyr and HELM": [_named("zephyr"), _named("HELM")],
        },
    )
    store.erase([first.id], batch="gone")
    assert [name.text for name in store.names.known()] == ["zephyr", "HELM"]


def test_version_erased_while_read_leaves_no_names(store: OwnerStore, add: Make) -> None:
    memory = add("one")
    row = store.names.unread()[0][0]
    store.erase([memory.id], batch="gone")
    store.names.save({row: [_named("Argo")]}, read=[row])
    assert list(store.names.known()) == []
    assert store.heads().mention == 0


def test_everything_can_be_forgotten_and_read_again(store: OwnerStore, add: Make) -> None:
    add("one")
    _read(store, {"one": [_named("Argo")]})
    store.names.forget()
    assert list(store.names.known()) == []
    assert store.jobs.count(NAMES) == 1


def test_manual_merges_outlive_forgetting(store: OwnerStore, add: Make) -> None:
    add("one")
    add("two")
    alike = _named("Argos", joins=("argo", "plural"))
    names = {"one": [_named("Argo"), _named("Helm"), _named("Kite")], "two": [alike, _named("Chart")]}
    _read(store, names)
    argo, helm, argos, chart = (store.names.find([key])[key] for key in ("argo", "helm", "argos", "chart"))
    assert argos.concept == argo.name
    store.names.set_concepts({argos.name: argos.name}, BY_HAND)
    store.names.set_concepts({chart.name: helm.name}, BY_HAND)
    store.names.forget()
    assert {name.key for name in store.names.known()} == {"argo", "helm", "argos", "chart"}
    assert store.jobs.count(NAMES) == 2
    assert store.heads().mention == 0
    _read(store, names)
    found = store.names.find(["argo", "helm", "argos", "chart", "kite"])
    assert found["argos"].concept == argos.name
    assert found["chart"].concept == helm.name
    assert len(found) == 5
    assert [merge.reason for merge in store.names.merges([argos.name])] == ["plural", BY_HAND]


def test_snapshot_contains_names_committed_before_it(open_store: Callable[..., OwnerStore], add: Make) -> None:
    store, other = open_store(), open_store()
    keys = ["argo", "helm", "flux", "nobody"]

    def seen() -> dict[str, str]:
        with store.snapshot():
            return {key: name.text for key, name in store.names.find(keys).items()}

    assert seen() == {}
    add("one")
    _read(other, {"one": [_named("Argo"), _named("Helm")]})
    assert seen() == {"argo": "Argo", "helm": "Helm"}
    second = add("two")
    with store.snapshot():
        _read(other, {"two": [_named("Flux")]})
        assert store.names.find(["flux"]) == {}
    assert seen() == {"argo": "Argo", "helm": "Helm", "flux": "Flux"}
    other.erase([second.id], batch="gone")
    assert seen() == {"argo": "Argo", "helm": "Helm"}
    with store.snapshot():
        argo, helm = (store.names.find(keys)[key] for key in ("argo", "helm"))
    other.names.set_concepts({argo.name: helm.name}, BY_HAND)
    with store.snapshot():
        assert store.names.find(["argo"])["argo"].concept == helm.name
    other.names.forget()
    other.names.set_concepts({argo.name: argo.name}, BY_HAND)
    with store.snapshot():
        assert store.names.find(["argo"])["argo"].concept == argo.name
