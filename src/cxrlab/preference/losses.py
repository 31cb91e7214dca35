"""Preference losses: pure functions of log-probabilities, with one value per pair or report.

A *ratio* is log π(report) - log π_ref(report), where π_ref is the reference model. A *mean* is the log-probability of a
report divided by its tokens, the end token included. All logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.core.registry import load_reference
from cxrlab.preference.config import LossSettings


def dpo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """Direct preference optimisation: -log σ(β · margin)."""
    chosen, rejected = batch.ratios
    return -functional.logsigmoid(settings.strength * (chosen - rejected))


def robust_dpo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """DPO whose expectation does not change when a share `flipped` (below one half) of the pairs is flipped."""
    chosen, rejected = batch.ratios
    margin, flipped = settings.strength * (chosen - rejected), settings.flipped
    right, wrong = -functional.logsigmoid(margin), -functional.logsigmoid(-margin)
    return ((1.0 - flipped) * right - flipped * wrong) / (1.0 - 2.0 * flipped)


def rdpo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """DPO with a penalty of `alpha` per token by which the chosen report is longer (length-regularised DPO)."""
    chosen, rejected = batch.ratios
    longer = (batch.tokens[0] - batch.tokens[1]).to(chosen.dtype)
    return -functional.logsigmoid(settings.strength * (chosen - rejected) + settings.alpha * longer)


def ipo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """Identity preference optimisation: (margin - 1/2β)², with ratios per token."""
    chosen, rejected = batch.ratios
    margin = chosen / batch.tokens[0] - rejected / batch.tokens[1]
    return (margin - 1.0 / (2.0 * settings.strength)) ** 2


def kto(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """Kahneman-Tversky optimisation: single reports that are desirable or not.

    The drift is KTO's estimate of KL(π ‖ π_ref): the mean ratio of reports of other studies, at least 0, a scalar
    without gradient.
    """
    assert batch.desirable is not None  # single reports, see `LossKind.paired`
    ratio, beta = batch.ratios[0], settings.strength
    good = 1.0 - torch.sigmoid(beta * (ratio - batch.drift))
    bad = 1.0 - torch.sigmoid(beta * (batch.drift - ratio))
    return torch.where(batch.desirable, settings.desirable_weight * good, settings.undesirable_weight * bad)


def orpo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """Odds-ratio preference optimisation: loss of the chosen report and log-odds ratio; no reference model."""
    chosen, rejected = batch.means
    odds = _log_odds(chosen) - _log_odds(rejected)
    return -chosen - settings.strength * functional.logsigmoid(odds)


def _log_odds(mean: Tensor) -> Tensor:
    """log(p / (1 - p)) of p = exp(mean), exact near p = 1 too."""
    below = mean.clamp(max=-1e-7)  # p = 1 has no odds
    return below - torch.log(-torch.expm1(below))


def simpo(batch: LogProbabilities, settings: LossSettings) -> Tensor:
    """Simple preference optimisation: the mean log-probabilities must differ by γ/β; no reference model."""
    chosen, rejected = batch.means
    return -functional.logsigmoid(settings.strength * (chosen - rejected) - settings.gamma)


class Reporter(Protocol):
    """A module with a report model, such as `ReportLoss` and `ImageTextLoss`."""

    model: Any
    config: Any

    def target_scores(self, batch: Mapping[str, Tensor], copies: int = 1) -> tuple[Tensor, Tensor]:
        """Logits of every target [K, V] and the row that it is in [K]."""
        ...


@dataclass(frozen=True, eq=False)
class LogProbabilities:
    """Log-probabilities of two reports for each of B items.

    The two are the chosen and the rejected report of a pair, or a single judged report and one of another study.
    """

    sums: Tensor  # log π of both reports, [2, B]
    tokens: Tensor  # tokens of both, the end token included, [2, B]
    reference: Tensor | None = None  # log π_ref of both, [2, B]; None for a loss without a reference model
    desirable: Tensor | None = None  # whether the judged report is desirable, [B]; None for pairs

    @property
    def ratios(self) -> tuple[Tensor, Tensor]:
        """The log π - log π_ref of both reports, [B] each."""
        if self.reference is None:
            raise ValueError("this loss needs reference log-probabilities")
        first, second = self.sums - self.reference
        return first, second

    @property
    def means(self) -> tuple[Tensor, Tensor]:
        """The log π per token of both reports, [B] each."""
        first, second = self.sums / self.tokens
        return first, second

    @cached_property
    def drift(self) -> Tensor:
        """Mean ratio of the second reports over all processes, at least 0."""
        drift = self.ratios[1].mean().detach()
        if torch.distributed.is_initialized():
            drift = drift.clone()
            torch.distributed.all_reduce(drift)
            drift = drift / torch.distributed.get_world_size()
        return drift.clamp(min=0.0)

    def figures(self) -> dict[str, Tensor]:
        """Means over the batch, for the history."""
        with torch.no_grad():
            kind = "mean" if self.reference is None else "ratio"
            first, second = self.means if self.reference is None else self.ratios
            if self.desirable is None:
                accuracy = (first > second).float().mean()
                return {f"chosen_{kind}": first.mean(), f"rejected_{kind}": second.mean(), "accuracy": accuracy}
            good, bad = first[self.desirable].mean(), first[~self.desirable].mean()
            return {"drift": self.drift, "desirable_ratio": good, "undesirable_ratio": bad}


class PreferenceLoss(nn.Module):
    """A report model together with its preference loss; its vision encoder is not trained."""

    def __init__(self, reporter: Any, settings: LossSettings) -> None:
        super().__init__()
        self.reporter = reporter
        self.settings = settings
        self._loss: Callable[[LogProbabilities, LossSettings], Tensor] = load_reference(settings.kind.function)
        self._figures: dict[str, Tensor] = {}

    @property
    def model(self) -> Any:
        """The report model."""
        return self.reporter.model

    def forward(self, reference: Tensor | None = None, desirable: Tensor | None = None, **batch: Tensor) -> Tensor:
        """Sum of the losses of B items, a scalar.

        Args:
            reference: log π_ref, [B, 2].
            desirable: Whether each single report is desirable, [B]; None for pairs.
            batch: As the reporter takes it: the chosen reports of B pairs, then the rejected ones; or B single reports,
                and those of other studies as `other_…`.
        """
        if desirable is None:
            sums, tokens = log_probabilities(self.reporter, batch, copies=2)
            sums, tokens = sums.view(2, -1), tokens.view(2, -1)
        else:
            own, other = own_and_other(batch)
            with torch.no_grad():
                second = log_probabilities(self.reporter, other)
            first = log_probabilities(self.reporter, own)
            sums, tokens = torch.stack([first[0], second[0]]), torch.stack([first[1], second[1]])
        found = LogProbabilities(sums, tokens, None if reference is None else reference.T, desirable)
        self._figures = found.figures()
        return self._loss(found, self.settings).sum()

    def figures(self) -> dict[str, float]:
        """Means over the last batch of this process; NaN ones are left out."""
        found = {name: float(value) for name, value in self._figures.items()}
        return {name: value for name, value in found.items() if value == value}


OTHER = "other_"


def own_and_other(batch: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The single reports of a batch, and the reports of other studies for the same images."""
    own = {name: value for name, value in batch.items() if not name.startswith(OTHER)}
    other = {name.removeprefix(OTHER): value for name, value in batch.items() if name.startswith(OTHER)}
    return own, {**own, **other}


def log_probabilities(reporter: Reporter, batch: Mapping[str, Tensor], copies: int = 1) -> tuple[Tensor, Tensor]:
    """The log π of the report in every row, and its number of tokens; both [B]."""
    scores, rows = reporter.target_scores(batch, copies)
    each = -functional.cross_entropy(scores.float(), batch["targets"], reduction="none")
    # In float64: a float32 sum over a long report would lose the digits that make up a ratio.
    nothing = torch.zeros(batch["input_ids"].shape[0], dtype=torch.float64, device=each.device)
    sums = nothing.index_add(0, rows, each.double()).to(each.dtype)
    return sums, nothing.index_add(0, rows, torch.ones_like(each, dtype=torch.float64)).to(each.dtype)
