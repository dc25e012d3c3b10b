"""Every corpus answers the same: words, vectors, facts and mentions of one scope; and recall ranks alike over each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest
from brute_force import BruteForceCorpus
from vector_question import VectorQuestion

from triskele.config import load
from triskele.edge.cli.demo import temporary_memory
from triskele.engine.local import LocalEngine
from triskele.index.corpus import Corpus, Ints
from triskele.models.embedder import Encoding
from triskele.recall.pipeline import recall
from triskele.recall.plan import Plan
from triskele.text import timestamps
from triskele.types import Origin, Query, Role, Scope, Sensitivity, Sort

Open = Callable[..., Corpus]
Encoded = dict[str, Encoding]
TALK = ("where is the ferry?", "at the quay in Lindholm", "when does it leave?", "at ten past seven", "thanks")
# Names that connect: a title, and two memories that mention the same.
BRIDGE, FAR = "Kestrel is the billing service that Marta Lindqvist maintains", "Marta Lindqvist works in Tromsø"
NAMED = "Invoices that fail are retried by Kestrel after an hour"
# A corpus may keep a byte per dimension.
ROUNDING = 2e-3


def _database(engine: LocalEngine, _: Encoded, scope: Scope) -> Corpus:
    indexes = engine.models.database(engine.semantic())
    assert indexes is not None
    indexes.catch_up()
    return indexes.open_corpus(scope)


CORPORA: dict[str, Callable[[LocalEngine, Encoded, Scope], Corpus]] = {
    "local": lambda engine, _, scope: engine.models.indexes(engine.semantic()).open_corpus(scope),
    "brute force": BruteForceCorpus,
    "database": _database,
}
# The corpora over each kind of store.
KINDS = [
    ("file", "local"),
    ("file", "brute force"),
    pytest.param(("postgres", "local"), marks=pytest.mark.slow),
    pytest.param(("postgres", "database"), marks=pytest.mark.slow),
]


def encodings(engine: LocalEngine) -> Encoded:
    semantic = engine.semantic()
    assert semantic is not None
    contents = [memory.content for _, memory in engine.store.versions()]
    return dict(zip(contents, semantic.embedder.encode_documents(contents), strict=True))


@pytest.fixture(scope="module", params=KINDS, ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The store and the corpus over it."""
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def engine(
    kind: tuple[str, str], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("corpus")
    environment = {"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "garden"}
    settings = load(environment)
    if kind[0] == "postgres":
        url = request.getfixturevalue("postgres").create()
        settings = load({**environment, "TRISKELE_STORE_CORPUS": kind[1]}, store_url=url)
    with LocalEngine(settings, folder) as opened:
        opened.embed_first = 0
        opened.remember("herons nest in the old mill", tags=["birds"], importance=0.9)
        opened.remember("a heron stood in the river by the mill for hours", category="people", importance=0.2)
        opened.remember("the mill is for sale", sensitivity=Sensitivity.PRIVATE)
        opened.remember("the mill was built in 1850", origin=Origin.WEB)
        opened.remember("another mill stands elsewhere", project="elsewhere")
        opened.remember("the mill is open", valid_to="2020-01-01")
        edited = opened.remember("the mill has three wheels").id
        opened.edit(edited, content="the mill has four wheels")
        opened.forget(opened.remember("the mill burned down").id)
        for number, text in enumerate(TALK):
            sensitivity = Sensitivity.PRIVATE if number == 3 else Sensitivity.OPEN
            said = {"speaker": ("Ann", "Bo")[number % 2]} if number < 4 else {"role": "assistant"}
            opened.remember(text, session="talk", position=number, sensitivity=sensitivity, **said)
        for text in (BRIDGE, FAR, NAMED):
            opened.remember(text)
        opened.upkeep.embed()
        opened.remember("a mill that no model has read yet")
        yield opened


@pytest.fixture(scope="module")
def encoded(engine: LocalEngine) -> Encoded:
    vectors = encodings(engine)
    del vectors["a mill that no model has read yet"]
    return vectors


@pytest.fixture
def open_corpus(kind: tuple[str, str], engine: LocalEngine, encoded: Encoded) -> Open:
    """Opens the corpus of a scope, given by the engine's options."""

    def open_one(**options: Any) -> Corpus:
        return CORPORA[kind[1]](engine, encoded, engine.scope(**options))

    return open_one


@pytest.fixture
def rows(engine: LocalEngine) -> dict[str, int]:
    return {memory.content: row for row, memory in engine.store.versions()}


def some(rows: dict[str, int], *contents: str) -> Ints:
    return np.array([rows[content] for content in contents], dtype=np.int64)


def texts(rows: dict[str, int], found: Any) -> list[str]:
    names = {row: content for content, row in rows.items()}
    return [names[row] for row in found]


def searched(corpus: Corpus, rows: dict[str, int], *terms: str, limit: int = 50, **options: Any) -> list[str]:
    return texts(rows, [hit.row for hit in corpus.search(terms, limit=limit, **options)])


def test_a_search_finds_any_of_the_terms_inside_the_scope(open_corpus: Open, rows: dict[str, int]) -> None:
    ranking = searched(open_corpus(), rows, "mill", "heron")
    assert set(ranking) == {
        "herons nest in the old mill",
        "a heron stood in the river by the mill for hours",
        "the mill is for sale",
        "the mill was built in 1850",
        "the mill has four wheels",
        "a mill that no model has read yet",
    }
    assert ranking[0] == "herons nest in the old mill"
    assert searched(open_corpus(), rows, "mill", "heron", limit=2) == ranking[:2]
    assert searched(open_corpus(), rows, "sphinx") == [] == searched(open_corpus(), rows)


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({"tags": ["birds"]}, "herons nest in the old mill"),
        ({"category": "people"}, "a heron stood in the river by the mill for hours"),
        ({"project": "elsewhere"}, "another mill stands elsewhere"),
        ({"sensitivities": [Sensitivity.PRIVATE]}, "the mill is for sale"),
        ({"origins": [Origin.WEB]}, "the mill was built in 1850"),
    ],
)
def test_words_vectors_and_facts_keep_to_the_scope(
    open_corpus: Open, rows: dict[str, int], encoded: Encoded, options: dict[str, Any], content: str
) -> None:
    corpus = open_corpus(**options)
    assert searched(corpus, rows, "mill") == [content]
    nearest, cosines = corpus.asking(VectorQuestion(encoded[content].sentence)).nearest(1)
    assert texts(rows, nearest.tolist()) == [content] and cosines[0] == pytest.approx(1, abs=ROUNDING)
    inside = corpus.facts(np.array(sorted(rows.values()))).is_visible
    assert content in texts(rows, np.array(sorted(rows.values()))[inside].tolist())
    assert corpus.facts(some(rows, "the mill burned down", "the mill is open")).is_visible.tolist() == [False, False]


