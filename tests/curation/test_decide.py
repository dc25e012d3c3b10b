"""Deciding what a new memory is to the ones that are there, by rules alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from triskele.bench.curation_pairs import SPOKEN, load_pairs, measure
from triskele.curation.compare import Relation, compare
from triskele.curation.decide import NearMemory, related
from triskele.types import Memory, Origin, Sensitivity, Verdict

MakeMemory = Callable[..., Memory]


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("The kettle is red", "the kettle is red.", Verdict.NOOP),
        ("We heat with gas in winter", "In winter we heat with gas", Verdict.NOOP),
        ("Pavel waters the plants", "The plants are watered by Pavel", Verdict.NOOP),
        ("Payroll runs on Nomad", "Payroll runs on Nomad, with two replicas", Verdict.UPDATE),
        ("Payroll runs on Nomad", "Payroll now runs on Kubernetes", Verdict.SUPERSEDE),
        ("Payroll runs on Nomad", "Payroll no longer runs on Nomad", Verdict.SUPERSEDE),
        ("Payroll runs on Nomad", "Payroll runs on Kubernetes instead of Nomad", Verdict.SUPERSEDE),
        ("The quota of the archive is 40 GB", "The quota of the archive was raised to 60 GB", Verdict.SUPERSEDE),
        ("We use Postgres for the shop", "We use PostgreSQL for the shop", Verdict.NOOP),
        ("Payroll runs on k8s", "Payroll runs on Kubernetes", Verdict.NOOP),
        ("The pages are written in JS", "The pages are written in JavaScript", Verdict.NOOP),
        ("The code lives in the shop repo", "The code lives in the shop repository", Verdict.NOOP),
        ("Payroll runs on Postgres 14", "Payroll runs on PostgreSQL 16", Verdict.SUPERSEDE),
        ("Payroll runs on Postgres", "Payroll runs on MySQL", Verdict.SUPERSEDE),
        ("The door code is enabled at night", "The door code is disabled at night", Verdict.SUPERSEDE),
    ],
)
def test_sure_rules_decide_the_relation_of_texts(old: str, new: str, verdict: Verdict) -> None:
    relation = compare(old, new)
    assert relation.verdict is verdict
    assert relation.is_sure
    assert relation.reasons


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The quota of the archive is 40 GB", "The quota of the mailbox is 40 GB"),
        ("The prod gateway listens on port 443", "The staging gateway listens on port 443"),
        ("Mira reports to Paul", "Paul reports to Mira"),
        ("Mira likes Berlin", "Mira likes Lisbon"),
        ("Mira owns ticket 12", "Mira owns ticket 13"),
        ("We met Acme on Monday", "We met Acme on Friday"),
        ("The invoice for May was 300 euros", "The invoice for June was 300 euros"),
        ("The app supports Firefox 115", "The app now supports Chrome 120"),
        ("We use Redis for sessions", "We also use Redis for queues"),
        ("Mira owns the billing service", "Mira owns the billing service tests"),
        ("The return flight from Oslo leaves at 7:00", "The return flight from Bergen leaves at 7:00"),
    ],
)
def test_texts_about_different_things_are_never_merged(old: str, new: str) -> None:
    assert not compare(old, new).is_sure


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("Payroll runs on AWS", "Payroll runs on Amazon Web Services", Verdict.NOOP),
        ("Builds run on Github Actions", "Builds run on GitHub-Actions", Verdict.NOOP),
        # Java is the beginning of JavaScript and another language: a person decides.
        ("Payroll is written in Java", "Payroll is written in JavaScript", Verdict.SUPERSEDE),
        ("Logs are kept in Elastic", "Logs are kept in Elasticsearch", Verdict.SUPERSEDE),
    ],
)
def test_names_that_may_be_of_one_thing_are_a_question(old: str, new: str, verdict: Verdict) -> None:
    relation = compare(old, new)
    assert relation.verdict is verdict and not relation.is_sure


def test_the_labelled_pairs_hold_their_promise() -> None:
    pairs = load_pairs()
    assert len(pairs) >= 600
    report = measure(pairs, "test")
    scores = {score.verdict: score for score in report.scores}
    assert all(score.precision >= 0.97 for score in report.scores)
    assert all(scores[verdict].recall >= 0.4 for verdict in (Verdict.SUPERSEDE, Verdict.UPDATE))
    families = {pair.old: pair.half for pair in pairs}
    assert all(families[pair.old] == pair.half for pair in pairs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Hey Nora!", "Hey Nora, long time no see!"),
        ("Take care!", "Take care, bye!"),
        ("Keep it up!", "Keep it up with the piano!"),
        ("They are all rescues", "They are all rescues, and one is blind"),
        ("I guess", "I guess, but my knee hurts"),
        ("I want to see Rome", "I don't want to see Rome"),
        ("I'm at the station", "I'm at the office now"),
        ("Not that I know of", "So I already know"),
        ("I actually study at Delft", "I actually have not been"),
        ("The parcel arrived on Tuesday", "The parcel arrived on Friday"),
        ("My friend Ana lives in Seville", "My friend Ana lived in Bilbao as a student"),
        ("Give me 10 names for a boat", "Give me 10 names for a boat, with a pun"),
        ("I'll follow those tips", "I'll follow those tips to find a mooring"),
        ("Is the office in Leeds?", "Is the office in York now?"),
        ("**Support Plan**:", "- **Support Plan**: The team supports everyone after the workshop"),
        ("### Next Steps", "### Next Steps with Percentages"),
        ("- **Length:** Each book has 700 pages.", "- **Length:** Each book has 500 pages."),
        ("Lamp Posts and Benches", "Lamp Posts and Benches of the Old Town"),
        ("Enjoy your reading!", "Enjoy your reading and the event!"),
        ("If the grant is awarded", "If the grant is not awarded"),
        ("Reserve 3 hours.", "Reserve 3 hours to proofread."),
        ("console.log('No cached cities');", "console.log('Cached cities', cities);"),
        ("However, the page loads in 3 s", "However, the page loads in 5 s"),
    ],
)
def test_talk_of_the_moment_replaces_and_extends_nothing(old: str, new: str) -> None:
    assert not compare(old, new).is_sure


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I work at the museum", "I work at the museum, mostly on weekends"),
        ("Use four spaces", "Use four spaces, because the linter wants them"),
        ("My sister lives in Turin", "My sister no longer lives in Turin"),
        ("The deploy key is on vault-2", "The deploy key is on vault-3 now"),
    ],
)
def test_statements_that_last_are_decided(old: str, new: str) -> None:
    assert compare(old, new).is_sure


def test_pairs_as_people_talk_hold_the_same_promise() -> None:
    report = measure(load_pairs(), SPOKEN)
    assert report.pairs >= 60
    assert report.false_merges == 0
    assert all(score.precision >= 0.97 for score in report.scores)
    assert all(score.recall >= 0.4 for score in report.scores if score.verdict is not Verdict.NOOP)


def test_a_judge_that_always_merges_is_seen_by_the_report() -> None:
    report = measure(load_pairs(), "test", lambda _old, _new: Relation(Verdict.SUPERSEDE, 1.0))
    assert report.false_merge_rate == 1.0
    assert {score.verdict: score.recall for score in report.scores}[Verdict.SUPERSEDE] == 1.0


def test_memory_without_relatives_is_added(make_memory: MakeMemory) -> None:
    assert related(make_memory("The kettle is red"), [NearMemory(make_memory("The cat sleeps"))]) == []


def test_the_surest_relative_decides(make_memory: MakeMemory) -> None:
    vague, exact = make_memory("The kettle in the office kitchen is red"), make_memory("The kettle is red")
    new = make_memory("the kettle is red!")
    decision, *_ = related(new, [NearMemory(vague), NearMemory(exact)])
    assert (decision.verdict, decision.old) == (Verdict.NOOP, exact)


@pytest.mark.parametrize(
    "details",
    [{"project": "other"}, {"sensitivity": Sensitivity.SECRET}],
)
def test_another_project_or_a_secret_is_not_compared(make_memory: MakeMemory, details: dict[str, object]) -> None:
    old = make_memory("The kettle is red", **details)
    assert related(make_memory("The kettle is red"), [NearMemory(old)]) == []


def test_only_the_newer_of_two_decides(make_memory: MakeMemory) -> None:
    old, new = make_memory("Payroll runs on Nomad"), make_memory("Payroll runs on Kubernetes")
    assert [each.verdict for each in related(new, [NearMemory(old)])] == [Verdict.SUPERSEDE]
    assert related(old, [NearMemory(new)]) == []


def test_ended_memory_is_history(make_memory: MakeMemory) -> None:
    old = make_memory("Payroll runs on Nomad")
    ended = replace(old, valid_to=old.created_at - timedelta(days=1))
    assert related(make_memory("Payroll runs on Kubernetes"), [NearMemory(ended)]) == []


def test_trust_never_rises_without_consent(make_memory: MakeMemory) -> None:
    old = make_memory("Payroll runs on Nomad", origin=Origin.USER)
    new = make_memory("Payroll runs on Kubernetes", origin=Origin.WEB)
    [decision] = related(new, [NearMemory(old)])
    assert decision.is_sure and decision.needs_consent
    [swapped] = related(replace(new, origin=Origin.USER), [NearMemory(replace(old, origin=Origin.WEB))])
    assert swapped.is_sure and not swapped.needs_consent


@pytest.mark.parametrize("details", [{"speaker": "Mira"}, {"position": 3}])
def test_other_speakers_and_turns_of_a_conversation_raise_doubts(
    make_memory: MakeMemory, details: dict[str, object]
) -> None:
    old = make_memory("I live in Oslo")
    [decision] = related(make_memory("I live in Rome", **details), [NearMemory(old)])
    assert decision.verdict is Verdict.SUPERSEDE
    assert not decision.is_sure
