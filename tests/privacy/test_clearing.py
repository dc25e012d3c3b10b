"""Which questions may leave follows every change of the store, and reads only what is new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triskele.engine.local import LocalEngine
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.store.vault import StoreVault
from triskele.types import Sensitivity

QUESTION = "does the ferryman own a parrot?"
TEXT = "the ferryman secretly owns a parrot; ferryman, own parrot"


def test_private_and_erased_texts_count_at_once(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    clearing = EgressPolicy(engine.store, engine.vault)
    id = engine.remember(TEXT).id
    assert clearing.question(QUESTION)[0] is not None
    engine.edit(id, sensitivity=Sensitivity.PRIVATE)
    assert clearing.question(QUESTION)[0] is None
    engine.remember("the parrot sings", sensitivity=Sensitivity.PRIVATE)
    assert clearing.question(QUESTION)[0] is None
    engine.erase(id)
    assert clearing.question(QUESTION)[0] is not None and clearing.question("parrot sings")[0] is None


def test_a_sealed_text_is_opened_once(open_engine: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine()
    clearing = EgressPolicy(engine.store, engine.vault)
    opened: list[str] = []
    whole = StoreVault.open
    monkeypatch.setattr(StoreVault, "open", lambda vault, row: opened.append(row.id) or whole(vault, row))
    first = engine.remember(TEXT, sensitivity=Sensitivity.SECRET).id
    assert clearing.question(QUESTION)[0] is None and opened == [first]
    second = engine.remember("the gate opens with Rhabarberkuchen", sensitivity=Sensitivity.SECRET).id
    assert clearing.question("Rhabarberkuchen")[0] is None and clearing.question(QUESTION)[0] is None
    assert opened == [first, second]


PRIVATE = "Ingrid Vik earns 84,500 euros a year and wants to leave Meridian in spring"


@pytest.mark.parametrize(
    "text",
    [
        PRIVATE.upper(),
        "Ingrid Vik earned 84.500 euros per year, wanted to leave Meridian in the spring!",
        "In spring Ingrid Vik wants to leave Meridian; she earns 84,500 euros a year.",
        "Ingrid Vik earns 84,500 euros a year",
        "Ingrid Vik earns 84,500 euros a year and wants to leave Meridain in sprnig",
        f"Minutes of Monday: the heating is repaired. {PRIVATE}. Lunch is at noon, the lift is out of order.",
    ],
)
def test_open_memory_close_to_a_private_one_stays(open_engine: Callable[..., LocalEngine], text: str) -> None:
    engine = open_engine()
    engine.remember(PRIVATE, sensitivity=Sensitivity.PRIVATE)
    near = engine.store.history(engine.remember(text).id)[-1]
    assert engine.models.egress_policy.memory(near) is None
    for other in ("The heating of the office is repaired every spring", "Customers may cancel within thirty days"):
        assert engine.models.egress_policy.memory(engine.store.history(engine.remember(other).id)[-1]) is not None


def test_a_name_that_only_private_memories_know_is_a_quotation(open_engine: Callable[..., LocalEngine]) -> None:
    engine = open_engine()
    engine.remember("The surgery of Torvald is on Tuesday, Pixel stays with us", sensitivity=Sensitivity.PRIVATE)
    clearing = engine.models.egress_policy
    assert clearing.question("where does Torvald live?")[0] is None
    assert clearing.question("where does the cat live?")[0] is not None
    stored = engine.remember("Torvald writes the minutes of every meeting")
    assert clearing.question("where does Torvald live?")[0] is not None
    engine.erase(stored.id)
    assert clearing.question("where does Torvald live?")[0] is None
