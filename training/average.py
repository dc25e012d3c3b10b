"""Write weights averaged with the base they were trained from, as a folder that training can begin from.

    python -m training.average BASE_FOLDER OUT FOLDER:SHARE [FOLDER:SHARE ...]

A folder with model.safetensors is whole weights, one with trained.safetensors what training.encoder wrote.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from training import encoder, transformer


def main() -> None:
    """Parse the command line and write the folder."""
    base, out = Path(sys.argv[1]), Path(sys.argv[2])
    parts = [part.rpartition(":") for part in sys.argv[3:]]
    model = encoder.load(base, [(Path(folder), float(share)) for folder, _, share in parts])
    out.mkdir(parents=True, exist_ok=True)
    save_file(transformer.to_state(model.body), out / "model.safetensors")
    np.save(out / "projection.npy", model.projection.detach().numpy())
    for name in ("config.json", "tokenizer.json"):
        if (base / name).exists():
            shutil.copy(base / name, out / name)


if __name__ == "__main__":
    main()
