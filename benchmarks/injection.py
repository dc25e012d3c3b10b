"""What the hook gives each prompt: how often the right memory, and how often nothing if no memory answers.

    TRISKELE_BENCH_DATA=folder python benchmarks/injection.py
    python benchmarks/injection.py --halves tune --everyday

The sample corpus in its own projects, and sets of conversations with a project for each. Every question is a prompt of
a new conversation, through the same code as the hook, at several thresholds of confidence. `--everyday`: the three
stores in `everyday_stores/`, what recall ranks first and shows as good, and what the hook gives as shipped; every short
prompt is asked in each store.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import texts

from triskele import config
from triskele.agents import injection
from triskele.agents.injection import Conversation, Injector
from triskele.bench.datasets import BenchQuery, Dataset, half, windows
from triskele.bench.harness import BenchHarness
from triskele.bench.loaders import load_dataset
from triskele.edge.cli.demo import temporary_memory
from triskele.edge.process import connect
from triskele.engine.local import LocalEngine
from triskele.text.words import tokens_of
from triskele.types import LinkKind

THRESHOLDS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
CONVERSATIONS = ("locomo", "realtalk", "beam_100k", "longmemeval_s_heads")
EVERYDAY = Path(__file__).parent / "everyday_stores"
STORES = ("bookkeeper", "pharmacy", "studio")
KINDS = ("answerable", "prompt", "another project", "no answer", "nothing to recall")


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt in a project; `gold` are the ids of memories that answer it, none where silence is right."""

    query: BenchQuery
    kind: str
    project: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Met:
    """What a prompt is given without a threshold, and the confidence that a threshold is compared with."""

    confidence: float
    given: int
    found: int
    tokens: int


NOTHING = Met(0.0, 0, 0, 0)


