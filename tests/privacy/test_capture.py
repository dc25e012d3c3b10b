"""The proof for hosted models: of a thousand secrets nothing arrives elsewhere, and every guard is needed for that."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopback
import pytest
from canaries import Canaries
from capture import Capture, answer

from triskele.engine.local import LocalEngine
from triskele.errors import Unavailable
from triskele.models.egress import _Writer
from triskele.models.llm import CommandLlm
from triskele.privacy import clearance
from triskele.privacy.clearance import ClearedText, Quotes
from triskele.recall import rewording
from triskele.recall.hosted import egress_log, egress_policy, services
from triskele.store import truth_rows, writer
from triskele.store.vault import StoreVault
from triskele.types import Memory

# Enough to meet every kind of canary in every writing, and enough to see that a guard is gone.
FEW, FEWER = 50, 30

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[loopback.Loopback]:
    with loopback.serving(answer) as state:
        yield state


@pytest.mark.parametrize(("llm", "count"), [("compatible", 1000), ("command", FEW)])
def test_of_a_thousand_secrets_nothing_leaves(
    llm: str,
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: loopback.Loopback,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    walk = Capture(tmp_path, count, monkeypatch, server, llm)
    assert walk.sightings() == []
    assert walk.failures == []
    assert [name for name, came in walk.arrivals().items() if not came] == []
    logged = "\n".join([caplog.text, *capfd.readouterr()])
    assert "HTTP Request" in logged, "the log of the client was looked at"
    for kit in (walk.secrets, walk.privates, Canaries(walk.later.canaries)):
        assert kit.in_text(logged, "log") == []
    # Nothing was lost on the way: every secret is in the vault.
    with walk.reopened() as engine:
        assert len({row.id for row in engine.store.sealed()}) >= count


def _unchecked(text: str, source: str = "") -> ClearedText:
    return ClearedText(text, clearance._MADE_HERE, source)


def _any_memory(memory: Memory) -> ClearedText:
    return _unchecked(memory.content, memory.id)


def _any_question(_: egress_policy.EgressPolicy, text: str) -> tuple[ClearedText, str]:
    return _unchecked(text), ""


def _nothing(*_: object, **__: object) -> None:
    return None


def _locked_as_if_empty(patch: pytest.MonkeyPatch) -> None:
    opened = StoreVault.open

    def open_or_nothing(vault: StoreVault, row: Any) -> str:
        try:
            return opened(vault, row)
        except Unavailable:
            return ""

    patch.setattr(StoreVault, "open", open_or_nothing)


def _unwatched(room: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """One of the askers takes a question as it is."""

    def remove(patch: pytest.MonkeyPatch) -> None:
        asker, whole = getattr(room, name), egress_policy.EgressPolicy.question
        inner = next(each for each in ("nearness", "review", "wordings") if each in vars(asker))
        method = getattr(asker, inner)

        def without(self: Any, *given: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(egress_policy.EgressPolicy, "question", _any_question)
                return method(self, *given)

        assert egress_policy.EgressPolicy.question is whole
        patch.setattr(asker, inner, without)

    return remove


GUARDS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the clearing of memories": lambda patch: patch.setattr(
        egress_policy.EgressPolicy, "memory", lambda _, memory: _any_memory(memory)
    ),
    "quotes": lambda patch: patch.setattr(Quotes, "shares", lambda quotes, text: False),
    "detection in questions": lambda patch: patch.setattr(clearance, "find", lambda text: []),
    "other writings": lambda patch: patch.setattr("triskele.privacy.clearance.readings", lambda text: [text]),
    "what makes a secret one": lambda patch: patch.setattr(Quotes, "add_secrets", Quotes.add),
    "taking vectors back": lambda patch: patch.setattr(truth_rows, "drop_hosted_vectors", _nothing),
    "dropping vectors of sealed texts": lambda patch: patch.setattr(writer, "drop_unused", _nothing),
    "taking files back": lambda patch: patch.setattr(LocalEngine, "_take_back", _nothing),
    "the account of what was sent": lambda patch: patch.setattr(egress_log.StoreLedger, "_note", _nothing),
    "the words of a request": lambda patch: patch.setattr(_Writer, "word", lambda writer, text: text),
    "the hosted model's question": _unwatched(services, "Hosted"),
    "the reviewer's question": _unwatched(services, "HostedReviewer"),
    "the rewording's question": _unwatched(rewording, "QueryRewriter"),
    "no question while the vault is locked": _locked_as_if_empty,
}


@pytest.mark.parametrize("guard", GUARDS)
def test_without_one_guard_the_proof_fails(
    guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: loopback.Loopback
) -> None:
    GUARDS[guard](monkeypatch)
    assert Capture(tmp_path, FEWER, monkeypatch, server).sightings(is_hasty=True) != []


def test_without_the_words_of_a_command_the_proof_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: loopback.Loopback
) -> None:
    monkeypatch.setattr(CommandLlm, "_allowed", lambda llm, part: getattr(part, "text", part))
    assert Capture(tmp_path, FEWER, monkeypatch, server, "command").sightings(is_hasty=True) != []
