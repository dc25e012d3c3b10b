"""The command that measures retrieval on a data set: bench."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import click

from triskele.bench.bench import available_arms, run_bench
from triskele.bench.code_suite import DEFAULT, is_suite, load_suite, run_suite
from triskele.edge.cli import eval_view
from triskele.edge.cli.commands import command
from triskele.edge.cli.emit import emit
from triskele.edge.cli.invocation import Invocation, progress_bar
from triskele.edge.cli.options import listed
from triskele.models.local import local_embedder

BUNDLED = "team"
_FOLDER = click.Path(path_type=Path)


@command("triskele bench team", "triskele bench locomo --arms fts,rrf:k=10,default --out results --seed 7")
@click.argument("dataset", metavar="DATASET_DIR")
@click.option("--arms", metavar="A,B", help="The arms to measure; default: all.")
@click.option("--baseline", metavar="ARM", default="fts", show_default=True, help="The arm to compare with.")
@click.option("--out", type=_FOLDER, help="Keep runs and values per query in this folder.")
@click.option("--max-queries", type=int, help="Ask only this many queries, chosen by the seed.")
@click.option("--seed", type=int, default=7, show_default=True, help="Makes a run repeatable.")
@click.option("--trees", type=_FOLDER, help="The folder of the trees that a suite of code questions is about.")
@click.option("--public", is_flag=True, help="Report aggregates only: no text and no id of the data set.")
def bench(
    invocation: Invocation,
    dataset: str,
    arms: str | None,
    baseline: str,
    out: Path | None,
    max_queries: int | None,
    seed: int,
    trees: Path | None,
    public: bool,
) -> None:
    """Measure retrieval on a data set.

    DATASET_DIR is a folder with corpus.jsonl, queries.jsonl and qrels.tsv, the name of one under TRISKELE_BENCH_DATA,
    or `team` for the bundled sample. An arm's name can set its values: rrf:k=10, cc:alpha=0.6, default:rescored=50.
    It can also be the JSON file of a suite of code questions; its arms are bm25, words, lexical and default.
    """
    if is_suite(Path(dataset)):
        return _bench_code(invocation, Path(dataset), trees, listed(arms) if arms is not None else None, seed)

    with progress_bar("Preparing") as advance:
        report = run_bench(
            _folder(dataset),
            arms=listed(arms) if arms is not None else available_arms(),
            baseline=baseline,
            out=out,
            max_queries=max_queries,
            seed=seed,
            progress=lambda stage, done, total: advance(done, total, stage),
            public=public,
        )
    return emit(invocation, report, lambda: eval_view.bench(report, out, public=public))


def _bench_code(invocation: Invocation, path: Path, trees: Path | None, arms: Sequence[str] | None, seed: int) -> None:
    """Measure code search on a suite and its trees."""
    settings = invocation.stores.settings()
    names = arms or ("bm25", "words", "lexical")
    # Embedding whole trees takes minutes: only if the arm is requested.
    needs_model = any(name == DEFAULT or name.startswith("fusion:") for name in names)
    with progress_bar("Preparing") as advance:
        report = run_suite(
            load_suite(path),
            trees or path.parent / "trees",
            settings.home,
            names=names,
            embedder=local_embedder(settings.recall.model) if needs_model else None,
            seed=seed,
            progress=lambda stage, done, total: advance(done, total, stage),
        )
    emit(invocation, report, lambda: eval_view.code_bench(report))


def _folder(name: str) -> Path:
    """The folder of a data set."""
    if name == BUNDLED:
        return Path(str(resources.files("triskele.samples") / BUNDLED))
    parent = os.environ.get("TRISKELE_BENCH_DATA")
    if parent and not Path(name).is_dir() and (Path(parent) / name).is_dir():
        return Path(parent) / name
    return Path(name)
