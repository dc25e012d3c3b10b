"""Arms by name, changed by name, and refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from triskele.bench.arms import ARMS, arm
from triskele.errors import BadInput
from triskele.recall.plan import LEGS, Plan


def test_every_arm_differs_from_the_default_in_what_its_name_says() -> None:
    assert arm("default").plan == Plan()
    assert arm("default-prior").plan == Plan(prior=0.0)
    changed = arm("default+exact").plan
    assert changed is not None and changed.exact > 0 and changed == Plan(exact=changed.exact)


def test_textbook_methods_are_measured_without_importance() -> None:
    for name in ("lexical", "dense", "rrf", "cc", "late"):
        plan = ARMS[name].plan
        assert plan is not None and plan.prior == 0


@pytest.mark.parametrize(
    ("name", "base", "changes"),
    [
        ("rrf:k=10", "rrf", {"k": dict.fromkeys(LEGS, 10.0)}),
        ("cc:alpha=0.6", "cc", {"weights": {"lexical": 0.4, "dense": 0.6}}),
        ("default:rescored=50:prior=0.1", "default", {"rescored": 50, "prior": 0.1}),
        ("default:exact=0.25", "default", {"exact": 0.25}),
        ("default:lexical=0.2:late=0.8", "default", {"weights": {"lexical": 0.2, "late": 0.8}}),
        ("cc:rerank=late", "cc", {"rerank": "late"}),
    ],
)
def test_a_name_changes_single_values(name: str, base: str, changes: dict[str, Any]) -> None:
    found, before = arm(name), ARMS[base].plan
    assert before is not None
    assert found.name == name
    assert found.plan == replace(before, **changes)
    assert json.loads(json.dumps(found.to_json()))["plan"].items() >= changes.items()


def test_a_weight_leaves_the_others_of_a_textbook_method() -> None:
    plan = arm("rrf:dense=2").plan
    assert plan is not None and plan.weights is not None
    assert (plan.weights["lexical"], plan.weights["dense"]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("telepathy", "unknown arm 'telepathy': choose from fts, lexical"),
        ("cross:depth=1", "unknown value"),
        ("fts:k=1", "no values to change"),
        ("rrf:depth=1", "unknown value 'depth' of an arm: choose from k, alpha"),
        ("rrf:k=ten", "'k=ten' is not a value"),
        ("rrf:k", "'k' is not a value"),
        ("cc:alpha=1.5", "between 0 and 1"),
        ("default:alpha=0.5", "name the legs"),
        ("rrf:rerank=magic", "magic"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        arm(name)
    assert "\n" not in str(refused.value)


def test_confidence_is_asked_only_of_shares() -> None:
    assert arm("default").has_confidence and arm("lexical").has_confidence
    assert not any(ARMS[name].has_confidence for name in ("fts", "rrf", "importance"))
