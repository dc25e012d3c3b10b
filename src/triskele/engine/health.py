"""Statistics of a memory, and the health check: report damaged memories, repair derived data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from triskele.config import BUNDLED
from triskele.curation import measures
from triskele.curation.curator import Curator
from triskele.engine import workplace
from triskele.engine.models import Models
from triskele.errors import ModelUnavailable, Unavailable
from triskele.index.lexical import LexicalIndex
from triskele.index.local import ModelIndexes
from triskele.models.bundled import bundled
from triskele.privacy.detect import find
from triskele.recall.hosted import egress_log
from triskele.recall.hosted.egress_log import Day
from triskele.recall.plan import Adopted, values_of
from triskele.replies import AdoptedPlan, JobCounts, Statistics
from triskele.store.access import StoreAccess
from triskele.store.owner import Maintenance, OwnerStore
from triskele.store.values import IntegrityIssue, LostWrites
from triskele.store.vault import StoreVault
from triskele.text import timestamps
from triskele.types import Sensitivity

# The endpoint of the language model in the log of what was sent.
_LLM = "llm"


@dataclass(frozen=True, kw_only=True)
class StoreState:
    """How a store is, damage aside; `outside` are hosts by their purpose, `left` is what was sent to them, by day."""

    index_behind: int | None
    jobs: JobCounts
    vault_problem: str | None
    outside: Mapping[str, str]
    outside_problems: tuple[str, ...]
    left: tuple[Day, ...]


@dataclass(frozen=True, kw_only=True)
class Health(StoreState):
    """What an inspection found and repaired; `waiting` memories have no vectors yet.

    `model_problem` is why the model cannot be used, and `repair_problem` why a repair failed.
    `lost` are acknowledged writes that are gone; `index_ahead` counts the versions that only an older index has.
    `leftovers` are copies that killed backups and restores left; a repair removes them. `repairs` is whether it was to.
    `exposed` memories look like secrets and are not; only a deep inspection looks for them.
    `mixed` are projects whose older memories may belong to the projects of other folders of the same name.
    """

    findings: tuple[IntegrityIssue, ...]
    lost: tuple[LostWrites, ...]
    index_ahead: Mapping[str, int]
    index_faults: int
    vectors_damaged: int
    vectors_orphaned: int
    waiting: int
    model_problem: str | None
    exposed: tuple[str, ...]
    repaired: tuple[str, ...]
    repairs: bool
    repair_problem: str | None
    mixed: Mapping[str, tuple[str, ...]]
    corpus_notes: tuple[str, ...]
    leftovers: tuple[Path, ...]
    is_deep: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged and nothing was lost; a deep inspection must have read every secret."""
        unread = self.is_deep and self.vault_problem is not None
        return not (self.findings or self.lost or self.index_ahead or unread)

    @property
    def is_unrepaired(self) -> bool:
        """Whether derived data is damaged and was not repaired; a missing or late index is not damaged."""
        is_left = not self.repairs or self.repair_problem is not None
        return is_left and self.index_faults + self.vectors_damaged + self.vectors_orphaned > 0

    @property
    def is_working(self) -> bool:
        """Whether it is whole, derived data too, and model and vault can be used."""
        return self.is_whole and not (self.is_unrepaired or self.model_problem or self.vault_problem)


def state(engine: StoreAccess, models: Models) -> StoreState:
    """Describe indexes, vault and hosted models as they are now."""
    return StoreState(
        index_behind=models.lexical.behind(),
        jobs=engine.store.jobs.counts(),
        vault_problem=engine.vault.problem(),
        outside=models.hosts(),
        outside_problems=models.problems(),
        left=tuple(egress_log.days(engine.store)),
    )


