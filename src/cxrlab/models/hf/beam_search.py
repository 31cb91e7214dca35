"""Beam search, and diverse beam search in groups (Vijayakumar et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from cxrlab.models.hf.decoding_steps import Answer

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.decoding import Decoding
    from cxrlab.models.hf.decoding_steps import Steps

NEVER = -torch.inf


class DiverseBeamSearch:
    """Diverse group beam search.

    Args:
        decoding: Beams, groups, penalties and answers; `strategy=beam` is one group without a penalty.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding, self.rows = decoding, decoding.beams
        diverse = decoding.strategy == "diverse"
        self.groups = decoding.groups if diverse else 1
        self.penalty = decoding.diversity_penalty if diverse else 0.0

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """The best answers of each image."""
        beams = self.decoding.beams
        images, size = steps.rows // beams, beams // self.groups
        groups = [BeamGroup(images, size, steps, self.decoding) for _ in range(self.groups)]
        first = torch.arange(images, device=steps.device)[:, None] * beams
        for length in range(1, steps.longest + 1):
            found = steps.log_probabilities().view(images, self.groups, size, -1)
            used = torch.zeros_like(found[:, 0, 0])
            tokens, rows = [], []
            for number, group in enumerate(groups):
                was_open = group.open
                token, source = group.step(found[:, number], self.penalty * used, length)
                # Beams of a closed image do not count as choices.
                chosen = was_open[:, None] & torch.isfinite(group.running.scores)
                used.scatter_add_(1, token, chosen.to(used.dtype))
                tokens.append(token)
                rows.append(first + number * size + source)
            if length == steps.longest or not any(bool(group.open.any()) for group in groups):
                break
            steps.append(torch.cat(tokens, 1).flatten(), torch.cat(rows, 1).flatten())
        return _best_answers(groups, self.decoding.answers)


def _best_answers(groups: list[BeamGroup], count: int) -> list[list[Answer]]:
    """The best answers of all groups for each image; answers that another group also gave come last."""
    ended = groups[0].ended
    for group in groups[1:]:
        ended = ended.joined(group.ended)
    ranked, _ = ended.best(ended.scores.shape[1])
    found = []
    for image in range(len(ranked.scores)):
        answers: dict[tuple[int, ...], Answer] = {}
        repeated = []
        for place in torch.isfinite(ranked.scores[image]).nonzero().flatten().tolist():
            tokens = tuple(ranked.tokens[image, place, : int(ranked.lengths[image, place])].tolist())
            total = float(ranked.log_probabilities[image, place])
            answer = Answer(tokens, total, bool(ranked.ended[image, place]))
            if tokens in answers:
                repeated.append(answer)
            answers.setdefault(tokens, answer)
        found.append([*answers.values(), *repeated][:count])
    return found


class BeamGroup:
    """One group of beams: the running sequences, and the best that have ended.

    Args:
        images: B.
        size: Beams of the group, K.
        steps: For the longest answer and the end tokens.
        decoding: Length penalty and when to stop.
    """

    def __init__(self, images: int, size: int, steps: Steps, decoding: Decoding) -> None:
        self.size, self.steps, self.decoding = size, steps, decoding
        self.running = Beams.empty(images, size, steps.longest, steps.device)
        # All beams start alike: only the first counts, or all would choose the same tokens.
        self.running.scores[:, 0] = 0.0
        self.ended = Beams.empty(images, size, steps.longest, steps.device)
        self.open = torch.ones(images, dtype=torch.bool, device=steps.device)  # images that may still improve
        # Enough candidates to continue with even if every end token is among the best.
        self.reach = size * max(2, 1 + len(steps.ends))

    def step(self, log_probabilities: Tensor, cost: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Take one step; returns token and source beam of each running sequence, both [B, K].

        Args:
            log_probabilities: Of the next token of each running sequence, [B, K, V].
            cost: Subtracted from each token's log-probability, [B, V].
            length: Tokens of an answer after this step.
        """
        _, size, words = log_probabilities.shape
        # The best continuations, best first, and the beam that each continues.
        totals = self.running.scores[..., None] + log_probabilities - cost[:, None]
        scores, places = torch.topk(totals.flatten(1), min(self.reach, size * words), dim=1)
        source, token = places // words, places % words
        tokens = self.running.tokens.gather(1, source[..., None].expand(-1, -1, self.steps.longest)).clone()
        tokens[..., length - 1] = token
        sums = self.running.log_probabilities.gather(1, source) + log_probabilities.flatten(1).gather(1, places)
        candidates = Beams(tokens, torch.full_like(source, length), scores, sums, self.steps.is_end(token))
        # Keep what has just ended if it is among the best K and the image is still open.
        ends = torch.ones_like(candidates.ended) if length == self.steps.longest else candidates.ended
        among_best = torch.arange(ends.shape[1], device=ends.device) < self.size
        taken = ends & among_best & self.open[:, None]
        final = (scores / length**self.decoding.length_penalty).masked_fill(~taken, NEVER)
        self.ended, _ = self.ended.joined(replace(candidates, scores=final)).best(self.size)
        self.running, where = candidates.best(self.size, scores.masked_fill(candidates.ended, NEVER))
        # Close the images whose best running sequence is no better than the worst ended one.
        best_possible = self.running.scores[:, 0] / length**self.decoding.length_penalty
        better = best_possible > self.ended.scores.amin(dim=1)
        full = torch.isfinite(self.ended.scores).all(dim=1)
        self.open = self.open & better & ~(full & self.decoding.early_stopping)
        return token.gather(1, where), source.gather(1, where)


@dataclass(frozen=True)
class Beams:
    """Sequences of one group: K for each of B images, best first; an empty place has the score -inf.

    Args:
        tokens: [B, K, T].
        lengths: [B, K].
        scores: Ranking, [B, K].
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
        """The `places` best by these scores (default: their own), and their previous places [B, places]."""
        ranked = self.scores if scores is None else scores
        # Stable, so that ties keep their order on every machine.
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

    def joined(self, other: Beams) -> Beams:
        """These and the other's sequences, [B, K + K', …]."""
        return Beams(
            torch.cat([self.tokens, other.tokens], 1),
            torch.cat([self.lengths, other.lengths], 1),
            torch.cat([self.scores, other.scores], 1),
            torch.cat([self.log_probabilities, other.log_probabilities], 1),
            torch.cat([self.ended, other.ended], 1),
        )
