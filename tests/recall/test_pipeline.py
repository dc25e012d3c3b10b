from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from embedded_notes import open_engine as open_embedding_engine

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.errors import AmbiguousId, BadInput, Conflict, ModelUnavailable, NotFound
from triskele.index.corpus import Corpus
from triskele.models.inference import BundledRuntime
from triskele.recall import legs, pipeline
from triskele.recall.plan import Plan
from triskele.recall.question import Question
from triskele.recall.scores import Ranking
from triskele.types import Action, Add, LinkKind


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LocalEngine]:
    with LocalEngine(
        load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_MODEL": "none"}), tmp_path
    ) as opened:
        yield opened


def _contents(engine: LocalEngine, text: str, **options: object) -> list[str]:
    return [hit.memory.content for hit in engine.recall(text, **options).hits]  # type: ignore[arg-type]


def test_a_successor_is_served_in_place_of_what_it_replaced(engine: LocalEngine) -> None:
    old = engine.remember("We deploy with Helm hooks")
    new = engine.remember("Releases go out through Argo CD", supersedes=old.id)
    answer = engine.recall("helm hooks")
    assert [hit.memory.id for hit in answer.hits] == [new.id]
    assert answer.hits[0].stands_for == old.id
    assert "replaces" in answer.hits[0].reason


def test_a_chain_is_followed_to_its_head_and_each_head_is_shown_once(engine: LocalEngine) -> None:
    last = engine.remember("tabs version 0").id
    for number in range(1, 5):
        last = engine.remember(f"tabs version {number}", supersedes=last).id
    assert [hit.memory.id for hit in engine.recall("tabs version 0").hits] == [last]


def test_superseded_memories_are_shown_on_request_and_rank_low(engine: LocalEngine) -> None:
    old = engine.remember("lunch is at noon", importance=1.0)
    new = engine.remember("lunch is at one", importance=1.0, supersedes=old.id)
    hits = engine.recall("lunch", show_superseded=True).hits
    assert [hit.memory.id for hit in hits] == [new.id, old.id]
    assert [hit.superseded for hit in hits] == [False, True]
    assert hits[1].prior == pytest.approx(0.7 + 0.3 * 0.3)


def test_when_the_successor_is_forgotten_the_old_memory_speaks_again(engine: LocalEngine) -> None:
    old = engine.remember("the port is 8080")
    new = engine.remember("the port is 9090", supersedes=old.id)
    engine.forget(new.id)
    assert _contents(engine, "port 9090 8080") == ["the port is 8080"]


def test_as_of_asks_what_was_true_then(engine: LocalEngine) -> None:
    engine.remember("the office is in Lund", valid_from="2024-01-01", valid_to="2025-01-01")
    engine.remember("the office is in Malmö", valid_from="2025-01-01")
    assert _contents(engine, "office", as_of="2024-06-01") == ["the office is in Lund"]
    assert _contents(engine, "office", as_of="2025-01-01") == ["the office is in Malmö"]
    assert _contents(engine, "office") == ["the office is in Malmö"]
    assert _contents(engine, "office", as_of="2023-01-01") == []


def test_as_of_before_a_succession_serves_the_older_memory(engine: LocalEngine) -> None:
    old = engine.remember("the database is MySQL", created_at="2024-02-01")
    engine.remember("the database is Postgres", created_at="2025-02-01", supersedes=old.id)
    assert _contents(engine, "database", as_of="2024-06-01") == ["the database is MySQL"]
    assert _contents(engine, "database postgres", as_of="2024-06-01") == ["the database is MySQL"]
    assert _contents(engine, "database mysql", as_of="2025-06-01") == ["the database is Postgres"]


def test_known_at_searches_what_was_known_then(engine: LocalEngine) -> None:
    kept = engine.remember("the budget is 40k")
    engine.edit(kept.id, content="the budget is 55k")
    first, second = engine.store.history(kept.id)
    assert _contents(engine, "budget 40k", known_at=first.known_from) == ["the budget is 40k"]
    assert _contents(engine, "budget 40k", known_at=second.known_from) == ["the budget is 55k"]
    assert _contents(engine, "40k") == []
    engine.forget(kept.id)
    assert _contents(engine, "budget") == []
    assert _contents(engine, "budget", known_at=second.known_from) == ["the budget is 55k"]


