"""Confidence: nearness and lead raise it, uneven matches lower it; a rare identifier is certain, an unknown is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from triskele.config import load
from triskele.engine.local import LocalEngine
from triskele.recall import confidence
from triskele.recall.plan import SHIPPED
from triskele.recall.question import Question, form_of
from triskele.recall.scores import Candidate, Candidates, Contribution, SpeakerRows
from triskele.text import timestamps
from triskele.types import GOOD_MATCH, UNLIKELY_MATCH, Query, Scope


def candidate(row: int, near: float, words: float = 0.0, graph: float = 0.0, lent: float = 0.0) -> Candidate:
    late = near + lent
    parts = {
        "dense": Contribution(1, near, near, 0.4 * near),
        "late": Contribution(1, late, late, 0.5 * late),
        "lexical": Contribution(1, words, words, 0.1 * words),
        "graph": Contribution(1, graph, graph, graph),
    }
    return Candidate(row, sum(part.contribution for part in parts.values()), parts)


def query(*terms: str, rarity: float = 6.0, unknown: frozenset[str] = frozenset()) -> Question:
    empty = Query(text="", scope=Scope(as_of=timestamps.now()))
    return Question(empty, SHIPPED, terms, dict.fromkeys(terms, rarity), unknown)


def likely(
    best: float,
    *others: float,
    words: float = 0.0,
    graph: float = 0.0,
    terms: int = 3,
    apart: float = 0.0,
    lent: float = 0.0,
    unknown: frozenset[str] = frozenset(),
    elsewhere: float = 0.0,
) -> float:
    """The confidence in a candidate, of whose two tokens one matches better than the other, among others."""
    rows = range(2, 2 + len(others))
    neighbours = [candidate(row, near, lent=lent) for row, near in zip(rows, others, strict=True)]
    ranked = [candidate(1, best, words, graph), *neighbours]
    matches = np.array([(best - apart, best + apart), *((near, near) for near in others)], dtype=np.float32)
    weights = np.full(2, 0.5, dtype=np.float32)
    by_row = dict(zip([1, *rows], matches, strict=True))
    candidates = Candidates(ranked, matches=by_row, token_weights=weights, nearer_elsewhere=elsewhere)
    return confidence.likelihood(confidence.signals(candidates, query(*map(str, range(terms)), unknown=unknown)))


def test_nearness_and_lead_raise_it() -> None:
    assert likely(0.8, 0.3) > likely(0.6, 0.3) > likely(0.6, 0.5)
    assert 0 < likely(0.1, 0.1) < GOOD_MATCH < likely(0.9, 0.4, terms=6) < 1


def test_tokens_that_match_well_beside_tokens_that_hardly_match_lower_it() -> None:
    assert likely(0.6, 0.4, apart=0.4) < likely(0.6, 0.4)


def test_uneven_matches_count_less_the_more_terms_a_query_has() -> None:
    few, many = (likely(0.6, 0.4, terms=n) - likely(0.6, 0.4, apart=0.4, terms=n) for n in (2, 12))
    assert few > many > 0
    # One term proves little, whether its tokens match evenly or not.
    assert likely(0.6, 0.4, terms=1) < likely(0.6, 0.4, terms=8)
    assert likely(0.6, 0.4, apart=0.25, terms=1) > likely(0.6, 0.4, terms=1) / 4


def test_an_identifier_that_no_memory_holds_lowers_it() -> None:
    assert likely(0.6, 0.4, unknown=frozenset({"hrn-999"})) < likely(0.6, 0.4)


def test_what_another_project_knows_better_lowers_it() -> None:
    assert likely(0.6, 0.4, elsewhere=0.2) < likely(0.6, 0.4)


def test_connections_do_not_count() -> None:
    assert likely(0.6, 0.5, graph=2.0) == pytest.approx(likely(0.6, 0.5))


def test_matches_that_turns_lend_to_each_other_do_not_count() -> None:
    assert likely(0.6, 0.4, 0.3, lent=0.2) == pytest.approx(likely(0.6, 0.4, 0.3))


CONVERSATION = (
    "I finally moved to Lisbon last month",
    "How is the new flat?",
    "Small but bright, and the landlord is kind",
    "Do you still play the cello?",
    "Every Tuesday, with a quartet from the conservatory",
    "I keep bees in the garden now, two hives so far",
    "My brother Leo is allergic to bee stings, so be careful",
    "We bought an old van and want to drive to Norway in June",
    "The dentist moved my appointment to the 14th of March",
    "We had spicy ramen and green tea yesterday",
)


@pytest.mark.parametrize(
    ("question", "answer"), [("When is the dentist appointment?", 8), ("Who is allergic to bee stings?", 6)]
)
def test_a_turn_of_a_conversation_is_as_sure_as_the_same_text_alone(tmp_path: Path, question: str, answer: int) -> None:
    found = []
    for session in (None, "talk"):
        home = tmp_path / (session or "alone")
        with LocalEngine(load({"TRISKELE_HOME": str(home)}), tmp_path) as engine:
            for place, text in enumerate(CONVERSATION):
                engine.remember(text, project="", session=session, position=place if session else None)
            engine.upkeep.embed()
            found.append(engine.recall(question, project=""))
    alone, in_conversation = found
    assert alone.hits[0].memory.content == in_conversation.hits[0].memory.content == CONVERSATION[answer]
    assert abs(alone.confidence - in_conversation.confidence) < 0.1


def said_likely(matches: tuple[float, float, float], rows: frozenset[int]) -> float:
    """The confidence in the first of two candidates, where the first of three tokens names who said some rows."""
    by_row = {1: np.array(matches, dtype=np.float32), 2: np.full(3, 0.3, dtype=np.float32)}
    even, rest = np.full(3, 1 / 3, dtype=np.float32), np.array([0, 0.5, 0.5], dtype=np.float32)
    ranked = [candidate(1, 0.5), candidate(2, 0.3)]
    candidates = Candidates(ranked, matches=by_row, token_weights=even, by_speaker=SpeakerRows(rows, rest))
    return confidence.likelihood(confidence.signals(candidates, query("ann", "say", "tea")))


def test_the_name_of_its_speaker_is_answered_whatever_the_text() -> None:
    is_said, is_not = frozenset({1}), frozenset({2})
    assert said_likely((0.1, 0.6, 0.6), is_said) == pytest.approx(said_likely((0.6, 0.6, 0.6), is_said))
    assert said_likely((0.1, 0.6, 0.6), is_said) > said_likely((0.1, 0.6, 0.6), is_not)
    # A text that holds the name counts as before.
    assert said_likely((0.9, 0.6, 0.6), is_said) == pytest.approx(said_likely((0.9, 0.6, 0.6), is_not))


def test_a_memory_does_not_compete_with_what_it_replaced(tmp_path: Path) -> None:
    question = "how do releases reach the cluster?"
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        last = engine.remember("Releases reach the cluster through Argo CD", project="").id
        engine.remember("Logs are kept for thirty days", project="")
        engine.upkeep.embed()
        before = engine.recall(question, project="").confidence
        for tool in ("Spinnaker", "Jenkins", "Flux"):
            last = engine.remember(f"Releases reach the cluster through {tool}", project="", supersedes=last).id
        engine.upkeep.embed()
        for options in ({}, {"show_superseded": True}):
            answer = engine.recall(question, project="", **options)
            assert answer.hits[0].memory.content.endswith("Flux")
            assert answer.confidence > before - 0.1


@pytest.fixture(params=["bundled", "none"])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalEngine]:
    settings = load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_MODEL": request.param})
    with LocalEngine(settings, tmp_path) as opened:
        opened.remember("The claim for the flooded cellar has the number HRN-417", project="")
        opened.remember("The ferry is booked as QPE1042, cabin 6113", project="")
        opened.remember("new_checkout_v2 is on for ten percent of the shops", project="")
        opened.remember("Ticket BKR-2231 is about umlauts", project="elsewhere")
        opened.remember("The boiler needs 1.5 bar", project="")
        yield opened


@pytest.mark.parametrize("written", ["HRN-417", "hrn417", "HRN_417", "qp-e1042", "QPE-1042", "new-checkout-v2"])
def test_an_identifier_is_found_whatever_its_case_and_joints(engine: LocalEngine, written: str) -> None:
    answer = engine.recall(written, project="")
    bare = written.lower().replace("-", "").replace("_", "")
    assert bare in answer.hits[0].memory.content.lower().replace("-", "").replace("_", "")
    assert answer.confidence >= confidence.CERTAIN


@pytest.mark.parametrize("written", ["HRN-999", "what was hrn_418 about?", "qpe2077", "new_checkout_v3", "BKR-2231"])
def test_another_identifier_of_the_same_shape_is_no_answer(engine: LocalEngine, written: str) -> None:
    assert engine.recall(written, project="").fit == "none"


def test_an_identifier_written_as_two_words_is_known(engine: LocalEngine) -> None:
    engine.remember("Meter KLM 77 stands in the cellar", project="")
    engine.remember("Meter KLM-78 stands in the attic", project="")
    assert engine.recall("KLM-77", project="").confidence > UNLIKELY_MATCH


@pytest.mark.parametrize(
    ("terms", "covered", "is_exact"),
    [
        (("mb", "1412", "mb-1412"), {"mb", "1412", "mb-1412"}, True),
        (("mb", "1412", "mb-1412"), {"mb", "1399", "mb-1399"}, False),
        (("decoder_workers",), {"decoder_workers"}, True),
        (("src/frame.rs", "pars", "error", "trace", "line"), {"src/frame.rs"}, False),
        (("harbour", "master"), {"harbour", "master"}, False),
    ],
)
def test_an_exact_rare_identifier_is_certain(terms: tuple[str, ...], covered: set[str], is_exact: bool) -> None:
    assert confidence.names_exactly(query(*terms), frozenset(covered), 1000) is is_exact


def test_a_common_identifier_is_not() -> None:
    assert not confidence.names_exactly(query("mb-1412", rarity=1.0), frozenset({"mb-1412"}), 1000)


def test_a_bare_word_that_a_memory_holds_is_a_search(tmp_path: Path) -> None:
    with LocalEngine(load({"TRISKELE_HOME": str(tmp_path / "home")}), tmp_path) as engine:
        for day in ("Monday", "Friday", "holiday"):
            engine.remember(f"The team lead must agree when we want to deploy on a {day}", project="")
        engine.remember(
            "Thanks, that lasagne on the terrace was really great, see you soon", session="talk", position=0
        )
        engine.remember("Thanks, and we all had a great time at the lake yesterday", session="talk", position=1)
        engine.upkeep.embed()
        assert engine.recall("deploy", project="").confidence == confidence.SEARCHED
        assert engine.recall("deploy tulips", project="").confidence != confidence.SEARCHED
        assert engine.recall("thanks", project="").confidence < confidence.SEARCHED


@pytest.mark.parametrize("model", ["bundled", "none"])
def test_part_of_an_identifier_is_no_bare_word(tmp_path: Path, model: str) -> None:
    settings = load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_MODEL": model})
    with LocalEngine(settings, tmp_path) as engine:
        texts = {
            "hi": "The board is at https://x.example/d/Kq7HiX92/tills",
            "2": "Firmware 2.4.1 loses every third barcode",
            "git": "We review on GitHub",
            "checkout": "new_checkout_v2 is on for ten percent of the shops",
        }
        for text in texts.values():
            engine.remember(text, project="")
        engine.upkeep.embed()
        for word, text in texts.items():
            answer = engine.recall(word, project="", legs=("lexical",))
            assert [hit.memory.content for hit in answer.hits] == [text]
            assert answer.confidence < GOOD_MATCH
        for word, text in (("github", texts["git"]), ("new_checkout_v2", texts["checkout"]), ("board", texts["hi"])):
            answer = engine.recall(word, project="")
            assert answer.hits[0].memory.content == text and answer.confidence >= confidence.SEARCHED
        engine.remember("Say hi to the new cook", project="")
        assert engine.recall("hi", project="").confidence >= confidence.SEARCHED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deploy", True),
        ("deploy friday", True),
        ("why deploy", False),
        ("deploy?", False),
        ("harbour master phone number", False),
    ],
)
def test_a_question_is_no_search(text: str, expected: bool) -> None:
    assert form_of(text).is_search is expected


def test_a_memory_without_vectors_has_the_cosine_that_its_words_let_expect() -> None:
    best = Candidate(1, 0.4, {"lexical": Contribution(1, 0.5, 0.5, 0.4)})
    weights = np.full(2, 0.5, dtype=np.float32)
    encoded, by_words = Candidates([best], token_weights=weights), Candidates([best])
    assert confidence.has_signals(encoded, best) and not confidence.has_signals(by_words, best)
    assert confidence.signals(encoded, query("harbour", "quay"))["cosine"] == pytest.approx(0.4)
