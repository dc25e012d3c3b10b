"""Golden rankings: freeze what recall answers before a change, and compare afterwards.

    TRISKELE_BENCH_DATA=folder python benchmarks/golden.py build STORES     one store per data set, embedded
    TRISKELE_BENCH_DATA=folder python benchmarks/golden.py rank STORES FILE the top 50 of every question, as JSON
    python benchmarks/golden.py compare BEFORE AFTER                        exit 1 where ids, order or scores differ

`rank` works on copies of the stores, so that stores built by an older version are migrated first. The files hold ids
and scores only; they stay outside the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any

DEPTH = 50
TOLERANCE = 1e-6
# Every question is asked with the default; the other ways to rank see the first so many of each set.
OTHERS_ASKED = 100
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "rrf": {"fusion": "rrf"},
    "lexical": {"legs": ["lexical"]},
    "dbsf-late": {"fusion": "dbsf", "rerank": "late", "legs": ["lexical", "dense"]},
    "importance": {"sort": "importance"},
    "recency": {"sort": "recency"},
}

Rankings = dict[str, dict[str, list[tuple[str, float]]]]


def main() -> int:
    """Run the verb that was asked for."""
    verb, *rest = sys.argv[1:] or [""]
    if verb == "build" and len(rest) == 1:
        return build(Path(rest[0]))
    if verb == "rank" and len(rest) == 2:
        return rank(Path(rest[0]), Path(rest[1]))
    if verb == "compare" and len(rest) == 2:
        return compare(Path(rest[0]), Path(rest[1]))
    print(__doc__)
    return 2


def build(stores: Path) -> int:
    """Make one embedded store per data set."""
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as workers:
        list(workers.map(partial(_build_one, stores), _folders()))
    return 0


def rank(stores: Path, target: Path) -> int:
    """Ask every question of every set."""
    folders = _folders()
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as workers:
        ranked = list(workers.map(partial(_rank_one, stores), folders))
    target.write_text(json.dumps({folder.name: found for folder, found in zip(folders, ranked, strict=True)}))
    return 0


def compare(before: Path, after: Path) -> int:
    """Print how many rankings differ per set and variant; 1 if any does."""
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    failed = old.keys() != new.keys()
    for name in sorted(old.keys() & new.keys()):
        for variant in old[name]:
            wrong = [id for id in old[name][variant] if not _equal(old[name][variant][id], new[name][variant].get(id))]
            failed |= bool(wrong)
            asked = len(old[name][variant])
            print(f"{name:28} {variant:10} {asked - len(wrong):5} of {asked:5} equal", *wrong[:3])
    print("differs" if failed else "equal")
    return int(failed)


def _equal(old: list[tuple[str, float]], new: list[tuple[str, float]] | None) -> bool:
    if new is None or [id for id, _ in old] != [id for id, _ in new]:
        return False
    return all(abs(a - b) <= TOLERANCE for (_, a), (_, b) in zip(old, new, strict=True))


def _folders() -> list[Path]:
    data = Path(os.environ["TRISKELE_BENCH_DATA"])
    sets = sorted(path.parent for path in data.glob("*/queries.jsonl.gz"))
    return [*sets, Path(str(resources.files("triskele.samples"))) / "team"]


def _build_one(stores: Path, folder: Path) -> None:
    os.environ["TRISKELE_BENCH_CACHE"] = str(stores / folder.name)
    from triskele.evaluation.bench import run_bench

    run_bench(folder, arms=["default"], baseline="lexical", max_queries=1)
    print(f"built {folder.name}", flush=True)


def _rank_one(stores: Path, folder: Path) -> Rankings:
    from triskele import config, engine
    from triskele.evaluation.loaders import load_dataset
    from triskele.types import Sort

    # Stores of older versions are called ground.
    (home,) = (path for kind in ("harness", "ground") for path in (stores / folder.name).glob(f"{kind}-*"))
    queries = load_dataset(folder).queries
    ranked: Rankings = {variant: {} for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(home, Path(scratch) / "home"))
        settings = config.load({"TRISKELE_HOME": str(copy)})
        with engine.open_memory(settings=settings, folder=copy) as memory:
            for variant, options in VARIANTS.items():
                how = dict(options) | ({"sort": Sort(options["sort"])} if "sort" in options else {})
                for query in queries if variant == "default" else queries[:OTHERS_ASKED]:
                    where = {"all_projects": True} if query.scope is None else {"project": query.scope}
                    answer = memory.recall(query.text, limit=DEPTH, logged=False, **how, **where)
                    hits = [(hit.memory.id, hit.score) for hit in answer.hits]
                    ranked[variant][query.id] = [*hits, ("confidence", answer.confidence)]
    print(f"ranked {folder.name}", flush=True)
    return ranked


if __name__ == "__main__":
    sys.exit(main())
