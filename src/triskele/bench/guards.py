"""Guards: find what makes the numbers of a benchmark misleading.

Structure: a leg that cannot reach the top under an arm's fusion, or changes nothing there; an ablation of it says
nothing. Pooling: results without a label count as wrong. Leaks: ids, meta or texts that give the relevant document
away. Circularity: a set that was made by what it measures; a set declares `generator`, `judge` and `built_from` (the
arms whose results made a stratum: `"fts"`, `["fts"]`, or by stratum `{"exact": ["fts"]}`) in `manifest.json` or in
the meta of its queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from triskele.bench.arms import Arm
from triskele.bench.datasets import BenchDocument, BenchQuery, Qrels
from triskele.bench.measure import TOP, Run, relevant
from triskele.recall.fusion import METHODS, FusionConfig

SHOWN_EXAMPLES = 5
MAX_POOLING_GAP = 0.10
_MIN_QUERIES = 20
# Words that give an answer away in an id or in a key of meta.
_TELLING = frozenset({"answer", "answers", "gold", "golden", "relevant", "relevance", "qrel", "qrels", "label"})
# Keys that documents share for other reasons; recall searches none of them.
_EXPECTED_KEYS = frozenset({"scope", "session", "importance", "date", "created", "updated"})
_BY_CHANCE = 0.01
_MIN_COVERED = 0.5
_MIN_NAME = 4
_MIN_NUMBERS = 3
_COMPARED = 20
_START = 4
_MAX_VERBATIM = 0.05
_EXPECTED_VERBATIM = ("exact", "known-item")
_WORD = re.compile(r"[^\W_]+")

Words = tuple[str, ...]


class Severity(StrEnum):
    """Whether a number must not be trusted, or needs a caveat."""

    ALARM = "alarm"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """A finding; only `examples` hold text or ids of the data set."""

    guard: str
    severity: Severity
    message: str
    arm: str | None = None
    stratum: str | None = None
    examples: tuple[str, ...] = ()

    def to_json(self, *, public: bool = False) -> dict[str, Any]:
        """The finding as plain values; a public one has no examples."""
        about = {"guard": self.guard, "severity": str(self.severity), "said": self.message}
        named = {"arm": self.arm, "stratum": self.stratum}
        shown = {} if public else {"examples": list(self.examples[:SHOWN_EXAMPLES])}
        return about | {key: value for key, value in named.items() if value is not None} | shown


def alarms_first(findings: Sequence[GuardFinding]) -> list[GuardFinding]:
    """Alarms before notes, otherwise in their order."""
    return sorted(findings, key=lambda finding: finding.severity is not Severity.ALARM)


# Structure


class Reach(StrEnum):
    """How far a leg can reach into the top ranks."""

    BRINGS = "brings"
    LIFTS = "lifts"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFusion:
    """Reciprocal rank fusion of full lists, each of `depth` candidates."""

    weights: Mapping[str, float]
    k: Mapping[str, float] = field(default_factory=dict)
    depth: int = 50

    def score(self, leg: str, rank: int) -> float:
        """What a leg adds to the candidate at a rank."""
        return self.weights[leg] / (self.k.get(leg, FusionConfig().default_k) + rank) if rank <= self.depth else 0.0

    def bar(self, leg: str, top: int) -> float:
        """Lowest score of the last top rank from the other legs.

        Each other leg alone puts `top` candidates at or above its own score at that rank, and there is an
        arrangement that reaches no more than that: the same candidates above, different ones there.
        """
        return max((self.score(other, top) for other in self.weights if other != leg), default=0.0)

    def reach(self, leg: str, top: int = TOP) -> Reach:
        """Whether a candidate of this leg can reach the top."""
        best = self.score(leg, 1)
        if best <= 0:
            return Reach.NONE
        # Among equal scores the candidate at the better rank comes first.
        if best >= self.bar(leg, top):
            return Reach.BRINGS
        # Whether it lifts what another leg retrieves just below the top.
        is_lifted = self.bar(leg, top + 1) + best > self.bar(leg, top)
        return Reach.LIFTS if is_lifted else Reach.NONE


def reaches(arm: Arm, depth: int) -> dict[str, Reach]:
    """How far each leg of an arm can reach by ranks."""
    plan = arm.plan
    if plan is None or plan.fusion != "rrf" or len(plan.legs) < 2:
        return {}
    weights = plan.weights or METHODS[plan.fusion].weights
    fusion = RankFusion(weights={leg: weights.get(leg, 0.0) for leg in plan.legs}, k=plan.k, depth=depth)
    return {leg: fusion.reach(leg) for leg in sorted(plan.legs)}


def identical_arms(runs: Mapping[str, Run]) -> Iterator[GuardFinding]:
    """Find arms with equal top documents for every query."""
    alike: dict[int, list[str]] = {}
    for name, run in runs.items():
        tops = tuple(document for found in run.values() for document, _ in found[:TOP])
        alike.setdefault(hash(tops), []).append(name)
    for first, *repeats in alike.values():
        for other in repeats:
            message = f"{other} ranks the first {TOP} of every query as {first} does: this set cannot compare them."
            yield GuardFinding("structure", Severity.NOTE, message, other)


def idle_legs(arm: str, reached: Mapping[str, Reach], legs: Mapping[str, Any], queries: int) -> Iterator[GuardFinding]:
    """Find legs of an arm that cannot change its top."""
    for leg, reach in reached.items():
        if reach is Reach.NONE:
            message = f"{arm}: no candidate of the {leg} leg can reach the first {TOP} under these weights"
            yield GuardFinding("structure", Severity.ALARM, f"{message}; this arm does not test that leg.", arm)
        elif reach is Reach.LIFTS:
            message = f"{arm}: the {leg} leg can lift what other legs retrieve, but what it alone retrieves stays below"
            yield GuardFinding("structure", Severity.NOTE, f"{message} rank {TOP}.", arm)
    counted = legs["legs"]
    if len(counted) < 2 or queries < _MIN_QUERIES:
        return
    for leg, counts in counted.items():
        if counts["changed"] == 0 and reached.get(leg) is not Reach.NONE:
            message = f"{arm}: without the {leg} leg the first {TOP} of all {queries} queries are the same"
            yield GuardFinding("structure", Severity.ALARM, f"{message}; this arm does not test that leg.", arm)


# Pooling


def label_coverage(runs: Mapping[str, Run], queries: Sequence[BenchQuery], qrels: Qrels) -> dict[str, Any]:
    """Share of each arm's top results with a label."""
    grades = [grade for query in queries for grade in qrels[query.id].values()]
    right = [len(relevant(query.id, qrels)) for query in queries]
    return {
        "top": TOP,
        "means": "judged" if min(grades) <= 0 else "relevant",
        "graded": len({grade for grade in grades if grade > 0}) > 1,
        "one_right": sum(count == 1 for count in right) / len(right),
        "arms": {name: _labelled_share(run, queries, qrels) for name, run in runs.items()},
    }


