"""What curation would do on real texts, for reading and counting.

    TRISKELE_BENCH_DATA=folder python benchmarks/curation.py decisions FILE [SET ...]
        every UPDATE and SUPERSEDE that the rules would make alone, as JSON lines
    TRISKELE_BENCH_DATA=folder python benchmarks/curation.py sentences FILE [SET ...]
        the same, with every sentence as a memory of its own: shorter texts, more decisions
    TRISKELE_BENCH_DATA=folder python benchmarks/curation.py captured FILE [SET ...]
        the same, with what capture keeps of the users' turns (dial all), and the proposals besides
    TRISKELE_BENCH_DATA=folder python benchmarks/curation.py learned STORES SET
        what capture keeps of the conversations of a set, how well it answers, how often the newest fact comes first;
        STORES holds the raw set, embedded as for benchmarks/postgres.py

Texts are taken as memories without a place in a conversation, which would keep every decision below the line. FILE
holds texts of the data sets and stays outside the repository.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

SETS = ("til_notes", "realtalk", "locomo")
_BATCH = 500
_DEPTH = 50
# Questions about a fact that changed; those that ask for what was before have another answer.
_UPDATES = ("knowledge_update", "knowledge-update", "contradiction_resolution")
_PREVIOUS = re.compile(r"\b(?:previous|before (?:i|my|the|getting)|initial|originally)\b", re.IGNORECASE)


def main() -> int:
    """Run the verb that was asked for."""
    verb, *rest = sys.argv[1:] or [""]
    if verb in ("decisions", "sentences") and rest:
        return decisions(Path(rest[0]), rest[1:] or SETS, by_sentence=verb == "sentences")
    if verb == "captured" and rest:
        return captured(Path(rest[0]), rest[1:] or ("beam_100k", "longmemeval_s_heads"))
    if verb == "learned" and len(rest) == 2:
        return learned(Path(rest[0]), rest[1])
    print(__doc__)
    return 2


def decisions(target: Path, sets: Iterable[str], *, by_sentence: bool) -> int:
    """Write what the rules would do alone, and print how many decisions of each kind that is."""
    with target.open("w", encoding="utf-8") as out:
        for name in sets:
            counts: dict[str, int] = {}
            for found in _decided(_texts(name, by_sentence)):
                counts[found["verdict"]] = counts.get(found["verdict"], 0) + 1
                print(json.dumps({"set": name} | found, ensure_ascii=False), file=out, flush=True)
            print(name, counts, flush=True)
    return 0


def _texts(name: str, by_sentence: bool) -> Iterator[dict[str, Any]]:
    """The texts of a set as memories: the speaker's name is a label, not part of the text."""
    from triskele.bench.datasets import windows
    from triskele.bench.loaders import load_dataset
    from triskele.text.words import SENTENCE_END

    for window in windows(load_dataset(Path(os.environ["TRISKELE_BENCH_DATA"]) / name).documents):
        text = window.text
        for speaker in filter(None, (window.speaker, window.role)):
            text = text.removeprefix(f"{speaker}: ")
        parts = re.split(SENTENCE_END, text) if by_sentence else [text]
        for part in parts:
            if part.strip():
                details = {"project": window.scope or "", "speaker": window.speaker, "role": window.role}
                yield {"content": part.strip(), "created_at": window.created, **details}


