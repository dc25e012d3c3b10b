"""Compare the answers of two checkouts to the bit: the same questions to the code of both, on one machine, in one run.

    [TRISKELE_BENCH_DATA=folder] python benchmarks/golden.py CHECKOUT [--quick] [--sets A,B] [--questions 100]

CHECKOUT is a working tree of another commit with an environment of its own (`.venv`). Each side is one process of its
interpreter on one processor, driven by the `golden_adapter.py` of its checkout; `--adapter FILE` names another one, for
a commit that has none. Each side fills stores by its own code from the same memories with their ids and times, and
embeds them. With `--shared` only this side does, and the other gets copies: for a commit that embeds in other batches,
which changes last bits. `--quick` is `--sets team,code`, which needs no data. Exit 1 if any answer differs or fails.

Compared are, per hit: id, version, score (`float.hex`), the parts of each leg, prior, decay, reason, words, links,
paths and what it stands for; per answer: the order, confidence, resolutions, times, and what is missing. The last
column counts the answers of a variant that are not those of the default: a variant with 0 tests nothing, but for the
local corpus over Postgres, which ranks as files do.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import golden_inputs
from golden_adapter import FORMAT
from golden_inputs import GoldenSet, Question

HERE = Path(__file__).resolve().parent.parent
ADAPTER = Path("benchmarks", "golden_adapter.py")
STARTED = time.monotonic()
SAMPLE, SOURCE = "team", "code"
# People in conversation, an assistant's long turns, passages with titles, prompts about preferences.
SETS = (SAMPLE, "realtalk", "beam_100k", "musique_dev200", "vehicle", SOURCE)
LIMIT = 20
SHOWN = 1
# Values of options that depend on the set or the question.
MIDDLE, MEMORY, PROJECT, TAG = "<middle>", "<memory>", "<project>", "<tag>"
BOTH = ["lexical", "dense"]
FUSIONS = ("rrf", "cc", "rsf", "dbsf", "sum", "zscore")
PROCESS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

Options = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """A way to ask: the method of the adapter, its options, and how many questions where all take long."""

    name: str
    options: Options = field(default_factory=dict)
    method: str = "recall"
    most: int = 10**6


@dataclass(frozen=True)
class Setup:
    """How a store is opened, the share of its memories that is embedded by then, and what is asked."""

    variants: Sequence[Variant]
    options: Options = field(default_factory=dict)
    embedded: float = 1.0


def recall(name: str, most: int = 10**6, **options: Any) -> Variant:
    """A variant by options of recall."""
    return Variant(name, options, most=most)


def plan(name: str, **values: Any) -> Variant:
    """A variant by values of a plan."""
    return Variant(name, {"plan": values})


def code(name: str, **options: Any) -> Variant:
    """A variant of code search."""
    return Variant(name, options, "search_code")


DEFAULT = recall("default")
VARIANTS = (
    DEFAULT,
    recall("limit 5", limit=5),
    recall("limit 100", limit=100),
    recall("local only", local_only=True),
    *(recall(fusion, fusion=fusion, rerank="off", legs=BOTH) for fusion in FUSIONS),
    *(recall(f"{fusion} late", fusion=fusion, rerank="late", legs=BOTH) for fusion in FUSIONS),
    recall("rrf graph", fusion="rrf", rerank="off"),
    recall("dbsf graph late", fusion="dbsf", rerank="late"),
    plan("share", fusion="share"),
    recall("late off", rerank="off"),
    recall("graph off", legs=BOTH),
    recall("words", legs=["lexical"]),
    recall("vectors", legs=["dense"]),
    recall("words graph", legs=["lexical", "graph"], rerank="late"),
    recall("vectors graph", legs=["dense", "graph"]),
    plan("context off", context=False),
    plan("evidence off", evidence=[]),
    plan("weights", weights={"lexical": 0.3, "dense": 0.3, "late": 0.4}),
    plan("rrf k", fusion="rrf", rerank="off", k={"lexical": 10, "dense": 20}),
    plan("rescored", rescored=20),
    plan("prior off", prior=0.0),
    plan("exact", exact=0.1),
    recall("gated", 30, rerank="gated"),
    recall("as of", as_of=MIDDLE),
    recall("known at", known_at=MIDDLE, as_of=None),
    recall("superseded", show_superseded=True),
    recall("superseded as of", show_superseded=True, as_of=MIDDLE),
    recall("near", near=MEMORY),
    recall("diverse", order="diverse"),
    recall("mentioned", order="mentioned"),
    recall("importance", sort="importance"),
    recall("recency", sort="recency"),
    recall("project", project=PROJECT, all_projects=False),
    recall("all projects", project=None, all_projects=True),
    recall("category", category="facts"),
    recall("tags", tags=TAG),
    recall("since", since=MIDDLE),
    recall("until", until=MIDDLE),
    recall("open", sensitivities=["open"], origins=["user", "import"]),
    recall("budget", budget=400),
    Variant("why not", {"limit": 5}, "why_not", 20),
)
SETUPS = (
    Setup(VARIANTS),
    Setup((recall("no model"),), {"model": "none"}),
    Setup((recall("half-life"),), {"half_life_days": 60}),
    Setup((recall("hosted"), recall("hosted rrf", fusion="rrf")), {"services": ["embedder"]}),
    Setup(
        (recall("cross", 50, rerank="cross"), recall("cross rrf", 50, fusion="rrf", rerank="cross")),
        {"services": ["reranker"]},
    ),
    Setup((recall("cross bundled", 10, rerank="cross"),), {"services": ["cross-encoder"]}),
    Setup((recall("reworded", 50),), {"services": ["language model"]}),
)
# A store of its own: what is embedded in another order has other last bits.
HALF_EMBEDDED = (Setup((recall("half embedded"), recall("half embedded rrf", fusion="rrf")), embedded=0.5),)
OVER_POSTGRES = tuple(
    Setup(
        (
            recall(f"{corpus} corpus", 50),
            recall(f"{corpus} corpus rrf", 30, fusion="rrf", rerank="off"),
            recall(f"{corpus} corpus words", 30, legs=["lexical"]),
            recall(f"{corpus} corpus as of", 30, as_of=MIDDLE),
            recall(f"{corpus} corpus superseded", 30, show_superseded=True),
            recall(f"{corpus} corpus recency", 30, sort="recency"),
            recall(f"{corpus} corpus tags", 30, tags=TAG),
        ),
        {"corpus": corpus},
    )
    for corpus in ("local", "database")
)
# The whole source by words; one room of it with vectors, which take a second for every hundred lines.
CODE = (
    ("src", False, (code("code words"), code("code under", under="triskele/store/"))),
    ("src/triskele/recall", True, (code("code"), code("code functions", granularity="function"))),
)


class Side:
    """The process of one checkout, on one processor."""

    def __init__(self, checkout: Path, adapter: Path, home: Path, processor: int) -> None:
        self.home = home
        self._adapter = adapter
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TRISKELE_")}
        self._process = subprocess.Popen(
            [checkout / ".venv" / "bin" / "python", "-P", adapter],
            env=environ | PROCESS | {"PYTHONPATH": str(checkout / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {processor}),
        )
        hello = json.loads(self.read())
        if hello["format"] != FORMAT or not Path(hello["package"]).is_relative_to(checkout):
            sys.exit(f"{adapter} answers for {hello['package']} in format {hello['format']}: name another --adapter")

    def send(self, method: str, arguments: Sequence[Options]) -> None:
        """Begin a request; every element of `arguments` gets a reply."""
        assert self._process.stdin is not None
        print(json.dumps({"do": method, "with": arguments}), file=self._process.stdin, flush=True)

    def read(self) -> str:
        """The next reply."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() or sys.exit(f"the process of {self._adapter} ended")

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Result:
    """The answers of a variant by set, as hashes, and the differences between the sides."""

    answers: dict[str, list[int]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


class Comparison:
    """Asks two sides the same and compares their replies."""

    def __init__(self, sides: Sequence[Side], stub: Options, *, is_shared: bool) -> None:
        self.results: dict[str, Result] = defaultdict(Result)
        self._sides = sides
        self._stub = stub
        self.is_shared = is_shared
        self._stores = 0

    def ask_store(
        self, data: GoldenSet, setups: Sequence[Setup], addresses: Sequence[str | None] = (None, None)
    ) -> None:
        """Fill a store of each side, in a new folder or a database, and ask the variants of every setup."""
        file = self._sides[0].home / "input.json"
        file.write_text(json.dumps({"versions": data.versions, "links": data.links}), encoding="utf-8")
        self._stores += 1
        for number, setup in enumerate(setups):
            opened = [
                {"home": str(side.home / str(self._stores)), "store": address, "stub": self._stub, **setup.options}
                for side, address in zip(self._sides, addresses, strict=True)
            ]
            limit = None if setup.embedded == 1 else int(len(data.versions) * setup.embedded)
            self._open(opened, None if number else file, limit)
            for variant in setup.variants:
                questions = data.questions[: variant.most]
                self._ask(variant, data.name, [arguments_of(variant, data, question) for question in questions])
        do(self._sides, "close", {})

    def _open(self, opened: Sequence[Options], file: Path | None, limit: int | None) -> None:
        """Open, fill and embed the stores of both sides, or that of the first and copy it."""
        sides = self._sides[:1] if self.is_shared else self._sides
        do(sides, "open", *opened)
        if file is not None:
            do(sides, "fill", {"file": str(file)})
        replies = do(sides, "embed", {"limit": limit})
        if replies[0] != replies[-1]:
            self.results["embedding"].differences.append(difference(replies[0], replies[-1]))
        if self.is_shared:
            do(self._sides, "close", {})
            first, second = (options["home"] for options in opened)
            shutil.rmtree(second, ignore_errors=True)
            shutil.copytree(first, second)
            do(self._sides, "open", *opened)

    def ask_code(self, tree: Path, variants: Sequence[Variant], questions: int, *, model: bool) -> None:
        """Search a tree of code."""
        opened = [{"home": str(side.home / "code"), "tree": str(tree), "model": model} for side in self._sides]
        do(self._sides, "open_code", *opened)
        lines = golden_inputs.code_questions(tree, questions)
        for variant in variants:
            self._ask(variant, tree.name, [{"text": text, "limit": LIMIT} | variant.options for text in lines])

    def _ask(self, variant: Variant, name: str, arguments: Sequence[Options]) -> None:
        result = self.results[variant.name]
        answers = result.answers[name] = []
        for side in self._sides:
            side.send(variant.method, arguments)
        for question in arguments:
            one, other = (side.read() for side in self._sides)
            answers.append(hash(one))
            if one != other or "error" in one[:9]:
                result.differences.append(
                    f"{name}: {question['text'][:60]!r}: {difference(json.loads(one), json.loads(other))}"
                )


def do(sides: Sequence[Side], method: str, *arguments: Options) -> list[Options]:
    """The replies of some sides to a request, each with its own arguments or all with the same; end if one fails."""
    for side, own in zip(sides, arguments if len(arguments) > 1 else arguments * len(sides), strict=False):
        side.send(method, [own])
    replies = [json.loads(side.read()) for side in sides]
    for reply in replies:
        if "error" in reply:
            sys.exit(f"{method}: {reply['error']}")
    return replies


def arguments_of(variant: Variant, data: GoldenSet, question: Question) -> Options:
    """What the adapter is called with for a question."""
    values = {MIDDLE: data.middle, MEMORY: question.memory, PROJECT: data.project, TAG: [data.tag]}
    options = {"limit": LIMIT, **question.options, **variant.options}
    named = {name: values.get(value, value) if isinstance(value, str) else value for name, value in options.items()}
    memory = {"memory": question.memory} if variant.method == "why_not" else {}
    return {"text": question.text, "options": named, **memory}


def difference(one: Any, other: Any, where: str = "") -> str:
    """The first place where two replies differ, and both values."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(f"{where}.{name}", one[name], other[name]) for name in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{where}[{number}]", *both) for number, both in enumerate(zip(one, other, strict=True))]
    else:
        return f"{where.lstrip('.')} {json.dumps(one)[:200]} / {json.dumps(other)[:200]}"
    return next((difference(a, b, place) for place, a, b in pairs if a != b), f"both {json.dumps(one)[:200]}")


def show(results: Mapping[str, Result]) -> int:
    """Print the first differences and the table; how many answers differ."""
    for name, result in results.items():
        for line in result.differences[:SHOWN]:
            print(f"{name}: {line}")
    print(f"\n{'variant':28} {'questions':>9} {'differing':>9} {'not as default':>14}")
    defaults = results[DEFAULT.name].answers if DEFAULT.name in results else {}
    for name, result in results.items():
        questions = sum(map(len, result.answers.values()))
        # Some variants ask fewer questions.
        pairs = [zip(result.answers[data], defaults[data], strict=False) for data in result.answers.keys() & defaults]
        changed = sum(answer != default for pair in pairs for answer, default in pair) if pairs else "-"
        print(f"{name:28} {questions:9} {len(result.differences):9} {changed:>14}")
    total = sum(len(result.differences) for result in results.values())
    print(f"{total} of {sum(len(a) for result in results.values() for a in result.answers.values())} answers differ")
    return total


def module_of_tests(name: str) -> Any:
    """A helper of the tests; their folder is no place to import from, as its names are also those of benchmarks."""
    spec = importlib.util.spec_from_file_location(f"tests_{name}", HERE / "tests" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def folder_of(name: str) -> Path:
    """The folder of a data set, which may be missing."""
    if name == SAMPLE:
        return Path(str(resources.files("triskele.samples"))) / name
    return Path(os.environ.get("TRISKELE_BENCH_DATA", "missing")) / name


def main() -> int:
    """Compare this checkout with another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--adapter", type=Path, help="drives the other checkout if it has no adapter")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--quick", action="store_const", dest="sets", const=f"{SAMPLE},{SOURCE}")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--shared", action="store_true", help="this checkout builds the stores, the other gets copies")
    options = parser.parse_args()
    other = options.checkout.resolve()
    adapters = {"this": (HERE, HERE / ADAPTER), "other": (other, (options.adapter or other / ADAPTER).resolve())}
    names = options.sets.split(",")
    folders = [folder_of(name) for name in names if name != SOURCE]
    processors = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="triskele-golden-")))
        sides = []
        for number, (name, (checkout, adapter)) in enumerate(adapters.items()):
            (home / name).mkdir()
            sides.append(Side(checkout, adapter, home / name, processors[number % len(processors)]))
            stack.callback(sides[-1].end)
        loopback = module_of_tests("loopback")
        far = stack.enter_context(loopback.serving(golden_inputs.stub_service))
        (home / "key").write_text(loopback.KEY)
        stub = {"url": f"{far.url}/v1", "key": str(home / "key"), "dimensions": golden_inputs.DIMENSIONS}
        comparison = Comparison(sides, stub, is_shared=options.shared)
        sets = [golden_inputs.golden_set(folder, options.questions) for folder in folders if folder.is_dir()]
        ask_all(comparison, sets)
        for tree, model, variants in CODE if SOURCE in names else ():
            report(f"code in {tree}")
            comparison.ask_code(HERE / tree, variants, options.questions, model=model)
    report("all answers are compared" + "".join(f", no {each}" for each in folders if not each.is_dir()))
    return int(show(comparison.results) > 0)


def ask_all(comparison: Comparison, sets: Sequence[GoldenSet]) -> None:
    """Ask about every set, in files and over Postgres."""
    for data in sets:
        report(f"{data.name}: {len(data.versions)} versions, {len(data.questions)} questions")
        comparison.ask_store(data, SETUPS)
        comparison.ask_store(data, HALF_EMBEDDED)
    with module_of_tests("postgres").running_server() as server:
        for data in sets:
            report(f"{data.name} over Postgres")
            one = server.create()
            other = one if comparison.is_shared else server.create()
            comparison.ask_store(data, OVER_POSTGRES, (one, other))


def report(text: str) -> None:
    """Say what begins."""
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
