"""The second stage: it moves what it has read, within its time, where the answer is neither sure nor hopeless."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triskele.config import RerankSettings, load
from triskele.engine.local import LocalEngine
from triskele.models.cross_encoder import Context
from triskele.recall import rerank
from triskele.recall.plan import CROSS, DEFAULT, GATED, PROMPT_S, Plan
from triskele.recall.question import Question
from triskele.recall.scores import GRAPH, REVIEW, Candidate, Candidates, Contribution
from triskele.types import Answer, Query, Role, Sensitivity

TURNS = ("Did the parcel arrive?", "Yes, the grey one did", "And what was inside the parcel?")
NOTES = tuple(f"the parcel number {number} stands in the hall" for number in range(12))
QUESTION = "where is the parcel?"


class Fake:
    """Likes texts with a word, and keeps what it was given."""

    name = "fake"

    def __init__(self, liked: str, *, is_late: bool = False) -> None:
        self.liked, self.is_late = liked, is_late
        self.texts: list[str] = []
        self.contexts: list[Context] = []

    def score(self, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()) -> Any:
        self.texts, self.contexts = list(texts), list(contexts)
        return np.array([4.0 if self.liked in text else -40.0 for text in texts], dtype=np.float32)

    def score_within(
        self, seconds: float, question: str, texts: Sequence[str], contexts: Sequence[Context] = ()
    ) -> Any:
        if self.is_late:
            raise TimeoutError
        return self.score(question, texts, contexts)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEngine]:
    folder = tmp_path_factory.mktemp("second")
    with LocalEngine(load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "hall"}), folder) as opened:
        for place, text in enumerate(TURNS):
            opened.remember(text, session="talk", speaker="Ann", created_at=f"2025-05-0{place + 1}")
        for text in NOTES:
            opened.remember(text)
        opened.upkeep.embed()
        yield opened


@pytest.fixture
def ask(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> Any:
    def recall(scorer: Fake, *, band: tuple[float, float] = (0.0, 1.1), patience_s: float | None = None) -> Answer:
        monkeypatch.setattr("triskele.engine.models.bundled_cross_encoder", lambda: scorer)
        monkeypatch.setattr(rerank, "HOPELESS", band[0])
        monkeypatch.setattr(rerank, "SURE", band[1])
        return engine.ask(QUESTION, Plan(rerank=GATED, patience_s=patience_s), limit=20)

    return recall


def contents(answer: Answer) -> list[str]:
    return [hit.memory.content for hit in answer.hits]


def test_it_moves_what_it_has_read_with_a_contribution_of_its_own(engine: LocalEngine, ask: Any) -> None:
    before = contents(engine.ask(QUESTION, Plan(), limit=20))
    wanted = before[8]
    after = ask(Fake(wanted))
    assert contents(after)[0] == wanted
    # The first ten stay the first ten, and the others keep their order.
    assert set(contents(after)[:10]) == set(before[:10])
    assert contents(after)[10:] == before[10:]
    best = after.hits[0]
    assert best.legs["review"].contribution > 0
    assert sum(leg.contribution for leg in best.legs.values()) * best.prior == pytest.approx(best.score)


@pytest.mark.parametrize(("share", "is_above"), [(0.25, True), (0.15, False)])
def test_what_connections_raised_keeps_its_lead_over_what_the_model_likes(
    engine: LocalEngine, share: float, is_above: bool
) -> None:
    rows = [row for row, memory in engine.store.versions() if memory.content in NOTES][:3]
    liked = engine.store.rows(rows)[rows[0]].content
    scores = {rows[0]: 0.8, rows[1]: 1.0, rows[2]: 0.5}
    from_graph = {GRAPH: Contribution(1, share, share, share)}
    found = Candidates([Candidate(row, scores[row], from_graph if row == rows[1] else {}) for row in rows])
    corpus = engine.models.indexes(None).open_corpus(engine.scope())
    question = Question(Query(text=QUESTION, scope=engine.scope()), Plan())
    read = rerank.review(question, corpus, found, engine.store, Fake(liked))
    assert [candidate.row for candidate in read.ranked][:2] == (rows[1::-1] if is_above else rows[:2])
    # What it thinks is told as it is.
    parts = {candidate.row: candidate.parts[REVIEW] for candidate in read.ranked}
    assert (parts[rows[1]].rank, parts[rows[1]].raw) == (2, -40.0)
    assert (parts[rows[1]].contribution > 0) == is_above


def test_it_is_not_asked_outside_the_band(engine: LocalEngine, ask: Any) -> None:
    fake = Fake("hall")
    ask(fake, band=(1.0, 1.1))
    assert not fake.texts


def test_out_of_time_the_ranking_stays_and_says_so(engine: LocalEngine, ask: Any) -> None:
    answer = ask(Fake(NOTES[8], is_late=True), patience_s=0.15)
    assert contents(answer) == contents(engine.ask(QUESTION, Plan(), limit=20))
    assert answer.missing == ("fake took longer than 0.15 s",)


def test_a_short_turn_is_read_with_its_date_and_the_turns_before_it(ask: Any) -> None:
    fake = Fake("hall")
    ask(fake)
    place = fake.texts.index(f"Ann: {TURNS[2]}")
    assert fake.contexts[place] == Context("2025-05-03", (f"Ann: {TURNS[1]}", f"Ann: {TURNS[0]}"))
    note = next(number for number, text in enumerate(fake.texts) if text in NOTES)
    assert fake.contexts[note] == Context()


def turns_before(folder: Path, monkeypatch: pytest.MonkeyPatch, talk: Sequence[tuple[str, dict[str, Any]]]) -> Any:
    """What each of some turns is read behind."""
    fake = Fake("hall")
    monkeypatch.setattr("triskele.engine.models.bundled_cross_encoder", lambda: fake)
    monkeypatch.setattr(rerank, "HOPELESS", 0.0)
    monkeypatch.setattr(rerank, "SURE", 1.1)
    with LocalEngine(load({"TRISKELE_HOME": str(folder), "TRISKELE_PROJECT": "hall"}), folder) as opened:
        for content, details in talk:
            opened.remember(content, created_at="2025-05-01", **({"session": "talk"} | details))
        opened.upkeep.embed()
        opened.ask(QUESTION, Plan(rerank=GATED), limit=20, all_projects=True)
    return {text: context.before for text, context in zip(fake.texts, fake.contexts, strict=True)}


def test_no_turn_is_read_behind_a_more_sensitive_one_or_one_of_another_project_or_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = (
        ("the parcel costs nine crowns", {}),
        ("the parcel holds a ring for Ann", {"sensitivity": Sensitivity.PRIVATE}),
        ("the parcel is in the hall", {}),
        ("the parcel is a surprise", {"sensitivity": Sensitivity.PRIVATE}),
        ("the parcel of the cellar is wet", {"project": "cellar"}),
        ("the parcel of Monday is lost", {"session": "monday"}),
    )
    costs, ring, hall, surprise, cellar, monday = (content for content, _ in talk)
    assert turns_before(tmp_path, monkeypatch, talk) == {
        costs: (), ring: (costs,), hall: (costs,), surprise: (hall, ring), cellar: (), monday: ()
    }  # fmt: skip


def test_long_turns_and_those_of_a_conversation_with_an_assistant_are_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = (
        ("where is the parcel of Ann", {"role": Role.USER}),
        ("the parcel is in the hall", {"role": Role.ASSISTANT}),
        ("the parcel is mine", {"role": Role.OTHER}),
        (f"the parcel {'is heavy and ' * 40}wet", {}),
    )
    before = turns_before(tmp_path, monkeypatch, talk)
    asked, told, other, long = (before[next(text for text in before if content in text)] for content, _ in talk)
    assert (asked, told, long) == ((), (), ())
    assert [turn.removeprefix("assistant: ").removeprefix("user: ") for turn in other] == [talk[1][0], talk[0][0]]


def test_a_prompt_that_waits_gives_it_little_time_and_asks_no_other() -> None:
    assert Plan(rerank=CROSS).for_prompt().rerank == DEFAULT
    hurried = Plan(rerank=GATED).for_prompt()
    assert (hurried.rerank, hurried.patience_s) == (GATED, PROMPT_S)


def test_always_with_the_bundled_model_is_gated(tmp_path: Path) -> None:
    settings = load({"TRISKELE_HOME": str(tmp_path)})
    with LocalEngine(replace(settings, rerank=RerankSettings(model="bundled", always=True)), tmp_path) as engine:
        assert engine.plan_in_force().rerank == GATED
    with LocalEngine(settings, tmp_path) as engine:
        assert engine.plan_in_force().rerank == DEFAULT