def _labelled_share(run: Run, queries: Sequence[BenchQuery], qrels: Qrels) -> float:
    labelled = [document in qrels[query.id] for query in queries for document, _ in run[query.id][:TOP]]
    return sum(labelled) / len(labelled) if labelled else 0.0


def pooling(coverage: Mapping[str, Any]) -> Iterator[GuardFinding]:
    """Find arms judged unequally, and labels that are weak evidence."""
    shares = coverage["arms"]
    least, most = min(shares, key=lambda name: shares[name]), max(shares, key=lambda name: shares[name])
    if coverage["means"] == "relevant":
        message = "The labels name relevant documents only: it is unknown whether an arm's other results were judged"
        yield GuardFinding("pooling", Severity.NOTE, f"{message}, so levels are a lower bound and differences count.")
    elif shares[most] - shares[least] > MAX_POOLING_GAP:
        message = f"{shares[most]:.0%} of the first {TOP} of {most} are judged, of {least} only {shares[least]:.0%}"
        yield GuardFinding("pooling", Severity.ALARM, f"{message}: the labels favour the arms that were pooled.", least)
    if not coverage["graded"]:
        message = "The labels are binary: nDCG says where a relevant document ranks, not how relevant it is."
        yield GuardFinding("pooling", Severity.NOTE, message)


