"""Rewording: other wordings of a question whose answer is unsure, by a language model, and their fusion."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from triskele import validation
from triskele.errors import BadInput, Unavailable
from triskele.index.corpus import Corpus
from triskele.recall.fusion import FusionConfig, textbook_fusion
from triskele.recall.plan import CROSS, DEFAULT
from triskele.recall.question import Question, Rewriter, Sources, read_wording
from triskele.recall.scores import Candidate, Candidates, Ranking, scaled_parts
from triskele.text.words import fold
from triskele.types import Answer

if TYPE_CHECKING:
    from triskele.models.llm import Llm
    from triskele.privacy.clearance import ClearedText
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

    def wordings(self, question: str) -> tuple[list[str], str]:
        """Other wordings, or an empty list with the reason."""
        cleared, problem = self.egress_policy.question(question)
        if cleared is None:
            return [], problem
        try:
            return rewrites(self.llm, cleared), ""
        except Unavailable as error:
            return [], f"the question was not reworded: {error}"


def reword(question: Question, answer: Answer, rewriter: Rewriter) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Other wordings of a question whose answer is unsure, or none with the reason."""
    if answer.confidence >= LOW_CONFIDENCE:
        return (), ()
    wordings, problem = rewriter.wordings(question.query.text)
    return tuple(wordings), (problem,) if problem else ()


def read_wordings(question: Question, wordings: Sequence[str], corpus: Corpus, sources: Sources) -> Iterator[Question]:
    """The wordings as questions, ranked only by local models: the hosted ones have read the original."""
    plan = replace(question.plan, rerank=DEFAULT) if question.plan.rerank == CROSS else question.plan
    local = replace(sources, hosted=None)
    for text in wordings:
        yield read_wording(replace(question.query, text=text), plan, corpus, local, question.form)


def joined(candidates: Candidates, others: Sequence[Candidates]) -> Candidates:
    """The candidates of a question and of its other wordings; each wording is one more contribution."""
    original = {candidate.row: candidate for candidate in candidates.ranked}
    ranked = []
    for candidate in fused(_ranking(candidates), [_ranking(other) for other in others]):
        parts = dict(candidate.parts)
        own = parts.pop(ORIGINAL, None)
        of_legs = scaled_parts(original[candidate.row], own.contribution) if own else {}
        ranked.append(candidate._replace(parts=of_legs | parts))
    return replace(candidates, ranked=ranked)


def _ranking(candidates: Candidates) -> Ranking:
    rows = np.array([candidate.row for candidate in candidates.ranked], dtype=np.int64)
    return Ranking("wording", rows, np.array([candidate.score for candidate in candidates.ranked], dtype=np.float64))


def fused(original: Ranking, others: Sequence[Ranking]) -> list[Candidate]:
    """The rankings of all wordings fused by DBSF; ties keep the order of the original.

    Parts are named ORIGINAL, "wording 1", "wording 2" and so on.
    """
    wordings = {f"wording {number}": ranking for number, ranking in enumerate(others, start=1)}
    # A floating-point sum depends on the order of its terms: sort, so that the order of the wordings does not matter.
    by_content = sorted(wordings, key=lambda name: (wordings[name].rows.tolist(), wordings[name].scores.tolist()))
    names = {f"{number:03}": name for number, name in enumerate([ORIGINAL, *by_content])}
    rankings = [replace(original if name == ORIGINAL else wordings[name], leg=leg) for leg, name in names.items()]
    config = FusionConfig(weights=dict.fromkeys(names, 1.0), depth=max(len(ranking.rows) for ranking in rankings))
    position = {row: number for number, row in enumerate(original.rows.tolist())}
    ranked = textbook_fusion("dbsf", rankings, config).ranked()
    ranked.sort(key=lambda candidate: (-candidate.score, position.get(candidate.row, len(position))))
    return [Candidate(row, score, {names[leg]: part for leg, part in parts.items()}) for row, score, parts in ranked]


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