def test_a_memory_belongs_to_its_project_and_everywhere_to_all(engine: LocalEngine) -> None:
    engine.remember("kiwi in harbour", project="harbour")
    engine.remember("kiwi in billing", project="billing")
    engine.remember("kiwi everywhere", project="")
    assert sorted(_contents(engine, "kiwi", project="harbour")) == ["kiwi everywhere", "kiwi in harbour"]
    assert len(_contents(engine, "kiwi", all_projects=True)) == 3
    assert engine.recall("kiwi", project="harbour").project == "harbour"


def test_a_successor_of_another_project_does_not_leak(engine: LocalEngine) -> None:
    old = engine.remember("melon here", project="harbour")
    engine.remember("melon secret plan", project="billing", supersedes=old.id)
    assert _contents(engine, "melon", project="harbour") == ["melon here"]


def test_what_resolved_a_problem_is_attached_not_ranked(engine: LocalEngine) -> None:
    problem = engine.remember("checkout fails with a timeout")
    fixes = [engine.remember(f"raise pool size step {number}") for number in range(5)]
    for fix in fixes:
        engine.link(problem.id, LinkKind.RESOLVED_BY, fix.id)
    answer = engine.recall("checkout timeout")
    assert [hit.memory.id for hit in answer.hits] == [problem.id]
    assert [memory.id for memory in answer.resolutions] == [fix.id for fix in fixes[:3]]


def test_evidence_adds_up_and_points_into_the_text(engine: LocalEngine) -> None:
    engine.remember("Argo CD syncs the cluster", tags=["deploy"], importance=0.9)
    (hit,) = engine.recall("who syncs the cluster on deploy?").hits
    evidence = hit.legs["lexical"]
    assert evidence.rank == 1
    assert hit.score == pytest.approx(evidence.contribution * hit.prior)
    assert hit.prior == pytest.approx(0.7 + 0.3 * 0.9)
    texts = {term.text: hit.memory.content[term.start : term.end] for term in evidence.terms if term.start >= 0}
    assert texts == {"syncs": "syncs", "cluster": "cluster"}
    assert any(term.start == -1 and term.text == "deploy" for term in evidence.terms)


def test_confidence_falls_when_the_rare_words_are_missing(engine: LocalEngine) -> None:
    engine.remember("Argo CD syncs the cluster")
    engine.remember("the cluster has three nodes")
    assert engine.recall("Argo cluster").confidence > engine.recall("zebra cluster").confidence
    assert engine.recall("zebra").confidence == 0


@pytest.mark.parametrize("text", ["", "   ", '"AND" OR NOT (* ^~', "👍", "\x00", "word " * 4000, "a:b:c -x +y"])
def test_any_question_is_answered(engine: LocalEngine, text: str) -> None:
    engine.remember("a word or two")
    assert engine.recall(text).took_ms >= 0


def test_everything_can_be_undone_one_step_after_another(engine: LocalEngine) -> None:
    one = engine.remember("first")
    two = engine.remember("second", supersedes=one.id)
    engine.edit(one.id, content="first, edited", tags=["t"])
    engine.forget(two.id)
    assert engine.undo().outcomes[0].action is Action.RESTORED
    assert engine.undo().outcomes[0].action is Action.EDITED
    assert engine.get(one.id).content == "first"
    assert {outcome.action for outcome in engine.undo().outcomes} == {Action.UNLINKED, Action.FORGOTTEN}
    assert engine.undo().outcomes[0].action is Action.FORGOTTEN
    with pytest.raises(NotFound):
        engine.undo()


def test_an_undoing_can_be_undone(engine: LocalEngine) -> None:
    kept = engine.remember("kept")
    engine.undo()
    assert _contents(engine, "kept") == []
    undoing = engine.journal(id=kept.id).entries[0].batch
    engine.undo(undoing)
    assert _contents(engine, "kept") == ["kept"]