# Leaks


def leaks(documents: Sequence[BenchDocument], queries: Sequence[BenchQuery], qrels: Qrels) -> Iterator[GuardFinding]:
    """Everything that gives relevant documents away before a search."""
    right = {query.id: relevant(query.id, qrels) for query in queries}
    gold = {id for ids in right.values() for id in ids}
    yield from shared_ids(documents, right)
    yield from telling_names(documents, gold)
    yield from shared_values(documents, gold)
    yield from verbatim_queries(documents, queries)


def shared_ids(documents: Sequence[BenchDocument], right: Mapping[str, Collection[str]]) -> Iterator[GuardFinding]:
    """Find ids of relevant documents that contain their query's id."""
    pairs: list[tuple[str, str]] = []
    by_chance = compared = 0
    for number, (query, ids) in enumerate(right.items()):
        pairs += [(query, id) for id in sorted(ids) if _contains(query, id)]
        start = number * _COMPARED % len(documents)
        unlabelled = [each.id for each in documents[start : start + _COMPARED] if each.id not in ids]
        by_chance += sum(_contains(query, id) for id in unlabelled)
        compared += len(unlabelled)
    expected = by_chance / max(1, compared) * sum(map(len, right.values()))
    is_named = any(_is_name(query) and _is_name(id) for query, id in pairs)
    if pairs and len(pairs) > 10 * expected and (is_named or len(pairs) >= _MIN_NUMBERS):
        message = f"{len(pairs):,} relevant documents share their id with their query: the id gives the answer away."
        yield GuardFinding("leak", Severity.ALARM, message, examples=tuple(f"{query} → {id}" for query, id in pairs))


def telling_names(documents: Sequence[BenchDocument], gold: Collection[str]) -> Iterator[GuardFinding]:
    """Find ids and keys with words such as "gold" that mark answers."""
    holders = {
        "ids": [each.id for each in documents if _TELLING & set(_words(each.id))],
        **{
            f"values of meta.{key}": [each.id for each in documents if each.meta.get(key)]
            for key in sorted({key for each in documents for key in each.meta if _TELLING & set(_words(key))})
        },
    }
    for where, ids in holders.items():
        if _gives_away(ids, gold, len(documents)):
            message = f"The {where} of {len(ids):,} documents mark answers, and relevant documents are among them."
            yield GuardFinding("leak", Severity.ALARM, message, examples=tuple(ids))


def _gives_away(holders: Sequence[str], gold: Collection[str], documents: int) -> bool:
    """Whether relevant documents are twice as frequent among the holders."""
    right = sum(id in gold for id in holders)
    rest = documents - len(holders)
    return right > 0 and rest > 0 and right / len(holders) >= 2 * (len(gold) - right) / rest


def shared_values(documents: Sequence[BenchDocument], gold: Collection[str]) -> Iterator[GuardFinding]:
    """Find values that most relevant documents share and no others."""
    holders: dict[tuple[str, str], list[str]] = {}
    for document in documents:
        for feature in _features(document):
            holders.setdefault(feature, []).append(document.id)
    rate = len(gold) / len(documents)
    for (key, value), ids in holders.items():
        covers = len(ids) >= _MIN_COVERED * len(gold)
        if covers and rate ** len(ids) * len(holders) < _BY_CHANCE and all(id in gold for id in ids):
            message = f"{len(ids):,} of {len(gold):,} relevant documents share a value of {key} that no other has."
            yield GuardFinding("leak", Severity.ALARM, message, examples=(f"{key} = {value}",))


def _features(document: BenchDocument) -> Iterator[tuple[str, str]]:
    yield "the beginning of the id", re.split(r"[\W_\d]", document.id, maxsplit=1)[0]
    for key, value in document.meta.items():
        if key not in _EXPECTED_KEYS and isinstance(value, str | int | float):
            yield f"meta.{key}", str(value)


