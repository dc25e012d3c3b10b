"""Carry weights to a machine that can fetch nothing: one byte a weight, in files of a given size.

    python -m training.transport pack MODEL_FOLDER OUT_FOLDER [--chunk-mb 36]
    python -m training.transport unpack PACKED_FOLDER MODEL_FOLDER

Matrices become 8-bit integers with one scale per row; `--half` keeps all but the word vectors in half precision.
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

BESIDE = ("config.json", "tokenizer.json", "projection.npy")


def pack(state: dict[str, torch.Tensor], half: bool) -> bytes:
    """All tensors in one archive."""
    arrays = {}
    for name, tensor in state.items():
        if "position_ids" in name or "pooler" in name:
            continue
        if tensor.ndim == 2 and (not half or "word_embeddings" in name):
            scale = tensor.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            arrays[f"{name}|q"] = (tensor / scale).round().to(torch.int8).numpy()
            arrays[f"{name}|s"] = scale.float().numpy()
        else:
            arrays[name] = tensor.half().numpy()
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def unpack(packed: bytes) -> dict[str, torch.Tensor]:
    """The tensors again, in full precision."""
    arrays = np.load(io.BytesIO(packed))
    state = {}
    for name in arrays.files:
        if name.endswith("|q"):
            values = torch.from_numpy(arrays[name]).float() * torch.from_numpy(arrays[f"{name[:-2]}|s"])
            state[name[:-2]] = values
        elif not name.endswith("|s"):
            state[name] = torch.from_numpy(arrays[name]).float()
    return state


def main() -> None:
    """Parse the command line and pack or unpack."""
    parser = argparse.ArgumentParser(description="Pack weights into files, or unpack them.")
    parser.add_argument("verb", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--chunk-mb", type=float, default=36)
    parser.add_argument("--half", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.verb == "pack":
        packed = pack(load_file(args.source / "model.safetensors"), args.half)
        size = int(args.chunk_mb * 1e6)
        for i, start in enumerate(range(0, len(packed), size)):
            (args.out / f"weights.{i:03}").write_bytes(packed[start : start + size])
    else:
        parts = sorted(args.source.glob("weights.*"))
        save_file(unpack(b"".join(part.read_bytes() for part in parts)), args.out / "model.safetensors")
    for name in BESIDE:
        if (args.source / name).exists():
            shutil.copy(args.source / name, args.out / name)


if __name__ == "__main__":
    main()