def _decided(texts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    from triskele.curation.whole_store import StoreReview
    from triskele.errors import BadInput
    from triskele.types import Add, Verdict

    with tempfile.TemporaryDirectory() as home, _opened(Path(home)) as memory:
        drafts = []
        for text in texts:
            try:
                drafts.append(Add(memory.draft(**text)))
            except BadInput:
                continue
        for start in range(0, len(drafts), _BATCH):
            memory.apply(drafts[start : start + _BATCH])
        review = StoreReview(memory)
        for found in review.pairs(review.memories):
            decision = found.decision
            if decision.verdict is Verdict.NOOP or not decision.is_sure or decision.needs_consent:
                continue
            assert decision.old is not None
            yield {
                "verdict": str(decision.verdict),
                "old": decision.old.content,
                "new": decision.new.content,
                "speakers": [decision.old.speaker, decision.new.speaker],
                "rules": [list(reason) for reason in decision.reasons],
            }


def captured(target: Path, sets: Iterable[str]) -> int:
    """Write what curation would do with the facts that capture keeps, sure or only proposed, and print the counts."""
    from triskele.curation.whole_store import StoreReview

    with target.open("w", encoding="utf-8") as out:
        for name in sets:
            documents, _, _ = _asked_of(name)
            users = [each for each in documents if each.meta.get("role", "user") == "user"]
            counts: dict[str, int] = {}
            with tempfile.TemporaryDirectory() as home, _opened(Path(home)) as memory:
                facts = len(_captured(memory, "all", users))
                review = StoreReview(memory)
                for found in review.pairs(review.memories):
                    decision = found.decision
                    acts = "alone" if decision.is_sure and not decision.needs_consent else "proposed"
                    kind = f"{decision.verdict} {acts}"
                    counts[kind] = counts.get(kind, 0) + 1
                    assert decision.old is not None
                    row = {"set": name, "kind": kind, "old": decision.old.content, "new": decision.new.content}
                    row |= {"confidence": decision.confidence, "rules": [list(each) for each in decision.reasons]}
                    print(json.dumps(row, ensure_ascii=False), file=out, flush=True)
            print(name, f"{facts} facts", counts, flush=True)
    return 0


def _asked_of(name: str) -> tuple[Any, Any, Any]:
    """The documents of a set that questions are asked about, these questions, and the set."""
    from triskele.bench.datasets import UNRANKED_TYPES
    from triskele.bench.loaders import load_dataset

    data = load_dataset(Path(os.environ["TRISKELE_BENCH_DATA"]) / name)
    asked = [query for query in data.ranked() if query.type not in UNRANKED_TYPES]
    if name.startswith("longmemeval"):
        # One haystack of 50 sessions for each question: only those about changed facts are read.
        asked = [query for query in asked if query.type in _UPDATES]
    scopes = {query.scope for query in asked}
    return [each for each in data.documents if each.scope in scopes], asked, data


def learned(stores: Path, name: str) -> int:
    """Compare the raw turns of a set with what capture keeps of them, before and after curation."""
    documents, asked, data = _asked_of(name)
    order = {each.id: place for place, each in enumerate(sorted(documents, key=_said_at))}
    (home,) = (stores / name).glob("harness-*")
    with tempfile.TemporaryDirectory() as scratch, _opened(shutil.copytree(home, Path(scratch) / "home")) as raw:
        by_text = {(each.scope, each.text): each.document for each in windows_of(documents)}
        before = _rankings(raw, asked, lambda hit: by_text.get((hit.project, hit.content)))
    users = {each.id for each in documents if each.meta.get("role", "user") == "user"}
    before = {id: [hit for hit in hits if hit[0] in users] for id, hits in before.items()}
    for dial in ("normal", "all"):
        _measure_dial(dial, documents, users, asked, data.qrels, order, before)
    return 0


def _measure_dial(
    dial: str, documents: Any, users: set[str], asked: Any, qrels: Any, order: dict[str, int], before: Any
) -> None:
    from triskele.curation import whole_store

    with tempfile.TemporaryDirectory() as scratch, _opened(Path(scratch)) as memory:
        sources = _captured(memory, dial, [each for each in documents if each.id in users])
        turns, facts = len(users), len(sources)
        print(f"dial {dial}: {facts} facts of {turns} turns, {100 * facts / turns:.1f} per 100 turns", flush=True)
        memory.upkeep.embed()
        found = {"facts": _rankings(memory, asked, lambda hit: sources[hit.id])}
        result = whole_store.curate(memory, threshold=0.9)
        found["curated"] = _rankings(memory, asked, lambda hit: sources[hit.id])
        accepted = _accept(memory)
        found["all proposals accepted"] = _rankings(memory, asked, lambda hit: sources[hit.id])
        print(f"  applied {len(result.applied)}, then accepted {accepted} proposals", flush=True)
    gold = {query.id: {id for id, grade in qrels[query.id].items() if grade > 0} for query in asked}
    held = {id for ids in gold.values() for id in ids}
    print(f"  turns with an answer of which a fact was kept: {len(held & set(sources.values()))} of {len(held)}")
    for label, rankings in {"raw turns": before, **found}.items():
        _print_recall(label, asked, gold, rankings)
    updates = [query for query in asked if query.type in _UPDATES and not _PREVIOUS.search(query.text)]
    for label, rankings in found.items() if updates else ():
        _print_newest(label, updates, gold, order, before, rankings)


def _captured(memory: Any, dial: str, documents: Any) -> dict[str, str]:
    """Store what capture keeps of each turn; returns the turn of every memory."""
    from triskele.agents import capture
    from triskele.errors import BadInput
    from triskele.types import Add, SpokenTurn

    changes, sources = [], {}
    for window in windows_of(documents):
        text = window.text
        for speaker in filter(None, (window.speaker, window.role)):
            text = text.removeprefix(f"{speaker}: ")
        turn = SpokenTurn("user", text, session=window.document)
        for each in capture.sorted_out(capture.capture([turn]), dial)[0]:
            try:
                draft = memory.draft(
                    each.text, project=window.scope or "", created_at=window.created, speaker=window.speaker
                )
            except BadInput:
                continue
            changes.append(Add(draft))
            sources[draft.id] = window.document
    for start in range(0, len(changes), _BATCH):
        memory.apply(changes[start : start + _BATCH])
    return sources


def _accept(memory: Any) -> int:
    from triskele.errors import TriskeleError
    from triskele.types import Verdict

    count = 0
    for proposal in memory.proposals.list():
        if proposal.kind is not Verdict.SUPERSEDE:
            continue
        try:
            memory.proposals.accept(proposal.id)
            count += 1
        except TriskeleError:
            # Another one replaced its memory meanwhile.
            continue
    return count


def _rankings(memory: Any, asked: Any, source: Any) -> dict[str, list[tuple[str, str]]]:
    """The sources and texts of the hits of every question, best first."""
    ranked = {}
    for query in asked:
        hits = memory.recall(query.text, project=query.scope, limit=_DEPTH, logged=False).hits
        ranked[query.id] = [(source(hit.memory) or "", hit.memory.content) for hit in hits]
    return ranked


def _print_recall(label: str, asked: Any, gold: Any, rankings: Any) -> None:
    hits = sum(any(id in gold[query.id] for id, _ in rankings[query.id][:10]) for query in asked)
    shares = [_share(str(query.meta.get("answer", "")), rankings[query.id][:10]) for query in asked]
    words = sum(shares) / len(shares)
    print(f"  {label:24} a gold turn in the top 10: {hits} of {len(asked)}; answer words in the top 10: {words:.3f}")


def _share(answer: str, hits: list[tuple[str, str]]) -> float:
    """The share of the words of an answer that the texts hold."""
    from triskele.curation.wording import content, forms, words

    wanted = set(forms(content(words(answer))))
    held = {form for _, text in hits for form in forms(words(text))}
    return len(wanted & held) / len(wanted) if wanted else 1.0


def _print_newest(label: str, asked: Any, gold: Any, order: dict[str, int], before: Any, after: Any) -> None:
    """How often the newest of several gold turns comes first, with a sign test over the questions."""
    chosen = [query for query in asked if len(gold[query.id]) > 1]
    newest = {query.id: max(gold[query.id], key=order.__getitem__) for query in chosen}
    first = [[bool(r[id]) and r[id][0][0] == new for id, new in newest.items()] for r in (before, after)]
    ahead = [[_is_ahead(r[id], new, gold[id] - {new}) for id, new in newest.items()] for r in (before, after)]
    for what, (old, new) in (("first hit", first), ("ahead of the older ones", ahead)):
        up, down = (sum(b > a for a, b in zip(x, y, strict=True)) for x, y in ((old, new), (new, old)))
        chance = sum(math.comb(up + down, k) for k in range(max(up, down), up + down + 1)) / 2 ** (up + down)
        told = f"{sum(old)} before, {sum(new)} after, of {len(chosen)}"
        print(f"  {label:24} newest {what}: {told}; {up} gained, {down} lost, p={min(1, 2 * chance):.3f}")


def _is_ahead(hits: list[tuple[str, str]], newest: str, older: set[str]) -> bool:
    return next((id == newest for id, _ in hits if id == newest or id in older), False)


def windows_of(documents: Any) -> Any:
    """The documents as the raw store holds them."""
    from triskele.bench.datasets import windows

    return windows(documents)


def _said_at(document: Any) -> Any:
    from triskele.bench.datasets import windows

    (first, *_) = windows([document])
    return (first.created is not None, first.created, document.meta.get("msg_id", 0))


def _opened(home: Path) -> Any:
    from triskele import config, engine

    return engine.open_memory(settings=config.load({"TRISKELE_HOME": str(home)}), folder=Path(home))


if __name__ == "__main__":
    sys.exit(main())
