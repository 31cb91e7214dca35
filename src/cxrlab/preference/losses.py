"""What preference training minimises: pure functions of log-probabilities, one number a pair or a report.

A *ratio* is log π(report) - log π_ref(report): how much likelier the trained model finds a report than the
model it started from did. A *mean* is the log-probability of a report divided by its tokens. All
logarithms are natural; the end token counts as one of a report's tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from cxrlab.preference.config import LossSettings
from cxrlab.training.llava import ReportLoss


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


class Text(NamedTuple):
    """Reports of a batch with what stands before them; see `ReportLoss.forward`."""

    input_ids: Tensor
    image_places: Tensor
    places: Tensor
    targets: Tensor

    @classmethod
    def of(cls, batch: Mapping[str, Tensor], prefix: str = "") -> Text:
        """The text of a batch, whose names begin with the prefix."""
        return cls(*(batch[f"{prefix}{name}"] for name in cls._fields))


@dataclass(frozen=True, eq=False)
class Twins:
    """Log-probabilities of a batch of B twins.

    Args:
        sums: log π of both reports, [2, B].
        tokens: Tokens of both, the end token among them, [2, B].
        reference: log π_ref of both, [2, B]; None for a loss that needs none.
    """

    sums: Tensor
    tokens: Tensor
    reference: Tensor | None = None

    @property
    def ratios(self) -> tuple[Tensor, Tensor]:
        """The log π - log π_ref of both reports, [B] each."""
        if self.reference is None:
            raise ValueError("these twins came without reference log-probabilities")
        first, second = self.sums - self.reference
        return first, second

    @property
    def means(self) -> tuple[Tensor, Tensor]:
        """The log π a token of both reports, [B] each."""
        first, second = self.sums / self.tokens
        return first, second

    @property
    def lengths(self) -> tuple[Tensor, Tensor]:
        """Tokens of both reports, [B] each."""
        first, second = self.tokens
        return first, second


def _dpo(twins: Twins, settings: LossSettings) -> Tensor:
    return dpo(*twins.ratios, settings.strength)


def _robust(twins: Twins, settings: LossSettings) -> Tensor:
    return robust_dpo(*twins.ratios, settings.strength, settings.flipped)


def _rdpo(twins: Twins, settings: LossSettings) -> Tensor:
    return rdpo(*twins.ratios, *twins.lengths, settings.strength, settings.alpha)


def _ipo(twins: Twins, settings: LossSettings) -> Tensor:
    return ipo(*twins.ratios, *twins.lengths, settings.strength)


def _orpo(twins: Twins, settings: LossSettings) -> Tensor:
    return orpo(*twins.means, settings.strength)


def _simpo(twins: Twins, settings: LossSettings) -> Tensor:
    return simpo(*twins.means, settings.strength, settings.gamma)


PAIRED: Mapping[str, Callable[[Twins, LossSettings], Tensor]] = {
    "dpo": _dpo,
    "robust": _robust,
    "rdpo": _rdpo,
    "ipo": _ipo,
    "orpo": _orpo,
    "simpo": _simpo,
}
"""Loss of pairs by name, [B] of a batch; KTO, which has none, is `kto`."""


class PreferenceLoss(nn.Module):
    """A LLaVA together with the loss of its preferences; what is trained is what has `requires_grad`.

    Args:
        reporter: The model with its way of scoring reports; its vision encoder is not trained.
        settings: Which loss, and how strong.
    """

    def __init__(self, reporter: ReportLoss, settings: LossSettings) -> None:
        super().__init__()
        self.reporter = reporter
        self.settings = settings
        self._figures: dict[str, Tensor] = {}

    @property
    def model(self) -> Any:
        """The LLaVA."""
        return self.reporter.model

    @property
    def config(self) -> Any:
        """The model's, where launchers look for sizes."""
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
        **strange: Tensor,
    ) -> Tensor:
        """Sum of the losses of B items, a scalar.

        Args:
            input_ids: Of pairs [2 B, L], the chosen reports first; without pairs [B, L].
            image_places: See `ReportLoss`; the same for the next two.
            places: After which places a token of a report comes.
            targets: The tokens that come there.
            reference: log π_ref, [B, 2].
            features: Of the B images.
            images: In place of features.
            desirable: Whether each report is a good one, [B]; without it the batch is one of pairs.
            strange: Without pairs, the first four for reports of other studies, `strange_input_ids` and so on.
        """
        text = Text(input_ids, image_places, places, targets)
        if desirable is not None:
            other = Text.of(strange, "strange_")
            return self._unpaired(text, other, reference, features, images, desirable)
        sums, tokens = log_probabilities(self.reporter, text, features, images, copies=2)
        twins = Twins(sums.view(2, -1), tokens.view(2, -1), None if reference is None else reference.T)
        self._note(twins)
        return PAIRED[self.settings.name](twins, self.settings).sum()

    def _unpaired(
        self,
        text: Text,
        strange: Text,
        reference: Tensor | None,
        features: Tensor | None,
        images: Tensor | None,
        desirable: Tensor,
    ) -> Tensor:
        if reference is None:
            raise ValueError("kto needs reference log-probabilities")
        with torch.no_grad():
            moved, _ = log_probabilities(self.reporter, strange, features, images)
        drift = _over_processes((moved - reference[:, 1]).mean()).clamp(min=0.0)
        sums, _ = log_probabilities(self.reporter, text, features, images)
        ratio = sums - reference[:, 0]
        self._figures = {
            "drift": drift,
            "desirable_ratio": ratio.detach()[desirable].mean(),
            "undesirable_ratio": ratio.detach()[~desirable].mean(),
        }
        settings = self.settings
        weights = settings.desirable_weight, settings.undesirable_weight
        return kto(ratio, desirable, drift, settings.strength, *weights).sum()

    def figures(self) -> dict[str, float]:
        """Means over the last batch of this process; a kind of report that it did not hold is left out."""
        found = {name: float(value) for name, value in self._figures.items()}
        return {name: value for name, value in found.items() if value == value}

    def train(self, mode: bool = True) -> Self:
        """As ever; the vision encoder stays in evaluation mode, see `ReportLoss.train`."""
        super().train(mode)
        return self

    def _note(self, twins: Twins) -> None:
        with torch.no_grad():
            first, second = twins.means if twins.reference is None else twins.ratios
            kind = "mean" if twins.reference is None else "ratio"
            self._figures = {
                f"chosen_{kind}": first.mean(),
                f"rejected_{kind}": second.mean(),
                "accuracy": (first > second).float().mean(),
            }


def log_probabilities(
    reporter: ReportLoss, text: Text, features: Tensor | None = None, images: Tensor | None = None, copies: int = 1
) -> tuple[Tensor, Tensor]:
    """The log π of the report in every row, and its tokens; both [B]."""
    scores = reporter.scores(text.input_ids, text.image_places, text.places, features, images, copies).float()
    each = -functional.cross_entropy(scores, text.targets, reduction="none")
    rows = torch.div(text.places, text.input_ids.shape[1], rounding_mode="floor")
    # In float64: one by one in float32, the sum over a long report would lose what a ratio is made of.
    nothing = torch.zeros(text.input_ids.shape[0], dtype=torch.float64, device=each.device)
    sums = nothing.index_add(0, rows, each.double()).to(each.dtype)
    return sums, nothing.index_add(0, rows, torch.ones_like(each, dtype=torch.float64)).to(each.dtype)


def _over_processes(drift: Tensor) -> Tensor:
    """The mean over all processes that train together: they must mean the same by it."""
    if not torch.distributed.is_initialized():
        return drift
    drift = drift.clone()
    torch.distributed.all_reduce(drift)
    return drift / torch.distributed.get_world_size()
