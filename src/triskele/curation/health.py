"""How a store stands: damage in the truth is told, damage in what is derived from it is mended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from triskele.errors import ModelUnavailable, Unavailable
from triskele.index.lexical import LexicalIndex
from triskele.index.semantic import SemanticIndex
from triskele.models.embed import bundled
from triskele.privacy.detect import find
from triskele.recall.hosted import egress_log
from triskele.recall.hosted.egress_log import Day
from triskele.stores.protocol import Finding, Store
from triskele.stores.vault import StoreVault
from triskele.types import Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What an inspection found, and what it mended; `waiting` memories have no vectors yet.

    `model_problem` says why the model cannot be asked, if it cannot, and `vault_problem` why secrets cannot be read.
    `exposed` memories are not secret and look as if they should be; a deep inspection alone looks for them.
    `outside` are the machines that the settings name, by what for, and `left` is what was sent to any, day by day.
    """

    findings: tuple[Finding, ...]
    index_behind: int | None
    index_faults: int
    vectors_damaged: int
    vectors_orphaned: int
    waiting: int
    model_problem: str | None
    vault_problem: str | None
    exposed: tuple[str, ...]
    repaired: tuple[str, ...]
    outside: Mapping[str, str]
    outside_problems: tuple[str, ...]
    left: tuple[Day, ...]


def inspect(
    store: Store,
    lexical: LexicalIndex,
    meaning: SemanticIndex | None,
    *,
    needs_model: bool,
    deep: bool,
    repair: bool,
    safe: StoreVault,
    outside: Mapping[str, str],
    outside_problems: tuple[str, ...],
) -> Health:
    """Check truth and indexes; a damaged truth is left as it is, so that nothing is derived from it."""
    findings = store.check(deep=deep)
    locked = safe.problem()
    findings += _unreadable(store, safe) if deep and locked is None else []
    behind = lexical.behind()
    faults = lexical.faults() if deep else 0
    damaged = meaning.damaged() if deep and meaning is not None else 0
    orphaned = meaning.orphans() if meaning is not None else 0
    repaired: list[str] = []
    if repair and not findings:
        repaired += _mended_words(lexical, behind, faults)
        if meaning is not None and (damaged or orphaned):
            meaning.rebuild()
            repaired += _mended_vectors(damaged, orphaned)
        if not store.is_scrubbed():
            lexical.rebuild()
            if meaning is not None:
                meaning.mentions.rebuild()
            store.scrub()
            repaired.append("an erasure that was cut short has been finished")
    return Health(
        findings=tuple(findings),
        index_behind=behind,
        index_faults=faults,
        vectors_damaged=damaged,
        vectors_orphaned=orphaned,
        waiting=store.count_waiting(),
        model_problem=_model_problem() if needs_model else None,
        vault_problem=locked,
        exposed=tuple(_exposed(store)) if deep else (),
        repaired=tuple(repaired),
        outside=outside,
        outside_problems=outside_problems,
        left=tuple(egress_log.days(store)),
    )


def _unreadable(store: Store, safe: StoreVault) -> list[Finding]:
    findings = []
    for row in store.sealed():
        try:
            safe.open(row)
        except Unavailable as error:
            findings.append(Finding(f"memory {row.id} version {row.version}", str(error)))
    return findings


def _exposed(store: Store) -> list[str]:
    """Memories with a version that is not secret and holds what looks like a secret."""
    open_ones = (memory for _, memory in store.versions() if memory.sensitivity is not Sensitivity.SECRET)
    return list(dict.fromkeys(memory.id for memory in open_ones if find(memory.content)))


def _model_problem() -> str | None:
    """Why the model cannot be asked; None where it can."""
    try:
        bundled().encode_query("")
    except ModelUnavailable as error:
        return str(error)
    return None


def _mended_vectors(damaged: int, orphaned: int) -> list[str]:
    said = []
    if damaged:
        said.append(f"{damaged:,} damaged vectors were dropped; lost ones are made again in the background")
    if orphaned:
        said.append(f"{orphaned:,} vectors that an erasure had left behind were removed")
    return said


def _mended_words(lexical: LexicalIndex, behind: int | None, faults: int) -> list[str]:
    if behind is None or faults:
        lexical.rebuild()
        return [
            "the lexical index was missing or wrong and has been rebuilt" if faults else "the lexical index was built"
        ]
    if behind:
        lexical.catch_up()
        return [f"the lexical index took in {behind} journal entries"]
    return []
