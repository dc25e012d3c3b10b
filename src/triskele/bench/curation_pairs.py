"""How well rules of curation and capture judge labelled samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources

from triskele.agents import capture
from triskele.curation.compare import Relation, compare
from triskele.types import SpokenTurn, Verdict

HALVES = ("tune", "test")
DIAL = "normal"
# Pairs as people talk, written after the rules and looked at only once they were done.
SPOKEN = "spoken"


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """An older and a newer text with the right verdict."""

    half: str
    kind: str
    label: Verdict
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictScore:
    """Counts of one verdict: labelled, judged by sure rules, judged rightly."""

    verdict: Verdict
    labelled: int
    judged: int
    right: int

    @property
    def precision(self) -> float:
        """Share of these judgements that is right; 1 without any."""
        return self.right / self.judged if self.judged else 1.0

    @property
    def recall(self) -> float:
        """The share of what is labelled so that is found."""
        return self.right / self.labelled if self.labelled else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReport:
    """Scores of one half; a false merge retires another fact."""

    half: str
    pairs: int
    different: int
    false_merges: int
    scores: tuple[VerdictScore, ...]

    @property
    def false_merge_rate(self) -> float:
        """The share of pairs about different things that the rules would merge."""
        return self.false_merges / self.different if self.different else 0.0


def load_pairs() -> list[LabelledPair]:
    """The labelled pairs of the sample data."""
    text = (resources.files("triskele.samples") / "curation" / "pairs.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    return [LabelledPair(row["half"], row["kind"], Verdict(row["label"]), row["old"], row["new"]) for row in rows]


def measure(pairs: Iterable[LabelledPair], half: str, judge: Callable[[str, str], Relation] = compare) -> PairReport:
    """What sure rules make of the pairs of one half."""
    chosen = [pair for pair in pairs if pair.half == half]
    relations = [(pair, judge(pair.old, pair.new)) for pair in chosen]
    verdicts = [(pair, relation.verdict if relation.is_sure else Verdict.ADD) for pair, relation in relations]
    different = [verdict for pair, verdict in verdicts if pair.label is Verdict.ADD]
    return PairReport(
        half=half,
        pairs=len(chosen),
        different=len(different),
        false_merges=sum(verdict is not Verdict.ADD for verdict in different),
        scores=tuple(_score(verdict, verdicts) for verdict in (Verdict.UPDATE, Verdict.SUPERSEDE, Verdict.NOOP)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """What rules keep of one half's conversations at one dial setting."""

    half: str
    dial: str
    conversations: int
    labelled: int
    captured: int
    right: int
    matched: int

    @property
    def precision(self) -> float:
        """The share of what is kept that should be."""
        return self.right / self.captured if self.captured else 1.0

    @property
    def recall(self) -> float:
        """The share of what should be kept that is."""
        return self.matched / self.labelled if self.labelled else 1.0


def measure_capture(half: str) -> CaptureReport:
    """What the rules keep of the labelled conversations of the sample data, at the normal dial."""
    text = (resources.files("triskele.samples") / "curation" / "conversations.jsonl").read_text(encoding="utf-8")
    chosen = [row for line in text.splitlines() if (row := json.loads(line))["half"] == half]
    captured = right = matched = 0
    for row in chosen:
        turns = [SpokenTurn(role, said, session=str(row["id"])) for role, said in row["turns"]]
        texts = [each.text.casefold() for each in capture.sorted_out(capture.capture(turns), DIAL)[0]]
        keys = [key.casefold() for key in row["keep"]]
        captured += len(texts)
        right += sum(any(key in text for key in keys) for text in texts)
        matched += sum(any(key in text for text in texts) for key in keys)
    labelled = sum(len(row["keep"]) for row in chosen)
    counts = {"labelled": labelled, "captured": captured, "right": right, "matched": matched}
    return CaptureReport(half=half, dial=DIAL, conversations=len(chosen), **counts)


def _score(verdict: Verdict, judged: Sequence[tuple[LabelledPair, Verdict]]) -> VerdictScore:
    return VerdictScore(
        verdict=verdict,
        labelled=sum(pair.label is verdict for pair, _ in judged),
        judged=sum(given is verdict for _, given in judged),
        right=sum(given is verdict is pair.label for pair, given in judged),
    )
