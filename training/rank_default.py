"""Write the default's best documents for every question, to be scored again by a cross-encoder.

    python -m training.rank_default DATA_FOLDER STORES OUT_FOLDER SET...

STORES holds one embedded benchmark store per set, as for benchmarks/postgres.py; a copy is opened.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from triskele import config, engine
from triskele.bench.datasets import windows
from triskele.bench.loaders import load_dataset

DEPTH, ASKED = 10, 50


def rank(folder: Path, home: Path) -> dict[str, Any]:
    """The best documents of each judged question: id, score, the window that matched."""
    dataset = load_dataset(folder)
    documents = {(w.scope or "", w.session, w.position, w.text): w.document for w in windows(dataset.documents)}
    ranked: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(home, Path(scratch) / "home"))
        settings = config.load({"TRISKELE_HOME": str(copy)})
        with engine.open_memory(settings=settings, folder=copy) as memory:
            for query in dataset.ranked():
                where: dict[str, Any] = {"all_projects": True} if query.scope is None else {"project": query.scope}
                answer = memory.recall(query.text, limit=ASKED, logged=False, **where)
                best: dict[str, tuple[float, str]] = {}
                for hit in answer.hits:
                    found = hit.memory
                    key = (found.project, found.session, found.position, found.content)
                    best.setdefault(documents[key], (hit.score, found.content))
                rows = [(id, *values) for id, values in best.items()][:DEPTH]
                ranked[query.id] = {"confidence": answer.confidence, "hits": rows}
    return ranked


def main() -> None:
    """Parse the command line and rank."""
    data, stores, out, *names = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    for name in names:
        (home,) = (Path(stores) / name).glob("harness-*")
        ranked = rank(Path(data) / name, home)
        (Path(out) / f"{name}.json").write_text(json.dumps(ranked))
        print(f"{name}: {len(ranked)} questions", flush=True)


if __name__ == "__main__":
    main()
