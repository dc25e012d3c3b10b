"""Write the projection of the token vectors next to the base weights: that of a graph, or fitted to passages.

python -m training.projection src/triskele/models/weights/minilm.onnx MINILM_FOLDER
python -m training.projection DATA.npz MINILM_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PASSAGES, CAP, DIMENSIONS = 50_000, 128, 96


def of_graph(path: Path) -> np.ndarray:
    """The constant of a graph."""
    import onnx
    from onnx import numpy_helper

    constants = {value.name: value for value in onnx.load(path).graph.initializer}
    return numpy_helper.to_array(constants["projection"])


def fitted(path: Path, folder: Path) -> np.ndarray:
    """The leading directions of the unit token vectors of passages, as scripts/export_model.py fits them."""
    import torch
    import torch.nn.functional as F

    from training import loop, mine, store, transformer

    device = loop.device()
    data = store.read(path, device)
    model = transformer.load(folder).to(device, loop.dtype(device)).eval()
    order = torch.randperm(len(data.pool), generator=torch.Generator().manual_seed(0))[:PASSAGES].to(device)
    rows = mine.framed(data.pool[order, 0])
    moment = torch.zeros(model.shape.hidden, model.shape.hidden, dtype=torch.float64, device=device)
    with torch.no_grad():
        for _, ids, column in data.texts.batches(rows, torch.tensor([1, CAP, 1], device=device), mine.BUDGET):
            inner = F.normalize(model(ids)[column == 1].float(), dim=-1)
            moment += (inner.T @ inner).double()
    values, directions = np.linalg.eigh(moment.cpu().numpy())
    kept = directions[:, ::-1][:, :DIMENSIONS]
    print(f"projection: {values[-DIMENSIONS:].sum() / values.sum():.1%} of the energy of {len(rows):,} passages")
    # An eigenvector's sign is arbitrary; a fixed one makes two runs comparable.
    return (kept * np.sign(kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])])).astype(np.float32)


def main() -> None:
    """Read or fit, and write."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    np.save(folder / "projection.npy", of_graph(source) if source.suffix == ".onnx" else fitted(source, folder))


if __name__ == "__main__":
    main()
