"""Fit the confidence of an answer, and report how far it can be believed.

    TRISKELE_BENCH_DATA=folder python benchmarks/confidence.py [--pairs FILE] [--most N]

Fitted on the sample corpus, the notes, MuSiQue, HotpotQA, 2Wiki and, with `--pairs`, on questions made from training
pairs: answerable ones, ones whose passage is left out, and ones asked of another source with its names put in. Each
answerable question of a set counts a second time with its answers taken away. LoCoMo, REALTALK, BEAM, LongMemEval and
SciFact only report. Prints the weights for `triskele/recall/confidence.py`; every set counts the same in the fit.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import texts
from numpy.typing import NDArray

from triskele.evaluation.arms import arm
from triskele.evaluation.datasets import UNRANKED_TYPES, windows
from triskele.evaluation.harness import BenchHarness
from triskele.evaluation.loaders import load_dataset
from triskele.recall.confidence import COMPARED

SIGNS = ("share", "margin", "length")
FITTED = ("team", "til_notes", "musique_dev200", "hotpotqa_dev500", "2wikimultihopqa")
REPORTED = ("locomo", "realtalk", "beam_100k", "longmemeval_s_heads", "scifact")
OWN = ("lexical", "dense", "late")
SOURCES = (
    "topicalchat_synth3p", "sgd_synthq", "friendsqa", "qmsum_synthq", "multidogo_synthq", "cosmosqa_synth3p",
    "k8s_docs", "github_docs", "mdn_docs", "tldr", "squad_nqg_sentences", "boolq", "iirc", "qasper", "pubmedqa", "doqa",
)  # fmt: skip
KEPT, LEFT_OUT, ASKED, MISPLACED = 190, 50, 50, 30
BINS = 10
_NAME = re.compile(r"(?<!^)\b[A-Z][a-z]{2,}\b")

Floats = NDArray[np.float64]
Sample = tuple[list[float], float, str]


def main() -> None:
    """Collect the signs of every question, fit, and print the weights and the reliability."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="training pairs (JSON lines, gzipped) to make questions from")
    parser.add_argument("--most", type=int, default=400, help="questions of a set")
    options = parser.parse_args()
    samples: dict[str, list[Sample]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: texts.data_folder() / name for name in (*FITTED[1:], *REPORTED)}
        folders["team"] = Path(str(resources.files("triskele.samples") / "team"))
        if options.pairs:
            folders["made"] = _made(options.pairs, Path(scratch) / "made")
        for name, folder in folders.items():
            if folder.is_dir():
                samples[name] = list(_samples(folder, options.most))
    fitted = [name for name in samples if name not in REPORTED]
    weights = fit(*_joined([samples[name] for name in fitted]))
    print("bias", round(weights[0], 2), dict(zip(SIGNS, weights[1:].round(2).tolist(), strict=True)))
    print("| set | n | right | AUROC | expected error |\n|---|---|---|---|---|")
    everything = []
    for name, found in samples.items():
        signs, right, _ = _joined([found])
        likely = predicted(weights, signs)
        everything.append((likely, right))
        mark = "" if name in fitted else " (reported only)"
        area, error = auroc(likely, right), expected_error(likely, right)
        print(f"| {name}{mark} | {len(right)} | {right.mean():.2f} | {area:.3f} | {error:.3f} |")
    likely, right = (np.concatenate(each) for each in zip(*everything, strict=True))
    print(f"pooled expected error {expected_error(likely, right):.3f}; reliability (mean confidence, share right):")
    for bin_ in np.array_split(np.argsort(likely), BINS):
        print(f"  {likely[bin_].mean():.2f} {right[bin_].mean():.2f} ({len(bin_)})")


