"""Building the set: questions from the recall log, from the words of memories, and from pairs of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triskele.curation import recall_log
from triskele.curation.recall_log import LoggedQuery
from triskele.engine import Engine
from triskele.errors import BadInput
from triskele.evaluation.own import phrases, questions
from triskele.evaluation.own.hops import Pair, pairs
from triskele.evaluation.own.questions import EXACT, FROM_LINKS, FROM_WORDS, MULTI_HOP, PARAPHRASE, TYPES, Question
from triskele.evaluation.own.sampling import in_use, is_open, spread, stratum
from triskele.types import Memory

MAX_SIZE = 5000
# So many memories are looked at for what joins two of them.
MOST_PAIRED = 5000
LOG = "log"
PHRASE, REWORDED = "phrase", "reworded"


@dataclass(slots=True)
class Built:
    """What a building added, what it refused and why, and what stands on the shelf now."""

    wanted: int
    added: list[Question] = field(default_factory=list)
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    standing: Mapping[str, Question] = field(default_factory=dict)

    def missing(self) -> dict[str, int]:
        """How many of each kind could not be made."""
        there = Counter(question.type for question in self.standing.values())
        return {type: self.wanted - there[type] for type in TYPES if there[type] < self.wanted}


def build(engine: Engine, *, size: int, seed: int) -> Built:
    """Add questions until each kind has its third of the size; judged ones always stay."""
    if not len(TYPES) <= size <= MAX_SIZE:
        raise BadInput(f"size must be between {len(TYPES)} and {MAX_SIZE:,}, not {size}")
    engine.embed()
    memories = in_use(engine)
    built = Built(wanted=size // len(TYPES))
    standing = questions.load(engine.store)
    stale = [id for id, each in standing.items() if not each.judged and not set(each.sources) <= memories.keys()]
    questions.drop(engine.store, stale)
    built.dropped = len(stale)
    kept = {id: each for id, each in standing.items() if id not in stale}
    built.added = _added(engine, memories, kept, built, seed)
    questions.save(engine.store, built.added)
    built.standing = kept | {each.id: each for each in built.added}
    return built


def _added(
    engine: Engine, memories: Mapping[str, Memory], kept: Mapping[str, Question], built: Built, seed: int
) -> list[Question]:
    """New questions, those of the log first, until there are enough of each kind."""
    counts = Counter(question.type for question in kept.values())
    known = set(kept)
    added: list[Question] = []

    def take(found: Iterable[Question], *types: str) -> None:
        for question in found:
            if question.id not in known and counts[question.type] < built.wanted:
                known.add(question.id)
                counts[question.type] += 1
                added.append(question)
            if all(counts[type] >= built.wanted for type in types):
                return

    # A memory is asked about once in each way, also over several buildings.
    used = {(source, each.generator) for each in kept.values() for source in each.sources}
    chosen = spread((memory for memory in memories.values() if is_open(memory)), seed)
    take(_from_log(engine, memories, built), EXACT, PARAPHRASE)
    take(_exacts((memory for memory in chosen if (memory.id, PHRASE) not in used), engine), EXACT)
    take(_paraphrases((memory for memory in chosen if (memory.id, REWORDED) not in used), engine, built), PARAPHRASE)
    if counts[MULTI_HOP] < built.wanted:
        take(_multi_hops(pairs(engine, chosen[:MOST_PAIRED], built.wanted * 2), engine), MULTI_HOP)
    return added


def _from_log(engine: Engine, memories: Mapping[str, Memory], built: Built) -> Iterator[Question]:
    for asked in recall_log.entries(engine.store):
        top = memories.get(asked.hits[0]) if asked.hits else None
        if len(engine.lexical.analyzer.query_terms(asked.text)) < 2:
            built.refused["log: a single word"] += 1
        elif top is not None and not is_open(top):
            built.refused["log: about a private memory"] += 1
        else:
            yield _logged(asked, top, engine)


def _logged(asked: LoggedQuery, top: Memory | None, engine: Engine) -> Question:
    shared = phrases.overlap(asked.text, top.content, engine.lexical.analyzer) if top else 0.0
    kind = PARAPHRASE if shared <= phrases.MAX_OVERLAP else EXACT
    return questions.make(asked.text, kind, LOG, project=asked.project, about=asked.hits)


def _exacts(memories: Iterable[Memory], engine: Engine) -> Iterator[Question]:
    for memory in memories:
        phrase = phrases.salient_phrase(memory.content, engine.lexical)
        if phrase is not None:
            yield _about([memory], phrase, EXACT, PHRASE, (FROM_WORDS,))


def _paraphrases(memories: Iterable[Memory], engine: Engine, built: Built) -> Iterator[Question]:
    for memory in memories:
        text = phrases.reworded(memory, engine.lexical)
        if text is None:
            built.refused["paraphrase: no keywords or tags in other words"] += 1
        elif phrases.overlap(text, memory.content, engine.lexical.analyzer) > phrases.MAX_OVERLAP:
            share = f"{phrases.MAX_OVERLAP * 100:.0f} %"
            built.refused[f"paraphrase: shares more than {share} of its words with the memory"] += 1
        else:
            yield _about([memory], text, PARAPHRASE, REWORDED, (FROM_WORDS,))


def _multi_hops(found: Sequence[Pair], engine: Engine) -> Iterator[Question]:
    for pair in found:
        one, other = (phrases.salient_phrase(memory.content, engine.lexical) for memory in (pair.one, pair.other))
        if one and other:
            text = f"how does {one} relate to {other}?"
            if pair.shared:
                text = f"what do {one} and {other} have to do with {pair.shared}?"
            yield _about([pair.one, pair.other], text, MULTI_HOP, pair.generator, (FROM_LINKS, FROM_WORDS))


def _about(memories: Sequence[Memory], text: str, type: str, generator: str, circular: tuple[str, ...]) -> Question:
    projects = {memory.project for memory in memories} - {""}
    return questions.make(
        text,
        type,
        generator,
        project=projects.pop() if len(projects) == 1 else None,
        sources=tuple(memory.id for memory in memories),
        stratum=" + ".join(dict.fromkeys(map(stratum, memories))),
        circular=circular,
    )
