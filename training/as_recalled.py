"""Late interaction and the mix of scores as recall computes them, for training and measuring.

Passages have two bits a dimension and no stop words or punctuation (triskele/index/token_vectors.py); tokens of a
question weigh by the rarity of their word (triskele/recall/question.py); lexical, sentence and late scores are
added with the weights of triskele/recall/legs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.store import TextStore

FAR_SHARE, FAR_LEVEL = 0.32, 10 / 3
RARITY_POWER = 0.7
FEW_TOKENS, BREVITY_POWER = 14, 0.1
ALONE, IN_CONVERSATION = (0.12, 0.41, 0.47), (0.04, 0.10, 0.86)
K1, B = 1.2, 0.75
MEMORIES = 5000  # rarity is that of a store of this size
BUDGET = 131_072


@dataclass(slots=True)
class Vocabulary:
    """What recall makes of each token."""

    content: Tensor
    stop: Tensor
    spoken: Tensor
    continues: Tensor
    rarity: Tensor

    @staticmethod
    def make(tokenizer: Tokenizer, stop_words: frozenset[str], texts: TextStore, passages: Tensor) -> Vocabulary:
        """From the tokenizer and the passages in which tokens are counted."""
        size, device = tokenizer.get_vocab_size(), texts.tokens.device
        pieces = [tokenizer.id_to_token(number) for number in range(size)]
        bare = [piece.removeprefix("##") for piece in pieces]

        def flags(values: list[bool]) -> Tensor:
            return torch.tensor(values, device=device)

        spoken = flags([any(c.isalnum() for c in piece) for piece in bare])
        stop = flags([piece in stop_words for piece in bare])
        found = torch.zeros(size, device=device)
        for part in passages.split(65_536):
            ids, _ = texts.assemble(part[:, None], torch.tensor([254], device=device))
            seen = ids.sort(1).values
            first = torch.cat([torch.ones_like(seen[:, :1], dtype=torch.bool), seen[:, 1:] != seen[:, :-1]], 1)
            found += torch.bincount(seen[first], minlength=size)[:size].float()
        scaled = found * min(1.0, MEMORIES / len(passages))
        count = min(MEMORIES, len(passages))
        rarity = torch.log(1 + (count - scaled).clamp(min=0) / (scaled + 0.5) + 0.5 / (scaled + 0.5))
        continues = flags([piece.startswith("##") for piece in pieces])
        return Vocabulary(spoken & ~stop, stop, spoken, continues, rarity)

    def weights(self, ids: Tensor) -> Tensor:
        """The weight of each token of a question (0 pads); they add up to 1."""
        continued = self.continues[ids]
        word = (~continued).long().cumsum(1)
        best = torch.zeros(len(ids), ids.shape[1] + 1, device=ids.device)
        best = best.scatter_reduce(1, word, self.rarity[ids] * (ids != 0), "amax").gather(1, word)
        followed = F.pad(continued[:, 1:], (0, 1))
        plain_stop = self.stop[ids] & ~continued & ~followed
        found = best**RARITY_POWER * ~plain_stop * self.spoken[ids] * (ids != 0)
        even = (ids != 0).float()
        found = torch.where(found.sum(1, keepdim=True) > 0, found, even)
        return found / found.sum(1, keepdim=True).clamp(min=1e-6)


@dataclass(slots=True)
class Encoded:
    """Sentence vectors, and token vectors with their ids moved to the front (0 pads)."""

    sentence: Tensor
    tokens: Tensor
    ids: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> Encoded:
        """The same change to all three."""
        return Encoded(change(self.sentence), change(self.tokens), change(self.ids))

    @staticmethod
    def joined(parts: Sequence[Encoded]) -> Encoded:
        """Several in a row."""
        return Encoded(*(torch.cat([getattr(part, name) for part in parts]) for name in ("sentence", "tokens", "ids")))


def two_bits(vectors: Tensor) -> Tensor:
    """Unit vectors as recall keeps them; the gradient passes as if nothing were rounded."""
    dimensions = vectors.shape[-1]
    far = round(FAR_SHARE * dimensions)
    rounded = (vectors.detach().float() * 127).round()
    # Of equal ones the first is kept, as a stable sort would.
    order = rounded.abs() * dimensions - torch.arange(dimensions, device=vectors.device)
    levels = torch.ones_like(rounded).scatter(-1, order.topk(far, -1).indices, FAR_LEVEL)
    length = (dimensions + (FAR_LEVEL**2 - 1) * far) ** 0.5
    kept = torch.where(rounded >= 0, levels, -levels) / length
    return vectors + (kept.to(vectors.dtype) - vectors).detach()


@dataclass(frozen=True, slots=True)
class Reading:
    """How texts are encoded: at most `cap` tokens, of which `width` vectors are kept.

    With `words` they are passages: stop words and punctuation are left out, and `rounded` vectors have two bits.
    """

    cap: int
    width: int
    words: Vocabulary | None = None
    rounded: bool = True


def encode(model: nn.Module, texts: TextStore, rows: Tensor, how: Reading) -> Encoded:
    """The vectors of rows of text ids between [CLS] and [SEP]."""
    words, width = how.words, how.width
    caps = torch.full((rows.shape[1],), 40, device=rows.device)
    caps[-2] = how.cap
    numbers, sentences, tokens, places = [], [], [], []
    for number, ids, column in texts.batches(rows, caps, BUDGET):
        sentence, vectors = model(ids, column >= 0)
        inner = (column > 0) & (column < rows.shape[1] - 1)
        if words is not None:
            content = inner & words.content[ids]
            inner = torch.where(content.any(1, keepdim=True), content, inner)
        order = (~inner).to(torch.int8).sort(dim=1, stable=True).indices[:, :width]
        kept = inner.gather(1, order)
        vectors = vectors.gather(1, order.unsqueeze(-1).expand(-1, -1, vectors.shape[-1]))
        vectors = (two_bits(vectors) if words is not None and how.rounded else vectors) * kept.unsqueeze(-1)
        more = width - order.shape[1]
        numbers.append(number)
        sentences.append(sentence)
        tokens.append(F.pad(vectors, (0, 0, 0, more)))
        places.append(F.pad(ids.gather(1, order) * kept, (0, more)))
    back = torch.cat(numbers).argsort()
    return Encoded(torch.cat(sentences)[back], torch.cat(tokens)[back], torch.cat(places)[back])


def brevity(passages: Encoded) -> Tensor:
    """What a match with few tokens counts."""
    return ((passages.ids > 0).sum(-1) / FEW_TOKENS).clamp(max=1) ** BREVITY_POWER


def late_part(query: Tensor, weights: Tensor, tokens: Tensor, filled: Tensor) -> Tensor:
    """The weighted mean of the best matches: (queries, passages), or each query with its own list."""
    form = "qid,pjd->qpij" if tokens.dim() == 3 else "qid,qpjd->qpij"
    similar = torch.einsum(form, query, tokens)
    mask = filled[None, :, None, :] if tokens.dim() == 3 else filled[:, :, None, :]
    best = similar.masked_fill(~mask, -1).max(-1).values
    return (best.float() * weights[:, None, :]).sum(-1)


def late(query: Encoded, weights: Tensor, passages: Encoded, chunk: int = 32) -> Tensor:
    """Late scores of questions with all passages, or with their own lists if those have a dimension more."""
    own, filled = passages.tokens.dim() == 4, passages.ids > 0
    parts = []
    for i in range(0, len(weights), chunk):
        some = slice(i, i + chunk)
        inputs = (query.tokens[some], weights[some])
        inputs += (passages.tokens[some], filled[some]) if own else (passages.tokens, filled)
        if torch.is_grad_enabled():
            parts.append(torch.utils.checkpoint.checkpoint(late_part, *inputs, use_reentrant=False))
        else:
            parts.append(late_part(*inputs))
    factor = brevity(passages)
    return torch.cat(parts) * (factor if own else factor[None])


@torch.no_grad()
def lexical(query: Tensor, passage: Tensor, words: Vocabulary) -> Tensor:
    """BM25 of token ids as a share of what a passage with every token would get: (queries, passages)."""
    size = len(words.rarity)
    counts = torch.zeros(len(passage), size, device=passage.device)
    counts.scatter_add_(1, passage, (passage > 0).float())
    counts[:, 0] = 0
    lengths = counts.sum(1, keepdim=True)
    norm = K1 * (1 - B + B * lengths / lengths.mean().clamp(min=1))
    counts = counts * (K1 + 1) / (counts + norm)
    asked = torch.zeros(len(query), size, device=query.device)
    asked.scatter_(1, query, words.rarity[query] * words.content[query])
    asked[:, 0] = 0
    return asked @ counts.T / asked.sum(1, keepdim=True).clamp(min=1e-6)


def mixed(parts: tuple[Tensor, Tensor, Tensor], weights: tuple[float, float, float]) -> Tensor:
    """Lexical, sentence and late scores with their weights."""
    return sum(weight * part for weight, part in zip(weights, parts, strict=True))
