"""Beam search in groups that avoid each other's words (Vijayakumar et al. 2016), beam search being one group.

The groups take each step in turn. What an earlier group goes on with at this step costs every later group
`diversity_penalty` a beam. An ended answer is ranked by its sum of log-probabilities, penalties taken off, divided
by its length to the power of `length_penalty`; what it costs to differ is not part of its confidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from cxrlab.models.hf.steps import Answer, Steps

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.decoding import Decoding

NEVER = -torch.inf


@dataclass(frozen=True)
class Beams:
    """Sequences of one group: K of each of B images, best first; a place without one has the score -inf.

    Args:
        tokens: What was written, [B, K, T].
        lengths: Tokens that count, [B, K].
        scores: What they are ranked by, [B, K].
        log_probabilities: Sum under the model itself, [B, K].
        ended: Whether the last token is an end token, [B, K].
    """

    tokens: Tensor
    lengths: Tensor
    scores: Tensor
    log_probabilities: Tensor
    ended: Tensor

    @classmethod
    def empty(cls, images: int, places: int, longest: int, device: torch.device) -> Beams:
        """No sequence yet."""
        shape = (images, places)
        return cls(
            torch.zeros((*shape, longest), dtype=torch.long, device=device),
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.full(shape, NEVER, device=device),
            torch.zeros(shape, device=device),
            torch.zeros(shape, dtype=torch.bool, device=device),
        )

    def best(self, places: int, scores: Tensor | None = None) -> tuple[Beams, Tensor]:
        """The `places` best by these scores (their own when None), and where each stood [B, places]."""
        ranked = self.scores if scores is None else scores
        # Stable, so that of equal ones the earlier stays in front on every machine.
        top, where = torch.sort(ranked, dim=1, descending=True, stable=True)
        top, where = top[:, :places], where[:, :places]
        wide = where[..., None].expand(-1, -1, self.tokens.shape[2])
        kept = Beams(
            self.tokens.gather(1, wide),
            self.lengths.gather(1, where),
            top,
            self.log_probabilities.gather(1, where),
            self.ended.gather(1, where),
        )
        return kept, where

    def beside(self, other: Beams) -> Beams:
        """These and the other's, [B, K + K', …]."""
        return Beams(
            torch.cat([self.tokens, other.tokens], 1),
            torch.cat([self.lengths, other.lengths], 1),
            torch.cat([self.scores, other.scores], 1),
            torch.cat([self.log_probabilities, other.log_probabilities], 1),
            torch.cat([self.ended, other.ended], 1),
        )


class Group:
    """One group: the sequences that go on, and the best that have ended.

    Args:
        images: B.
        size: Beams of the group, K.
        steps: For the longest answer and the end tokens.
        decoding: Length penalty and when to stop.
    """

    def __init__(self, images: int, size: int, steps: Steps, decoding: Decoding) -> None:
        self.size, self.steps, self.decoding = size, steps, decoding
        self.running = Beams.empty(images, size, steps.longest, steps.device)
        # All beams start alike: only the first counts, or all would choose the same words.
        self.running.scores[:, 0] = 0.0
        self.ended = Beams.empty(images, size, steps.longest, steps.device)
        self.open = torch.ones(images, dtype=torch.bool, device=steps.device)  # images that may still improve
        # Enough to go on with although every end token stands among the best.
        self.reach = size * max(2, 1 + len(steps.ends))

    def step(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Take one step; returns token and source beam of each sequence that goes on, both [B, K].

        Args:
            log_probabilities: Of the next token of each running sequence, [B, K, V].
            cost: Taken off each token's log-probability, [B, V].
            length: Tokens of an answer after this step.
        """
        candidates, source = self._candidates(log_probabilities, cost, length)
        last = candidates.tokens[..., length - 1]
        cut = length == self.steps.longest
        self._keep_ended(candidates, torch.ones_like(candidates.ended) if cut else candidates.ended, length)
        self.running, where = candidates.best(self.size, candidates.scores.masked_fill(candidates.ended, NEVER))
        self._close(length)
        return last.gather(1, where), source.gather(1, where)

    def _candidates(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Beams, Tensor]:
        """The best continuations, best first, and the beam that each continues."""
        images, size, words = log_probabilities.shape
        totals = self.running.scores[..., None] + log_probabilities - cost[:, None]
        scores, places = torch.topk(totals.flatten(1), min(self.reach, size * words), dim=1)
        source, token = places // words, places % words
        tokens = self.running.tokens.gather(1, source[..., None].expand(-1, -1, self.steps.longest)).clone()
        tokens[..., length - 1] = token
        gained = log_probabilities.flatten(1).gather(1, places)
        sums = self.running.log_probabilities.gather(1, source) + gained
        made = Beams(tokens, torch.full_like(source, length), scores, sums, self.steps.is_end(token))
        return made, source

    def _keep_ended(self, candidates: Beams, stops: Tensor, length: int) -> None:
        """Take in what has just ended, if it stands among the best K and the image is still open."""
        among_best = torch.arange(stops.shape[1], device=stops.device) < self.size
        taken = stops & among_best & self.open[:, None]
        scores = (candidates.scores / length**self.decoding.length_penalty).masked_fill(~taken, NEVER)
        self.ended, _ = self.ended.beside(replace(candidates, scores=scores)).best(self.size)

    def _close(self, length: int) -> None:
        """Close the images where the best that goes on is no better than the worst that has ended."""
        hope = self.running.scores[:, 0] / length**self.decoding.length_penalty
        better = hope > self.ended.scores.amin(dim=1)
        full = torch.isfinite(self.ended.scores).all(dim=1)
        self.open = self.open & better & ~(full & self.decoding.early_stopping)


