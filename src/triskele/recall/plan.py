"""How to rank, as a value: the legs, their fusion, and what reranks the best candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from triskele.config import RecallSettings
from triskele.errors import BadInput

DEFAULT = "default"
LEGS = ("lexical", "dense", "graph")
FUSIONS = (DEFAULT, "rrf", "cc", "rsf", "dbsf", "sum", "zscore", "share")
OFF = "off"
CROSS = "cross"
RERANKS = (DEFAULT, OFF, "late", CROSS)
WALKS = ("pagerank", "hops", OFF)
AS_RANKED, DIVERSE, MENTIONED, NEAR = "ranked", "diverse", "mentioned", "near"
ORDERS = (AS_RANKED, DIVERSE, MENTIONED, NEAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to rank: the legs, their fusion and weights, reranking, context, walk, priors and order."""

    legs: frozenset[str] = frozenset(LEGS)
    fusion: str = DEFAULT
    rerank: str = DEFAULT
    weights: Mapping[str, float] | None = None
    k: Mapping[str, float] = field(default_factory=dict)
    rescored: int = 100
    context: bool = True
    walk: str = "pagerank"
    prior: float = 0.3
    exact: float = 0.0
    order: str = AS_RANKED

    def __post_init__(self) -> None:
        """Refuse unknown names: a misspelt leg would silently find nothing."""
        chosen = ((self.legs, LEGS), ({self.fusion}, FUSIONS), ({self.rerank}, RERANKS), ({self.walk}, WALKS))
        for given, known in (*chosen, ({self.order}, ORDERS)):
            if unknown := sorted(given - set(known)):
                raise BadInput(f"unknown way to rank {unknown[0]!r}: choose one of {', '.join(known)}")

    @property
    def asks_meaning(self) -> bool:
        """Whether the plan needs the model: the lexical leg alone does not, unless late interaction rescores it."""
        return "dense" in self.legs or self.rerank == "late"

    def without_meaning(self) -> Plan:
        """The same plan without what needs a model."""
        return replace(self, legs=self.legs - {"dense", "graph"}, rerank="off")


def leg_depth(settings: RecallSettings, limit: int) -> int:
    """How many candidates a leg returns for an answer of some length."""
    return max(settings.depth, 2 * limit)
