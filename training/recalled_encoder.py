"""Train the encoder on the scores that recall computes, beginning from the weights that ship.

    python -m training.recalled_encoder DATA.npz SCORED_FOLDER START_FOLDER OUT --seed 1 --seconds 330

START_FOLDER comes from training.from_graph, SCORED_FOLDER from training.score_lists. Passages have two bits a dimension
and no stop words, and what is ranked is the mix of words, sentence and late interaction. Sentence vectors are held near
those of the start. Several seeds are averaged afterwards (`training.export`, `--weights A:.3 B:.3 C:.3`).
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from training import as_recalled, encoder, lists, loop, store
from training.as_recalled import ALONE, IN_CONVERSATION, Reading, mixed

BATCH, NEGATIVES, SHARED = 256, 6, 3
TEMPERATURE = 0.02
LATE_WEIGHT, TAUGHT_WEIGHT, KEEP_WEIGHT, SIMILAR_WEIGHT = 0.5, 1.0, 4.0, 20.0
QUERY_TOKENS, TEXT_TOKENS, PASSAGE_WIDTH = 32, 144, 96
# In this share of questions most tokens that stand in the passage do not count, so that others learn to match.
BARED, BARED_TOKENS, LEAST_LEFT = 0.25, 0.7, 0.25
ROOT = Path(__file__).parents[1]


def stop_words() -> frozenset[str]:
    """Those of recall, without importing its other modules."""
    spec = importlib.util.spec_from_file_location("text", ROOT / "src" / "triskele" / "text" / "words.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.STOP_WORDS


def tokenizer() -> Tokenizer:
    """The bundled one."""
    return Tokenizer.from_file(str(ROOT / "src" / "triskele" / "models" / "weights" / "tokenizer.json"))


def bared(weights: Tensor, asked: Tensor, answer: Tensor, generator: torch.Generator) -> Tensor:
    """The weights of some questions without tokens that stand in the passage, if enough is left."""
    where = weights.device
    shared = ((asked[:, :, None] == answer[:, None, :]) & (asked > 0)[:, :, None]).any(-1)
    shared &= torch.rand(weights.shape, generator=generator, device=where) < BARED_TOKENS
    left = weights * ~shared
    total = left.sum(1, keepdim=True)
    wanted = torch.rand(len(weights), 1, generator=generator, device=where) < BARED
    return torch.where(wanted & (total > LEAST_LEFT), left / total.clamp(min=1e-6), weights)


def ranked(scores: Tensor, own: Tensor, teacher: Tensor, numbers: Tensor) -> Tensor:
    """InfoNCE over the batch, and the teacher's distribution over each list."""
    target = torch.arange(len(scores), device=scores.device) * SHARED
    same = numbers[target][:, None] == numbers[None, :]
    same[torch.arange(len(scores), device=scores.device), target] = False
    contrast = F.cross_entropy((scores / TEMPERATURE).masked_fill(same, -1e4), target)
    return contrast + TAUGHT_WEIGHT * encoder.taught(own, teacher, TEMPERATURE)


