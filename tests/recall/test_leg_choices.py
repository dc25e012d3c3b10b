"""Recall over words and meaning: the exact order of words alone, half-embedded stores, scopes and evidence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from embedded_notes import NOTES, PARAPHRASES, QUESTIONS, by_words, contents, fill, open_engine, scored

from triskele.engine.local import LocalEngine
from triskele.errors import BadInput, StoreUnavailable
from triskele.index.token_vectors import TokenIndex
from triskele.models.bundled import bundled
from triskele.recall.fusion import METHODS
from triskele.recall.legs import LEAST_SIMILARITY
from triskele.recall.plan import Plan
from triskele.store.derived_rows import VectorStore
from triskele.store.vector_bytes import row_of
from triskele.types import Add

pytestmark = pytest.mark.slow

# Words alone


@pytest.mark.parametrize("text", QUESTIONS)
def test_words_alone_keep_their_order_and_scores(embedded: tuple[LocalEngine, list[str]], text: str) -> None:
    engine, _ = embedded
    assert scored(engine.ask(text, Plan(legs=frozenset({"lexical"}), prior=0), limit=50)) == by_words(engine, text)
    assert by_words(engine, text)


@pytest.mark.parametrize("text", QUESTIONS)
def test_without_a_model_words_keep_their_order_and_scores(tmp_path: Path, text: str) -> None:
    with open_engine(tmp_path, model="none") as engine:
        fill(engine)
        answer = engine.ask(text, Plan(prior=0), limit=50)
        assert scored(answer) == by_words(engine, text)
        assert not answer.missing


def _conversation(engine: LocalEngine) -> None:
    """Turns of one talk and texts that say a word so often that it counts more than it could."""
    turns = ["kiwi", "nothing of that kind", "kiwi kiwi kiwi kiwi kiwi", "a kiwi in the middle of a longer turn"]
    drafts = [engine.draft(turn, session="talk", position=place) for place, turn in enumerate(turns)]
    drafts += [engine.draft("melon " * count + "x" * count) for count in (1, 9, 30, 3, 60)]
    engine.apply([Add(draft) for draft in drafts])


@pytest.mark.parametrize("text", ["kiwi", "melon", "kiwi melon", *QUESTIONS[:2]])
def test_where_nothing_is_embedded_words_keep_their_order_and_scores(engine: LocalEngine, text: str) -> None:
    fill(engine)
    _conversation(engine)
    answer = engine.ask(text, Plan(prior=0), limit=50)
    assert scored(answer) == by_words(engine, text)
    assert answer.waiting == len(NOTES) + 9
    assert answer.missing == ()


def test_where_nothing_in_the_scope_is_embedded_words_keep_their_order(engine: LocalEngine) -> None:
    engine.remember("kiwi everywhere else", project="other")
    engine.upkeep.embed()
    _conversation(engine)
    assert scored(engine.ask("kiwi", Plan(prior=0), limit=50)) == by_words(engine, "kiwi")


@pytest.mark.parametrize("method", METHODS)
def test_a_named_fusion_of_words_alone_keeps_their_order(engine: LocalEngine, method: str) -> None:
    _conversation(engine)
    found = scored(engine.ask("kiwi melon", Plan(fusion=method, prior=0), limit=50))
    assert [id for id, _ in found] == [id for id, _ in by_words(engine, "kiwi melon")]


# Meaning


@pytest.mark.parametrize(("text", "wanted"), PARAPHRASES)
def test_other_words_are_found_by_meaning(embedded: tuple[LocalEngine, list[str]], text: str, wanted: int) -> None:
    engine, ids = embedded
    answer = engine.recall(text, limit=3)
    assert ids[wanted] in [hit.memory.id for hit in answer.hits]
    assert answer.waiting == 0
    hit = next(hit for hit in answer.hits if hit.memory.id == ids[wanted])
    assert {"dense", "late"} <= set(hit.legs)


def test_strangers_are_not_served_only_because_they_are_nearest(embedded: tuple[LocalEngine, list[str]]) -> None:
    engine, _ = embedded
    found = engine.recall("xylophone quartet in B minor")
    assert all(hit.legs["dense"].score >= LEAST_SIMILARITY or "lexical" in hit.legs for hit in found.hits)
    assert len(found.hits) < len(NOTES)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalEngine, list[str]]]:
    """The notes of even number are embedded, the others wait."""
    with open_engine(tmp_path_factory.mktemp("half")) as engine:
        for place in range(0, len(NOTES), 2):
            engine.remember(NOTES[place][0])
        engine.upkeep.embed()
        for place in range(1, len(NOTES), 2):
            engine.remember(NOTES[place][0])
        known = {memory.content: memory.id for memory in engine.browse(limit=100).memories}
        yield engine, [known[text] for text, _, _ in NOTES]


@pytest.mark.parametrize("place", range(1, len(NOTES), 2))
def test_what_waits_is_found_by_its_words_near_the_top(half: tuple[LocalEngine, list[str]], place: int) -> None:
    engine, ids = half
    words = [word for word in NOTES[place][0].split() if len(word) > 4][:3]
    answer = engine.recall("what about " + " ".join(words), limit=3)
    assert ids[place] in [hit.memory.id for hit in answer.hits]
    assert answer.waiting == len(NOTES) // 2
    hit = next(hit for hit in answer.hits if hit.memory.id == ids[place])
    assert set(hit.legs) == {"lexical"}
    assert hit.score == pytest.approx(hit.legs["lexical"].contribution * hit.prior)


def test_what_waits_does_not_crowd_out_what_fits_better(half: tuple[LocalEngine, list[str]]) -> None:
    engine, ids = half
    # "night" stands in a note that waits; the backup is what the question is about in both halves.
    found = [hit.memory.id for hit in engine.recall("who takes care of the plants upstairs?").hits]
    assert found[0] == ids[2]


def test_during_an_import_few_vectors_do_not_hide_what_holds_the_words(engine: LocalEngine) -> None:
    """The sample is imported and 16 of its memories are embedded: answers are no worse than by words."""
    team = resources.files("triskele.samples") / "team"
    rows, questions = (
        [json.loads(line) for line in (team / name).read_text(encoding="utf-8").splitlines()]
        for name in ("corpus.jsonl", "queries.jsonl")
    )
    outcomes = engine.apply([Add(engine.draft(row["text"])) for row in rows])
    ids = {row["id"]: outcome.id for row, outcome in zip(rows, outcomes, strict=True)}
    wanted: dict[str, set[str]] = {}
    for line in (team / "qrels.tsv").read_text().splitlines()[1:]:
        question, document, grade = line.split("\t")[:3]
        if int(grade) >= 2:
            wanted.setdefault(question, set()).add(ids[document])
    assert engine.upkeep.embed(limit=16) == 16
    asked = [row for row in questions if row["id"] in wanted][:120]
    found = {
        legs: sum(
            not wanted[row["id"]].isdisjoint(
                hit.memory.id for hit in engine.recall(row["text"], legs=legs, limit=5, logged=False).hits
            )
            for row in asked
        )
        for legs in (None, ("lexical",))
    }
    assert found[None] >= found["lexical",], found


def test_what_waits_keeps_the_order_of_its_words_beyond_their_ceiling(engine: LocalEngine) -> None:
    engine.remember("a stranger about rivers and bridges")
    engine.upkeep.embed()
    _conversation(engine)
    words = [id for id, _ in by_words(engine, "melon")]
    assert len(words) == 5
    answer = engine.ask("melon", Plan(prior=0), limit=10)
    assert [hit.memory.id for hit in answer.hits if "melon" in hit.memory.content] == words


# Scopes

SECRET = "the vault code is kept by the night guard"


@pytest.fixture(scope="module")
def scoped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    """One sentence in every scope there is, and others that are farther from the question."""
    with open_engine(tmp_path_factory.mktemp("scoped")) as engine:
        engine.remember(SECRET, project="billing")
        engine.remember(SECRET + ".", category="people", tags=["guarded"])
        engine.remember(SECRET + "!", category="facts", valid_to="2024-01-01")
        engine.remember(SECRET + "?", category="facts", valid_from="2100-01-01")
        engine.remember("a night guard walks through the building at two", category="lessons", tags=["walk"])
        turns = [("who keeps the vault code", "facts"), ("the night guard", "people"), ("since when?", "facts")]
        for place, (turn, category) in enumerate(turns):
            engine.remember(turn, category=category, session="talk", position=place)
        engine.upkeep.embed()
        yield engine


def _plans() -> list[Plan]:
    return [
        Plan(),
        Plan(legs=frozenset({"dense"})),
        Plan(context=False),
        *(Plan(fusion=method, rerank=rerank) for method in METHODS for rerank in ("off", "late")),
    ]


@pytest.mark.parametrize(
    "plan", _plans(), ids=lambda p: f"{'+'.join(sorted(p.legs))}-{p.fusion}-{p.rerank}-{p.context}"
)
def test_no_leg_shows_what_the_scope_hides(scoped: LocalEngine, plan: Plan) -> None:
    def found(**filters: object) -> list[str]:
        return contents(scoped.ask(SECRET, plan, limit=50, **filters))  # type: ignore[arg-type]

    assert SECRET in found(all_projects=True)
    assert SECRET in found(project="billing")
    assert SECRET not in found()
    assert SECRET + "." in found()
    lessons = found(category="lessons")
    assert lessons == ["a night guard walks through the building at two"]
    facts = found(category="facts")
    assert "the night guard" not in facts and SECRET + "." not in facts
    assert "who keeps the vault code" in facts
    assert found(tags=["guarded"]) == [SECRET + "."]
    assert found(tags=["walk", "guarded"]) == []
    assert not {SECRET + "!", SECRET + "?"} & set(found())
    assert SECRET + "!" in found(as_of="2023-06-01")
    assert SECRET + "?" in found(as_of="2101-01-01")
    assert found(known_at="2020-01-01") == []


def test_an_older_version_is_found_by_its_meaning_as_it_was_known_then(engine: LocalEngine) -> None:
    kept = engine.remember("the plants are watered by Ingrid")
    engine.edit(kept.id, content="the server room is cooled to nineteen degrees")
    engine.remember("a third thing altogether")
    engine.upkeep.embed()
    then = engine.store.history(kept.id)[0].known_from
    assert contents(engine.recall("who waters the greenery?", known_at=then)) == ["the plants are watered by Ingrid"]
    assert "the plants are watered by Ingrid" not in contents(engine.recall("who waters the greenery?"))


def test_an_edit_is_found_by_its_new_meaning_once_embedded(engine: LocalEngine) -> None:
    kept = engine.remember("the plants are watered by Ingrid")
    engine.upkeep.embed()
    engine.edit(kept.id, content="Pixel is a cat and sleeps in the server room")
    assert engine.recall("which animal lives here?").waiting == 1
    assert engine.upkeep.embed() == 1
    [hit] = engine.recall("which animal lives here?").hits
    assert hit.memory.content.startswith("Pixel")
    assert engine.recall("who waters the greenery?").hits == ()


def test_a_recall_embeds_first_what_was_written_in_the_last_minutes(tmp_path: Path) -> None:
    with open_engine(tmp_path, embed_first=4) as engine:
        for text, _, _ in NOTES[:6]:
            engine.remember(text)
        answer = engine.recall("who waters the greenery?")
        assert answer.waiting == 2
        assert contents(answer)[0] == NOTES[2][0]
        assert engine.recall("anything").waiting == 0


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError("read-only")


def _out_of_reach(*_: object, **__: object) -> None:
    raise StoreUnavailable("the store is read-only")


HINDRANCES = {
    "an index folder that cannot be written": (TokenIndex, "_lock_path", _refuse),
    "a store that cannot be written": (VectorStore, "save", _out_of_reach),
}


@pytest.mark.parametrize("what", HINDRANCES)
def test_what_hinders_embedding_does_not_hinder_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(*HINDRANCES[what])
    with open_engine(tmp_path, embed_first=16) as engine:
        fill(engine)
        assert contents(engine.recall("plants on the fourth floor"))[0] == NOTES[2][0]


# Evidence

RANKINGS = [(method, rerank) for method in ("default", *METHODS) for rerank in ("default", "off", "late")]


@pytest.mark.parametrize(("method", "rerank"), RANKINGS)
def test_evidence_adds_up_to_the_score(half: tuple[LocalEngine, list[str]], method: str, rerank: str) -> None:
    engine, _ = half
    for text in (*QUESTIONS, *(text for text, _ in PARAPHRASES)):
        hits = engine.recall(text, fusion=method, rerank=rerank, limit=50).hits
        for hit in hits:
            contributions = [leg.contribution for leg in hit.legs.values()]
            assert hit.score == pytest.approx(sum(contributions) * hit.prior, rel=1e-6, abs=1e-9)
            assert all(part >= 0 for part in contributions)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_late_interaction_reorders_the_head_and_nothing_jumps_over_it(embedded: tuple[LocalEngine, list[str]]) -> None:
    engine, _ = embedded
    for method in METHODS:
        for text, _ in PARAPHRASES:
            before = engine.ask(text, Plan(fusion=method, rerank="off", prior=0), limit=50)
            head = [hit.memory.id for hit in before.hits[:5]]
            after = engine.ask(text, Plan(fusion=method, rerank="late", rescored=5, prior=0), limit=3)
            assert {hit.memory.id for hit in after.hits} <= set(head)


def test_as_many_hits_as_were_asked_for(engine: LocalEngine) -> None:
    engine.apply([Add(engine.draft(f"number {number} of the plums")) for number in range(180)])
    model, random = bundled(), np.random.default_rng(1)
    while waiting := engine.store.vectors.waiting():
        drawn = random.standard_normal((len(waiting), model.dimensions), dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
        found = {digest: row_of(vector) for (digest, _), vector in zip(waiting, drawn, strict=True)}
        engine.store.vectors.save(model.fingerprint, found)
    for fusion, rerank in (("default", "default"), ("rrf", "off"), ("rrf", "late")):
        assert len(engine.recall("plums", limit=200, fusion=fusion, rerank=rerank).hits) == 180


@pytest.mark.parametrize("options", [{"legs": ["lexcial"]}, {"fusion": "borda"}, {"rerank": "always"}])
def test_unknown_ways_to_rank_are_refused(engine: LocalEngine, options: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        engine.recall("anything", **options)  # type: ignore[arg-type]


# Long texts in several pieces


def _long_turn(engine: LocalEngine, role: str | None) -> None:
    """A long turn in four pieces, all nearer to the question than the short turns of others."""
    pieces = [f"the harbour crane number {n} lifts containers of steel" for n in ("one", "two", "three", "four")]
    said = "2026-03-01T10:00:00Z"
    turns = [
        engine.draft(text, session="talk", position=n, role=role, created_at=said) for n, text in enumerate(pieces)
    ]
    answer = engine.draft("containers are heavy", session="talk", position=4, role="user", created_at=said)
    engine.apply([Add(turn) for turn in (*turns, answer)])
    engine.upkeep.embed()


def _first_three(engine: LocalEngine) -> int:
    answer = engine.ask("the harbour crane lifts containers of steel", Plan(prior=0), limit=3)
    return sum("crane" in text for text in contents(answer))


def test_a_long_text_does_not_fill_the_list(engine: LocalEngine) -> None:
    _long_turn(engine, "assistant")
    assert _first_three(engine) == 2
    answer = engine.ask("the harbour crane lifts containers of steel", Plan(prior=0), limit=5)
    assert len(answer.hits) == 5
    assert all(hit.score == pytest.approx(sum(leg.contribution for leg in hit.legs.values())) for hit in answer.hits)


def test_turns_of_unknown_people_are_no_pieces_of_one_text(engine: LocalEngine) -> None:
    _long_turn(engine, None)
    assert _first_three(engine) == 3


def test_memories_whose_token_vectors_are_lost_are_not_below_those_that_have_them(engine: LocalEngine) -> None:
    fill(engine)
    engine.upkeep.embed()
    semantic = engine.semantic()
    assert semantic is not None
    slots = semantic.catalog.view().slots
    shutil.rmtree(semantic.tokens.path)
    # As after a restore: a few are encoded again, the others wait.
    engine.models.embed(limit=4, wait=True, progress=None)
    assert len(semantic.tokens.missing(slots)) == len(NOTES) - 4
    assert engine.background.has_pending()
    first = [contents(engine.recall(question))[0] for question, _ in PARAPHRASES]
    assert first == [NOTES[place][0] for _, place in PARAPHRASES]
