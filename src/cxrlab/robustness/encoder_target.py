"""A contrastive encoder as an audit sees it: zero-shot classes and vectors, no reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cxrlab.attacks.objectives import MoveEmbedding, Objective, WrongAnswers
from cxrlab.evaluation.retrieve import load_sentences, mean_direction
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.labels import AskedLabel
from cxrlab.robustness.targets import Target, by_name, truth_table, wrong_answers
from cxrlab.robustness.wishes import ANSWERS, EMBEDDING

if TYPE_CHECKING:
    from cxrlab.models.dual_encoder import DualEncoder
    from cxrlab.robustness.cases import Case


class EncoderTarget(Target):
    """A contrastive encoder: is an image nearer to presence or to absence?

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        encoder: The encoder.
        sentences: Row of the zero-shot sentences.
    """

    writes_reports = False
    aims = (ANSWERS, EMBEDDING)

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel], encoder: DualEncoder, sentences: str) -> None:
        super().__init__(key, name, labels)
        self.encoder = encoder
        encoder.model.requires_grad_(False)
        self.gradients = encoder.pixels.differentiable
        self._directions = [self._of(label, sentences) for label in self.labels]

    @property
    def device(self) -> torch.device:
        """That of the weights."""
        found: torch.device = self.encoder.device
        return found

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Probability of every label: the logistic of the scaled difference of cosines."""
        with torch.no_grad():
            found = torch.sigmoid(self.margins(images, range(len(images))))
        return [ImageAnswer(label_probs=probs) for probs in by_name(self.labels, found)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Zero-shot classes wrong, or the vector moved."""
        found: Objective
        if aim == EMBEDDING:
            with torch.no_grad():
                homes = self.encoder.image_vectors(images)
            found = MoveEmbedding(self.encoder.image_vectors, homes)
        else:
            found = WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))
        found.gradients = self.gradients
        return found

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels]: difference of cosines to presence and absence times the scale; of several names the largest."""
        vectors = self.encoder.image_vectors(images)
        columns = [(vectors @ directions.T).amax(dim=1) for directions in self._directions]
        return self.encoder.scale * torch.stack(columns, dim=1)

    def _of(self, label: AskedLabel, sentences: str) -> Tensor:
        """[names, D]: from absence to presence of each name that stands for the label."""
        wording = load_sentences(sentences)
        rows = []
        for name in label.sentences:
            there, absent = (mean_direction(self.encoder.embed_texts(side)) for side in wording.of(name))
            rows.append(torch.from_numpy(there - absent).float())
        return torch.stack(rows).to(self.device)
