"""How a store stands: damage in the truth is told, damage in what is derived from it is mended."""

from __future__ import annotations

from dataclasses import dataclass

from triskele.index.lexical import LexicalIndex
from triskele.meaning import Meaning
from triskele.stores.protocol import Finding, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What an inspection found, and what it mended; `waiting` memories have no vectors yet."""

    findings: tuple[Finding, ...]
    index_behind: int | None
    index_faults: int
    vectors_damaged: int
    waiting: int
    repaired: tuple[str, ...]


def inspect(store: Store, lexical: LexicalIndex, meaning: Meaning | None, *, deep: bool, repair: bool) -> Health:
    """Check truth and indexes; a damaged truth is left as it is, so that nothing is derived from it."""
    findings = store.check(deep=deep)
    behind = lexical.behind()
    faults = lexical.faults() if deep else 0
    damaged = meaning.dense.damaged() + meaning.tokens.damaged() if deep and meaning is not None else 0
    repaired: list[str] = []
    if repair and not findings:
        repaired += _mended_words(lexical, behind, faults)
        if damaged and meaning is not None:
            meaning.rebuild()
            repaired.append(f"{damaged} damaged vectors were dropped; lost ones are made again in the background")
        if not store.is_scrubbed():
            lexical.rebuild()
            store.scrub()
            repaired.append("an erasure that was cut short has been finished")
    return Health(
        findings=tuple(findings),
        index_behind=behind,
        index_faults=faults,
        vectors_damaged=damaged,
        waiting=store.count_waiting(),
        repaired=tuple(repaired),
    )


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
