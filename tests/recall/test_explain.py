"""Reasons, matched words by their place, confidence, and packing under a budget."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.errors import BadInput
from triskele.recall import explain
from triskele.recall.confidence import Coverage
from triskele.recall.plan import Plan
from triskele.recall.question import Question
from triskele.recall.scores import pack
from triskele.store.vector_bytes import row_of
from triskele.text import timestamps
from triskele.text.analysis import Analyzer
from triskele.text.words import tokens_of
from triskele.types import GOOD_MATCH, UNLIKELY_MATCH, Add, Answer, Hit, LinkKind, Memory, Query, Scope, Term

MEMORIES = (
    "Releases reach the cluster through Argo CD, never by hand",
    "The staging database is wiped every Sunday night",
    "Ingrid waters the plants on the fourth floor",
    "Tomasz signs invoices above 4,000 euros",
    "Remove the stale lock in /var/run/build.lock when the build hangs",
    "Customers may cancel within thirty days and get their money back",
    "The nightly backup takes about forty minutes",
    "Ravi prefers to be reached by phone rather than by mail",
    "Never restart the payment gateway during office hours",
    "Search moved from Elasticsearch to Postgres after the November outage",
    "The office cat is called Pixel and sleeps in the server room",
    "The API rate limit is 600 requests per minute and key",
)
ANSWERABLE = (
    "How do releases reach the cluster?",
    "When is the staging database wiped?",
    "Who waters the plants?",
    "Who signs large invoices?",
    "What do I do when the build hangs?",
    "Within how many days may customers cancel?",
    "How long does the nightly backup take?",
    "How does Ravi prefer to be reached?",
    "What is the office cat called?",
    "What is the API rate limit?",
)
UNANSWERABLE = (
    "Which vineyard supplies the wedding?",
    "How tall is the lighthouse in Bergen?",
    "What did the dentist say about Marta's wisdom tooth?",
    "Which train leaves for Vienna on Friday?",
    "Who won the chess tournament last spring?",
    "What is the recipe for the lentil soup?",
    "How much fuel does the sailing boat need?",
    "Which novel did the book club choose?",
    "Where was the meteorite found?",
    "What colour is the new tent?",
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("explain")
    with LocalEngine(load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden"}), folder) as opened:
        opened.apply([Add(opened.draft(text, tags=["office"])) for text in MEMORIES])
        opened.upkeep.embed()
        yield opened


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[LocalEngine]:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path), "TRISKELE_PROJECT": "garden"}), tmp_path) as opened:
        opened.embed_first = 0
        yield opened


def _first(engine: LocalEngine, text: str, **options: object) -> Hit:
    return engine.recall(text, **options).hits[0]  # type: ignore[arg-type]


# Reasons


def test_a_reason_names_the_shared_words_and_how_near_the_meaning_is(engine: LocalEngine) -> None:
    hit = _first(engine, "Who waters the plants?")
    near = hit.legs["dense"].score
    assert hit.reason == f"shares the words “waters”, “plants” and is close in meaning ({near:.2f})"


def test_without_a_shared_word_the_reason_is_the_meaning_alone(engine: LocalEngine) -> None:
    hit = next(h for h in engine.recall("name of the pet").hits if "Pixel" in h.memory.content)
    assert "lexical" not in hit.legs
    near = hit.legs["dense"].score
    assert hit.reason in {f"is {how} in meaning ({near:.2f})" for how in ("close", "related", "a weak match")}


def test_nearness_is_told_in_three_words(engine: LocalEngine) -> None:
    told = {}
    for text in (*ANSWERABLE, *UNANSWERABLE):
        for hit in engine.recall(text, limit=12).hits:
            if "dense" in hit.legs:
                near = hit.legs["dense"].score
                told[near] = next(how for how in ("a weak match", "related", "close") if f"is {how} in" in hit.reason)
    ordered = [told[near] for near in sorted(told)]
    assert list(dict.fromkeys(ordered)) == ["a weak match", "related", "close"]


def test_words_alone_are_told_alone(engine: LocalEngine) -> None:
    assert _first(engine, "plants", legs=("lexical",)).reason == "shares the word “plants”"
    tagged = _first(engine, "office plants", legs=("lexical",))
    assert tagged.reason == "shares the words “plants”, “office”"


def test_matched_words_point_into_the_text(engine: LocalEngine) -> None:
    hit = _first(engine, "Remove the lock /var/run/build.lock of hanging builds in the office")
    terms = {term.text: (term.start, term.end) for term in hit.legs["lexical"].terms}
    content = hit.memory.content
    for text, (start, end) in terms.items():
        if start >= 0:
            assert content[start:end] == text
    assert {"Remove", "var/run/build.lock", "hangs"} <= set(terms)
    assert terms["office"] == (-1, -1)
    # Once as a whole, not once more for each of its parts.
    assert hit.reason.count("build.lock") == 1


@pytest.mark.parametrize(
    ("content", "asked", "words"),
    [
        ("ERR_4312 means that the drawer is open", "ERR_9981", ("ERR",)),
        ("ERR_4312 means that the drawer is open", "err_4312", ("ERR_4312",)),
        ("The board is at https://x.example/d/Kq7HiX92/tills", "tills board", ("board", "tills")),
        ("The board is at https://y.example/d/Kq7HiX92/tills", "Kq7HiX92", ("Kq7HiX92",)),
        ("snake_case_name is a switch", "snake case switch", ("snake_case", "switch")),
        ("The step-ca certificates", "step-ca renewal", ("step-ca",)),
    ],
)
def test_reason_names_the_matched_part_of_an_identifier(
    fresh: LocalEngine, content: str, asked: str, words: tuple[str, ...]
) -> None:
    fresh.remember(content)
    hit = _first(fresh, asked, legs=("lexical",))
    assert hit.words == words
    named = ", ".join(f"“{word}”" for word in words)
    assert hit.reason == f"shares the word{'s' if len(words) > 1 else ''} {named}"


def test_many_words_are_cut_short(fresh: LocalEngine) -> None:
    words = "apples pears plums quinces medlars cherries walnuts chestnuts grapes figs"
    fresh.remember(words)
    hit = _first(fresh, words)
    assert "…" in hit.reason
    assert hit.reason.count("“") == explain.MAX_WORDS_NAMED + 1


def test_a_successor_is_told_with_what_it_replaced(fresh: LocalEngine) -> None:
    old = fresh.remember("We deploy with Helm hooks")
    new = fresh.remember("Releases go out through Argo CD", supersedes=old.id)
    fresh.upkeep.embed()
    hit = _first(fresh, "helm hooks")
    assert (hit.memory.id, hit.stands_for) == (new.id, old.id)
    assert hit.reason.startswith(f"replaces {old.id}, which shares the words “Helm”, “hooks”")
    shown = {h.memory.id: h.reason for h in fresh.recall("helm hooks", show_superseded=True).hits}
    assert shown[old.id].endswith(", but has been superseded")


def test_a_turn_that_only_stands_beside_the_words_says_so(fresh: LocalEngine) -> None:
    turns = ["did the caterer call?", "yes, at nine", "and the florist"]
    for place, turn in enumerate(turns):
        fresh.remember(turn, session="talk", position=place)
    fresh.remember("something that has vectors")
    lone = fresh.store.vectors.waiting()[-1]
    semantic = fresh.semantic()
    assert semantic is not None
    [made] = semantic.embedder.encode_documents([lone[1]])
    fresh.store.vectors.save(semantic.embedder.fingerprint, {lone[0]: row_of(made.sentence)})
    reasons = {hit.memory.content: hit.reason for hit in fresh.ask("caterer something", Plan()).hits}
    assert reasons[turns[0]] == "shares the word “caterer”"
    assert reasons[turns[1]] == "is next to a turn that shares words with the query"


# Confidence


def test_confidence_is_a_probability_and_higher_where_there_is_an_answer(engine: LocalEngine) -> None:
    sure = [engine.recall(text).confidence for text in ANSWERABLE]
    unsure = [engine.recall(text).confidence for text in UNANSWERABLE]
    assert all(0 <= number <= 1 for number in (*sure, *unsure))
    better = sum((high > low) + 0.5 * (high == low) for high in sure for low in unsure)
    assert better / (len(sure) * len(unsure)) >= 0.9


def test_confidence_does_not_hang_on_how_many_are_shown(engine: LocalEngine) -> None:
    for text in ANSWERABLE[:3]:
        assert engine.recall(text, limit=1).confidence == engine.recall(text, limit=10).confidence


@pytest.mark.parametrize(
    "options", [{"legs": ("lexical",)}, {"legs": ("dense",)}, {"fusion": "rrf"}, {"rerank": "late"}]
)
def test_confidence_is_a_probability_however_one_ranks(engine: LocalEngine, options: dict[str, object]) -> None:
    for text in (*ANSWERABLE, *UNANSWERABLE, "", "?"):
        assert 0 <= engine.recall(text, **options).confidence <= 1  # type: ignore[arg-type]


def test_fit_follows_the_confidence(fresh: LocalEngine) -> None:
    answer = fresh.recall("anything")
    fits = [replace(answer, confidence=number).fit for number in (1.0, GOOD_MATCH, 0.149, 0.031, UNLIKELY_MATCH, 0.0)]
    assert fits == ["good", "good", "weak", "weak", "none", "none"] and answer.fit == "none"


def test_nothing_found_is_no_confidence(fresh: LocalEngine) -> None:
    assert fresh.recall("anything").confidence == 0
    fresh.remember("not embedded yet")
    assert fresh.ask("zebra", Plan()).confidence == 0
    assert fresh.ask("embedded", Plan()).confidence > 0


# Budget


def _cost(answer: Answer) -> int:
    hits = sum(tokens_of(hit.memory.content) for hit in answer.hits)
    return hits + sum(tokens_of(memory.content) for memory in answer.resolutions)


@pytest.mark.parametrize("budget", [1, 5, 12, 20, 40, 1000])
def test_what_is_packed_fits_the_budget_in_the_order_of_the_hits(engine: LocalEngine, budget: int) -> None:
    full = engine.recall("office things", limit=12)
    packed = engine.recall("office things", limit=12, budget=budget)
    assert _cost(packed) <= budget
    ids = [hit.memory.id for hit in full.hits]
    places = [ids.index(hit.memory.id) for hit in packed.hits]
    assert places == sorted(places)
    left = budget - _cost(packed)
    # Nothing that still fits was left out.
    for place, hit in enumerate(full.hits):
        assert place in places or tokens_of(hit.memory.content) > left


def test_a_long_hit_makes_room_for_shorter_ones(fresh: LocalEngine) -> None:
    fresh.remember("plums " * 100)
    fresh.remember("the plums are in the cellar")
    answer = fresh.recall("plums", budget=20)
    assert [hit.memory.content for hit in answer.hits] == ["the plums are in the cellar"]


def test_what_says_the_same_again_is_dropped(fresh: LocalEngine) -> None:
    fresh.remember("the plums are kept in the cold cellar below the kitchen")
    fresh.remember("the plums are kept in the cold cellar under the kitchen")
    fresh.remember("the pears hang in the attic, far from the plums")
    hits = fresh.recall("plums", budget=1000).hits
    assert len(hits) == 2
    assert len(fresh.recall("plums").hits) == 3


def test_what_says_more_than_a_shorter_hit_is_kept(fresh: LocalEngine) -> None:
    short = fresh.remember("plums are ripe")
    long = fresh.remember("plums are ripe in the third week of August and must be picked before the rain comes")
    found = {hit.memory.id for hit in fresh.recall("are plums ripe", budget=1000).hits}
    assert found == {short.id, long.id}


def test_attached_resolutions_count_against_the_budget(fresh: LocalEngine) -> None:
    problem = fresh.remember("checkout fails")
    fix = fresh.remember("raise the pool size of the connection broker to forty and restart it twice")
    fresh.link(problem.id, LinkKind.RESOLVED_BY, fix.id)
    assert [memory.id for memory in fresh.recall("checkout", budget=100).resolutions] == [fix.id]
    tight = fresh.recall("checkout", budget=8)
    assert [hit.memory.id for hit in tight.hits] == [problem.id]
    assert tight.resolutions == ()


@pytest.mark.parametrize("budget", [0, -1, 10**9])
def test_a_budget_has_bounds(engine: LocalEngine, budget: int) -> None:
    with pytest.raises(BadInput):
        engine.recall("office", budget=budget)


def test_packing_leaves_everything_else_as_it_was(engine: LocalEngine) -> None:
    full = engine.recall("Who waters the plants?")
    packed = pack(full, 10_000)
    assert (packed.confidence, packed.project, packed.waiting) == (full.confidence, full.project, full.waiting)


def test_scripts_without_spaces_take_a_token_per_character() -> None:
    assert tokens_of("deploy on Friday") == 4
    assert tokens_of("金曜日に配備する") == 8
    assert tokens_of("Argo で配備") == 2 + 3


def test_that_two_legs_agree_on_a_stranger_gives_no_confidence(engine: LocalEngine) -> None:
    answer = engine.recall("xylophone quartet in B minor")
    best = answer.hits[0].legs
    assert "lexical" not in best and best["dense"].score < 0.25
    assert answer.confidence < 0.5


def test_coverage_is_summed_in_the_order_of_the_query(make_memory: Callable[..., Memory]) -> None:
    terms = tuple(f"term{number}" for number in range(40))
    rarity = {term: 0.1 * 1.7**number for number, term in enumerate(reversed(terms))}
    query = Query(text=" ".join(terms), scope=Scope(as_of=timestamps.now()))
    question = Question(query, Plan(), terms, rarity)
    memory = make_memory(" ".join(reversed(terms[1:])))
    coverage = Coverage(question, Analyzer("none")).share(memory)
    assert coverage == sum(rarity[term] for term in terms[1:]) / question.ceiling


def test_evidence_is_the_same_whether_it_is_read_at_once_or_later(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        for text in ("The kettle is red", "A red kettle boils fast", "The oven is slow"):
            engine.remember(text, project="")
        engine.upkeep.embed()
        at_once, later = (engine.recall("red kettle", project="", local_only=each).hits for each in (False, True))
    assert [hit.memory.id for hit in at_once] == [hit.memory.id for hit in later]
    for one, other in zip(at_once, later, strict=True):
        assert list(one.legs) == list(other.legs) and len(other.legs) > 1
        assert {leg: replace(each, terms=(), path=None) for leg, each in one.legs.items()} == other.legs


def test_reasons_are_made_when_they_are_read_of_the_text_that_was_found(
    open_engine: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine()
    id = engine.remember("herons nest in the old mill").id
    read, made = list[int](), Coverage.terms_of_each

    def counted(coverage: Coverage, memories: list[Memory]) -> list[tuple[Term, ...]]:
        read.append(len(memories))
        return made(coverage, memories)

    monkeypatch.setattr(Coverage, "terms_of_each", counted)
    [hit] = engine.recall("where do herons nest?").hits
    assert read == []
    engine.edit(id, content="nothing of the kind")
    assert hit.words == ("herons", "nest") and "“herons”" in hit.reason
    assert [term.text for term in hit.legs["lexical"].terms] == ["herons", "nest"]
    assert read == [1]


def test_copies_of_an_answer_and_pickled_ones_have_its_reasons(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("herons nest in the old mill")
    engine.remember("the mill was sold")
    answer = engine.recall("where do herons nest at the mill?")
    kept = pickle.dumps(answer)
    assert pickle.loads(kept) == copy.deepcopy(answer) == answer
    assert [hit.reason for hit in pickle.loads(kept).hits] == [hit.reason for hit in answer.hits]
    assert all(hit.legs and hit.words for hit in pickle.loads(kept).hits)