def test_other_projects_tell_only_how_near_they_come(open_corpus: Open, encoded: Encoded) -> None:
    question = VectorQuestion(encoded["another mill stands elsewhere"].sentence)
    assert open_corpus().asking(question).closest_anywhere() == pytest.approx(1, abs=ROUNDING)
    assert open_corpus().asking(question).nearest(1)[1][0] < 0.99
    assert open_corpus(origins=[Origin.WEB]).asking(question).closest_anywhere() < 0.99
    assert open_corpus(all_projects=True).asking(question).closest_anywhere() == -1


@pytest.mark.parametrize("options", [{}, {"all_projects": True}, {"tags": ["birds"], "all_projects": True}])
def test_cosines_belong_to_the_requested_vector(
    open_corpus: Open, rows: dict[str, int], encoded: Encoded, options: dict[str, Any]
) -> None:
    corpus = open_corpus(**options)
    contents = list(encoded)[:4]
    vectors = np.stack([encoded[content].sentence for content in contents])
    unknown = np.append(some(rows, *contents, "a mill that no model has read yet"), max(rows.values()) + 1)
    for vector in (vectors[0], vectors[1], vectors[0]):
        view = corpus.asking(VectorQuestion(vector))
        found = view.cosines(unknown)
        nearest, cosines = view.nearest(3)
        assert view.cosines(nearest) == pytest.approx(cosines, abs=1e-5)
        assert found[:4] == pytest.approx(vectors @ vector, abs=ROUNDING) and np.isnan(found[4:]).all()


