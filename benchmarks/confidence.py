"""Fit the confidence of an answer, and report its calibration.

    TRISKELE_BENCH_DATA=folder python benchmarks/confidence.py [--pairs FILE] [--most N] [--sets A,B]

Fitted on the tune halves of the sample corpus (each prompt in its project and in the others, through the scope of the
hook), the notes in `everyday/`, the titled notes, MuSiQue, HotpotQA, 2Wiki and, with `--pairs`, questions made from
training pairs: answerable ones, ones whose passage is left out, and ones asked of another source with its names put in.
Where a set has no questions without an answer, each question counts a second time with its answers taken away. LoCoMo,
REALTALK, BEAM, LongMemEval, SciFact and the stores in `everyday_stores/` only report. Prints the weights for
`triskele/recall/confidence.py` and how they do on the test halves; every set counts the same in the fit and has a base
rate of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import texts
from injection import STORES, Asked, everyday_store, team_prompts
from numpy.typing import NDArray

from triskele.agents import injection
from triskele.agents.injection import Conversation
from triskele.bench.arms import arm
from triskele.bench.datasets import UNRANKED_TYPES, half, windows
from triskele.bench.harness import BenchHarness
from triskele.bench.loaders import load_dataset
from triskele.edge.cli.demo import temporary_memory
from triskele.engine.local import LocalEngine
from triskele.recall import confidence
from triskele.recall.confidence import has_signals, signals
from triskele.recall.question import Question
from triskele.recall.scores import Candidates

SIGNS = ("cosine", "words", "margin", "spread", "unknown", "elsewhere")
EVERYDAY = Path(__file__).parent / "everyday"
FITTED = ("team", "everyday", "til_notes", "musique_dev200", "hotpotqa_dev500", "2wikimultihopqa")
REPORTED = ("stores", "locomo", "realtalk", "beam_100k", "longmemeval_s_heads", "scifact")
SOURCES = (
    "topicalchat_synth3p", "sgd_synthq", "friendsqa", "qmsum_synthq", "multidogo_synthq", "cosmosqa_synth3p",
    "k8s_docs", "github_docs", "mdn_docs", "tldr", "squad_nqg_sentences", "boolq", "iirc", "qasper", "pubmedqa", "doqa",
)  # fmt: skip
KEPT, LEFT_OUT, ASKED, MISPLACED = 190, 50, 50, 30
BINS = 10
# Smaller ones give less log loss on the sets they are fitted on and more on a set left out.
RIDGE = 1e-2
_NAME = re.compile(r"(?<!^)\b[A-Z][a-z]{2,}\b")

Floats = NDArray[np.float64]


class Sample(NamedTuple):
    """The signs of an answer, whether its best hit is right, and its half."""

    signs: list[float]
    right: float
    half: str


class Recorder:
    """Keeps what the last confidence was computed from."""

    def __init__(self) -> None:
        self.last: tuple[Candidates, Question] | None = None

    def __call__(self, candidates: Candidates, question: Question) -> dict[str, float]:
        """The signals of an answer."""
        self.last = candidates, question
        return signals(candidates, question)

    def sample(self, gold: Set[int], half: str, *, taken_away: bool = False) -> Iterator[Sample]:
        """The last answer; `gold` are the rows that answer, left out of the list where they are taken away."""
        if self.last is None:
            return
        candidates, question = self.last
        if taken_away:
            ranked = [candidate for candidate in candidates.ranked if candidate.row not in gold]
            candidates = replace(candidates, ranked=ranked)
        if candidates.ranked and has_signals(candidates, candidates.ranked[0]):
            values = signals(candidates, question)
            right = float(not taken_away and candidates.ranked[0].row in gold)
            yield Sample([values[name] for name in SIGNS], right, half)


def main() -> None:
    """Collect the signs of every question, fit, and print the weights and the reliability."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, help="training pairs (JSON lines, gzipped) to make questions from")
    parser.add_argument("--most", type=int, default=400, help="questions of a set")
    parser.add_argument("--sets", default=",".join((*FITTED, *REPORTED)), help="the sets to ask")
    options = parser.parse_args()
    samples = dict(_collected(options.sets.split(","), options.pairs, options.most))
    fitted = [name for name in samples if name not in REPORTED]
    weights = fit_over_sets([_of("tune", samples[name]) for name in fitted])
    print("bias", round(weights[0], 2), dict(zip(SIGNS, weights[1:].round(2).tolist(), strict=True)))
    print("| set, test half | n | right | AUROC | expected error |\n|---|---|---|---|---|")
    everything = []
    for name, found in samples.items():
        given, right, _ = _joined([found if name in REPORTED else _of("test", found)])
        likely = predicted(weights, given)
        everything.append((likely, right))
        mark = " (reported only, all)" if name in REPORTED else ""
        low, high = _interval(likely, right)
        area, error = auroc(likely, right), expected_error(likely, right)
        print(
            f"| {name}{mark} | {len(right)} | {right.mean():.2f} | {area:.3f} | {error:.3f} [{low:.3f}, {high:.3f}] |"
        )
    likely, right = (np.concatenate(each) for each in zip(*everything, strict=True))
    print(f"pooled expected error {expected_error(likely, right):.3f}; reliability (mean confidence, share right):")
    for bin_ in np.array_split(np.argsort(likely), BINS):
        print(f"  {likely[bin_].mean():.2f} {right[bin_].mean():.2f} ({len(bin_)})")


