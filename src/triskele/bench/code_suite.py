"""Relevance suite of code search: questions over trees with graded paths.

A suite is one JSON file: `format`, `trees` (name → where the tree comes from) and `cases`, each with an id, a tree, a
question, a type, `expected` (path → grade) and maybe `forbidden` paths. A case passes if a path of the highest grade is
among the first five and no forbidden path ranks above the first expected one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triskele.bench import metrics
from triskele.bench.comparison import compare
from triskele.bench.datasets import BenchQuery, half
from triskele.code.corpus import FieldWeights
from triskele.code.ranking import CodePlan
from triskele.code.rules import RULES, SEED_PENALTIES
from triskele.code.search import CodeSearch
from triskele.errors import BadInput

if TYPE_CHECKING:
    from triskele.code.ranking import CodePlan
    from triskele.models.embedder import Embedder

FORMAT = "triskele-code-suite-1"
MAX_GRADE = 3
PASS_DEPTH = 5
DEPTH = 10
BASELINE, WORDS, LEXICAL, DEFAULT = "bm25", "words", "lexical", "default"
_WITHOUT = "without:"

Run = Mapping[str, Sequence[str]]
_ALONE = (1.0, 0.0, 0.0, 0.0, 0.0)
_BASELINE_WEIGHTS = FieldWeights(_ALONE, _ALONE, (0.0, 0.0, 0.0), file_k1=1.2, file_b=0.75, best=(), of_file=1.0)


@dataclass(frozen=True, slots=True)
class CodeCase:
    """A question with graded answer paths and forbidden paths."""

    id: str
    tree: str
    type: str
    question: str
    expected: Mapping[str, int]
    forbidden: tuple[str, ...] = ()

    def passes(self, ranked: Sequence[str]) -> bool:
        """Whether a best path is first, above all forbidden ones."""
        best = {path for path, grade in self.expected.items() if grade == max(self.expected.values())}
        first = next((place for place, path in enumerate(ranked) if path in self.expected), len(ranked))
        is_clean = not any(path in self.forbidden for path in ranked[:first])
        return is_clean and any(path in best for path in ranked[:PASS_DEPTH])


@dataclass(frozen=True, slots=True)
class CodeSuite:
    """The cases of a suite and the trees that they are about."""

    path: Path
    trees: Mapping[str, Mapping[str, Any]]
    cases: tuple[CodeCase, ...] = field(default_factory=tuple)


def is_suite(path: Path) -> bool:
    """Whether a file is a suite of code questions."""
    return path.is_file() and path.suffix == ".json" and FORMAT in path.read_text("utf-8", "replace")[:200]


def load_suite(path: Path) -> CodeSuite:
    """Read and check a suite."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise BadInput(f"{path} is not a suite of code questions ({FORMAT})")
    trees = values.get("trees", {})
    cases = tuple(_case(path, number, each, trees) for number, each in enumerate(values.get("cases", ())))
    if len({case.id for case in cases}) != len(cases):
        raise BadInput(f"{path} repeats an id")
    return CodeSuite(path, trees, cases)


