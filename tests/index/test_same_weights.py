"""A graph that computes the same weights in another form goes on with the vectors that a store has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from other_weights import other_weights

from triskele import config
from triskele.engine import Engine
from triskele.index import local
from triskele.models import manifest as manifests
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.models.manifest import read_manifest
from triskele.stores.derived import EMBED

TEXTS = ("The kettle is red.", "The weir opens at dawn.", "Nora keeps the keys of the mill.")


@pytest.fixture
def earlier(tmp_path: Path) -> BundledEmbedder:
    """The model in a file of its own, which shipped first."""
    return other_weights(tmp_path / "earlier")


def _later(earlier: BundledEmbedder, known: bool, monkeypatch: pytest.MonkeyPatch) -> BundledEmbedder:
    """What ships after it: another file, known to hold the same weights or not."""
    first, later = (read_manifest(folder).graph_sha256 for folder in (earlier._folder, MODEL_FOLDER))
    monkeypatch.setattr(manifests, "SAME_WEIGHTS", {later: first[:16]} if known else {})
    return BundledEmbedder()


@pytest.fixture
def open_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BundledEmbedder], Engine]:
    def opened(model: BundledEmbedder) -> Engine:
        monkeypatch.setattr(local, "bundled", lambda: model)
        settings = config.load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_EMBED_FIRST": "0"})
        return Engine(settings, tmp_path / "home")

    return opened


@pytest.mark.parametrize(("known", "waiting"), [(True, 0), (False, len(TEXTS))])
def test_only_other_weights_are_embedded_again(
    monkeypatch: pytest.MonkeyPatch,
    earlier: BundledEmbedder,
    open_with: Callable[[BundledEmbedder], Engine],
    known: bool,
    waiting: int,
) -> None:
    with open_with(earlier) as engine:
        for text in TEXTS:
            engine.remember(text)
        assert engine.embed() == len(TEXTS)
    with open_with(_later(earlier, known, monkeypatch)) as engine:
        answer = engine.recall("what colour has the pot for tea?", logged=False)
        assert answer.waiting == waiting == engine.store.jobs.count(EMBED)
        legs = {leg for hit in answer.hits for leg in hit.legs}
        assert ("dense" in legs) == known