class Loss:
    """All parts of the loss."""

    def __init__(
        self, start: encoder.Encoder, texts: store.TextStore, words: as_recalled.Vocabulary, generator: torch.Generator
    ) -> None:
        self.start, self.texts, self.words, self.generator = start, texts, words, generator

    def encoded(self, model: encoder.Encoder, made: Tensor) -> tuple[as_recalled.Encoded, as_recalled.Encoded]:
        """Questions, and the passages of all lists."""
        asked, told = Reading(QUERY_TOKENS, QUERY_TOKENS), Reading(TEXT_TOKENS, PASSAGE_WIDTH, self.words)
        query = as_recalled.encode(model, self.texts, encoder.frame(made[:, 0, lists.QUERY, None]), asked)
        rows = encoder.frame(made[..., (lists.SPEAKER, lists.TEXT)].flatten(0, 1))
        return query, as_recalled.encode(model, self.texts, rows, told)

    def kept(self, made: Tensor, query: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        """How far sentence vectors and their similarities moved from the start."""
        with torch.no_grad():
            before_query, before = (side.sentence for side in self.encoded(self.start, made[:, :1]))
        moved = 2 - (query * before_query).sum(-1).mean() - (answer * before).sum(-1).mean()
        return moved / 2, F.mse_loss(query @ answer.T, before_query @ before.T)

    def __call__(self, model: encoder.Encoder, made: Tensor, teacher: Tensor) -> dict[str, Tensor]:
        """The parts for lists (lists, 1 + NEGATIVES, columns), each with its weight."""
        count, listed = made.shape[:2]
        query, passages = self.encoded(model, made)
        own = passages.each(lambda values: values.unflatten(0, (count, listed)))
        shared = own.each(lambda values: values[:, :SHARED].flatten(0, 1))
        weights = self.words.weights(query.ids)
        weights = bared(weights, query.ids, own.ids[:, 0], self.generator)
        lexical = as_recalled.lexical(query.ids, passages.ids, self.words).view(count, count, listed)
        mine = torch.arange(count, device=made.device)
        late_all, late_own = as_recalled.late(query, weights, shared), as_recalled.late(query, weights, own)
        spoken = (made[:, 0, lists.SPEAKER] > 0)[:, None]
        all_parts = (lexical[..., :SHARED].flatten(1), query.sentence @ shared.sentence.T, late_all)
        own_parts = (lexical[mine, mine], torch.einsum("qd,qpd->qp", query.sentence, own.sentence), late_own)
        scores, own_scores = (
            torch.where(spoken, mixed(parts, IN_CONVERSATION), mixed(parts, ALONE)) for parts in (all_parts, own_parts)
        )
        numbers = made[:, :SHARED, lists.TEXT].flatten()
        moved, similar = self.kept(made, query.sentence, own.sentence[:, 0])
        return {
            "mix": ranked(scores, own_scores, teacher, numbers),
            "late": LATE_WEIGHT * ranked(late_all, late_own, teacher, numbers),
            "moved": KEEP_WEIGHT * moved,
            "similar": SIMILAR_WEIGHT * similar,
        }


def train(
    model: encoder.Encoder, loss_of: Loss, made: Tensor, scores: Tensor, args: argparse.Namespace
) -> encoder.Encoder:
    """Fit the encoder on the scored lists."""
    where, generator = str(made.device), loss_of.generator
    body = loop.trainable(model.body, ("words",))
    optimizer = loop.Optimizer([(body, args.rate), ([model.projection], 5 * args.rate)], args.steps, args.seconds)
    batches = loop.epochs(len(made), min(args.batch, len(made)), generator, where)
    told = []
    while optimizer.progress() < 1:
        rows = next(batches)
        columns = 1 + torch.randperm(made.shape[1] - 1, generator=generator, device=where)[:NEGATIVES]
        columns = torch.cat([torch.zeros(1, dtype=torch.long, device=where), columns])
        parts = loss_of(model, made[rows][:, columns].long(), scores[rows][:, columns].float())
        sum(parts.values()).backward()
        optimizer.update()
        told.append(torch.stack([part.detach() for part in parts.values()]))
        if optimizer.step % 50 == 0 or optimizer.step in (1, 10):
            means = zip(parts, torch.stack(told[-50:]).mean(0).tolist(), strict=True)
            said = ", ".join(f"{name} {value:.3f}" for name, value in means)
            print(f"encoder step {optimizer.step} of {optimizer.progress():.0%}: {said}", flush=True)
    return optimizer.restored(model)


def main() -> None:
    """Parse the command line, train, save."""
    parser = argparse.ArgumentParser(description="Train the encoder on the scores of recall.")
    for name in ("data", "scored", "start", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=330)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    device = loop.device()
    data = store.read(args.data, device)
    words = as_recalled.Vocabulary.make(tokenizer(), stop_words(), data.texts, data.pool[:, 0])
    made = torch.from_numpy(np.load(args.scored / "lists.npy")).to(device)
    scores = torch.from_numpy(np.load(args.scored / "scores.npy")).to(device)
    model, start = (encoder.load(args.start).to(device, loop.dtype(device)) for _ in range(2))
    loop.compile_layers(model.body)
    loss_of = Loss(start, data.texts, words, torch.Generator(device).manual_seed(args.seed))
    with loop.timed("encoder training"):
        trained = train(model, loss_of, made, scores, args)
    encoder.save(trained, args.out)


if __name__ == "__main__":
    main()
