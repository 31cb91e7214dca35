"""Preference losses: pure functions of log-probabilities, with one value per pair or report.

A *ratio* is log π(report) - log π_ref(report), where π_ref is the reference model. A *mean* is the log-probability of a
report divided by its tokens, the end token included. All logarithms are natural.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.core.registry import load_reference
from cxrlab.preference.config import LossSettings
from cxrlab.training.report_model import ReportLoss


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


class Text(NamedTuple):
    """Reports of a batch with their prompts; see `ReportLoss.forward`."""

    input_ids: Tensor
    image_places: Tensor
    places: Tensor
    targets: Tensor

    @classmethod
    def of(cls, batch: Mapping[str, Tensor], prefix: str = "") -> Text:
        """The text of a batch whose names begin with the prefix."""
        return cls(*(batch[f"{prefix}{name}"] for name in cls._fields))


@dataclass(frozen=True, eq=False)
class LogProbabilities:
    """Log-probabilities of two reports for each of B items.

    The two are the chosen and the rejected report of a pair, or a single judged report and one of another study.

    Args:
        sums: log π of both reports, [2, B].
        tokens: Tokens of both, the end token included, [2, B].
        reference: log π_ref of both, [2, B]; None for a loss without a reference model.
        desirable: Whether the judged report is desirable, [B]; None for pairs.
    """

    sums: Tensor
    tokens: Tensor
    reference: Tensor | None = None
    desirable: Tensor | None = None

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
    """A LLaVA together with its preference loss; its vision encoder is not trained."""

    def __init__(self, reporter: ReportLoss, settings: LossSettings) -> None:
        super().__init__()
        self.reporter = reporter
        self.settings = settings
        self._loss: Callable[[LogProbabilities, LossSettings], Tensor] = load_reference(settings.kind.function)
        self._figures: dict[str, Tensor] = {}

    @property
    def model(self) -> Any:
        """The LLaVA."""
        return self.reporter.model

    @property
    def config(self) -> Any:
        """The model's config: DeepSpeed reads sizes from it."""
        return self.reporter.config

    def forward(
        self,
        input_ids: Tensor,
        image_places: Tensor,
        places: Tensor,
        targets: Tensor,
        reference: Tensor | None = None,
        features: Tensor | None = None,
        images: Tensor | None = None,
        desirable: Tensor | None = None,
        **other: Tensor,
    ) -> Tensor:
        """Sum of the losses of B items, a scalar.

        Args:
            input_ids: Of pairs [2 B, L], the chosen reports first; of single reports [B, L].
            image_places: See `ReportLoss`, as for the next two.
            places: See `ReportLoss`.
            targets: See `ReportLoss`.
            reference: log π_ref, [B, 2].
            features: Of the B images.
            images: In place of features.
            desirable: Whether each single report is desirable, [B]; None for pairs.
            other: For single reports, the first four of reports of other studies: `other_input_ids` and so on.
        """
        text = Text(input_ids, image_places, places, targets)
        if desirable is None:
            sums, tokens = log_probabilities(self.reporter, text, features, images, copies=2)
            sums, tokens = sums.view(2, -1), tokens.view(2, -1)
        else:
            with torch.no_grad():
                second = log_probabilities(self.reporter, Text.of(other, "other_"), features, images)
            first = log_probabilities(self.reporter, text, features, images)
            sums, tokens = torch.stack([first[0], second[0]]), torch.stack([first[1], second[1]])
        batch = LogProbabilities(sums, tokens, None if reference is None else reference.T, desirable)
        self._figures = batch.figures()
        return self._loss(batch, self.settings).sum()

    def figures(self) -> dict[str, float]:
        """Means over the last batch of this process; NaN ones are left out."""
        found = {name: float(value) for name, value in self._figures.items()}
        return {name: value for name, value in found.items() if value == value}


def log_probabilities(
    reporter: ReportLoss, text: Text, features: Tensor | None = None, images: Tensor | None = None, copies: int = 1
) -> tuple[Tensor, Tensor]:
    """The log π of the report in every row, and its number of tokens; both [B]."""
    scores = reporter.scores(text.input_ids, text.image_places, text.places, features, images, copies).float()
    each = -functional.cross_entropy(scores, text.targets, reduction="none")
    rows = torch.div(text.places, text.input_ids.shape[1], rounding_mode="floor")
    # In float64: a float32 sum over a long report would lose the digits that make up a ratio.
    nothing = torch.zeros(text.input_ids.shape[0], dtype=torch.float64, device=each.device)
    sums = nothing.index_add(0, rows, each.double()).to(each.dtype)
    return sums, nothing.index_add(0, rows, torch.ones_like(each, dtype=torch.float64)).to(each.dtype)
