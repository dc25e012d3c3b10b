"""Write the projection of the bundled model next to the base weights.

python -m training.projection src/triskele/models/weights/minilm.onnx MINILM_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper


def main() -> None:
    """Read the graph's constant."""
    graph, folder = sys.argv[1:3]
    constants = {value.name: value for value in onnx.load(graph).graph.initializer}
    np.save(Path(folder) / "projection.npy", numpy_helper.to_array(constants["projection"]))


if __name__ == "__main__":
    main()