class DiverseBeams:
    """Diverse group beam search.

    Args:
        decoding: Beams, groups, penalties and answers; `strategy=beam` is one group without a penalty.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        diverse = decoding.strategy == "diverse"
        self.groups = decoding.groups if diverse else 1
        self.penalty = decoding.diversity_penalty if diverse else 0.0

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """The best answers of each image."""
        beams = self.decoding.beams
        images, size = steps.rows // beams, beams // self.groups
        groups = [Group(images, size, steps, self.decoding) for _ in range(self.groups)]
        first = torch.arange(images, device=steps.device)[:, None] * beams
        for length in range(1, steps.longest + 1):
            found = steps.log_probabilities().view(images, self.groups, size, -1)
            used = torch.zeros_like(found[:, 0, 0])
            tokens, rows = [], []
            for number, group in enumerate(groups):
                was_open = group.open
                token, source = group.step(found[:, number], self.penalty * used, length)
                # An image that a group has done with chooses nothing, whatever the other images still do.
                chosen = was_open[:, None] & torch.isfinite(group.running.scores)
                used.scatter_add_(1, token, chosen.to(used.dtype))
                tokens.append(token)
                rows.append(first + number * size + source)
            if length == steps.longest or not any(bool(group.open.any()) for group in groups):
                break
            steps.go_on(torch.cat(tokens, 1).flatten(), torch.cat(rows, 1).flatten())
        return _answers(groups, self.decoding.answers)


def _answers(groups: list[Group], count: int) -> list[list[Answer]]:
    """The best of all groups for each image; what another group wrote too comes after what is new."""
    ended = groups[0].ended
    for group in groups[1:]:
        ended = ended.beside(group.ended)
    ranked, _ = ended.best(ended.scores.shape[1])
    found = []
    for image in range(len(ranked.scores)):
        answers: dict[tuple[int, ...], Answer] = {}
        repeated = []
        for place in torch.isfinite(ranked.scores[image]).nonzero().flatten().tolist():
            tokens = tuple(ranked.tokens[image, place, : int(ranked.lengths[image, place])].tolist())
            total, ended_so = float(ranked.log_probabilities[image, place]), bool(ranked.ended[image, place])
            answer = Answer(tokens, total, ended_so)
            if tokens in answers:
                repeated.append(answer)
            answers.setdefault(tokens, answer)
        found.append([*answers.values(), *repeated][:count])
    return found
