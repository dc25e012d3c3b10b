"""Other wordings of a question that was answered badly: asked of a language model, and their rankings put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from triskele import validation
from triskele.base.text import fold
from triskele.errors import BadInput
from triskele.models.llm import Llm
from triskele.privacy.clearance import Cleared
from triskele.recall.fusion import Candidate, FusionConfig, fuse
from triskele.types import Ranking

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
    "Somebody searches a collection of short notes with the question below, and the wording may differ from that of "
    "the notes. Write 3 other wordings of the question: say the same with other words, keep names, numbers and "
    "identifiers as they are, stay in the language of the question, and answer nothing. Write one wording per line "
    "and nothing else.\n\n<question>\n"
)
_END = "\n</question>"
WORDS = frozenset({_ASKING, _END})
"""What a language model must be set up with to be asked for rewrites."""

# One digit only: a date may stand at the beginning too.
_MARKS = re.compile(r"\A\s*(?:[-*+•‣◦·–—](?:\s+|\Z))?(?:\(?[1-9][.)](?:\s+|\Z))?")
_QUOTES = [tuple(pair.split()) for pair in ("** **", '" "', "' '", "` `", "“ ”", "„ “", "‘ ’", "« »", "「 」")]
_STOPS = " .,;?!¿¡…。？！"


def rewrites(llm: Llm, question: Cleared) -> list[str]:
    """Up to 3 other wordings of a question, none if the answer holds no usable one; Unavailable is passed on."""
    answer = llm.complete((_ASKING, question.part(0, _LONGEST_QUESTION), _END), most_tokens=_MOST_TOKENS)
    found: dict[str, str] = {}
    for line in map(_bare, answer.splitlines()):
        if _is_usable(line):
            found.setdefault(_gist(line), line)
    found.pop(_gist(question.text), None)
    return list(found.values())[:MOST_REWRITES]


def fused(original: Ranking, others: Sequence[Ranking]) -> list[Candidate]:
    """The rankings of all wordings as one, by DBSF; among equals the original's order holds.

    Parts are named ORIGINAL, "wording 1", "wording 2" and so on.
    """
    wordings = {f"wording {number}": ranking for number, ranking in enumerate(others, start=1)}
    # A sum depends on the order of its terms: this one does not depend on which wording was asked first.
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
    """The same for lines that ask the same in the same words."""
    return " ".join(fold(line).split()).strip(_STOPS)
