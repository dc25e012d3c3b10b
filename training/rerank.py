"""Score the default's best documents again with a cross-encoder, and report what that changes.

    python -m training.rerank prepare DATA_FOLDER RANKED_FOLDER TOKENIZER.json OUT.npz
    python -m training.rerank score OUT.npz MINILM_FOLDER SCORES.npz MODEL_FOLDER...
    python -m training.rerank score_onnx OUT.npz SCORES.npz EXPORTED_FOLDER[:SET,...]...
    python -m training.rerank report OUT.npz SCORES.npz [REPORT.json]

`prepare` reads what training.rank_default wrote. Scores are kept per model for two inputs: the text alone, and
with its date and the two turns before it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from training.columns import CLS, EMPTY, SEP
from training.eval_data import previous, read_set
from training.metrics import bootstrap, metrics

DEPTH, COLUMNS = 10, 12
QUERY, TEXT, DATE, BEFORE1, BEFORE2 = 1, 4, 6, 8, 10
CAPS = (1, 48, 1, 6, 192, 1, 16, 6, 40, 6, 40, 1)
WEIGHTS = (0.05, 0.1, 0.2, 0.4)
TEXT_TOKENS, MAX_TOKENS = 200, 256


def rows_of(folder: Path, ranked: dict, add) -> dict[str, np.ndarray]:
    """Lists, default's scores and grades of one set, as arrays."""
    documents, asked, judged = read_set(folder)
    place = {document["id"]: i for i, document in enumerate(documents)}
    before = previous(documents)
    asked = [query for query in asked if query["id"] in ranked and ranked[query["id"]]["hits"]]
    lists = np.zeros((2, len(asked), DEPTH, COLUMNS), np.int32)
    lists[..., 0] = CLS
    scores, grades = np.full((len(asked), DEPTH), -9.0), np.zeros((len(asked), DEPTH))
    ideal = np.zeros((len(asked), 40))
    for i, query in enumerate(asked):
        values = sorted(judged[query["id"]].values(), reverse=True)[: ideal.shape[1]]
        ideal[i, : len(values)] = values
        for k, (id, score, window) in enumerate(ranked[query["id"]]["hits"][:DEPTH]):
            row = place[id]
            scores[i, k], grades[i, k] = score, judged[query["id"]].get(id, 0)
            lists[:, i, k, [2, 5]] = SEP
            lists[:, i, k, QUERY], lists[:, i, k, TEXT] = add(query["text"]), add(window)
            date, turns = documents[row]["meta"].get("date"), [documents[j]["text"] for j in before[row] if j >= 0]
            for column, text in zip((DATE, BEFORE1, BEFORE2), (date, *turns), strict=False):
                lists[1, i, k, column] = add(text) if text else EMPTY
            if date or turns:
                lists[1, i, k, COLUMNS - 1] = SEP
    return {
        "lists": lists,
        "scores": scores,
        "grades": grades,
        "ideal": ideal,
        "ids": np.array([q["id"] for q in asked]),
    }


def prepare(data: str, ranked: str, tokenizer_file: str, out: str) -> None:
    """Write the lists of every ranked set as token arrays."""
    from tokenizers import Tokenizer

    numbers = {"": EMPTY, "[CLS]": CLS, "[SEP]": SEP}
    arrays = {}
    for path in sorted(Path(ranked).glob("*.json")):
        found = rows_of(
            Path(data) / path.stem, json.loads(path.read_text()), lambda text: numbers.setdefault(text, len(numbers))
        )
        arrays |= {f"{path.stem}.{key}": value for key, value in found.items()}
        print(path.stem, len(found["ids"]), "questions", flush=True)
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoded = tokenizer.encode_batch_fast(list(numbers)[3:], add_special_tokens=False)
    ids = [[], [101], [102], *(e.ids[:TEXT_TOKENS] for e in encoded)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in ids])])
    np.savez_compressed(
        out, tokens=np.concatenate([np.array(row, np.uint16) for row in ids]), offsets=offsets, **arrays
    )


def score(source: str, base: str, out: str, *models: str) -> None:
    """Logits of each model for every list, alone and with context."""
    import torch

    from training import cross, loop
    from training.store import TextStore

    arrays, device = dict(np.load(source)), loop.device()
    texts = TextStore.make(arrays["tokens"], arrays["offsets"], device)
    scored = {}
    for name in models:
        model = cross.load(Path(name), Path(base)).to(device, loop.dtype(device)).eval()
        for which in sets_of(arrays):
            rows = torch.from_numpy(arrays[f"{which}.lists"]).long().to(device)
            with torch.no_grad():
                logits = [cross.score(model, texts, part, 131_072, CAPS).cpu().numpy() for part in rows]
            scored[f"{Path(name).name}.{which}"] = np.stack(logits)
    np.savez(out, **scored)
    print("scored by", len(models), "models", flush=True)