def test_the_past_has_its_own_corpus(open_corpus: Open, rows: dict[str, int], engine: LocalEngine) -> None:
    before = next(each for _, each in engine.store.versions() if each.content == "the mill has three wheels")
    ranking = searched(open_corpus(known_at=before.known_from), rows, "mill", "wheel")
    assert "the mill has three wheels" in ranking and "the mill has four wheels" not in ranking
    assert "the mill is open" in searched(open_corpus(as_of="2019-06-01"), rows, "mill")


def test_searches_sort_by_importance_and_by_recency(open_corpus: Open, rows: dict[str, int]) -> None:
    by_importance = searched(open_corpus(), rows, "mill", sort=Sort.IMPORTANCE)
    assert by_importance[0] == "herons nest in the old mill"
    assert by_importance[-1] == "a heron stood in the river by the mill for hours"
    assert searched(open_corpus(), rows, "mill", sort=Sort.RECENCY)[0] == "a mill that no model has read yet"


def test_rare_terms_have_a_higher_rarity(open_corpus: Open) -> None:
    rarity = open_corpus().rarity(["mill", "heron", "sphinx"])
    assert 0 < rarity["mill"] < rarity["heron"] < rarity["sphinx"]
    # Statistics are those of the whole corpus, whatever the scope.
    assert open_corpus(tags=["birds"]).rarity(["mill"])["mill"] == pytest.approx(rarity["mill"])


def test_embedded_rows_have_vectors(open_corpus: Open, rows: dict[str, int], encoded: Encoded) -> None:
    corpus, content = open_corpus(), "herons nest in the old mill"
    rows_asked = some(rows, content, "a mill that no model has read yet")
    rows_asked = np.append(rows_asked, 10_000)
    vector = encoded[content].sentence
    cosines, vectors = corpus.asking(VectorQuestion(vector)).cosines(rows_asked), corpus.vectors(rows_asked)
    assert cosines[0] == pytest.approx(1, abs=ROUNDING) and np.isnan(cosines[1:]).all()
    np.testing.assert_allclose(vectors[0], vector, atol=ROUNDING)
    assert np.isnan(vectors[1:]).all()
    tokens, counts = corpus.tokens(rows_asked[[1, 0, 2]])
    assert counts[0] == counts[2] == 0 and counts[1] == len(tokens) > 2 and tokens.dtype == np.uint8


def test_neighbours_are_the_turns_beside(open_corpus: Open, rows: dict[str, int]) -> None:
    turns = some(rows, *TALK)
    facts = open_corpus().facts(np.append(turns, rows[FAR]), reach=2)
    assert len(set(facts.sessions[:5].tolist())) == 1 and facts.sessions[0] >= 0 and facts.sessions[5] == -1
    first, second, third, fourth, fifth = turns.tolist()
    assert facts.neighbours.tolist() == [
        [-1, second, -1, third],
        [first, third, -1, fourth],
        [second, fourth, first, fifth],
        [third, fifth, second, -1],
        [fourth, -1, third, -1],
        [-1, -1, -1, -1],
    ]
    # A neighbour outside the scope still counts, one that the reader may not read does not.
    assert open_corpus(tags=["birds"]).facts(turns[:1], reach=1).neighbours.tolist() == [[-1, second]]
    limited = open_corpus(sensitivities=[Sensitivity.OPEN]).facts(turns, reach=1).neighbours.tolist()
    assert (limited[2], limited[4]) == ([second, -1], [-1, -1])


def test_facts_contain_the_time(open_corpus: Open, rows: dict[str, int], engine: LocalEngine) -> None:
    facts = open_corpus().facts(np.append(some(rows, *TALK, FAR), 10_000))
    memories = dict(engine.store.versions())
    times = [memories[rows[name]].valid_from or memories[rows[name]].created_at for name in (*TALK, FAR)]
    assert facts.times.tolist() == [*map(timestamps.to_micros, times), -1]


def test_facts_contain_the_speaker(open_corpus: Open, rows: dict[str, int]) -> None:
    corpus = open_corpus()
    facts = corpus.facts(np.append(some(rows, *TALK, FAR), 10_000))
    names = corpus.speakers(facts.speakers.tolist())
    assert [names.get(code) for code in facts.speakers.tolist()] == ["Ann", "Bo", "Ann", "Bo", None, None, None]
    roles = [list(Role)[code] if code >= 0 else None for code in facts.roles.tolist()]
    assert roles == [None, None, None, None, Role.ASSISTANT, None, None]
    assert corpus.speakers([]) == corpus.speakers([-1]) == {}


