"""What a prompt is met with: how often the right memory, and how often silence where there is none.

    TRISKELE_BENCH_DATA=folder python benchmarks/injection.py

The sample corpus in its own projects, and LoCoMo with a project for every conversation. Every question is a prompt of
a new conversation, through the same code as the hook, at several thresholds of confidence; constants were chosen on
the tune half of the sample corpus.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import cycle
from pathlib import Path

import texts

from triskele.engine import Engine
from triskele.evaluation.arms import arm
from triskele.evaluation.datasets import BenchQuery, Dataset, half, windows
from triskele.evaluation.harness import BenchHarness
from triskele.evaluation.loaders import load_dataset
from triskele.recall.reasons import tokens_of
from triskele.serving.cli.demo import temporary_memory
from triskele.serving.hook import injection
from triskele.serving.hook.injection import Conversation
from triskele.types import LinkKind

THRESHOLDS = (0.0, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt in a project; `gold` are the ids of memories that answer it, none where silence is right."""

    query: BenchQuery
    kind: str
    project: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Met:
    """What a prompt was met with."""

    given: int
    found: int
    tokens: int


def main() -> None:
    """Two tables: the sample corpus by halves, and LoCoMo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", action="store_true", help="also ask LoCoMo's questions (a minute or two)")
    options = parser.parse_args()
    print("| set | prompts | threshold | n | given | right among it | recall | tokens | silence |")
    print("|---|---|---|---|---|---|---|---|---|")
    with temporary_memory() as engine:
        # The sample store names a project of its own; here each prompt has one.
        engine.settings = replace(engine.settings, project=None)
        asked = list(_team(engine))
        for part in ("tune", "test"):
            _tell(f"team, {part}", engine, [each for each in asked if half(each.query) == part])
    if options.locomo:
        _locomo(texts.data_folder() / "locomo")


def _team(engine: Engine) -> Iterator[Asked]:
    """Answerable questions in the project of their answer and in every other one; unanswerable ones in all."""
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
            yield from (Asked(query, "no answer", project, frozenset()) for project in projects)
            continue
        yield Asked(query, "answerable", homes[0] if homes else next(some), gold)
        if all(places[id] for id in gold):
            yield from (Asked(query, "another project", each, frozenset()) for each in projects if each not in homes)


def _standing(engine: Engine, id: str) -> str:
    """What speaks for a memory today."""
    newer = [link.source for link in engine.store.links([id], kind=LinkKind.SUPERSEDES) if link.target == id]
    return _standing(engine, newer[0]) if newer else id


def _locomo(folder: Path) -> None:
    data = load_dataset(folder)
    with BenchHarness(windows(data.documents)) as harness:
        # Embeds what has no vectors yet.
        harness.retriever(arm("default"))
        ids: dict[str, set[str]] = {}
        for memory, window in harness.windows_by_memory.items():
            ids.setdefault(window.document, set()).add(memory)
        _tell("locomo", harness.engine, list(_conversations(data, ids)))


def _conversations(data: Dataset, ids: Mapping[str, set[str]]) -> Iterator[Asked]:
    scopes = sorted({query.scope for query in data.queries if query.scope})
    following = dict(zip(scopes, [*scopes[1:], scopes[0]], strict=True))
    for query in data.ranked():
        gold = {id for document, grade in data.qrels[query.id].items() if grade > 0 for id in ids[document]}
        yield Asked(query, "answerable", query.scope or "", frozenset(gold))
        yield Asked(query, "another project", following[query.scope or scopes[0]], frozenset())
    for query in data.unranked():
        yield Asked(query, "no answer", query.scope or "", frozenset())


def _tell(name: str, engine: Engine, asked: Sequence[Asked]) -> None:
    agents = engine.settings.agents
    for threshold in THRESHOLDS:
        engine.settings = replace(engine.settings, agents=replace(agents, least_confidence=threshold))
        met = [(each, _meet(engine, each)) for each in asked]
        for kind in ("answerable", "another project", "no answer"):
            _line(name, kind, threshold, [(each, one) for each, one in met if each.kind == kind])
    engine.settings = replace(engine.settings, agents=agents)


def _meet(engine: Engine, asked: Asked) -> Met:
    conversation = Conversation(None, asked.project, False, {})
    memories = injection.for_prompt(engine, asked.query.text, conversation)
    budget = engine.settings.agents.budget_tokens
    parcel = injection.injection(engine, "UserPromptSubmit", memories, budget=budget)
    context = json.loads(parcel.document)["hookSpecificOutput"]["additionalContext"] if parcel.document else ""
    found = sum(memory.id in asked.gold for memory in parcel.memories)
    return Met(len(parcel.memories), found, tokens_of(context) if context else 0)


def _line(name: str, kind: str, threshold: float, met: Sequence[tuple[Asked, Met]]) -> None:
    number, given = len(met), [one for _, one in met if one.given]
    share = f"{len(given) / number:.2f}"
    tokens = f"{sum(one.tokens for one in given) / len(given):.0f}" if given else "–"
    right = recall = "–"
    if kind == "answerable":
        right = f"{sum(one.found > 0 for _, one in met) / number:.2f}"
        recall = f"{sum(min(1, one.found / len(each.gold)) for each, one in met) / number:.2f}"
    silence = f"{1 - len(given) / number:.2f}"
    values = (name, kind, str(threshold), str(number), share, right, recall, tokens, silence)
    print(f"| {' | '.join(values)} |", flush=True)


if __name__ == "__main__":
    main()