def assemble(arrays: dict[str, np.ndarray], row: np.ndarray) -> list[int]:
    """The token ids of one candidate, as the model sees them."""
    tokens, offsets = arrays["tokens"], arrays["offsets"]
    parts = [
        tokens[offsets[text] : min(offsets[text] + cap, offsets[text + 1])] for text, cap in zip(row, CAPS, strict=True)
    ]
    return np.concatenate(parts).tolist()[:MAX_TOKENS]


def score_onnx(source: str, out: str, *models: str) -> None:
    """The same by exported graphs, `FOLDER[:SET,SET]`, one thread, rows of equal length together."""
    import onnxruntime

    arrays, scored = dict(np.load(source)), {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for entry in models:
        folder, _, names = entry.partition(":")
        session = onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"), options)
        for which in names.split(",") if names else sets_of(arrays):
            lists = arrays[f"{which}.lists"]
            logits = [
                logits_of(session, arrays, part) for part in (lists if (lists[0] != lists[1]).any() else lists[:1])
            ]
            scored[f"{Path(folder).name}.{which}"] = np.stack([logits[0], logits[-1]])
            np.savez(out, **scored)
            print(folder, which, flush=True)


def logits_of(session, arrays: dict[str, np.ndarray], lists: np.ndarray) -> np.ndarray:
    """Logits (questions, candidates) of one kind of input."""
    rows = [assemble(arrays, row) for row in lists.reshape(-1, COLUMNS)]
    logits = np.zeros(len(rows), np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), 16):
        batch = order[start : start + 16]
        ids = np.zeros((len(batch), max(len(rows[i]) for i in batch)), np.int64)
        for k, i in enumerate(batch):
            ids[k, : len(rows[i])] = rows[i]
        (logits[batch],) = session.run(["logits"], {"input_ids": ids, "attention_mask": (ids != 0).astype(np.int64)})
    return logits.reshape(lists.shape[:2])


def sets_of(arrays: dict[str, np.ndarray]) -> list[str]:
    """The names of the sets in the arrays."""
    return sorted({key.partition(".")[0] for key in arrays if key.endswith(".lists")})


def reordered(arrays: dict[str, np.ndarray], which: str, logits: np.ndarray, weight: float) -> np.ndarray:
    """R@5 and nDCG@10 per question after adding the weighted logits."""
    scores, grades, ideal = (arrays[f"{which}.{key}"] for key in ("scores", "grades", "ideal"))
    mixed = scores / scores.max(1, keepdims=True) + weight * logits / 4
    mixed = np.where(scores <= -9, -np.inf, mixed)
    order = np.argsort(-mixed, axis=1, kind="stable")
    return np.array([metrics(row[o], best) for row, o, best in zip(grades, order, ideal, strict=True)])


def report(source: str, scored: str, out: str = "") -> None:
    """Choose the weight on one half, report on both, for each model, set and input."""
    arrays, scores = dict(np.load(source)), dict(np.load(scored))
    lines = {}
    for key in sorted(scores):
        name, which = key.rsplit(".", 1)
        plain, context = scores[key]
        for label, logits in (("alone", plain), ("context", context), ("mean", (plain + context) / 2)):
            if label != "alone" and not (arrays[f"{which}.lists"][1] != arrays[f"{which}.lists"][0]).any():
                continue
            lines[f"{name} {which} {label}"] = line = compare(arrays, which, logits)
            print(f"{name:14} {which:20} {label:8} {json.dumps(line)}", flush=True)
    if out:
        Path(out).write_text(json.dumps(lines, indent=1))


def compare(arrays: dict[str, np.ndarray], which: str, logits: np.ndarray) -> dict:
    """The default and the default with the cross-encoder on both halves and on all questions, cross-fitted."""
    digest = [hashlib.sha256(id.encode()).digest()[0] & 1 for id in arrays[f"{which}.ids"].tolist()]
    half = np.array(digest, bool)
    before = reordered(arrays, which, np.zeros_like(logits), 0)
    after = {weight: reordered(arrays, which, logits, weight) for weight in WEIGHTS}
    fitted, line = before.copy(), {}
    for name, chosen_on, reported in (("tune", half, ~half), ("test", ~half, half)):
        weight = max(WEIGHTS, key=lambda w: after[w][chosen_on].mean(0).sum())
        fitted[reported] = after[weight][reported]
        line[name] = {"n": int(reported.sum()), "w": weight} | figures(before[reported], after[weight][reported])
    line["all"] = {"n": len(half)} | figures(before, fitted)
    line["by_weight"] = {str(w): (100 * values.mean(0)).round(1).tolist() for w, values in after.items()}
    return line


def figures(before: np.ndarray, after: np.ndarray) -> dict:
    """Means in percent and the difference with its interval."""
    change = 100 * (after - before)
    return {
        "default": (100 * before.mean(0)).round(1).tolist(), "with": (100 * after.mean(0)).round(1).tolist(),
        "R@5": bootstrap(change[:, 0]), "nDCG@10": bootstrap(change[:, 1]),
    }  # fmt: skip


def main() -> None:
    """Run the verb that was asked for."""
    verbs = {"prepare": prepare, "score": score, "score_onnx": score_onnx, "report": report}
    verbs[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