def main() -> None:
    """The sample corpus by halves, and sets of conversations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="", help=f"also ask the questions of some of {', '.join(CONVERSATIONS)}")
    parser.add_argument("--halves", default="tune,test", help="halves of the sample corpus")
    parser.add_argument("--everyday", action="store_true", help="only the three everyday stores")
    options = parser.parse_args()
    if options.everyday:
        _everyday(options.halves.split(","))
        return
    print("| set | prompts | threshold | n | given | right among it | recall | tokens | silence |")
    print("|---|---|---|---|---|---|---|---|---|")
    with temporary_memory() as engine:
        # The sample store names a project of its own; here each prompt has one.
        engine.settings = replace(engine.settings, project=None)
        asked = list(team_prompts(engine))
        for part in options.halves.split(","):
            _tell(f"team, {part}", engine, [each for each in asked if half(each.query) == part])
    for name in filter(None, options.sets.split(",")):
        _conversation_set(texts.data_folder() / name)


def team_prompts(engine: LocalEngine) -> Iterator[Asked]:
    """Answerable questions in the project of their answer and in every other one; the others in one project each."""
    folder = Path(str(resources.files("triskele.samples") / "team"))
    data = load_dataset(folder)
    texts_of = {document.id: document.text for document in data.documents}
    ids = {memory.content: memory.id for _, memory in engine.store.versions()}
    places = {memory.id: memory.project for _, memory in engine.store.versions()}
    projects = sorted({place for place in places.values() if place})
    some = cycle(projects)
    for query in data.queries:
        labelled = data.qrels.get(query.id, {})
        gold = frozenset(_standing(engine, ids[texts_of[id]]) for id, grade in labelled.items() if grade > 0)
        homes = sorted({places[id] for id in gold if places[id]})
        if not gold:
            yield Asked(query, "nothing to recall" if query.type == "idle" else "no answer", next(some), frozenset())
            continue
        kind = "prompt" if query.type == "prompt" else "answerable"
        yield Asked(query, kind, homes[0] if homes else next(some), gold)
        if all(places[id] for id in gold):
            yield from (Asked(query, "another project", each, frozenset()) for each in projects if each not in homes)


def _standing(engine: LocalEngine, id: str) -> str:
    """What speaks for a memory today."""
    newer = [link.source for link in engine.store.links([id], kind=LinkKind.SUPERSEDES) if link.target == id]
    return _standing(engine, newer[0]) if newer else id


def _conversation_set(folder: Path) -> None:
    data = load_dataset(folder)
    with BenchHarness(windows(data.documents)) as harness:
        # Embeds what has no vectors yet.
        harness.precompute(())
        ids: dict[str, set[str]] = {}
        for memory, window in harness.windows_by_memory.items():
            ids.setdefault(window.document, set()).add(memory)
        _tell(folder.name, harness.engine, list(_conversations(data, ids)))


def _conversations(data: Dataset, ids: Mapping[str, set[str]]) -> Iterator[Asked]:
    scopes = sorted({query.scope for query in data.queries if query.scope})
    following = dict(zip(scopes, [*scopes[1:], scopes[0]], strict=True))
    for query in data.ranked():
        gold = {id for document, grade in data.qrels[query.id].items() if grade > 0 for id in ids[document]}
        yield Asked(query, "answerable", query.scope or "", frozenset(gold))
        yield Asked(query, "another project", following[query.scope or scopes[0]], frozenset())
    for query in data.unranked():
        yield Asked(query, "no answer", query.scope or "", frozenset())


def _tell(name: str, engine: LocalEngine, asked: Sequence[Asked]) -> None:
    agents = engine.settings.agents
    engine.settings = replace(engine.settings, agents=replace(agents, least_confidence=0.0))
    met = [(each, _meet(engine, each)) for each in asked]
    engine.settings = replace(engine.settings, agents=agents)
    for threshold in THRESHOLDS:
        for kind in KINDS:
            own = [(each, one if one.confidence >= threshold else NOTHING) for each, one in met if each.kind == kind]
            if own:
                _line(name, kind, threshold, own)


def _meet(engine: LocalEngine, asked: Asked) -> Met:
    conversation = Conversation(None, asked.project, False, {})
    query = injection.query_of(asked.query.text)
    injector = Injector(engine, conversation)
    answer = injector.recalled(query)
    parcel = injector.prompt_text(injector.for_prompt(query, answer))
    context = json.loads(parcel.document)["hookSpecificOutput"]["additionalContext"] if parcel.document else ""
    found = sum(memory.id in asked.gold for memory in parcel.memories)
    return Met(answer.confidence, len(parcel.memories), found, tokens_of(context) if context else 0)


@contextmanager
def everyday_store(name: str) -> Iterator[tuple[LocalEngine, Dataset, dict[str, str]]]:
    """An everyday store as its owner would have filled it, its data set, and the ids of its memories by document."""
    data = load_dataset(EVERYDAY / name)
    with TemporaryDirectory(prefix="triskele-everyday-") as folder:
        settings = config.load({"TRISKELE_HOME": folder, "TRISKELE_PROJECT": name})
        with connect.open_store(settings, Path(folder)) as engine:
            drafts = [{"content": document.text, "created_at": document.meta["created"]} for document in data.documents]
            for draft, document in zip(drafts, data.documents, strict=True):
                draft |= {key: value for key, value in document.meta.items() if key != "created"}
            outcomes = engine.remember_all(drafts)
            engine.upkeep.reindex()
            engine.upkeep.embed()
            yield engine, data, {each.id: outcome.id for each, outcome in zip(data.documents, outcomes, strict=True)}


def _everyday(halves: Sequence[str]) -> None:
    short = [query for name in STORES for query in load_dataset(EVERYDAY / name).queries if query.type == "idle"]
    print("| store | questions | n | first | top 3 | good | weak | first: good | weak | hook: right | hook: silent |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    together: dict[str, list[tuple[bool, ...]]] = defaultdict(list)
    for name in STORES:
        with everyday_store(name) as (engine, data, ids):
            rows: dict[str, list[tuple[bool, ...]]] = defaultdict(list)
            for query in [*(query for query in data.queries if query.type != "idle"), *short]:
                if half(query) in halves:
                    gold = frozenset(ids[id] for id, grade in data.qrels.get(query.id, {}).items() if grade > 0)
                    rows[query.type].append(_answered(engine, query, gold, data.documents[-1].meta["created"]))
        _everyday_lines(name, rows)
        for kind, found in rows.items():
            together[kind] += found
    _everyday_lines("all", together)


def _answered(engine: LocalEngine, query: BenchQuery, gold: frozenset[str], moment: str) -> tuple[bool, ...]:
    """First, in the top 3; good, weak; first and good, first and weak; the hook gives the right one, nothing."""
    answer = engine.recall(query.text, as_of=moment, logged=False)
    top = [hit.memory.id in gold for hit in answer.hits[:3]]
    fits = [answer.fit == fit for fit in ("good", "weak")]
    met = _meet(engine, Asked(query, "", engine.project, gold))
    met = met if met.confidence >= engine.settings.agents.least_confidence else NOTHING
    first = any(top[:1])
    return first, any(top), *fits, *(first and fit for fit in fits), met.found > 0, not met.given


def _everyday_lines(name: str, rows: Mapping[str, Sequence[tuple[bool, ...]]]) -> None:
    for kind, found in rows.items():
        print(f"| {name} | {kind} | {len(found)} | {' | '.join(map(str, map(sum, zip(*found, strict=True))))} |")


def _line(name: str, kind: str, threshold: float, met: Sequence[tuple[Asked, Met]]) -> None:
    number, given = len(met), [one for _, one in met if one.given]
    share = f"{len(given) / number:.2f}"
    tokens = f"{sum(one.tokens for one in given) / len(given):.0f}" if given else "–"
    right = recall = "–"
    if kind in ("answerable", "prompt"):
        right = f"{sum(one.found > 0 for _, one in met) / number:.2f}"
        recall = f"{sum(min(1, one.found / len(each.gold)) for each, one in met) / number:.2f}"
    silence = f"{1 - len(given) / number:.2f}"
    values = (name, kind, str(threshold), str(number), share, right, recall, tokens, silence)
    print(f"| {' | '.join(values)} |", flush=True)


if __name__ == "__main__":
    main()
