"""Which questions may leave follows every change of the store, and reads only what is new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triskele.engine import Engine
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.stores.vault import StoreVault
from triskele.types import Sensitivity

QUESTION = "does the ferryman own a parrot?"
TEXT = "the ferryman secretly owns a parrot; ferryman, own parrot"


def test_what_becomes_private_or_is_erased_counts_at_once(open_engine: Callable[..., Engine]) -> None:
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


def test_a_sealed_text_is_opened_once(open_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
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