def test_rows_of_speaker_are_newest_first(open_corpus: Open, rows: dict[str, int]) -> None:
    corpus = open_corpus()
    first, second, third, fourth, _ = TALK
    assert corpus.rows_of_speaker("ann", 10).tolist() == some(rows, third, first).tolist()
    assert corpus.rows_of_speaker("Bo", 1).tolist() == some(rows, fourth).tolist()
    assert corpus.rows_of_speaker("Bob", 10).tolist() == corpus.rows_of_speaker("?", 10).tolist() == []
    # What the reader may not read is no memory of the speaker.
    assert (
        open_corpus(sensitivities=[Sensitivity.OPEN]).rows_of_speaker("bo", 10).tolist() == some(rows, second).tolist()
    )
    assert open_corpus(project="elsewhere").rows_of_speaker("Ann", 10).tolist() == []


def test_mentions_lead_from_memory_to_memory(open_corpus: Open, rows: dict[str, int]) -> None:
    corpus = open_corpus()
    mentions = corpus.mentions(some(rows, FAR, BRIDGE))
    named = corpus.names.numbered(mentions.concepts.tolist())
    marta = next(number for number, name in named.items() if name.text == "Marta Lindqvist")
    at = mentions.concepts == marta
    assert mentions.position[at].tolist() == [0, 1] and set(mentions.frequency[at].tolist()) == {2}
    assert (mentions.reach >= mentions.frequency).all() and (mentions.subject_of <= mentions.frequency).all()
    place, holders, is_subject = corpus.holders(np.array([marta]))
    assert place.tolist() == [0, 0] and sorted(holders.tolist()) == sorted(some(rows, BRIDGE, FAR).tolist())
    assert len(corpus.holders(np.array([marta]), 1)[1]) == 1
    (kestrel,) = corpus.names.find(["kestrel", "nothing of the kind"]).values()
    _, owners, is_subject = corpus.holders(np.array([kestrel.concept]))
    assert rows[BRIDGE] in owners[is_subject].tolist() and rows[NAMED] in owners.tolist()


def test_a_memory_that_may_not_be_read_holds_nothing(open_corpus: Open, rows: dict[str, int]) -> None:
    corpus = open_corpus(sensitivities=[Sensitivity.SECRET])
    concepts = corpus.mentions(some(rows, BRIDGE)).concepts
    assert len(concepts) and len(corpus.holders(concepts)[1]) == 0 == len(corpus.holders(concepts, 1)[1])


def test_empty_rows_have_no_facts(open_corpus: Open) -> None:
    corpus, nothing = open_corpus(), np.empty(0, dtype=np.int64)
    assert corpus.facts(nothing, reach=2).neighbours.shape == (0, 4)
    assert (
        len(corpus.mentions(nothing).position) == len(corpus.holders(nothing)[0]) == len(corpus.tokens(nothing)[1]) == 0
    )
    assert corpus.facts(np.array([10_000]), reach=1).neighbours.tolist() == [[-1, -1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "plan", [Plan(), Plan(fusion="rrf"), Plan(fusion="dbsf", rerank="late")], ids=["default", "rrf", "late"]
)
def test_recall_ranks_the_sample_corpus_alike_over_every_corpus(plan: Plan) -> None:
    lines = (resources.files("triskele.samples") / "team" / "queries.jsonl").read_text().splitlines()
    questions = [json.loads(line)["text"] for line in lines[:: 4 if plan == Plan() else 24]]
    with temporary_memory() as engine:
        encoded = encodings(engine)
        scope = engine.scope(all_projects=True)
        brute = BruteForceCorpus(engine, encoded, scope)
        for text in questions:
            query = Query(text=text, scope=scope, limit=20)
            sources = engine.models.sources(query, plan)
            one = recall(query, plan, sources)
            other = recall(query, plan, replace(sources, open_corpus=lambda _: brute))
            assert [hit.memory.id for hit in one.hits] == [hit.memory.id for hit in other.hits], text
            assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=1e-4)
            assert [hit.reason for hit in one.hits] == [hit.reason for hit in other.hits]