def _samples(folder: Path, most: int) -> Iterator[Sample]:
    """The signs of each question, whether its best document is relevant, and its kind."""
    data = load_dataset(folder)
    queries = [query for query in data.queries if query.type in UNRANKED_TYPES or data.qrels.get(query.id)]
    queries = queries[:: max(1, len(queries) // most)]
    with BenchHarness(windows(data.documents)) as harness:
        retriever, analyzer = harness.retriever(arm("default"), limit=20), harness.engine.lexical.analyzer
        for query in queries:
            gold = {id for id, grade in data.qrels.get(query.id, {}).items() if grade > 0}
            length = math.log1p(len(analyzer.query_terms(query.text)))
            hits = [
                (found.document, _share(found.legs)) for found in retriever.search(query.text, query.scope).documents
            ]
            if hits and (gold or query.type in UNRANKED_TYPES):
                yield _signs(hits, length), float(hits[0][0] in gold), query.type
            others = [hit for hit in hits if hit[0] not in gold]
            if gold and others:
                yield _signs(others, length), 0.0, "answers taken away"


def _share(legs: Any) -> float:
    return sum(each.contribution for name, each in legs.items() if name in OWN)


def _signs(hits: Sequence[tuple[str, float]], length: float) -> list[float]:
    """As `triskele.recall.confidence.signs` has them."""
    best, *others = [share for _, share in hits[: COMPARED + 1]]
    return [best, best - (sum(others) / len(others) if others else 0.0), length]


def _joined(parts: Sequence[Sequence[Sample]]) -> tuple[Floats, Floats, Floats]:
    """Signs, outcomes, and weights that let every part count the same."""
    signs = np.array([sample[0] for part in parts for sample in part])
    right = np.array([sample[1] for part in parts for sample in part])
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    return signs, right, weights / weights.mean()


def fit(signs: Floats, right: Floats, weights: Floats, ridge: float = 1e-3) -> Floats:
    """Logistic regression by Newton's method over standardised signs; the bias comes first."""
    mean, deviation = signs.mean(axis=0), signs.std(axis=0) + 1e-9
    inputs = np.column_stack([np.ones(len(signs)), (signs - mean) / deviation])
    found = np.zeros(inputs.shape[1])
    penalty = ridge * weights.sum() * np.append(0.0, np.ones(signs.shape[1]))
    for _ in range(50):
        likely = 1 / (1 + np.exp(-inputs @ found))
        slope = inputs.T @ (weights * (likely - right)) + penalty * found
        curve = (inputs * (weights * likely * (1 - likely))[:, None]).T @ inputs + np.diag(penalty + 1e-9)
        found = found - np.linalg.solve(curve, slope)
    raw: Floats = found[1:] / deviation
    return np.append(found[0] - mean @ raw, raw)


def predicted(weights: Floats, signs: Floats) -> Floats:
    """The confidence that some weights give."""
    likely: Floats = 1 / (1 + np.exp(-(weights[0] + signs @ weights[1:])))
    return likely


def expected_error(likely: Floats, right: Floats) -> float:
    """The mean distance of confidence and share of right answers, over bins of equal mass."""
    parts = np.array_split(np.argsort(likely), BINS)
    return float(sum(len(part) * abs(likely[part].mean() - right[part].mean()) for part in parts) / len(likely))


def auroc(likely: Floats, right: Floats) -> float:
    """The share of pairs in which the right answer is the more confident one."""
    order = np.argsort(likely, kind="stable")
    ranks = np.empty(len(likely))
    ranks[order] = np.arange(1, len(likely) + 1)
    count = right.sum()
    return float((ranks[right == 1].sum() - count * (count + 1) / 2) / max(count * (len(right) - count), 1))


def _made(pairs: Path, folder: Path) -> Path:
    """A data set of training pairs, one scope for every source."""
    chance, by_source = random.Random(7), _by_source(pairs)
    corpus, queries, labels = [], [], ["qid\tdocid\tgrade"]
    names: dict[str, list[str]] = {}
    for source in SOURCES:
        rows = by_source[source]
        chance.shuffle(rows)
        rows = list({row["d"]: row for row in rows}.values())[: KEPT + LEFT_OUT]
        meta = {"scope": source}
        corpus += [{"id": f"{source}/{n}", "text": row["d"], "meta": meta} for n, row in enumerate(rows[:KEPT])]
        for n, row in enumerate(rows):
            is_kept, id = n < KEPT, f"{source}/q{n}"
            if n < ASKED or not is_kept:
                kind = "answerable" if is_kept else "unanswerable"
                queries.append({"id": id, "text": row["q"], "type": kind, "meta": meta})
            if n < ASKED:
                labels.append(f"{id}\t{source}/{n}\t1")
        names[source] = sorted({name for row in rows[:KEPT] for name in _NAME.findall(row["d"])})[:60] or ["Ann"]
    for source, other in zip(SOURCES, (*SOURCES[1:], SOURCES[0]), strict=True):
        for n, row in enumerate(list({row["d"]: row for row in by_source[source]}.values())[:MISPLACED]):
            swapped = _NAME.sub(lambda _, other=other: chance.choice(names[other]), row["q"])
            queries.append({"id": f"{source}/w{n}", "text": swapped, "type": "adversarial", "meta": {"scope": other}})
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels.tsv").write_text("\n".join(labels) + "\n")
    return folder


def _by_source(pairs: Path) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    with gzip.open(pairs, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            if row["source"] in SOURCES and 15 < len(row["q"]) < 200 and 40 < len(row["d"]) < 1300:
                found[row["source"]].append(row)
    return found


if __name__ == "__main__":
    main()
