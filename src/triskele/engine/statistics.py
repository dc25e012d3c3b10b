"""Statistics of a whole memory: counts, pending jobs, names, usage, curation."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from triskele.curation import measures
from triskele.curation.curator import Curator
from triskele.recall.hosted import egress_log
from triskele.recall.plan import values_of
from triskele.replies import AdoptedPlan, Statistics
from triskele.text import timestamps

if TYPE_CHECKING:
    from triskele.engine.local import LocalEngine

# The endpoint of the language model in the log of what was sent.
_LLM = "llm"


def statistics(engine: LocalEngine) -> Statistics:
    """Count what a store holds."""
    store, plan = engine.store, engine.adopted()
    most_used = tuple(store.usage.most_used())
    return Statistics(
        **asdict(store.census()),
        jobs=store.jobs.counts(),
        names=store.names.counts(),
        adopted=AdoptedPlan(values_of(plan.plan), plan.since, plan.questions) if plan else None,
        agreement=measures.agreement(store),
        most_used=most_used,
        used=tuple(store.memories([count.id for count in most_used]).values()),
        days=tuple(store.usage.days()),
        proposals=len(engine.proposals.list()),
        today=_today(engine),
        llm_calls=engine.settings.curation.llm_calls,
    )


def _today(engine: LocalEngine) -> dict[str, int]:
    """What curation did today, with the tokens that its language model reported."""
    day = timestamps.now().date().isoformat()
    tokens = sum(each.tokens for each in egress_log.days(engine.store) if (each.day, each.endpoint) == (day, _LLM))
    return Curator(engine).today() | ({"tokens": tokens} if tokens else {})
