"""Statistics of a whole memory: counts, pending jobs, names, usage, curation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from triskele.curation import measures
from triskele.curation.curator import Curator
from triskele.recall.hosted import egress_log
from triskele.recall.plan import Adopted, values_of
from triskele.replies import AdoptedPlan, Statistics
from triskele.store.access import StoreAccess
from triskele.text import timestamps

# The endpoint of the language model in the log of what was sent.
_LLM = "llm"


def statistics(engine: StoreAccess, plan: Adopted | None) -> Statistics:
    """Count what a store holds."""
    store, curator = engine.store, Curator(engine)
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
        proposals=len(curator.proposals.list()),
        today=_today(curator, egress_log.days(store)),
        llm_calls=engine.settings.curation.llm_calls,
    )


def _today(curator: Curator, days: Sequence[egress_log.Day]) -> dict[str, int]:
    """What curation did today, with the tokens that its language model reported."""
    day = timestamps.now().date().isoformat()
    tokens = sum(each.tokens for each in days if (each.day, each.endpoint) == (day, _LLM))
    return curator.today() | ({"tokens": tokens} if tokens else {})
