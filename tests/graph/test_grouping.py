"""Joining and parting by hand: each undoes the other, and neither reading more nor reading anew undoes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from triskele.graph.grouping import merge, split


def _groups(team: Any) -> set[frozenset[str]]:
    """The concepts with more than one name."""
    groups: dict[int, set[str]] = {}
    for name in team.view().store.names.known():
        groups.setdefault(name.concept, set()).add(name.key)
    return {frozenset(names) for names in groups.values() if len(names) > 1}


def _rebuild(team: Any) -> int:
    read: int = team.engine.upkeep.rebuild_graph().read
    return read


CI = frozenset({"ci", "continuous integration"})


def _remember(team: Any) -> None:
    team.add("Kubernetes is where Heron runs")
    team.add("K8s was upgraded by Juno Temple")
    team.add("Continuous Integration (CI) runs on every push")


def test_a_merge_counts_at_once_and_a_split_takes_it_back(team: Any) -> None:
    _remember(team)
    done = merge(team.view(), "k8s", "Kubernetes")
    assert (done.names, done.concept) == (("K8s",), "Kubernetes")
    assert _groups(team) == {frozenset({"k8s", "kubernetes"}), CI}
    assert merge(team.view(), "kubernetes", "K8S").names == ()
    assert _frequency(team, "k8s") == 2
    done = split(team.view(), "k8s")
    assert (done.names, done.concept) == (("K8s",), "Kubernetes")
    assert _groups(team) == {CI}
    assert split(team.view(), "k8s").names == ()


def test_a_split_is_taken_back_by_a_merge(team: Any) -> None:
    _remember(team)
    assert split(team.view(), "CI").concept == "Continuous Integration"
    assert _groups(team) == set()
    merge(team.view(), "CI", "Continuous Integration")
    assert _groups(team) == {CI}


def test_the_first_name_of_a_concept_can_be_split_off_too(team: Any) -> None:
    _remember(team)
    merge(team.view(), "Kubernetes", "CI")
    done = split(team.view(), "Continuous Integration")
    assert done.names == ("Continuous Integration",)
    assert _groups(team) == {frozenset({"ci", "kubernetes"})}


def test_names_that_came_together_leave_together(team: Any) -> None:
    _remember(team)
    assert set(merge(team.view(), "CI", "Kubernetes").names) == {"CI", "Continuous Integration"}
    assert _groups(team) == {CI | {"kubernetes"}}
    assert set(split(team.view(), "ci").names) == {"CI", "Continuous Integration"}
    assert _groups(team) == {CI}
    assert split(team.view(), "ci").names == ("CI",)
    assert _groups(team) == set()


def test_reading_more_memories_does_not_undo_a_split(team: Any) -> None:
    _remember(team)
    split(team.view(), "CI")
    team.add("Continuous Integration (CI) is slow again")
    team.add("CI broke; C.I. broke too")
    assert not any("continuous integration" in group for group in _groups(team))


def test_reading_everything_anew_keeps_what_was_decided(team: Any) -> None:
    _remember(team)
    merge(team.view(), "k8s", "Kubernetes")
    split(team.view(), "CI")
    decided = _groups(team)
    before = team.engine.store.names.counts()
    for _ in range(2):
        assert _rebuild(team) == 3
        assert _groups(team) == decided
    after = team.engine.store.names.counts()
    assert (after.names, after.mentions, after.by_hand) == (before.names, before.mentions, 2)
    split(team.view(), "k8s")
    merge(team.view(), "CI", "continuous integration")
    _rebuild(team)
    assert _groups(team) == {CI}


def test_a_split_off_first_name_stays_off_when_everything_is_read_anew(team: Any) -> None:
    team.add("the deploy queue is full")
    team.add("Queue: deploy", tags=["on-call"])
    team.add("ask whoever is oncall", tags=["oncall"])
    assert _groups(team) == {frozenset({"on call", "oncall"})}
    split(team.view(), "on-call")
    _rebuild(team)
    assert _groups(team) == set()


def test_reading_anew_leaves_nothing_of_before_in_the_file(team: Any) -> None:
    _remember(team)
    merge(team.view(), "k8s", "Kubernetes")
    team.mentions.rebuild()
    assert _frequency(team, "Kubernetes") == 2
    _rebuild(team)
    assert _frequency(team, "Kubernetes") == 2


def _frequency(team: Any, text: str) -> int:
    view = team.view()
    return int(view.layers.frequency(np.array([view.find(text).concept]))[0])
