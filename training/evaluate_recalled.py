"""Compare encoders by the scores of recall: words, sentence and late interaction alone and in their mix.

    python -m training.evaluate_recalled EVAL.npz START_FOLDER OUT.json shipped FOLDER[:SHARE][+FOLDER:SHARE ...] ...

Passages have two bits a dimension; `float:` before a name leaves their vectors whole; a folder without a share is whole
weights. Neighbouring turns, the graph and
speakers do not count. OUT.json is read by training.compare; a line also says how similar the sentence vectors are.
"""

from __future__ import annotations

import json
import sys
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training import as_recalled, encoder, loop
from training.as_recalled import Encoded, Reading
from training.columns import EMPTY
from training.metrics import DEPTH, metrics
from training.recalled_encoder import stop_words, tokenizer
from training.store import TextStore

CONVERSATIONS = ("locomo", "realtalk", "beam_100k", "memorycode", "proactive_turns", "prefeval_turns")
PROMPTS = ("memorycode", "vehicle", "proactive", "proactive_turns", "prefeval_turns")
KINDS = ("lexical", "dense", "late", "mix")
WEIGHTS = {False: as_recalled.ALONE, True: as_recalled.IN_CONVERSATION}
WINDOW, QUERY_TOKENS, WIDTH = 254, 64, 192


def open_model(name: str, start: Path, device: str) -> encoder.Encoder:
    """`shipped`, whole weights, or trained ones by their shares."""
    if (Path(name) / "model.safetensors").exists():
        return encoder.load(Path(name)).to(device, loop.dtype(device)).eval()
    shares = [] if name == "shipped" else [part.rpartition(":") for part in name.split("+")]
    model = encoder.load(start, [(Path(folder), float(share)) for folder, _, share in shares])
    return model.to(device, loop.dtype(device)).eval()


@torch.no_grad()
def rank(
    model: encoder.Encoder, texts: TextStore, arrays: dict[str, np.ndarray], weights: tuple[float, ...], rounded: bool
) -> tuple[dict[str, list], Tensor]:
    """R@5 and nDCG@10 of every question by each score; and the cosines of questions with all passages."""
    device = texts.tokens.device
    windows = torch.from_numpy(arrays["windows"]).long().to(device)
    words = as_recalled.Vocabulary.make(tokenizer(), stop_words(), texts, windows[:, 1])
    told, asking = Reading(WINDOW, WIDTH, words, rounded), Reading(QUERY_TOKENS, QUERY_TOKENS)
    rows = encoder.frame(torch.stack([torch.full_like(windows[:, 0], EMPTY), windows[:, 1]], 1))
    passages = Encoded.joined([as_recalled.encode(model, texts, part, told) for part in rows.split(4096)])
    owner, scope = windows[:, 0], torch.from_numpy(arrays["scope"]).long().to(device)
    results: dict[str, list] = {kind: [[0.0, 0.0]] * len(arrays["queries"]) for kind in KINDS}
    cosines, known = [], grades(arrays["relevant"])
    for value in np.unique(arrays["query_scope"]):
        asked = np.flatnonzero(arrays["query_scope"] == value)
        inside = (scope[owner] == int(value)).nonzero().squeeze(1)
        numbers = torch.from_numpy(arrays["queries"][asked]).long().to(device)
        query = as_recalled.encode(model, texts, encoder.frame(numbers[:, None]), asking)
        three = scores_of(query, words, passages.each(itemgetter(inside)))
        cosines.append(three[1].flatten().float())
        for kind, scores in zip(KINDS, (*three, as_recalled.mixed(three, weights)), strict=True):
            best = torch.full((len(asked), len(scope)), -9.0, device=device)
            best.scatter_reduce_(1, owner[inside].expand(len(asked), -1), scores.float(), "amax")
            top = best.topk(min(DEPTH, len(scope))).indices.tolist()
            for question, found in zip(asked.tolist(), top, strict=True):
                ideal = np.array(sorted(known[question].values(), reverse=True))
                results[kind][question] = metrics(np.array([known[question].get(row, 0.0) for row in found]), ideal)
    return results, torch.cat(cosines)


def grades(relevant: np.ndarray) -> dict[int, dict[int, float]]:
    """The grades of each question's documents."""
    known: dict[int, dict[int, float]] = {}
    for query, row, grade in relevant:
        known.setdefault(int(query), {})[int(row)] = float(grade)
    return known


def scores_of(query: Encoded, words: as_recalled.Vocabulary, passages: Encoded) -> tuple[Tensor, ...]:
    """Lexical, sentence and late scores, some passages and questions at a time."""
    weights, columns = words.weights(query.ids), []
    for rows in torch.arange(len(passages.ids), device=query.ids.device).split(1024):
        part = passages.each(itemgetter(rows))
        late = as_recalled.late(query, weights, part)
        columns.append((as_recalled.lexical(query.ids, part.ids, words), query.sentence @ part.sentence.T, late))
    return tuple(torch.cat(column, 1) for column in zip(*columns, strict=True))


def main() -> None:
    """Parse the command line, encode, compare."""
    source, start, out, *names = sys.argv[1:]
    device = loop.device()
    arrays = dict(np.load(source))
    texts = TextStore.make(arrays["tokens"], arrays["offsets"], device)
    report: dict[str, dict] = {}
    for name in names:
        whole, plain = name.startswith("float:"), name.removeprefix("float:")
        model = open_model(plain, Path(start), device)
        totals = []
        for which in arrays["sets"]:
            own = {key.partition(".")[2]: value for key, value in arrays.items() if key.startswith(f"{which}.")}
            results, cosines = rank(model, texts, own, WEIGHTS[which in CONVERSATIONS], not whole)
            means = {kind: (100 * np.mean(rows, 0)).round(1).tolist() for kind, rows in results.items()}
            totals.append([100 * np.mean(rows, 0)[1] for rows in results.values()])
            print(f"{name:24} {which:20} {means} cosines {cosines.mean():.3f} {cosines.std():.3f}", flush=True)
            report.setdefault(str(which), {})[name] = results
        prompts = np.isin(arrays["sets"], PROMPTS)
        for what, chosen in (("questions", ~prompts), ("prompts", prompts)):
            if chosen.any():
                means = np.mean(np.array(totals)[chosen], 0).round(2).tolist()
                print(f"{name:24} macro of {what} {dict(zip(KINDS, means, strict=True))}", flush=True)
        Path(out).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
