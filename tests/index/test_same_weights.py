"""A graph that computes the same weights in another form goes on with the vectors that a store has."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from triskele import config
from triskele.engine import Engine
from triskele.index import local
from triskele.models.bundled import MODEL_FOLDER, BundledEmbedder
from triskele.models.manifest import GRAPH_FILE, MANIFEST_FILE
from triskele.stores.derived import EMBED

# The last field of the file, a remark on the model: it changes the checksum and nothing else.
REMARK = b"\x32\x01x"
TEXTS = ("The kettle is red.", "The weir opens at dawn.", "Nora keeps the keys of the mill.")


@pytest.fixture
def earlier(tmp_path: Path) -> BundledEmbedder:
    """The model in a file of its own, from before its manifest named the weights."""
    folder = Path(shutil.copytree(MODEL_FOLDER, tmp_path / "earlier"))
    graph = (folder / GRAPH_FILE).read_bytes() + REMARK
    (folder / GRAPH_FILE).write_bytes(graph)
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    del manifest["weights"]
    manifest["sha256"][GRAPH_FILE] = hashlib.sha256(graph).hexdigest()
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    return BundledEmbedder(folder)


def _later(earlier: BundledEmbedder, tmp_path: Path, states_weights: bool) -> BundledEmbedder:
    """What ships after it: another file, with the identity of the earlier one or without."""
    folder = Path(shutil.copytree(MODEL_FOLDER, tmp_path / "later"))
    manifest = json.loads((folder / MANIFEST_FILE).read_text())
    del manifest["weights"]
    if states_weights:
        manifest["weights"] = hashlib.sha256((tmp_path / "earlier" / GRAPH_FILE).read_bytes()).hexdigest()
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    return BundledEmbedder(folder)


@pytest.fixture
def open_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BundledEmbedder], Engine]:
    def opened(model: BundledEmbedder) -> Engine:
        monkeypatch.setattr(local, "bundled", lambda: model)
        settings = config.load({"TRISKELE_HOME": str(tmp_path / "home"), "TRISKELE_RECALL_EMBED_FIRST": "0"})
        return Engine(settings, tmp_path / "home")

    return opened


@pytest.mark.parametrize(("states_weights", "waiting"), [(True, 0), (False, len(TEXTS))])
def test_only_other_weights_are_embedded_again(
    tmp_path: Path,
    earlier: BundledEmbedder,
    open_with: Callable[[BundledEmbedder], Engine],
    states_weights: bool,
    waiting: int,
) -> None:
    with open_with(earlier) as engine:
        for text in TEXTS:
            engine.remember(text)
        assert engine.embed() == len(TEXTS)
    with open_with(_later(earlier, tmp_path, states_weights)) as engine:
        answer = engine.recall("what colour has the pot for tea?", logged=False)
        assert answer.waiting == waiting == engine.store.jobs.count(EMBED)
        legs = {leg for hit in answer.hits for leg in hit.legs}
        assert ("dense" in legs) == states_weights
