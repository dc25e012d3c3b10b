"""Training data chosen by licence."""

from __future__ import annotations

import numpy as np
import pytest

from training import subset


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("k8s_docs CC-BY-4.0", True), ("qmsum MIT", True), ("rust_book MIT/Apache-2.0", True),
        ("mdn_docs CC-BY-SA-2.5", False), ("topicalchat_next CDLA-Sharing-1.0", False),
        ("squad_disflqa CC-BY-SA-4.0 (SQuAD)/CC-BY-4.0", False), ("cosmosqa_synth3p CC-BY(-SA)-4.0", False),
        ("unstated ", False),
    ],
)  # fmt: skip
def test_permissive_leaves_out_share_alike_and_unclear_licences(source: str, kept: bool) -> None:
    assert subset.kept_sources([source], True, ()).tolist() == [kept]
    assert subset.kept_sources([source], False, ()).tolist() == [True]
    assert subset.kept_sources([source], False, (source[:3],)).tolist() == [False]


def test_passages_of_other_sources_leave_the_pool() -> None:
    pairs = np.zeros((3, 9), np.int32)
    pairs[:, subset.ORIGIN], pairs[:, subset.SOURCE] = (0, 1, 2), (0, 1, 0)
    arrays = {"pairs": pairs, "pool": np.array([[10, 0], [11, 0], [12, 0]])}
    chosen = subset.subset(arrays, np.array([True, False]))
    assert chosen["pool"][:, 0].tolist() == [10, 12]
    assert chosen["pairs"][:, subset.ORIGIN].tolist() == [0, 1]