def _collected(names: Sequence[str], pairs: Path | None, most: int) -> Iterator[tuple[str, list[Sample]]]:
    """Every set with its samples; sets that are not there are left out."""
    recorder, before = Recorder(), confidence.signals
    confidence.signals = recorder
    try:
        if "team" in names:
            asked = list(_team(recorder))
            yield "team", [sample for _, sample in asked]
            # Most prompts of the set are asked in other projects: the rest counts as a set of its own besides.
            yield "team, own projects", [sample for kind, sample in asked if kind != "another project"]
        if "stores" in names:
            yield "stores", list(_stores(recorder))
        folders = {name: texts.data_folder() / name for name in names if name != "team"} | {"everyday": EVERYDAY}
        with tempfile.TemporaryDirectory() as scratch:
            if pairs:
                folders["made"] = _made(pairs, Path(scratch) / "made")
            for name, folder in folders.items():
                if folder.is_dir() and (name in names or name == "made"):
                    yield name, list(_samples(folder, most, recorder))
    finally:
        confidence.signals = before


def _team(recorder: Recorder) -> Iterator[tuple[str, Sample]]:
    """The prompts of the sample corpus as the hook asks them, each with its kind."""
    with temporary_memory() as engine:
        engine.settings = replace(engine.settings, project=None)
        rows = _rows(engine)
        for each in team_prompts(engine):
            recorder.last = None
            _recall(engine, each)
            gold = {row for id in each.gold for row in rows[id]}
            yield from ((each.kind, sample) for sample in recorder.sample(gold, half(each.query)))


def _recall(engine: LocalEngine, asked: Asked) -> None:
    filters = Conversation(None, asked.project, False, {}).filters
    query = injection.query_of(asked.query.text)
    engine.answer(query, limit=injection.CONSIDERED, local_only=True, **filters)


def _stores(recorder: Recorder) -> Iterator[Sample]:
    """The questions of the everyday stores, asked as recall asks them on the day of the newest note."""
    for name in STORES:
        with everyday_store(name) as (engine, data, ids):
            rows, newest = _rows(engine), data.documents[-1].meta["created"]
            for query in (query for query in data.queries if query.type != "idle"):
                labels = data.qrels.get(query.id, {})
                recorder.last = None
                engine.recall(query.text, as_of=newest, logged=False)
                yield from recorder.sample({row for id in labels for row in rows[ids[id]]}, half(query))


def _rows(engine: LocalEngine) -> Mapping[str, list[int]]:
    rows = defaultdict(list)
    for row, memory in engine.store.versions():
        rows[memory.id].append(row)
    return rows


def _samples(folder: Path, most: int, recorder: Recorder) -> Iterator[Sample]:
    """The questions of a set; where all have answers, each a second time without them."""
    data = load_dataset(folder)
    queries = [query for query in data.queries if query.type in UNRANKED_TYPES or data.qrels.get(query.id)]
    has_unanswerable = any(query.type in UNRANKED_TYPES for query in queries)
    with BenchHarness(windows(data.documents)) as harness:
        harness.precompute(())
        rows: dict[str, set[int]] = defaultdict(set)
        for id, of_memory in _rows(harness.engine).items():
            rows[harness.document(id)] |= set(of_memory)
        for query in queries[:: max(1, len(queries) // most)]:
            gold = {row for id, grade in data.qrels.get(query.id, {}).items() if grade > 0 for row in rows[id]}
            recorder.last = None
            harness.search(arm("default"), query.text, query.scope, limit=20)
            yield from recorder.sample(gold, half(query))
            if gold and not has_unanswerable:
                yield from recorder.sample(gold, half(query), taken_away=True)


def _of(half: str, samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.half == half]


def _joined(parts: Sequence[Sequence[Sample]]) -> tuple[Floats, Floats, Floats]:
    """Signs, outcomes, and weights that let every part count the same."""
    given = np.array([sample.signs for part in parts for sample in part])
    right = np.array([sample.right for part in parts for sample in part])
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    return given, right, weights / weights.mean()


def fit_over_sets(parts: Sequence[Sequence[Sample]]) -> Floats:
    """Weights of the signs with a base rate for each set, then one bias for all sets.

    The share of answerable questions differs by construction: without base rates of their own, sets with long questions
    would teach that long questions have answers.
    """
    given, right, counted = _joined(parts)
    sets = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    found = fit(np.column_stack([given, np.eye(len(parts))[sets][:, 1:]]), right, counted)[: 1 + given.shape[1]]
    low, high = -20.0, 20.0
    for _ in range(60):
        found[0] = (low + high) / 2
        is_high = (counted * (predicted(found, given) - right)).sum() > 0
        low, high = (low, found[0]) if is_high else (found[0], high)
    return found


def _interval(likely: Floats, right: Floats, rounds: int = 200) -> tuple[float, float]:
    """The 95 % bootstrap interval of the expected error."""
    chance = np.random.default_rng(7)
    drawn = (chance.integers(0, len(right), len(right)) for _ in range(rounds))
    errors = [expected_error(likely[each], right[each]) for each in drawn]
    low, high = np.quantile(errors, [0.025, 0.975])
    return float(low), float(high)


def fit(signs: Floats, right: Floats, weights: Floats, ridge: float = RIDGE) -> Floats:
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
