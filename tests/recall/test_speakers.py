"""Whose words a query asks for: the user's, the assistant's, or those of the one speaker that it names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from triskele.index.corpus import Facts
from triskele.recall import evidence
from triskele.types import Role

ANN, BOB, NOBODY = 4, 9, -1
USER, ASSISTANT = (list(Role).index(role) for role in (Role.USER, Role.ASSISTANT))


class Names:
    def speakers(self, codes: list[int]) -> dict[int, str]:
        return {code: name for code, name in {ANN: "Ann Miller", BOB: "bob"}.items() if code in codes}


def shares(text: str, said_by: list[int], roles: list[int] | None = None) -> list[float] | None:
    count = len(said_by)
    facts = Facts(
        is_visible=np.ones(count, dtype=np.bool_),
        importance=np.zeros(count, dtype=np.float32),
        sessions=np.zeros(count, dtype=np.int64),
        neighbours=np.zeros((count, 0), dtype=np.int64),
        speakers=np.array(said_by, dtype=np.int64),
        roles=np.array(roles or [-1] * count, dtype=np.int64),
        times=np.zeros(count, dtype=np.int64),
    )
    corpus: Any = Names()
    found = evidence.by_speaker(text, facts, corpus)
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("How many sprints did I plan?", Role.USER),
        ("what is my sister's name", Role.USER),
        ("When do we deploy?", Role.USER),
        ("What did you suggest for my garden?", Role.ASSISTANT),
        ("which books had you recommended", Role.ASSISTANT),
        ("your advice about the visa", Role.ASSISTANT),
        ("Can you tell me when I moved?", Role.USER),
        ("Could you list the steps again?", None),
        ("Who wrote Emma?", None),
        ("Henry VIII and the mimeograph", None),
    ],
)
def test_role_asked(text: str, role: Role | None) -> None:
    assert evidence.role_asked(text) is role


def test_a_named_speaker_is_preferred_and_an_unknown_one_counts_half() -> None:
    assert shares("What does Ann drink?", [ANN, BOB, NOBODY]) == [1.0, 0.0, evidence.UNKNOWN_SHARE]
    assert shares("Is BOB's car red?", [ANN, BOB]) == [0.0, 1.0]


def test_two_named_speakers_or_none_prefer_nobody() -> None:
    assert shares("What do Ann and Bob share?", [ANN, BOB]) is None
    assert shares("Who owns the annual report?", [ANN, BOB]) is None


def test_first_person_prefers_the_user() -> None:
    assert shares("Where did I park?", [NOBODY] * 3, [USER, ASSISTANT, -1]) == [1.0, 0.0, evidence.UNKNOWN_SHARE]


def test_memories_without_roles_are_all_alike() -> None:
    assert shares("Where did I park?", [NOBODY, NOBODY]) is None
