from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.text.spellings import Names, Reason, block, expansions, key, same

PAIRS = Path(__file__).parent.parent / "data" / "name_pairs.tsv"


def pairs(half: int) -> list[tuple[bool, bool]]:
    """What the label and what the rules say of the pairs of one half; only half 0 was looked at while writing rules."""
    listed = [line.split("\t") for line in PAIRS.read_text(encoding="utf-8").splitlines()[1:]]
    return [
        (verdict == "same", is_same(one, other, evidence))
        for verdict, one, other, evidence in listed
        if hashlib.sha256(f"{one}\t{other}".encode()).digest()[0] & 1 == half
    ]


def is_same(one: str, other: str, evidence: str) -> bool:
    names = Names({one: key(one)})
    for acronym, expansion in expansions(evidence):
        concept, _ = names.resolve(acronym)
        names.add(acronym, concept)
        names.add(expansion, concept)
    # The other name may have been known first: then its concept is this one's.
    return names.resolve(other)[0] == names.resolve(one)[0]


@pytest.mark.parametrize(("half", "least_precision", "least_recall"), [(0, 0.98, 1.0), (1, 0.97, 0.96)])
def test_labelled_pairs(half: int, least_precision: float, least_recall: float) -> None:
    judged = pairs(half)
    right = sum(label and said for label, said in judged)
    assert len(judged) > 150
    assert right / sum(said for _, said in judged) >= least_precision
    assert right / sum(label for label, _ in judged) >= least_recall


def test_the_pairs_are_many_and_half_of_them_are_traps() -> None:
    labels = [label for half in (0, 1) for label, _ in pairs(half)]
    assert len(labels) >= 300
    assert 0.4 < sum(labels) / len(labels) < 0.6


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("Argo CD", "argo-cd", Reason.SPELLING),
        ("Node.js", "NodeJS", Reason.SPACING),
        ("U.S.", "US", Reason.SPACING),
        ("feature flags", "Feature Flag", Reason.PLURAL),
        ("Mercury (planet)", "Mercury", Reason.PARENTHESIS),
        ("Dr. Ada Lindqvist", "Ada Lindqvist", Reason.TITLE),
        ("Acme Ltd", "Acme", Reason.TITLE),
        ("Argo CD", "Argo Workflows", None),
        ("Adams", "Adam", None),
        ("US", "us", None),
        ("Python 3.1", "Python 31", None),
        ("", "", None),
        ("…", "!", None),
    ],
)
def test_names_are_one_for_a_reason(one: str, other: str, reason: Reason | None) -> None:
    assert same(one, other) == reason


@given(st.text(max_size=40), st.text(max_size=40))
def test_sameness_goes_both_ways_and_inside_a_block(one: str, other: str) -> None:
    assert same(one, other) == same(other, one)
    assert same(one, other) is None or block(one) == block(other)
    assert same(one, one) == (Reason.SPELLING if key(one) else None)


@given(st.text(alphabet="xyzqé12 -_.", max_size=30))
def test_case_and_punctuation_leave_the_key_as_it_is(name: str) -> None:
    assert key(name.upper()) == key(name)
    assert key(f"({name})!") == key(name)


def test_a_name_resolves_to_the_concept_it_was_met_under() -> None:
    names = Names({"feature flags": "feature flags"})
    assert names.resolve("Feature Flag") == ("feature flags", Reason.PLURAL)
    assert names.resolve("Argo CD") == ("argo cd", None)


def test_an_alias_counts_once_it_is_added() -> None:
    names = Names({"Kubernetes": "kubernetes"})
    assert names.resolve("K8s") == ("k8s", None)
    names.add("k8s", "kubernetes")
    assert names.resolve("K8s") == ("kubernetes", Reason.ALIAS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Continuous Integration (CI) runs.", [("CI", "Continuous Integration")]),
        ("the Department of Defense (DoD) asked", [("DoD", "Department of Defense")]),
        ("an SLA (service level agreement) of a day", [("SLA", "service level agreement")]),
        ("He moved (ASAP) to Rome (IT).", []),
        ("Ada Lovelace (AL)", [("AL", "Ada Lovelace")]),
        ("see (CI) there", []),
        ("the Ada Lovelace (TAL)", []),
    ],
)
def test_acronyms_are_taken_from_the_text(text: str, found: list[tuple[str, str]]) -> None:
    assert expansions(text) == found
