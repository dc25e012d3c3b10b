"""Choose the sources of prepared training data by licence and by name.

    python -m training.subset DATA.npz OUT.npz [--permissive] [--without PREFIX ...]

`--permissive` keeps the sources whose stated licence does not ask that what is made of them has the same licence.
Passages of other sources leave the pool too, so that they are no negatives either.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from training.columns import PAIR

PERMISSIVE = frozenset(("MIT", "Apache-2.0", "MIT/Apache-2.0", "CC-BY-4.0", "CDLA-Permissive"))
ORIGIN, SOURCE = PAIR.index("origin"), PAIR.index("source")


def kept_sources(sources: list[str], permissive: bool, without: tuple[str, ...]) -> np.ndarray:
    """Which sources, named with their licence, are kept."""
    return np.array([
        not name.startswith(without) and (not permissive or name.partition(" ")[2] in PERMISSIVE) for name in sources
    ])  # fmt: skip


def subset(arrays: dict[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    """The pairs of these sources and the passages that they come from."""
    pairs = arrays["pairs"][kept[arrays["pairs"][:, SOURCE]]]
    origins, places = np.unique(pairs[:, ORIGIN], return_inverse=True)
    pairs[:, ORIGIN] = places
    return arrays | {"pairs": pairs, "pool": arrays["pool"][origins]}


def main() -> None:
    """Parse the command line, choose, write."""
    parser = argparse.ArgumentParser(description="Choose the sources of prepared training data.")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--permissive", action="store_true")
    parser.add_argument("--without", nargs="*", default=[])
    args = parser.parse_args()
    sources = json.loads(args.data.with_suffix(".sources.json").read_text())
    kept = kept_sources(sources, args.permissive, tuple(args.without))
    arrays = subset(dict(np.load(args.data)), kept)
    np.savez(args.out, **arrays)
    args.out.with_suffix(".sources.json").write_text(json.dumps(sources))
    print(f"{len(arrays['pairs']):,} pairs of {kept.sum()} sources, {len(arrays['pool']):,} passages", flush=True)


if __name__ == "__main__":
    main()
