"""Statistics of a whole memory: counts, waiting jobs, names, usage, curation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from triskele.base import timestamps
from triskele.curation import agreement
from triskele.curation.agreement import AgreementStats
from triskele.curation.curator import Curator
from triskele.recall.hosted import egress_log
from triskele.recall.plan import Adopted
from triskele.stores.derived import JobCounts, NameCounts
from triskele.stores.protocols import DayCount, UseCount
from triskele.types import Memory

if TYPE_CHECKING:
    from triskele.engine import Engine

# The endpoint of the language model in the log of what was sent.
_LLM = "llm"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreStatistics:
    """Statistics besides the counts of memories; `used` are the memories that `most_used` names."""

    jobs: JobCounts
    names: NameCounts
    adopted: Adopted | None = None
    agreement: AgreementStats | None = None
    most_used: tuple[UseCount, ...] = ()
    used: tuple[Memory, ...] = ()
    days: tuple[DayCount, ...] = ()
    proposals: int = 0
    today: dict[str, int]
    llm_calls: int


def more_statistics(engine: Engine) -> MoreStatistics:
    """Read them from a store."""
    usage = engine.store.usage
    most_used = tuple(usage.most_used())
    return MoreStatistics(
        jobs=engine.store.jobs.counts(),
        names=engine.store.entities.counts(),
        adopted=engine.adopted(),
        agreement=agreement.agreed(engine.store),
        most_used=most_used,
        used=tuple(engine.store.memories([each.id for each in most_used]).values()),
        days=tuple(usage.days()),
        proposals=len(engine.proposals.list()),
        today=_today(engine),
        llm_calls=engine.settings.curation.llm_calls,
    )


def _today(engine: Engine) -> dict[str, int]:
    """What curation did today, with the tokens that its language model reported."""
    day = timestamps.now().date().isoformat()
    tokens = sum(each.tokens for each in egress_log.days(engine.store) if (each.day, each.endpoint) == (day, _LLM))
    return Curator(engine).today() | ({"tokens": tokens} if tokens else {})
