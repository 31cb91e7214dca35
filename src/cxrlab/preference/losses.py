"""What preference training minimises: pure functions of log-probabilities, one number a pair or a report.

A *ratio* is log π(report) - log π_ref(report): how much likelier the trained model finds a report than the
model it started from did. A *mean* is the log-probability of a report divided by its tokens. All
logarithms are natural; the end token counts as one of a report's tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor


def dpo(chosen_ratio: Tensor, rejected_ratio: Tensor, beta: float) -> Tensor:
    """Direct preference optimisation: -log σ(β · margin)."""
    return -functional.logsigmoid(beta * (chosen_ratio - rejected_ratio))


def robust_dpo(chosen_ratio: Tensor, rejected_ratio: Tensor, beta: float, flipped: float) -> Tensor:
    """DPO whose mean is unmoved when this share of the pairs is the wrong way round.

    Args:
        chosen_ratio: [B].
        rejected_ratio: [B].
        beta: How strongly the model is held to its start.
        flipped: Share of pairs that are expected to be the wrong way round, from 0 to below one half.
    """
    margin = beta * (chosen_ratio - rejected_ratio)
    right, wrong = -functional.logsigmoid(margin), -functional.logsigmoid(-margin)
    return ((1.0 - flipped) * right - flipped * wrong) / (1.0 - 2.0 * flipped)


def rdpo(
    chosen_ratio: Tensor,
    rejected_ratio: Tensor,
    chosen_tokens: Tensor,
    rejected_tokens: Tensor,
    beta: float,
    alpha: float,
) -> Tensor:
    """DPO that asks less of a pair whose chosen report is the longer one: length alone then teaches nothing.

    Args:
        chosen_ratio: [B].
        rejected_ratio: [B].
        chosen_tokens: [B].
        rejected_tokens: [B].
        beta: How strongly the model is held to its start.
        alpha: What a token of difference in length is worth.
    """
    longer = (chosen_tokens - rejected_tokens).to(chosen_ratio.dtype)
    return -functional.logsigmoid(beta * (chosen_ratio - rejected_ratio) + alpha * longer)


def ipo(
    chosen_ratio: Tensor, rejected_ratio: Tensor, chosen_tokens: Tensor, rejected_tokens: Tensor, beta: float
) -> Tensor:
    """Identity preference optimisation: (margin - 1/2β)², the ratios taken by token.

    The square does not saturate: a pair that is told apart well enough is not driven further apart.
    """
    margin = chosen_ratio / chosen_tokens - rejected_ratio / rejected_tokens
    return (margin - 1.0 / (2.0 * beta)) ** 2


def kto(
    ratio: Tensor, desirable: Tensor, drift: Tensor, beta: float, desirable_weight: float, undesirable_weight: float
) -> Tensor:
    """Kahneman-Tversky optimisation: reports that are good or bad by themselves, no pairs.

    Args:
        ratio: [B].
        desirable: Whether each report is a good one, bool [B].
        drift: How far the model has moved from its start, a scalar without gradient: KTO's estimate of KL(π ‖ π_ref),
            the mean ratio of reports of other studies, at least 0.
        beta: How strongly the model is held to its start.
        desirable_weight: Of good reports.
        undesirable_weight: Of bad ones.
    """
    good = 1.0 - torch.sigmoid(beta * (ratio - drift))
    bad = 1.0 - torch.sigmoid(beta * (drift - ratio))
    return torch.where(desirable, desirable_weight * good, undesirable_weight * bad)


def orpo(chosen_mean: Tensor, rejected_mean: Tensor, beta: float) -> Tensor:
    """Odds-ratio preference optimisation: the loss of the chosen report and the odds against the rejected one.

    It needs no reference model: the first term holds the model to good reports.
    """
    odds = _log_odds(chosen_mean) - _log_odds(rejected_mean)
    return -chosen_mean - beta * functional.logsigmoid(odds)


def simpo(chosen_mean: Tensor, rejected_mean: Tensor, beta: float, gamma: float) -> Tensor:
    """Simple preference optimisation: the mean log-probabilities must differ by γ/β; no reference model.

    Args:
        chosen_mean: [B].
        rejected_mean: [B].
        beta: Scale of the difference.
        gamma: Margin that the scaled difference should exceed.
    """
    return -functional.logsigmoid(beta * (chosen_mean - rejected_mean) - gamma)


def _log_odds(mean: Tensor) -> Tensor:
    """log(p / (1 - p)) of p = exp(mean), exact near p = 1 too."""
    below = mean.clamp(max=-1e-7)  # p = 1 has no odds
    return below - torch.log(-torch.expm1(below))
