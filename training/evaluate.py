"""Compare encoders on evaluation sets: dense and late interaction, each document inside its scope.

    python -m training.evaluate EVAL.npz MINILM_FOLDER OUT.json shipped
        [TRAINED_FOLDER:SHARE[+TRAINED_FOLDER:SHARE ...] ...] [onnx=FOLDER ...] [set=NAME ...]

Every figure is kept per question, so that two models can be compared in pairs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training import encoder, loop
from training.columns import EMPTY
from training.metrics import DEPTH, metrics
from training.store import TextStore

CONVERSATIONS = ("locomo", "realtalk", "beam_100k")
WINDOW = 254


class Exported:
    """An exported graph in the place of a trained encoder; one thread."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(folder / "minilm.onnx"), options)
        self.takes_kept = any(entry.name == "kept" for entry in self.session.get_inputs())

    def __call__(self, ids: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Sentence vectors, and token vectors of the kept tokens."""
        inputs = {"input_ids": ids.numpy(), "attention_mask": (ids != 0).long().numpy()}
        inputs |= {"kept": kept.long().numpy()} if self.takes_kept else {}
        sentence, tokens = (torch.from_numpy(values) for values in self.session.run(["sentence", "tokens"], inputs))
        return sentence, tokens * kept.unsqueeze(-1)


def open_model(name: str, base: Path, device: str) -> encoder.Encoder | Exported:
    """`shipped`, `FOLDER:SHARE` of trained weights (several with `+`), or `onnx=FOLDER` of an exported graph."""
    if name.startswith("onnx="):
        return Exported(Path(name.removeprefix("onnx=")))
    shares = [] if name == "shipped" else [part.rpartition(":") for part in name.split("+")]
    model = encoder.load(base, [(Path(folder), float(share)) for folder, _, share in shares])
    return model.to(device, loop.dtype(device)).eval()


@torch.no_grad()
def encode_set(
    model: encoder.Encoder, texts: TextStore, arrays: dict[str, np.ndarray], context: bool
) -> tuple[Tensor, Tensor]:
    """Sentence and token vectors of every window."""
    device = texts.tokens.device
    windows = torch.from_numpy(arrays["windows"]).long().to(device)
    blank = torch.full_like(windows[:, 0], EMPTY)
    before = torch.from_numpy(arrays["context"]).long().to(device)[windows[:, 0]]
    first, second = (before[:, 0], before[:, 1]) if context else (blank, blank)
    rows = encoder.frame(torch.stack([blank, second, blank, first, blank, windows[:, 1]], 1))
    parts = [encoder.encode(model, texts, part, encoder.OWN, WINDOW) for part in rows.split(4096)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1].to(loop.dtype(device)) for p in parts])


@torch.no_grad()
def rank(model: encoder.Encoder, texts: TextStore, arrays: dict[str, np.ndarray], context: bool) -> dict[str, list]:
    """R@5 and nDCG@10 of every question, dense and late."""
    device = texts.tokens.device
    sentences, tokens = encode_set(model, texts, arrays, context)
    owner = torch.from_numpy(arrays["windows"][:, 0]).long().to(device)
    scope = torch.from_numpy(arrays["scope"]).long().to(device)
    grades: dict[int, dict[int, float]] = {}
    for query, row, grade in arrays["relevant"]:
        grades.setdefault(int(query), {})[int(row)] = float(grade)
    results: dict[str, list] = {"dense": [[0.0, 0.0]] * len(arrays["queries"])}
    results["late"] = list(results["dense"])
    for value in np.unique(arrays["query_scope"]):
        asked = np.flatnonzero(arrays["query_scope"] == value)
        inside = (scope[owner] == int(value)).nonzero().squeeze(1)
        numbers = torch.from_numpy(arrays["queries"][asked]).long().to(device)
        sentence, query_tokens = encoder.queries(model, texts, numbers)
        late = [score_late(part.to(tokens.dtype), tokens, inside) for part in query_tokens.split(16)]
        for kind, scores in (("dense", sentence @ sentences[inside].T), ("late", torch.cat(late))):
            best = torch.full((len(asked), len(scope)), -9.0, device=device)
            best.scatter_reduce_(1, owner[inside].expand(len(asked), -1), scores.float(), "amax")
            top = best.topk(min(DEPTH, len(scope))).indices.tolist()
            for query, ranked in zip(asked.tolist(), top, strict=True):
                known = grades[query]
                ideal = np.array(sorted(known.values(), reverse=True))
                results[kind][query] = metrics(np.array([known.get(row, 0.0) for row in ranked]), ideal)
    return results


def score_late(query: Tensor, tokens: Tensor, inside: Tensor) -> Tensor:
    """Late interaction of a few queries with the windows of a scope."""
    return torch.cat([encoder.late_scores(query, tokens[part]) for part in inside.split(512)], 1)


def main() -> None:
    """Parse the command line, encode, compare."""
    source, base, out, *names = sys.argv[1:]
    wanted = [name.removeprefix("set=") for name in names if name.startswith("set=")]
    names = [name for name in names if not name.startswith("set=")]
    device = loop.device()
    arrays = dict(np.load(source))
    texts = TextStore.make(arrays["tokens"], arrays["offsets"], device)
    report: dict[str, dict] = {}
    for name in names:
        model = open_model(name, Path(base), device)
        for which in wanted or arrays["sets"]:
            own = {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{which}.")}
            for context in (False, True) if which in CONVERSATIONS else (False,):
                results = rank(model, texts, own, context)
                means = {kind: (100 * np.mean(rows, 0)).round(1).tolist() for kind, rows in results.items()}
                print(f"{name:30} {which:22} {'context' if context else 'alone':8} {means}", flush=True)
                report.setdefault(f"{which}{'+context' if context else ''}", {})[name] = results
        Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
