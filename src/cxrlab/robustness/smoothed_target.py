"""A report model whose closed answers are votes over noisy copies of the image: the defence of `smoothing`, audited.

Reports and their losses are the model's own; only closed answers are smoothed. The attacker knows the defence and even
its draws: he follows the mean answer to the first copies of the vote. That is a little more than anyone can know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cxrlab.attacks.objectives import Objective, WrongAnswers
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.labels import AskedLabel
from cxrlab.robustness.smoothing import Smoothing, over_copies
from cxrlab.robustness.targets import ReportTarget, by_name, truth_table, wrong_answers

if TYPE_CHECKING:
    from cxrlab.models.hf.model import HfModel
    from cxrlab.robustness.cases import Case
    from cxrlab.robustness.config import RobustnessConfig


class SmoothedTarget(ReportTarget):
    """Reports of a model, and its closed answers by majority.

    An image has the same noise before and after an attack: the id of its study decides it.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: The report model.
        config: Settings of the audit.
        sigma: Standard deviation of the noise, where black is 0 and white 1.
    """

    def __init__(
        self, key: str, name: str, labels: Sequence[AskedLabel], model: HfModel, config: RobustnessConfig,
        sigma: float,
    ) -> None:  # fmt: skip
        super().__init__(key, name, labels, model, config.decoding, config.against, config.wishes)
        votes = config.smoothing
        self.smoothing = Smoothing(sigma, votes.copies, votes.alpha, config.seed, votes.batch_size)
        self.attack_copies = votes.attack_copies

    def shares(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], share of the copies of each image that are answered by yes.

        Args:
            images: [B, C, H, W].
            keys: Name of each image.
        """
        with torch.no_grad():
            said = over_copies(self._look, images, keys, self.smoothing.n, self.smoothing)
        return (said > 0).double().mean(dim=1)

    def expected_margins(self, images: Tensor, keys: Sequence[str]) -> Tensor:
        """[B, labels], log of the mean probability of yes minus that of no over the first copies; differentiable.

        The vote itself has no gradient; this is above 0 where the copies on the whole say yes.
        """
        said = over_copies(self._look, images, keys, self.attack_copies, self.smoothing)
        return torch.logsumexp(logsigmoid(said), dim=1) - torch.logsumexp(logsigmoid(-said), dim=1)

    def _look(self, images: Tensor) -> Tensor:
        """Margins of single looks, [B, labels]."""
        return self.margins(images, range(len(images)))

    def _probabilities(self, images: Tensor, cases: Sequence[Case]) -> list[dict[str, float]]:
        return by_name(self.labels, self.shares(images, [case.id for case in cases]))

    def _answered(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        def along(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.expected_margins(images, [cases[row].id for row in rows])

        def voted(images: Tensor, rows: Sequence[int]) -> Tensor:
            return self.shares(images, [cases[row].id for row in rows]) - 0.5

        return WrongAnswers(along, truth_table(cases, self.labels), wrong_answers(cases, clean), voted)
