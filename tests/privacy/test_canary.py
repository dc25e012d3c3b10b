"""The proof: a thousand secrets through every path leave no trace, and every guard is needed for that."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from canaries import Canaries, make
from paths import WRITERS, Walk, is_found

from triskele import config, ingest
from triskele.engine.local import LocalEngine
from triskele.exchange import export, transfer
from triskele.privacy import detect
from triskele.privacy.envelope import Vault
from triskele.recall.hosted.egress_policy import EgressPolicy
from triskele.store.sqlite import maintenance, truth_rows
from triskele.types import Sensitivity

SOURCE = Path(__file__).parents[2] / "src" / "triskele"
FEW = 60

pytestmark = pytest.mark.slow


def test_a_thousand_secrets_leave_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = Walk(tmp_path, Canaries(make(1000)), monkeypatch)
    assert sum(map(is_found, walk.kit.canaries)) >= 795
    assert walk.sightings() == []
    # Nothing was lost on the way: every text is in the vault.
    with LocalEngine(config.load(), tmp_path) as engine:
        texts = "\n".join(engine.vault.open(row) for row in engine.store.sealed())
    assert [canary.number for canary in walk.kit.canaries if canary.secret not in texts] == []


def test_a_crash_with_a_secret_in_hand_says_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Canaries(make(2))
    walk = Walk(tmp_path, kit, monkeypatch)
    walk.crash(kit.canaries[0])
    assert any("on fire" in said for said in walk.said)
    assert walk._look() == []


def _nothing(*_: object, **__: object) -> None:
    return None


GUARDS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "detection": lambda patch: patch.setattr(detect, "find", lambda text: []),
    "sealing": lambda patch: patch.setattr(Vault, "seal", lambda vault, id, version, text: text.encode()),
    "titles": lambda patch: patch.setattr(detect, "title_for", lambda text, findings: text),
    "the filter of exports": lambda patch: patch.setattr(export, "_withheld", lambda **_: frozenset()),
    "the check of labels": lambda patch: patch.setattr(ingest, "refuse_secret_labels", _nothing),
    "the purge of documents": lambda patch: patch.setattr(truth_rows.SqliteRows, "delete_about", _nothing),
    "the purge of names": lambda patch: patch.setattr(truth_rows.SqliteRows, "drop_mentions", lambda _: []),
    "the check of questions": lambda patch: patch.setattr(EgressPolicy, "quotes_secret", lambda *_: False),
    "scrubbing": lambda patch: patch.setattr(maintenance, "scrub", _nothing),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_without_one_guard_the_proof_fails(guard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[guard](monkeypatch)
    assert Walk(tmp_path, Canaries(make(FEW)), monkeypatch).sightings() != []


def test_few_canaries_show_nothing_with_all_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Walk(tmp_path, Canaries(make(FEW)), monkeypatch).sightings() == []


def test_every_format_is_walked() -> None:
    assert set(transfer.IMPORTS) <= set(WRITERS)


def test_every_writer_of_memories_is_listed() -> None:
    # A new one must pass `drafting` and be walked by the proof.
    writers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Add", "Revise"}
    }
    sample = {"edge/cli/showcase.py", "bench/harness.py"}
    assert writers - sample == {
        "engine/local.py",
        "curation/decide.py",
        "engine/workplace.py",
        "curation/proposals.py",
        "engine/undo.py",
        "exchange/import_plan.py",
        # A text that looks like a secret neither leaves a machine nor enters one (test_sync).
        "sync/loop.py",
        "sync/states.py",
        "agents/file_memory.py",
        "server/sync_receiver.py",
        "agents/learning.py",
        "store/vault.py",
        "store/writer.py",
    }


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """A store in which an open memory tells a canary, embedded and read for names."""
    walk = Walk(tmp_path, Canaries(make(1)), monkeypatch)
    walk.engine.close()
    monkeypatch.setenv("TRISKELE_RECALL_MODEL", "bundled")
    walk.engine = LocalEngine(config.load(), tmp_path)
    walk.engine.remember(walk.kit.canaries[0].memory, sensitivity=Sensitivity.OPEN)
    walk.engine.upkeep.embed()
    walk.engine.lexical.catch_up()
    return walk


def test_sealing_later_takes_the_vectors_too(told: Walk) -> None:
    engine, semantic = told.engine, told.engine.semantic()
    assert semantic is not None
    [memory] = engine.browse().memories
    fingerprint = semantic.embedder.fingerprint
    [(slot, _, vector)] = engine.store.vectors.page(fingerprint)
    pieces = [vector[:64], *(path.read_bytes()[:64] for path in told.home.rglob("values"))]
    assert len(pieces) > 1 and all(piece in _bytes(told.home) for piece in pieces)
    engine.seal(memory.id)
    assert engine.store.vectors.page(fingerprint) == [] and engine.store.vectors.contents([slot]) == {}
    assert not any(piece in _bytes(told.home) for piece in pieces)
    engine.upkeep.embed()
    assert semantic.orphans() == 0
    assert [hit.memory.id for hit in engine.recall("deploy token").hits] == [memory.id]
    assert told._look() == []
    engine.close()


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_sealing_cut_short_is_finished_by_the_doctor(told: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(maintenance, "scrub", die)
        with pytest.raises(KeyboardInterrupt):
            told.engine.seal(told.engine.browse().memories[0].id)
    told.engine.close()
    told.engine = LocalEngine(config.load(), told.home)
    assert not told.engine.maintenance.is_scrubbed() and told._look() != []
    assert told.engine.upkeep.inspect(deep=True).findings == ()
    assert told.engine.maintenance.is_scrubbed() and told._look() == []
    told.engine.close()
