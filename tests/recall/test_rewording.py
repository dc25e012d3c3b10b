"""Other wordings: read carefully from a model's answer, and fused so that the original is first among equals."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import loopback
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Book

from triskele.errors import ModelUnavailable, Unavailable
from triskele.models.egress import EgressClient, NotCleared
from triskele.models.llm import EndpointLlm, HostedLlm
from triskele.privacy.clearance import ClearedText, Quotes, clear_question
from triskele.recall.rewording import LOW_CONFIDENCE, MOST_REWRITES, ORIGINAL, WORDS, fused, rewrites
from triskele.recall.scores import Ranking

QUESTION = "Where does the heron nest?"


def cleared(text: str) -> ClearedText:
    found = clear_question(text, Quotes.of(()))
    assert found is not None
    return found


class Told:
    """A model that answers what it was told to."""

    name = "told"

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[tuple[str | ClearedText, ...]] = []

    def complete(self, parts: Sequence[str | ClearedText], *, most_tokens: int) -> str:
        self.asked.append(tuple(parts))
        return self.answer


def parsed(answer: str, question: str = QUESTION) -> list[str]:
    return rewrites(Told(answer), cleared(question))


A, B, C = "heron nesting place", "Which tree holds the nest of the heron?", "home of the grey bird"


@pytest.mark.parametrize(
    "answer",
    [
        f"{A}\n{B}\n{C}",
        f"1. {A}\n2. {B}\n3. {C}",
        f"1) {A}\n(2) {B}\n3)\t{C}",
        f"- {A}\n* {B}\n• {C}",
        f"- 1. {A}\n- 2. {B}\n- 3. {C}",
        f'"{A}"\n“{B}”\n\'{C}\'',
        f'1. "{A}"\n2. **{B}**\n3. **"{C}"**',
        f"«{A}»\n„{B}“\n`{C}`",
        f"\n\n  {A}  \r\n\r\n\t{B}\n \n{C}\n\n",
        f"Here are three wordings:\n\n{A}\n{B}\n{C}",
        f"Voilà：\n```\n{A}\n{B}\n{C}\n```\n---",
        f"{A}\n{A}\n{B}\n{A.upper()}.\n{B}\n{C}",
        f"{QUESTION}\n{A}\n{B}\n{C}",
        f"{A}\n where does  the HERON nest \n{B}\n“{QUESTION}”\n{C}",
        f"{A}\n{B}\n{C}\nanother\nand one more",
        f"{A}\n{'x' * 301}\n{B}\n{C}",
        f"{A}\n\x1b[31mred\x1b[0m\nnul\x00byte\n{B}\nzero\u200bwidth\nover\u202eride\nlone\ud800half\nbell\x07\n{C}",
    ],
)  # fmt: skip
def test_lines_are_read_carefully(answer: str) -> None:
    assert parsed(answer) == [A, B, C]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("3.5 release date", ["3.5 release date"]),
        ("12. Mai Sitzung", ["12. Mai Sitzung"]),
        ("-v flag of berthd", ["-v flag of berthd"]),
        ("'heron' and 'nest'", ["'heron' and 'nest'"]),
        ("x" * 300, ["x" * 300]),
        ("苍鹭在哪里筑巢？", ["苍鹭在哪里筑巢？"]),
        ("बगुला का घोंसला\nबगुला की घोंसला", ["बगुला का घोंसला", "बगुला की घोंसला"]),
        ("nest in C\nnest in C++\nnest in C#", ["nest in C", "nest in C++", "nest in C#"]),
        ("où niche le héron\u00a0?", ["où niche le héron\u00a0?"]),
    ],
)
def test_what_belongs_to_a_wording_stays(answer: str, found: list[str]) -> None:
    assert parsed(answer) == found


@pytest.mark.parametrize(
    "answer", ["", "\n", "...", "```\n```", "Sure:", "1.\n2.\n3.", "x" * 5000, "\x1b[0m", QUESTION]
)
def test_nothing_usable_is_no_rewrite(answer: str) -> None:
    assert parsed(answer) == []


lines = st.lists(
    st.sampled_from([A, B, C, QUESTION, "1. ", "- ", '"', "**", "\n", "\r\n", "\x00", "\u2028"]) | st.text()
)


@given(answer=lines.map("".join) | st.text())
def test_every_rewrite_stands_in_the_answer(answer: str) -> None:
    found = parsed(answer)
    assert len(found) <= MOST_REWRITES and len(set(found)) == len(found)
    for line in found:
        assert line in answer and line == line.strip() and 0 < len(line) <= 300
        assert not any(unicodedata.category(character) in ("Cc", "Cs") and character != "\t" for character in line)
        assert line.casefold() != QUESTION.casefold()


def test_a_question_is_asked_between_fixed_words_and_only_its_beginning() -> None:
    llm = Told("no")
    rewrites(llm, cleared("x" * 9000))
    ((before, question, after),) = llm.asked
    assert {before, after} == WORDS
    assert isinstance(question, ClearedText) and question.text == "x" * 2000


def _chat(answer: str, ended: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": ended}
    return {"object": "chat.completion", "choices": [choice], "usage": {"total_tokens": 5}}


def test_rewrites_come_from_a_service_and_its_failures_are_passed_on() -> None:
    with loopback.serving(lambda path, body: (200, _chat(f"1. {A}\n2. {B}"))) as server:
        settings = {"service": "compatible", "model": "tiny", "url": f"{server.url}/v1", "key": loopback.KEY}
        model = HostedLlm(**settings, words=WORDS)  # type: ignore[arg-type]
        door = EgressClient({"far": model.endpoint, "wordless": HostedLlm(**settings).endpoint}, Book())  # type: ignore[arg-type]
        assert rewrites(EndpointLlm(door, "far", model), cleared(QUESTION)) == [A, B]
        assert QUESTION in server.seen[0].body["messages"][0]["content"]
        server.turns.append(loopback.say(_chat(f"{A}\nWhich tr", "length")))
        with pytest.raises(ModelUnavailable, match="cut off"):
            rewrites(EndpointLlm(door, "far", model), cleared(QUESTION))
        server.turns.append(loopback.refuse(400))
        with pytest.raises(Unavailable, match="status 400"):
            rewrites(EndpointLlm(door, "far", model), cleared(QUESTION))
        with pytest.raises(NotCleared):
            rewrites(EndpointLlm(door, "wordless", model), cleared(QUESTION))
        door.close()


def ranking(scores: dict[int, float], leg: str = "fused") -> Ranking:
    ordered = sorted(scores, key=lambda row: (-scores[row], row))
    values = np.array([scores[row] for row in ordered], dtype=np.float64)
    return Ranking(leg, np.array(ordered, dtype=np.int64), values)


score_maps = st.dictionaries(st.integers(1, 60), st.floats(0.0, 10.0), max_size=60)
others_maps = st.lists(score_maps, max_size=MOST_REWRITES)


def test_wordings_by_hand() -> None:
    found = fused(ranking({1: 3, 2: 1}), [ranking({2: 0.9, 3: 0.7}), ranking({4: 5})])
    # Two scores are one deviation from their mean, (±1 + 3) / 6; a single one counts 0.5.
    assert {each.row: each.score for each in found} == pytest.approx({1: 4 / 6, 2: 2 / 6 + 4 / 6, 3: 2 / 6, 4: 0.5})
    assert [each.row for each in found] == [2, 1, 4, 3]
    assert set(found[0].parts) == {ORIGINAL, "wording 1"} and set(found[2].parts) == {"wording 2"}
    assert found[0].parts["wording 1"].raw == 0.9


def test_the_original_is_first_among_equals() -> None:
    assert [each.row for each in fused(ranking({9: 2, 8: 1}), [ranking({1: 2, 2: 1})])] == [9, 1, 8, 2]
    assert [each.row for each in fused(ranking({9: 2}), [ranking({1: 2}), ranking({2: 2})])] == [9, 1, 2]


def test_what_two_wordings_find_goes_before_what_the_original_alone_finds() -> None:
    assert [each.row for each in fused(ranking({9: 2}), [ranking({1: 2}), ranking({1: 3})])] == [1, 9]


def test_long_rankings_are_fused_whole() -> None:
    original, other = ranking({row: 500 - row for row in range(200)}), ranking({row: row for row in range(200, 500)})
    assert len(fused(original, [other])) == 500


@given(scores=score_maps)
def test_the_original_alone_keeps_its_order(scores: dict[int, float]) -> None:
    original = ranking(scores)
    for others in ([], [Ranking("fused")]):
        assert [each.row for each in fused(original, others)] == original.rows.tolist()


@given(scores=score_maps, others=others_maps, data=st.data())
def test_the_order_of_the_others_does_not_matter(
    scores: dict[int, float], others: list[dict[int, float]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(others))
    before = fused(ranking(scores), [ranking(other) for other in others])
    after = fused(ranking(scores), [ranking(other) for other in shuffled])
    assert [(each.row, each.score) for each in before] == [(each.row, each.score) for each in after]


@given(scores=score_maps, others=others_maps, shared=st.floats(0.0, 10.0), place=st.integers(0, MOST_REWRITES))
def test_what_all_found_is_not_below_what_one_found(
    scores: dict[int, float], others: list[dict[int, float]], shared: float, place: int
) -> None:
    by_all, by_one = 100, 99
    maps = [{**each, by_all: shared} for each in (scores, *others)]
    maps[place % len(maps)][by_one] = shared
    found = {each.row: each.score for each in fused(ranking(maps[0]), [ranking(each) for each in maps[1:]])}
    assert found[by_all] >= found[by_one]


@given(scores=score_maps, others=others_maps)
def test_every_row_is_there_once_with_the_sum_of_its_parts(
    scores: dict[int, float], others: list[dict[int, float]]
) -> None:
    found = fused(ranking(scores), [ranking(other) for other in others])
    rows = [each.row for each in found]
    assert sorted(rows) == sorted({row for each in (scores, *others) for row in each})
    for each in found:
        assert each.score == pytest.approx(sum(part.contribution for part in each.parts.values()))
        assert (ORIGINAL in each.parts) == (each.row in scores)


def test_what_was_given_is_left_as_it_was() -> None:
    original, others = ranking({1: 2, 2: 1}), [ranking({2: 3}), ranking({1: 1})]
    fused(original, others)
    assert [each.rows.tolist() for each in (original, *others)] == [[1, 2], [2], [1]]
    assert [each.scores.tolist() for each in (original, *others)] == [[2, 1], [3], [1]]
    assert original.leg == "fused"
    assert 0 < LOW_CONFIDENCE < 0.5