def test_an_addition_edited_since_is_not_undone_by_name(engine: LocalEngine) -> None:
    kept = engine.remember("kept")
    batch = engine.journal(id=kept.id).entries[-1].batch
    engine.edit(kept.id, content="kept and edited")
    with pytest.raises(Conflict):
        engine.undo(batch)


def test_ids_are_given_by_prefix(engine: LocalEngine) -> None:
    drafts = [engine.draft(f"memory {number}") for number in range(40)]
    ids = [outcome.id for outcome in engine.apply([Add(draft) for draft in drafts])]
    short = engine.store.shorten(ids)
    assert all(engine.resolve(short[id]) == id for id in ids)
    with pytest.raises(AmbiguousId):
        engine.resolve(ids[0][:4])
    with pytest.raises(NotFound):
        engine.resolve("zzzzzz")
    for bad in ("", "ab", "x" * 40, "%%%%%%"):
        with pytest.raises(BadInput):
            engine.resolve(bad)


def test_the_library_example_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    import triskele

    memory = triskele.open("sqlite:///notes.db")
    memory.remember("We deploy with Argo CD, not Helm hooks", category="decisions", tags=["deploy"])
    found = memory.recall("how do we deploy to the cluster?", limit=5)
    assert found.hits[0].memory.content.startswith("We deploy")
    assert found.hits[0].reason
    assert 0 < found.confidence <= 1
    memory.close()


def test_the_example_of_the_readme_is_found_among_fifty_others(tmp_path: Path) -> None:
    lines = (resources.files("triskele.samples") / "team" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    text = "Releases reach the cluster through Argo CD, not through Helm hooks"
    with open_embedding_engine(tmp_path) as engine:
        engine.remember_all([{"content": json.loads(line)["text"]} for line in lines[:50]])
        engine.remember(text, category="decisions", tags=["deploy"])
        engine.upkeep.embed()
        for question in ("how do releases reach the cluster?", "how do new releases get to Kubernetes?"):
            assert engine.recall(question).hits[0].memory.content == text


def test_the_exact_bonus_raises_what_holds_every_word_and_is_told_as_a_prior(engine: LocalEngine) -> None:
    both = engine.remember("the kestrel build runs on a long row of old machines, one of which is the marmot").id
    engine.remember("kestrel kestrel kestrel")
    plain, raised = (engine.ask("kestrel marmot", Plan(legs=frozenset({"lexical"}), exact=exact)) for exact in (0, 1))
    scores, before = ({hit.memory.id: hit for hit in answer.hits} for answer in (raised, plain))
    assert scores[both].score == pytest.approx(2 * before[both].score)
    assert scores[both].prior == pytest.approx(2 * before[both].prior)
    assert [hit.score for hit in raised.hits if hit.memory.id != both] == [
        hit.score for hit in plain.hits if hit.memory.id != both
    ]


def test_a_recall_sees_the_store_as_of_one_moment(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.remember("the heron nests in May")
    rank = legs.lexical

    def write_meanwhile(question: Question, corpus: Corpus) -> Ranking:
        ranking = rank(question, corpus)
        thread = threading.Thread(target=lambda: engine.forget(engine.browse().memories[0].id))
        thread.start()
        thread.join()
        return ranking

    monkeypatch.setattr(pipeline, "lexical", write_meanwhile)
    assert _contents(engine, "heron") == ["the heron nests in May"]
    monkeypatch.undo()
    assert _contents(engine, "heron") == []


def test_who_wants_no_model_is_not_told_that_one_is_missing(engine: LocalEngine) -> None:
    engine.remember("the heron nests in May")
    assert engine.recall("heron").missing == ()
    assert engine.recall("heron", legs=["dense"]).hits == ()


def test_recall_with_a_failing_model_searches_by_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModelUnavailable("broken weights")

    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path)}), tmp_path) as engine:
        engine.remember("Argo CD deploys every release to the cluster")
        engine.upkeep.embed()
        monkeypatch.setattr(BundledRuntime, "encode", fail)
        answer = engine.recall("release cluster", logged=False)
    assert answer.hits and answer.missing == ("searched by words only: broken weights",)
