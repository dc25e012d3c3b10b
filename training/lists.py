"""Candidate lists: one positive and its negatives as rows of text ids, as a conversation or plain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.columns import CHAIN, CLS, DIALOGUE, EMPTY, SEP, SHORT
from training.store import Data

# [CLS] query [SEP] speaker text [SEP] date speaker1 before1 speaker2 before2 [SEP]
QUERY, SPEAKER, TEXT, DATE, SPEAKER1, BEFORE1, SPEAKER2, BEFORE2 = 1, 3, 4, 6, 7, 8, 9, 10
COLUMNS = 12
CAPS = (1, 48, 1, 6, 144, 1, 16, 6, 40, 6, 40, 1)
I_TOKEN, MY_TOKEN = 1045, 2026
HARDER = 12  # the nearest candidates are drawn half as often again


@dataclass(frozen=True, slots=True)
class Chances:
    """How often each variation is made."""

    context: float = 0.55
    short_as_turn: float = 0.4
    swapped: float = 0.8
    following: float = 0.6
    neighbour: float = 0.5
    date: float = 0.5
    one_turn: float = 0.1
    same_speaker: float = 0.25


@dataclass(slots=True)
class Builder:
    """Builds lists from pairs and their mined candidates."""

    data: Data
    candidates: Tensor  # (pairs, candidates) of pool rows, -1 where there is none
    generator: torch.Generator
    chances: Chances = Chances()

    def chance(self, shape: tuple[int, ...], probability: float) -> Tensor:
        """True with a probability."""
        return torch.rand(shape, generator=self.generator, device=self.device) < probability

    @property
    def device(self) -> torch.device:
        """The device of all tensors."""
        return self.candidates.device

    def draw(self, bank: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Random entries of a bank."""
        return bank[torch.randint(len(bank), shape, generator=self.generator, device=self.device)]

    def build(self, rows: Tensor, negatives: int) -> Tensor:
        """Lists (pairs, 1 + negatives, columns) for pair numbers; the positive comes first."""
        pairs = self.data.pairs[rows]
        count, kind = len(rows), pairs[:, 8]
        spoken = (
            (kind == DIALOGUE) | (kind == CHAIN) | ((kind == SHORT) & self.chance((count,), self.chances.short_as_turn))
        )
        context = spoken & ((kind == CHAIN) | self.chance((count,), self.chances.context))
        ours, other = self.speakers(pairs)
        chosen = self.choose(rows, negatives + 2 * (negatives + 1))
        entries = self.data.pool[chosen[:, :negatives]]
        text = torch.cat([pairs[:, 1:2], entries[..., 0]], 1)
        turn_speaker = torch.where(self.chance(text.shape, 0.5), ours[:, None], other[:, None])
        speaker = torch.cat([pairs[:, 2:3], entries[..., 1]], 1)
        speaker = torch.where(spoken[:, None], turn_speaker, speaker)
        speaker[:, 0] = torch.where(spoken, ours, pairs[:, 2])
        self.swap(pairs, text, speaker, other)
        lists = torch.zeros(count, 1 + negatives, COLUMNS, dtype=torch.long, device=self.device)
        lists[..., 0], lists[..., 2], lists[..., 5] = CLS, SEP, SEP
        lists[..., QUERY], lists[..., SPEAKER], lists[..., TEXT] = pairs[:, :1], speaker, text
        before = self.data.pool[chosen[:, negatives:]][..., 0].view(count, 1 + negatives, 2)
        self.add_context(lists, pairs, before, (ours, other), context)
        return lists

    def speakers(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """The speaker of the positive, and the other speaker."""
        user, assistant = self.data.roles
        ours = torch.where(pairs[:, 2] == EMPTY, self.draw(self.data.names, (len(pairs),)), pairs[:, 2])
        other = self.draw(self.data.names, (len(pairs),))
        real = (pairs[:, 4] != EMPTY) & (pairs[:, 4] != pairs[:, 2])
        other = torch.where(real, pairs[:, 4], other)
        other = torch.where((ours == user) | (ours == other), assistant, other)
        return ours, other

    def choose(self, rows: Tensor, count: int) -> Tensor:
        """Random candidates of each pair, without repetition while they last; then random passages."""
        candidates = self.candidates[rows]
        order = torch.rand(candidates.shape, generator=self.generator, device=self.device)
        order[:, :HARDER] *= 0.67
        order[candidates < 0] = 2
        best = order.argsort(1)[:, :count]
        chosen = candidates.gather(1, best)
        if chosen.shape[1] < count:
            chosen = torch.cat([chosen, torch.full((len(rows), count - chosen.shape[1]), -1, device=self.device)], 1)
        random = torch.randint(len(self.data.pool), chosen.shape, generator=self.generator, device=self.device)
        origin = self.data.pairs[rows, 6:7]
        random = torch.where(random == origin, (random + 1) % len(self.data.pool), random)
        return torch.where(chosen < 0, random, chosen)

    def swap(self, pairs: Tensor, text: Tensor, speaker: Tensor, other: Tensor) -> None:
        """Make the first negative the positive's words by the other speaker, if the query names the speaker."""
        swapped = self.names_speaker(pairs) & self.chance((len(pairs),), self.chances.swapped)
        text[:, 1] = torch.where(swapped, text[:, 0], text[:, 1])
        speaker[:, 1] = torch.where(swapped, other, speaker[:, 1])

    def names_speaker(self, pairs: Tensor) -> Tensor:
        """Whether the query names the positive's speaker, or is in the first person and the speaker the user."""
        store = self.data.texts
        ids, _ = store.assemble(pairs[:, :1], torch.tensor([CAPS[QUERY]], device=self.device))
        first = store.tokens[store.offsets[pairs[:, 2]]].long()
        named = (ids == first[:, None]).any(1) & (pairs[:, 2] != EMPTY)
        user = pairs[:, 2] == self.data.roles[0]
        own = ((ids == I_TOKEN) | (ids == MY_TOKEN)).any(1)
        return torch.where(user, own, named)

    def add_context(
        self, lists: Tensor, pairs: Tensor, before: Tensor, parties: tuple[Tensor, Tensor], context: Tensor
    ) -> None:
        """Fill in the two turns before, their speakers and the date."""
        ours, other = (party[:, None] for party in parties)
        count, entries = lists.shape[:2]
        speaker = lists[..., SPEAKER]
        partner = torch.where(speaker == ours, other, ours)
        same = self.chance((count, entries), self.chances.same_speaker)
        first, second = before[..., 0], before[..., 1]
        known = pairs[:, 3] != EMPTY
        first[:, 0] = torch.where(known, pairs[:, 3], first[:, 0])
        second[:, 0] = torch.where(known & (pairs[:, 5] != EMPTY), pairs[:, 5], second[:, 0])
        self.add_neighbours(lists, pairs, first, known)
        second = torch.where(self.chance((count, entries), self.chances.one_turn), EMPTY, second)
        dated = self.chance((count, 1), self.chances.date)
        values = {
            DATE: torch.where(dated, self.draw(self.data.dates, (count, entries)), EMPTY),
            SPEAKER1: torch.where(same, speaker, partner), BEFORE1: first,
            SPEAKER2: torch.where(second == EMPTY, EMPTY, speaker), BEFORE2: second,
            COLUMNS - 1: torch.full_like(first, SEP),
        }  # fmt: skip
        real = known & (pairs[:, 4] != EMPTY)
        values[SPEAKER1][:, 0] = torch.where(real, pairs[:, 4], values[SPEAKER1][:, 0])
        for column, value in values.items():
            lists[..., column] = torch.where(context[:, None], value, EMPTY)

    def add_neighbours(self, lists: Tensor, pairs: Tensor, first: Tensor, known: Tensor) -> None:
        """Negatives next to the positive: a turn that follows it, and the turn before it."""
        if lists.shape[1] < 4:
            return
        follows = self.chance((len(pairs),), self.chances.following)
        first[:, 2] = torch.where(follows, pairs[:, 1], first[:, 2])
        neighbour = known & self.chance((len(pairs),), self.chances.neighbour)
        lists[:, 3, TEXT] = torch.where(neighbour, pairs[:, 3], lists[:, 3, TEXT])
        mark = torch.where(pairs[:, 4] == EMPTY, lists[:, 3, SPEAKER], pairs[:, 4])
        lists[:, 3, SPEAKER] = torch.where(neighbour, mark, lists[:, 3, SPEAKER])
