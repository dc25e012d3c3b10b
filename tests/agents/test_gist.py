"""A long prompt is reduced to what it is about: the last request, the first sentence, and the names in the rest."""

from __future__ import annotations

import pytest

from triskele.agents import injection

LOG = "\n".join(f"12:00:{second:02} worker {second} finished without anything to report" for second in range(40))
CODE = "```\n" + "value = compute(value)\n" * 40 + "```"
FILLER = "It went on like this for quite a while and nobody knew what to make of it. " * 12


def test_short_prompt_is_the_whole_question() -> None:
    assert injection.query_of("  let's deploy ledgerline today ") == "let's deploy ledgerline today"
    assert injection.query_of("/compact") == ""


@pytest.mark.parametrize("pasted", [LOG, CODE])
def test_pasted_text_does_not_hide_the_request(pasted: str) -> None:
    query = injection.query_of(f"The billing run failed.\n{pasted}\nRoll it back, please.")
    assert "Roll it back, please." in query
    assert "The billing run failed." in query
    assert len(query) <= injection.WHOLE_CHARACTERS
    assert "compute" not in query.split("please.")[0] and "finished" not in query


def test_gist_contains_names_from_the_middle() -> None:
    query = injection.query_of(f"I had a long day. {FILLER} Then Marta changed berthd_lock on heron-01. {FILLER} Why?")
    assert {"Marta", "berthd_lock", "heron-01"} <= set(query.split())


def test_a_prompt_of_code_alone_is_still_a_query() -> None:
    assert injection.query_of(CODE)