def verbatim_queries(documents: Sequence[BenchDocument], queries: Sequence[BenchQuery]) -> Iterator[GuardFinding]:
    """Find queries that occur word for word in indexed texts."""
    words = {query.id: _words(query.text) for query in queries}
    document_of = _holders({id: own for id, own in words.items() if len(own) >= _START}, documents)
    for kind in sorted({query.type for query in queries}):
        those = [query.id for query in queries if query.type == kind]
        hits = [f"{id} in {document_of[id]}" for id in those if id in document_of]
        if hits and not kind.lower().startswith(_EXPECTED_VERBATIM):
            severity = Severity.ALARM if len(hits) > _MAX_VERBATIM * len(those) else Severity.NOTE
            message = f"{len(hits):,} of {len(those):,} queries of {kind} occur word for word in an indexed text."
            yield GuardFinding("leak", severity, message, stratum=kind, examples=tuple(hits))


def _holders(queries: Mapping[str, Words], documents: Sequence[BenchDocument]) -> dict[str, str]:
    """By query id, the first document that contains its words in a row."""
    starts: dict[Words, list[str]] = {}
    for id, words in queries.items():
        starts.setdefault(words[:_START], []).append(id)
    document_of: dict[str, str] = {}
    for document in documents:
        words = _words(document.text)
        for at, start in enumerate(zip(*(words[shift:] for shift in range(_START)), strict=False)):
            for id in starts.get(start, ()):
                if words[at : at + len(queries[id])] == queries[id]:
                    document_of.setdefault(id, document.id)
    return document_of


def _contains(query: str, document: str) -> bool:
    one, other = (f" {' '.join(_words(id))} " for id in (query, document))
    return one in other or other in one


def _is_name(id: str) -> bool:
    """Whether an id is too long to match by coincidence."""
    return len(id) >= _MIN_NAME and any(character.isalpha() for character in id)


def _words(text: str) -> Words:
    return tuple(_WORD.findall(text.lower()))


# Circularity


def circularity(
    about: Mapping[str, Any], queries: Sequence[BenchQuery], arms: Mapping[str, Mapping[str, Any]]
) -> Iterator[GuardFinding]:
    """Find strata that were made from a measured arm, or look so."""
    yield from own_judges(about, queries)
    yield from built_from_arms(about, queries, list(arms))
    yield from too_perfect(arms)


def own_judges(about: Mapping[str, Any], queries: Sequence[BenchQuery]) -> Iterator[GuardFinding]:
    """Generators of queries that also judged the answers."""
    both = Counter(
        name
        for source in (about, *(query.meta for query in queries))
        for name in {*_names(source.get("generator"))} & {*_names(source.get("judge"))}
    )
    if both:
        names = " and ".join(sorted(both))
        message = f"{names} made the queries and judged the answers: the labels are not evidence."
        yield GuardFinding("circle", Severity.ALARM, message)


def built_from_arms(
    about: Mapping[str, Any], queries: Sequence[BenchQuery], arms: Collection[str]
) -> Iterator[GuardFinding]:
    """Find strata made from an arm's results, which favour that arm."""
    sources: set[tuple[str, str]] = set()
    for query in queries:
        declared = about.get("built_from")
        named = declared.get(query.type) if isinstance(declared, Mapping) else declared
        sources |= {(query.type, name) for source in (named, query.meta.get("built_from")) for name in _names(source)}
    for stratum, source in sorted(sources):
        measured = [name for name in arms if name.split(":")[0] == source]
        if measured:
            message = f"{stratum} was built from {source}, which is measured on it: there its values are not evidence."
            yield GuardFinding("circle", Severity.ALARM, message, measured[0], stratum)


def too_perfect(arms: Mapping[str, Mapping[str, Any]]) -> Iterator[GuardFinding]:
    """Find strata in which exactly one arm misses nothing."""
    strata = next(iter(arms.values()))["strata"]
    for stratum, values in strata.items():
        perfect = [name for name, arm in arms.items() if arm["strata"][stratum]["recall@5"] == 1]
        if len(perfect) == 1 < len(arms) and values["n"] >= _MIN_QUERIES:
            message = f"{perfect[0]} alone misses nothing in {stratum}: was that made from its results?"
            yield GuardFinding("circle", Severity.NOTE, message, perfect[0], stratum)


def _names(value: Any) -> list[str]:
    """One name or a list of names; any other value names nothing."""
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