def _case(path: Path, number: int, values: Any, trees: Mapping[str, Any]) -> CodeCase:
    where = f"{path}: case {number + 1}"
    try:
        case = CodeCase(
            values["id"],
            values["tree"],
            values.get("type", "all"),
            values["question"],
            dict(values["expected"]),
            tuple(values.get("forbidden", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(f"{where} needs id, tree, question and expected (path to grade)") from None
    if case.tree not in trees:
        raise BadInput(f"{where} asks about the unknown tree {case.tree!r}")
    grades = case.expected.values()
    if not grades or not all(isinstance(grade, int) and 0 <= grade <= MAX_GRADE for grade in grades) or not max(grades):
        raise BadInput(f"{where} needs grades from 0 to {MAX_GRADE}, at least one above 0")
    return case


def arms(names: Sequence[str] | None = None, embedder: Embedder | None = None) -> dict[str, CodePlan]:
    """Plans by arm: bm25, words, lexical, default, without:RULE, fusion:METHOD, penalties:seed."""
    lexical = CodePlan(dense=0.0)
    plans = {
        BASELINE: replace(lexical, without=frozenset(RULES), weights=_BASELINE_WEIGHTS),
        WORDS: replace(lexical, without=frozenset(RULES)),
        LEXICAL: lexical,
        **{f"{_WITHOUT}{rule}": replace(lexical, without=frozenset({rule})) for rule in RULES},
        "penalties:seed": replace(lexical, penalties=SEED_PENALTIES),
    }
    if embedder is not None:
        plans |= {DEFAULT: CodePlan(), **{f"fusion:{name}": CodePlan(fusion=name) for name in ("dbsf", "sum", "rrf")}}
    unknown = [name for name in names or () if name not in plans]
    if unknown:
        raise BadInput(f"unknown arm {unknown[0]!r}: the known ones are {', '.join(plans)}")
    return {name: plans[name] for name in names or plans}


def run_suite(
    suite: CodeSuite,
    folder: Path,
    home: Path,
    *,
    names: Sequence[str] | None = None,
    baselines: Sequence[str] = (BASELINE,),
    embedder: Embedder | None = None,
    others: Mapping[str, Callable[[Path], Callable[[str], Sequence[str]]]] | None = None,
    seed: int = 7,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Measure arms over a suite; `others` rank with other programs."""
    plans = arms(names, embedder)
    runs: dict[str, dict[str, list[str]]] = {name: {} for name in (*plans, *(others or ()))}
    used = sorted({case.tree for case in suite.cases})
    for number, tree in enumerate(used):
        progress(f"measuring {tree}", number, len(used))
        root = _folder(folder, tree, suite.trees[tree])
        search = CodeSearch(home, root, embedder)
        search.index()
        search.embed()
        rankers = {name: make(root) for name, make in (others or {}).items()}
        for case in (case for case in suite.cases if case.tree == tree):
            for name, plan in plans.items():
                runs[name][case.id] = search.ranked_paths(case.question, plan, limit=DEPTH)
            for name, ranker in rankers.items():
                runs[name][case.id] = list(dict.fromkeys(ranker(case.question)))[:DEPTH]
    return _report(suite, runs, [name for name in baselines if name in runs] or list(runs)[:1], seed)


def _folder(folder: Path, tree: str, source: Mapping[str, Any]) -> Path:
    names = [f"{tree}-{source.get('version', '')}", tree]
    for name in names:
        if (folder / name).is_dir():
            return (folder / name).resolve()
    raise BadInput(f"{folder} has no folder {names[0]} or {tree}: unpack the tree there")


def _report(suite: CodeSuite, runs: Mapping[str, Run], baselines: Sequence[str], seed: int) -> dict[str, Any]:
    queries = [BenchQuery(case.id, case.question, case.type, None) for case in suite.cases]
    qrels = {case.id: case.expected for case in suite.cases}
    scores = {name: metrics.evaluate([query.id for query in queries], qrels, run) for name, run in runs.items()}
    groups = _groups(suite, queries)
    summaries = {}
    for name, run in runs.items():
        ndcg = scores[name]["ndcg@10"]
        passed = [case.passes(run[case.id]) for case in suite.cases]
        summaries[name] = {
            **metrics.summary(scores[name], range(len(queries))),
            "passed": sum(passed),
            "ndcg@10 by group": {group: round(float(ndcg[places].mean()), 4) for group, places in groups.items()},
        }
    strata = {group: places for group, places in groups.items() if group in ("all", "half:test", "half:tune")}
    compared = [
        each.to_json()
        for baseline in baselines
        for each in compare(scores, baseline, strata, seed=seed)
        if each.metric == "ndcg@10"
    ]
    failed = {name: [case.id for case in suite.cases if not case.passes(run[case.id])] for name, run in runs.items()}
    return {
        "suite": suite.path.name,
        "cases": len(queries),
        "arms": summaries,
        "comparisons": compared,
        "failed": failed,
    }


def _groups(suite: CodeSuite, queries: Sequence[BenchQuery]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {"all": list(range(len(queries)))}
    for position, (case, query) in enumerate(zip(suite.cases, queries, strict=True)):
        for group in (f"half:{half(query)}", f"type:{case.type}", f"tree:{case.tree}"):
            groups.setdefault(group, []).append(position)
    return dict(sorted(groups.items()))
