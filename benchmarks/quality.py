"""Quality over every data set of a folder and the bundled sample.

    TRISKELE_BENCH_DATA=folder python benchmarks/quality.py [--arms …] [--sets …]

Writes every arm and kind of question to benchmarks/notebook/quality.md, and a table of the main arms between the marks
of docs/benchmarks.md. Tables hold R@5 / nDCG@10. Differences are to RRF with k = 60 over the same indexes in the same
run, with paired 95 % intervals; both halves of the fixed split are shown, because constants were chosen with the tune
halves in view.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import texts

from triskele.bench.bench import run_bench

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
NOTEBOOK = Path(__file__).parent / "notebook" / "quality.md"
BEGIN, END = "<!-- quality: written by make bench -->", "<!-- quality: end -->"
REFERENCE = "rrf"
SUMMARY = {"rrf": "RRF", "default": "default"}
ARMS = (
    "fts,lexical,dense,rrf,cc,rsf,dbsf,sum,zscore,late,graph,default,"
    "default-lexical,default-dense,default-late,default-graph,default-context,default-prior,default+exact,default+cross"
)

Report = Mapping[str, Any]


def main() -> None:
    """Measure every set, rewrite the page of the notebook and the table of the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", default=ARMS)
    parser.add_argument("--sets", default="")
    options = parser.parse_args()
    arms = options.arms.split(",")
    folders = list(_folders(options.sets.split(",") if options.sets else []))
    # Sets do not know of each other: as many at a time as there are processors, the largest first.
    order = sorted(folders, key=lambda folder: -sum(file.stat().st_size for file in folder.glob("queries.jsonl*")))
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=get_context("spawn")) as workers:
        by_folder = dict(zip(order, workers.map(partial(_measured, arms), order), strict=True))
    reports = [by_folder[folder] for folder in folders]
    NOTEBOOK.write_text("\n".join(_page(reports, arms)).rstrip() + "\n")
    PAGE.write_text(with_table(PAGE.read_text(), "\n".join(_summary(reports, arms))))
    print(NOTEBOOK.read_text())


def with_table(page: str, table: str) -> str:
    """Replace the text between the marks of a page."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} lacks the marks {BEGIN} and {END}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def _summary(reports: Sequence[Report], arms: Sequence[str]) -> Iterator[str]:
    """The main arms, one row for each set."""
    shown = {arm: name for arm, name in SUMMARY.items() if arm in arms}
    yield _measured_when(reports)
    yield ""
    yield "| set | questions | " + " | ".join(shown.values()) + " |"
    yield "|---|---|" + "---|" * len(shown)
    for report in reports:
        figures = " | ".join(_pair(report["arms"][arm]["overall"]) for arm in shown)
        yield f"| {report['dataset']} | {report['manifest']['counts']['measured']:,} | {figures} |"


def _measured_when(reports: Sequence[Report]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    versions = reports[0]["manifest"]["versions"]
    return (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit.stdout.strip()} with triskele"
        f" {versions['triskele']}, tantivy {versions['tantivy']}; R@5 / nDCG@10 in percent, all answerable questions."
    )


def _measured(arms: Sequence[str], folder: Path) -> Report:
    started = time.monotonic()
    report = run_bench(folder, arms=arms, baseline=REFERENCE, public=True)
    print(f"{folder.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return report


def _folders(names: Sequence[str]) -> Iterator[Path]:
    yield Path(str(resources.files("triskele.samples") / "team"))
    for path in sorted(texts.data_folder().iterdir()):
        if (path / "qrels.tsv.gz").exists() and (not names or path.name in names):
            yield path


def _page(reports: Sequence[Report], arms: Sequence[str]) -> Iterator[str]:
    yield "# Quality by arm and kind of question"
    yield ""
    yield "Written by `make bench`; the summary is in [docs/benchmarks.md](../../docs/benchmarks.md)."
    yield ""
    yield _measured_when(reports)
    yield ""
    yield "| arm | " + " | ".join(f"{r['dataset']} ({r['manifest']['counts']['measured']})" for r in reports) + " |"
    yield "|---|" + "---|" * len(reports)
    for arm in dict.fromkeys((REFERENCE, *arms)):
        yield f"| {arm} | " + " | ".join(_pair(r["arms"][arm]["overall"]) for r in reports) + " |"
    yield ""
    yield "The default by half of the fixed split, and its difference to RRF (k = 60):"
    yield ""
    yield "| set | tune half | test half | ΔR@5, test half | ΔnDCG@10, test half | ΔnDCG@10, all |"
    yield "|---|---|---|---|---|---|"
    for report in reports:
        halves = report["arms"]["default"]["halves"]
        yield (
            f"| {report['dataset']} | {_pair(halves['tune'])} | {_pair(halves['test'])}"
            f" | {_difference(report, 'half:test', 'recall@5')} | {_difference(report, 'half:test', 'ndcg@10')}"
            f" | {_difference(report, 'overall', 'ndcg@10')} |"
        )
    yield ""
    yield from _alarms(reports)
    yield from _strata(reports)


def _alarms(reports: Sequence[Report]) -> Iterator[str]:
    """What the guards say against the numbers above."""
    found = [(r["dataset"], each["said"]) for r in reports for each in r["guards"]["findings"] if _is_alarm(each)]
    yield "What the guards object to:" if found else "The guards object to nothing in these sets."
    yield ""
    for dataset, said in found:
        yield f"- {dataset}: {said}"
    if found:
        yield ""


def _is_alarm(finding: Mapping[str, Any]) -> bool:
    return bool(finding["severity"] == "alarm")


def _strata(reports: Sequence[Report]) -> Iterator[str]:
    """Sets with several kinds of questions, kind by kind."""
    shown = ("fts", "lexical", REFERENCE, "default")
    for report in reports:
        kinds = report["arms"]["default"]["strata"]
        if len(kinds) < 2:
            continue
        yield f"{report['dataset']} by kind of question:"
        yield ""
        yield "| kind | " + " | ".join(shown) + " | R@10 of fts → default | MRR of fts → default |"
        yield "|---|" + "---|" * (len(shown) + 2)
        for kind, values in kinds.items():
            first = report["arms"]["fts"]["strata"][kind]
            yield (
                f"| {kind} ({values['n']}) | "
                + " | ".join(_pair(report["arms"][arm]["strata"][kind]) for arm in shown)
                + f" | {100 * first['recall@10']:.1f} → {100 * values['recall@10']:.1f}"
                + f" | {100 * first['mrr']:.1f} → {100 * values['mrr']:.1f} |"
            )
        yield ""


def _pair(values: Mapping[str, Any]) -> str:
    if values.get("recall@5") is None:
        return "–"
    return f"{100 * values['recall@5']:.1f} / {100 * values['ndcg@10']:.1f}"


def _difference(report: Report, stratum: str, metric: str) -> str:
    for found in report["comparisons"]:
        names = {found["a"], found["b"]}
        if names == {"default", REFERENCE} and found["stratum"] == stratum and found["metric"] == metric:
            low, high = (100 * edge for edge in found["ci95"])
            sign = 1 if found["a"] == "default" else -1
            low, high = sorted((sign * low, sign * high))
            least = f", notices {100 * found['mde']:.1f}" if low <= 0 <= high and found["mde"] is not None else ""
            return f"{100 * sign * found['delta']:+.1f} [{low:.1f}, {high:.1f}]{least}"
    return "–"


if __name__ == "__main__":
    main()