def inspect(
    engine: StoreAccess, models: Models, maintenance: Maintenance | None, *, deep: bool, repair: bool
) -> Health:
    """Check truth and indexes; if the truth is damaged, nothing is repaired from it."""
    store, lexical = engine.store, models.lexical
    semantic, before = models.semantic(), state(engine, models)
    findings = [] if maintenance is None else maintenance.check(deep=deep)
    findings += _unreadable(store, engine.vault) if deep and before.vault_problem is None else []
    lost = [] if maintenance is None else maintenance.lost()
    ahead = {str(path): count for path, count in lexical.ahead().items()}
    faults = lexical.damaged() if deep else 0
    damaged = semantic.damaged() if deep and semantic is not None else 0
    orphaned = semantic.orphans() if semantic is not None else 0
    leftovers = [] if maintenance is None else maintenance.leftovers()
    repaired: list[str] = []
    problem: str | None = None
    try:
        if repair and maintenance is not None:
            removed = maintenance.remove_leftovers()
            leftovers = [each for each in leftovers if each not in removed]
            repaired += [f"removed {each}, which a killed backup or restore left" for each in removed]
        if repair and not findings:
            repaired += _repaired_words(lexical, before.index_behind, faults)
            # What only the files of lost writes hold is evidence, not the rest of an erasure.
            if semantic is not None and (damaged or orphaned) and not ahead:
                semantic.rebuild()
                repaired += _repaired_vectors(damaged, orphaned)
            if maintenance is not None and not maintenance.is_scrubbed():
                repaired.append(_finished_erasure(maintenance, lexical, semantic))
    except (Unavailable, OSError) as error:
        # A read-only disk: the findings are still reported.
        problem = str(error)
    jobs = store.jobs.counts()
    return Health(
        **{**vars(before), "jobs": jobs},
        findings=tuple(findings),
        lost=tuple(lost),
        index_ahead=ahead,
        index_faults=faults,
        vectors_damaged=damaged,
        vectors_orphaned=orphaned,
        waiting=jobs.embed,
        model_problem=_model_problem() if models.model == BUNDLED else None,
        exposed=tuple(_exposed(store)) if deep else (),
        repaired=tuple(repaired),
        repairs=repair,
        repair_problem=problem,
        mixed={} if findings else workplace.mixed(store),
        corpus_notes=models.corpus_notes(),
        leftovers=tuple(leftovers),
        is_deep=deep,
    )


def _unreadable(store: OwnerStore, vault: StoreVault) -> list[IntegrityIssue]:
    findings = []
    for row in store.sealed():
        try:
            vault.open(row)
        except Unavailable as error:
            findings.append(IntegrityIssue(f"memory {row.id} version {row.version}", str(error)))
    return findings


def _exposed(store: OwnerStore) -> list[str]:
    """Memories with a version that is not secret and looks like a secret."""
    open_ones = (memory for _, memory in store.versions() if memory.sensitivity is not Sensitivity.SECRET)
    return list(dict.fromkeys(memory.id for memory in open_ones if find(memory.content)))


def _model_problem() -> str | None:
    """Why the model cannot be used; None if it can."""
    try:
        bundled().encode_query("")
    except ModelUnavailable as error:
        return str(error)
    return None


def _finished_erasure(maintenance: Maintenance, lexical: LexicalIndex, semantic: ModelIndexes | None) -> str:
    lexical.rebuild()
    if semantic is not None:
        semantic.mentions.rebuild()
    maintenance.scrub()
    return "finished an interrupted erasure"


def _repaired_vectors(damaged: int, orphaned: int) -> list[str]:
    repaired = []
    if damaged:
        repaired.append(f"dropped {_count(damaged, 'damaged vector')}; missing ones are embedded in the background")
    if orphaned:
        repaired.append(f"removed {_count(orphaned, 'vector')} of erased memories")
    return repaired


def _repaired_words(lexical: LexicalIndex, behind: int | None, faults: int) -> list[str]:
    if behind is None or faults:
        lexical.rebuild()
        return ["rebuilt the lexical index" if faults else "built the lexical index"]
    if behind:
        # An index may lag behind the journal: that is not damage.
        lexical.catch_up()
    return []


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"


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
