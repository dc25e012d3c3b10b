"""The command that measures how well memories are found: bench."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import click

from triskele.serving.cli.invocation import Invocation, common, examples, progress_bar
from triskele.serving.cli.options import listed

BUNDLED = "team"
_FOLDER = click.Path(path_type=Path)


@click.command(
    epilog=examples("triskele bench team", "triskele bench locomo --arms fts,rrf:k=10,default --out results --seed 7"),
)
@click.argument("dataset", metavar="DATASET_DIR")
@click.option("--arms", metavar="A,B", help="What to measure; all there are, unless given.")
@click.option("--baseline", metavar="ARM", default="fts", show_default=True, help="What to compare with.")
@click.option("--out", type=_FOLDER, help="Keep runs and values per query in this folder.")
@click.option("--max-queries", type=int, help="Ask only this many, chosen by the seed.")
@click.option("--seed", type=int, default=7, show_default=True, help="Makes a run repeatable.")
@click.option("--public", is_flag=True, help="Say and keep aggregates only: no text and no id of the data set.")
@common
def bench(
    invocation: Invocation,
    dataset: str,
    arms: str | None,
    baseline: str,
    out: Path | None,
    max_queries: int | None,
    seed: int,
    public: bool,
) -> None:
    """Measure retrieval on a data set.

    DATASET_DIR is a folder with corpus.jsonl, queries.jsonl and qrels.tsv, the name of one under TRISKELE_BENCH_DATA,
    or `team` for the bundled sample. An arm may be changed by name: rrf:k=10, cc:alpha=0.6, default:rescored=50.
    """
    # Imported here: only a benchmark pays for it.
    from triskele.evaluation.bench import available_arms, run_bench

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
    if invocation.as_json:
        return invocation.write_json(report)
    from triskele.serving.cli import reports

    return invocation.write(reports.bench(report, out, public=public))


def _folder(name: str) -> Path:
    """The folder that a data set's name stands for."""
    if name == BUNDLED:
        return Path(str(resources.files("triskele.samples") / BUNDLED))
    shelf = os.environ.get("TRISKELE_BENCH_DATA")
    on_shelf = Path(shelf) / name if shelf else None
    return on_shelf if on_shelf is not None and on_shelf.is_dir() and not Path(name).is_dir() else Path(name)
