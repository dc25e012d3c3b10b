"""Reviewing a whole store: the right facts stay live, nothing else is touched, and undo restores every byte of it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from triskele.curation import whole_store
from triskele.curation.curator import Curator
from triskele.curation.decide import PairDecision
from triskele.curation.whole_store import UpkeepKind
from triskele.engine.local import LocalEngine
from triskele.store.values import Use
from triskele.text import timestamps
from triskele.types import Add, LinkKind, Memory, Origin, Sensitivity, Verdict

OpenEngine = Callable[..., LocalEngine]

_NAMES = "amber basil cedar delta ember fjord grove heron iris jade kelp lotus maple onyx opal pearl topaz reed".split()
_KINDS = "ledger mailer indexer gateway scheduler archive renderer importer".split()
_FACTS = (
    "The {stage} {name} {kind} listens on port {number}",
    "The quota of the {stage} {name} {kind} is {number} GB",
    "Logs of the {stage} {name} {kind} are kept for {number} days",
    "The {stage} {name} {kind} is deployed with {tool}",
    "{person} maintains the {stage} {name} {kind}",
)
_TOOLS, _PEOPLE = ("Nomad", "Helm", "Ansible", "Flux"), ("Mira", "Pavel", "Chen", "Aiko", "Ravi")
# A full replay: TRISKELE_REPLAY=2000.
_SIZE = int(os.environ.get("TRISKELE_REPLAY", "120"))


def facts(count: int) -> list[tuple[str, str, str]]:
    """Facts about different things, each with a copy in other words and with its newer state."""
    chosen = random.Random(5)
    subjects = list(product(("staging", "production", "demo"), _NAMES, _KINDS, _FACTS))
    chosen.shuffle(subjects)
    texts = []
    for stage, name, kind, form in subjects[:count]:
        values = {"stage": stage, "name": name, "kind": kind, "number": chosen.randint(1, 900)}
        tools = chosen.sample(_TOOLS, 2)
        people = chosen.sample(_PEOPLE, 2)
        text = form.format(**values, tool=tools[0], person=people[0])
        changed = form.format(**{**values, "number": values["number"] + 1000}, tool=tools[1], person=people[1])
        subject = f"the {stage} {name} {kind}"
        if form.startswith("{person}"):
            copy, changed = f"{subject[0].upper()}{subject[1:]} is maintained by {people[0]}", ""
        else:
            copy = f"{text[0].lower()}{text[1:]}."
            changed = changed.replace(" is ", " is now ", 1) if " is " in changed else changed
        texts.append((text, copy, changed))
    return texts


def state(engine: LocalEngine) -> set[tuple[object, ...]]:
    """Live rows with their validity and labels, and the links between them."""
    rows = {memory.id: memory for _, memory in engine.store.versions() if memory.known_to is None}
    shown = {(m.id, m.content_hash, m.valid_from, m.valid_to, m.tags, m.sensitivity, m.origin) for m in rows.values()}
    return shown | {(link.source, link.kind, link.target) for link in engine.store.links(list(rows))}


def stored(engine: LocalEngine, texts: list[str], days_ago: int) -> list[str]:
    at = timestamps.now() - timedelta(days=days_ago)
    drafts = [engine.draft(text, created_at=at) for text in texts]
    return [outcome.id for outcome in engine.apply([Add(draft) for draft in drafts])]


def test_a_replay_keeps_the_right_facts_and_undo_restores_everything(open_engine: OpenEngine) -> None:
    engine = open_engine()
    texts = facts(_SIZE)
    originals = stored(engine, [text for text, _, _ in texts], 30)
    copied = texts[: _SIZE // 5]
    updated = [(place, changed) for place, (_, _, changed) in enumerate(texts) if changed and place >= _SIZE // 5]
    updated = updated[: _SIZE // 10]
    copies = stored(engine, [copy for _, copy, _ in copied], 20)
    news = stored(engine, [changed for _, changed in updated], 10)
    before = state(engine)
    result = whole_store.curate(engine, threshold=0.9)
    replaced = {originals[place] for place, _ in updated}
    everything = [*originals, *copies, *news]
    assert engine.superseded(everything) == {*copies, *replaced}
    untouched = set(originals) - replaced - set(originals[: len(copies)])
    assert not untouched & {entry.id for entry in engine.store.journal(batch=result.batch, limit=10**6)}
    assert [entry.action for id in untouched for entry in engine.store.journal(id=id)] == ["added"] * len(untouched)
    assert len(result.applied) == len(copies) + len(news)
    engine.undo(result.batch)
    assert state(engine) == before


def test_a_dry_run_changes_nothing_and_leaves_no_trace(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stored(engine, ["Payroll runs on Nomad"], 9)
    stored(engine, ["Payroll now runs on Kubernetes", "payroll runs on nomad!"], 5)
    before, position = state(engine), engine.store.position()
    result = whole_store.curate(engine, is_dry=True)
    assert {found.finding for found in result.findings} >= {UpkeepKind.CONTRADICTION, UpkeepKind.DUPLICATE}
    assert (state(engine), engine.store.position()) == (before, position)
    assert engine.proposals.list() == []


def test_without_a_threshold_everything_is_proposed(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stored(engine, ["Payroll runs on Nomad"], 9)
    stored(engine, ["Payroll now runs on Kubernetes"], 5)
    assert whole_store.curate(engine).proposed == 1
    [proposal] = engine.proposals.list()
    assert proposal.kind is Verdict.SUPERSEDE
    assert whole_store.curate(engine).proposed == 0


def test_rejected_finding_is_neither_proposed_nor_applied_again(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stored(engine, ["Payroll runs on Nomad"], 9)
    stored(engine, ["Payroll now runs on Kubernetes"], 5)
    whole_store.curate(engine)
    [proposal] = engine.proposals.list()
    engine.proposals.reject(proposal.id)
    again = whole_store.curate(engine, threshold=0.9)
    assert (again.findings, again.applied, again.proposed) == ((), (), 0)
    curated = Curator(engine).apply_or_propose(
        [PairDecision(proposal.kind, proposal.new, proposal.old, 0.99, proposal.reasons)], apply=True
    )
    assert (curated.outcomes, curated.proposed) == ((), 0)


def test_a_chain_of_changes_ends_at_the_newest(open_engine: OpenEngine) -> None:
    engine = open_engine()
    first = stored(engine, ["The gateway listens on port 80"], 9)
    second = stored(engine, ["The gateway listens on port 81"], 7)
    copy = stored(engine, ["the gateway listens on port 81!"], 5)
    third = stored(engine, ["The gateway listens on port 82"], 3)
    whole_store.curate(engine, threshold=0.9)
    assert engine.superseded([*first, *second, *copy, *third]) == {*first, *second, *copy}
    assert [hit.memory.id for hit in engine.recall("gateway port").hits] == third


def test_an_interrupted_review_goes_on_where_it_was(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stored(engine, [text for text, _, _ in facts(6)], 9)
    assert [whole_store.curate(engine, limit=4).read, whole_store.curate(engine, limit=4).read] == [4, 2]
    assert whole_store.curate(engine, limit=4).read == 4


def test_stale_empty_and_orphaned_memories_can_be_forgotten(open_engine: OpenEngine) -> None:
    engine = open_engine()
    old = timestamps.now() - timedelta(days=400)
    ended = engine.remember("The trial of Globex runs", valid_to=old).id
    junk = engine.remember("ok thanks", created_at=old).id
    whole = engine.remember("The chapter about tides").id
    part = engine.remember("Tides come twice a day in the harbour").id
    engine.link(part, LinkKind.PART_OF, whole)
    engine.forget(whole)
    findings = whole_store.curate(engine).findings
    assert {(each.finding, each.decision.new.id) for each in findings} == {
        (UpkeepKind.STALE, ended),
        (UpkeepKind.JUNK, junk),
        (UpkeepKind.ORPHAN, part),
    }
    [proposal] = [each for each in engine.proposals.list() if each.new.id == junk]
    outcomes = engine.proposals.accept(proposal.id)
    assert engine.store.memories([junk]) == {}
    engine.undo(outcomes[0].batch)
    assert junk in engine.store.memories([junk])


def test_part_of_a_current_secret_is_no_orphan(open_engine: OpenEngine) -> None:
    engine = open_engine()
    sealed = engine.remember("the gate opens with kqzjvw", sensitivity=Sensitivity.SECRET, title="Gate").id
    gone, also_gone = (engine.remember(f"The chapter about {name}").id for name in ("tides", "winds"))
    current, lost = (engine.remember(f"{name} come twice a day in the harbour").id for name in ("Guards", "Fogs"))
    engine.link(current, LinkKind.PART_OF, sealed)
    engine.link(current, LinkKind.PART_OF, gone)
    engine.link(lost, LinkKind.PART_OF, gone)
    engine.link(lost, LinkKind.PART_OF, also_gone)
    engine.forget(gone, also_gone)
    orphans = [
        each.decision.new.id for each in whole_store.curate(engine).findings if each.finding is UpkeepKind.ORPHAN
    ]
    assert orphans == [lost]


def test_a_replaced_memory_that_is_still_recalled_waits_in_the_queue(open_engine: OpenEngine) -> None:
    engine = open_engine()
    old = engine.remember("The ferry leaves at noon from the old pier").id
    engine.remember("The ferry leaves at one from the new pier", supersedes=old)
    engine.store.usage.recalled([Use(old, 9)])
    engine.store.usage.flush()
    assert [each.new.id for each in engine.proposals.list()] == []
    whole_store.curate(engine)
    assert [each.new.id for each in engine.proposals.list()] == [old]
    whole_store.curate(engine)
    assert len(engine.proposals.list()) == 1


def test_an_agents_word_never_replaces_the_users_in_a_review(open_engine: OpenEngine) -> None:
    engine = open_engine()
    stored(engine, ["Payroll runs on Nomad"], 9)
    at = timestamps.now() - timedelta(days=1)
    engine.apply([Add(engine.draft("Payroll now runs on Kubernetes", origin=Origin.WEB, created_at=at))])
    result = whole_store.curate(engine, threshold=0.9)
    assert (result.applied, result.proposed) == ((), 1)


def test_a_memory_that_changed_meanwhile_is_left_alone(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    [old] = stored(engine, ["Payroll runs on Nomad"], 9)
    stored(engine, ["Payroll now runs on Kubernetes"], 5)
    real = whole_store.StoreReview.pairs

    def racing(self: whole_store.StoreReview, memories: list[Memory]) -> list[whole_store.UpkeepFinding]:
        findings = list(real(self, memories))
        engine.forget(old)
        return findings

    monkeypatch.setattr(whole_store.StoreReview, "pairs", racing)
    assert whole_store.curate(engine, threshold=0.9).applied == ()
    assert replace(engine.store.history(old)[-1], known_to=None).valid_to is None
