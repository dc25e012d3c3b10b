from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triskele.text.spellings import MAX_PARTS, Gazetteer, key


def found(names: list[str], text: str) -> list[str]:
    return [match.key for match in Gazetteer(names).find(text)]


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (["Argo CD", "Argo"], "since Argo CD came, Argo is used", ["argo cd", "argo"]),
        (["Argo"], "the cargo ship and Argos", []),
        (["berthd"], "Berthd's port is BERTHD", ["berthd", "berthd"]),
        (["Adams"], "he adams", []),
        (["IT", "WHO"], "It is what who knows: IT and WHO", ["IT", "WHO"]),
        (["SLA"], "the Sla river, an SLA", ["sla"]),
        (["北京"], "我在北京市工作", ["北 京"]),
        (["Bank of England", "England"], "the Bank of England, England", ["bank of england", "england"]),
        (["get_user_by_id"], "call get_user_by_id()", ["get user by id"]),
        (["New York", "York Minster"], "New York Minster", ["new york"]),
        (["São Paulo"], "in Sao Paulo", ["sao paulo"]),
        (["the Beatles"], "a Beatles song", ["beatles"]),
    ],
)
def test_gazetteer_matches_the_longest_name_at_word_borders(names: list[str], text: str, expected: list[str]) -> None:
    assert found(names, text) == expected


def test_a_match_says_where_it_stands() -> None:
    text = "ask Priya Raman's team"
    (match,) = Gazetteer(["Priya Raman"]).find(text)
    assert text[match.start : match.end] == "Priya Raman"


def test_a_name_that_is_met_in_small_letters_matches_any() -> None:
    names = Gazetteer(["Sounding"])
    assert names.find("the sounding lags") == []
    assert names.add("sounding")
    assert [match.key for match in names.find("the sounding lags")] == ["sounding"]


def test_adding_says_whether_older_texts_may_hold_more() -> None:
    names = Gazetteer()
    assert [names.add(name) for name in ("Argo CD", "ARGO CD", "argo cd", "Argo CD", "", "w " * (MAX_PARTS + 1))] == [
        True,
        False,
        True,
        False,
        False,
        False,
    ]


def test_a_name_covered_by_a_longer_one_is_not_held() -> None:
    names = Gazetteer(["Argo", "Argo CD"])
    assert names.keys("we use Argo CD") == {"argo cd"}


words = st.text(alphabet="abcXYZ", min_size=1, max_size=3)


@given(st.lists(st.lists(words, min_size=1, max_size=3).map(" ".join), max_size=8), st.lists(words, max_size=20))
def test_one_pass_agrees_with_trying_every_name_at_every_place(names: list[str], text: list[str]) -> None:
    keys = {key(name.lower()) for name in names}
    expected, start = [], 0
    texts = [word.lower() for word in text]
    while start < len(texts):
        runs = [" ".join(texts[start : start + size]) for size in (3, 2, 1) if start + size <= len(texts)]
        match = next((run for run in runs if run in keys), None)
        expected += [match] if match else []
        start += match.count(" ") + 1 if match else 1
    assert found([name.lower() for name in names], " ".join(texts)) == expected
