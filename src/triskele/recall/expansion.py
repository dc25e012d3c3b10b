"""Query expansion: other wordings of a query with low confidence, written by a language model, and their fusion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from triskele import validation
from triskele.errors import BadInput, Unavailable
from triskele.models.llm import Llm
from triskele.privacy.clearance import ClearedText
from triskele.recall.candidates import with_contribution
from triskele.recall.fusion import Candidate, FusionConfig, fuse
from triskele.text.words import fold
from triskele.types import Ranking

if TYPE_CHECKING:
    from triskele.recall.hosted.egress_policy import EgressPolicy

MOST_REWRITES = 3
# Below this confidence the right memories are often missing. On the sample corpus, recall@5 of answerable questions
# below and above: tune half 0.63 (42 questions) and 0.92 (64), test half 0.65 (35) and 0.87 (80). The next ones up to
# 0.35 are found nearly as well as the rest: 0.83 (6) and 0.86 (7).
LOW_CONFIDENCE = 0.3
ORIGINAL = "original"

_LONGEST_REWRITE = 300
_LONGEST_QUESTION = 2_000
# Three lines take a hundred; models that think before they answer take more.
_MOST_TOKENS = 1_000
_ASKING = (
    "A user searches a collection of short notes with the question below, and the wording may differ from that of "
    "the notes. Write 3 other wordings of the question: say the same with other words, keep names, numbers and "
    "identifiers as they are, stay in the language of the question, and answer nothing. Write one wording per line "
    "and nothing else.\n\n<question>\n"
)
_END = "\n</question>"
WORDS = frozenset({_ASKING, _END})
"""The only words that a prompt for rewrites may contain besides the query."""

# One digit only: a date may stand at the beginning too.
_MARKS = re.compile(r"\A\s*(?:[-*+•‣◦·–—](?:\s+|\Z))?(?:\(?[1-9][.)](?:\s+|\Z))?")
_QUOTES = [tuple(pair.split()) for pair in ("** **", '" "', "' '", "` `", "“ ”", "„ “", "‘ ’", "« »", "「 」")]
_STOPS = " .,;?!¿¡…。？！"


def rewrites(llm: Llm, question: ClearedText) -> list[str]:
    """Up to 3 other wordings of a query; empty if the answer contains no usable one."""
    answer = llm.complete((_ASKING, question.part(0, _LONGEST_QUESTION), _END), most_tokens=_MOST_TOKENS)
    found: dict[str, str] = {}
    for line in map(_bare, answer.splitlines()):
        if _is_usable(line):
            found.setdefault(_gist(line), line)
    found.pop(_gist(question.text), None)
    return list(found.values())[:MOST_REWRITES]


@dataclass(frozen=True, slots=True)
class QueryRewriter:
    """Asks a language model for other wordings of a query that may leave this machine."""

    llm: Llm
    egress_policy: EgressPolicy

    def is_worth(self, confidence: float) -> bool:
        """Whether an answer is so unsure that other wordings may help."""
        return confidence < LOW_CONFIDENCE

    def wordings(self, question: str) -> tuple[list[str], str]:
        """Other wordings, or an empty list with the reason."""
        cleared, problem = self.egress_policy.question(question)
        if cleared is None:
            return [], problem
        try:
            return rewrites(self.llm, cleared), ""
        except Unavailable as error:
            return [], f"the question was not reworded: {error}"


def joined(first: Sequence[Candidate], others: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """The candidates of a query and of its other wordings; each wording is one more contribution."""
    both = fused(_ranking(first), [_ranking(other) for other in others])
    before = {candidate.row: candidate for candidate in first}
    candidates = []
    for each in both:
        parts = dict(each.parts)
        own = parts.pop(ORIGINAL, None)
        of_legs = with_contribution(before[each.row], own.contribution) if own else {}
        candidates.append(each._replace(parts=of_legs | parts))
    return candidates


def _ranking(candidates: Sequence[Candidate]) -> Ranking:
    scores = tuple(candidate.score for candidate in candidates)
    return Ranking("wording", tuple(candidate.row for candidate in candidates), scores)


def fused(original: Ranking, others: Sequence[Ranking]) -> list[Candidate]:
    """The rankings of all wordings fused by DBSF; ties keep the order of the original.

    Parts are named ORIGINAL, "wording 1", "wording 2" and so on.
    """
    wordings = {f"wording {number}": ranking for number, ranking in enumerate(others, start=1)}
    # A floating-point sum depends on the order of its terms: sort, so that the order of the wordings does not matter.
    by_content = sorted(wordings, key=lambda name: (wordings[name].rows, wordings[name].scores))
    names = {f"{number:03}": name for number, name in enumerate([ORIGINAL, *by_content])}
    rankings = [replace(original if name == ORIGINAL else wordings[name], leg=leg) for leg, name in names.items()]
    weighing = FusionConfig(weights=dict.fromkeys(names, 1.0), depth=max(len(ranking.rows) for ranking in rankings))
    place = {row: number for number, row in enumerate(original.rows)}
    both = sorted(fuse("dbsf", rankings, weighing), key=lambda each: (-each.score, place.get(each.row, len(place))))
    return [Candidate(row, score, {names[leg]: part for leg, part in parts.items()}) for row, score, parts in both]


def _bare(line: str) -> str:
    """A line without the bullet, number and quotation marks around it."""
    bare = _MARKS.sub("", line, count=1).strip()
    while (inner := _unquoted(bare)) != bare:
        bare = inner
    return bare


def _unquoted(line: str) -> str:
    for opening, closing in _QUOTES:
        inner = line[len(opening) : -len(closing)]
        if line == f"{opening}{inner}{closing}" and opening not in inner and closing not in inner:
            return inner.strip()
    return line


def _is_usable(line: str) -> bool:
    """Whether a line can be a wording: some text, not too long, nothing invisible, no announcement of what follows."""
    if len(line) > _LONGEST_REWRITE or line.endswith((":", "：")) or not any(map(str.isalnum, line)):
        return False
    try:
        return validation.clean(line, "a wording") == line
    except BadInput:
        return False


def _gist(line: str) -> str:
    """The same value for lines that differ only in case, spaces and punctuation at the end."""
    return " ".join(fold(line).split()).strip(_STOPS)
