"""Models whose weakness is planted: one that breaks, one that is blind, one that hides its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from corpora import CARD
from torch import Tensor

from cxrlab.attacks.objectives import Objective, RaiseReportLoss, ReportHarm, WrongAnswers
from cxrlab.core.image_codec import encode_png
from cxrlab.core.protocols import Generated
from cxrlab.core.records import Finding, ImageFile, Report, Study
from cxrlab.core.vocabulary import Severity, Side, View
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.robustness.cases import Case, Label, labels_in
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.targets import Target, truth_table, wrong_answers

SIDE = 16
NAME = "pleural effusion"
PRESENT, ABSENT = "There is a small left pleural effusion.", "No pleural effusion."
SIGN = np.where(np.random.default_rng(5).random((SIDE, SIDE)) > 0.5, 1.0, -1.0)
MARK = 10 / 255  # how far an image with the finding leans along the pattern, and one without it against it
GAIN = 200.0


def pattern_corpus(path: Path, count: int = 40) -> Corpus:
    """Images of which every other one has an effusion: grey noise that leans along a pattern, or against it."""
    with CorpusWriter(path, CARD) as writer:
        for number in range(count):
            there = number % 2 == 0
            rng = np.random.default_rng(number)
            grey = 0.5 + rng.uniform(-0.2, 0.2, (SIDE, SIDE))
            grey -= SIGN * (grey * SIGN).mean()  # nothing but the mark leans
            image = grey + (MARK if there else -MARK) * SIGN
            found = (Finding(NAME, side=Side.LEFT, severity=Severity.MILD),) if there else ()
            study = Study(
                id=f"s{number:03d}",
                patient=f"p{number:03d}",
                images=(ImageFile(f"images/s{number:03d}.png", View.PA),),
                sections=Report(findings=PRESENT if there else ABSENT),
                split="test",
                labels={"Pleural Effusion": int(there)},
                findings=found,
            )
            writer.add(study, {f"images/s{number:03d}.png": encode_png(np.round(image * 255).astype(np.uint8))})
    return writer.finish()


class PatternTarget(Target):
    """Sees the lean and nothing else, so that a change of `MARK` along the pattern turns it round."""

    aims = ("report", "answers")

    def __init__(self, key: str = "a", name: str = "planted:leaning", labels: Sequence[Label] = ()) -> None:
        super().__init__(key, name, labels)
        self.calls = 0

    def seen(self, images: Tensor) -> Tensor:
        """What the model makes of the pixels."""
        return images

    def margin(self, images: Tensor) -> Tensor:
        return GAIN * (self.seen(images)[:, 0] * torch.tensor(SIGN, dtype=images.dtype)).mean(dim=(1, 2))

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        signs = torch.tensor([1.0 if text == PRESENT else -1.0 for text in reports])
        return torch.nn.functional.softplus(-signs * self.margin(images))

    def write(self, images: Tensor) -> list[Generated]:
        with torch.no_grad():
            margins = self.margin(images)
        chosen = torch.nn.functional.logsigmoid(margins.abs()).tolist()
        return [
            Generated(PRESENT if margin > 0 else ABSENT, mean_logprob=sure, tokens=8)
            for margin, sure in zip(margins.tolist(), chosen, strict=True)
        ]

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        self.calls += 1
        with torch.no_grad():
            losses = self.losses(images, [case.reference or "" for case in cases], [None] * len(cases)).tolist()
            probs = torch.sigmoid(self.margin(images)).tolist()
        from cxrlab.findings.reader import read

        return [
            ImageAnswer(
                report=said.text,
                mean_logprob=said.mean_logprob,
                tokens=said.tokens,
                loss=loss if self.scores else None,
                label_probs={NAME: p} if self.scores else {},
                labels=labels_in(read(said.text).findings, self.labels),
            )
            for said, loss, p in zip(self.write(images), losses, probs, strict=True)
        ]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        before = [answer.report or "" for answer in clean]
        writes = lambda all_images, rows: [said.text for said in self.write(all_images)]  # noqa: E731
        if not self.scores:
            return self.text_objective(cases, clean)
        if aim == "answers":
            margins = lambda all_images, rows: self.margin(all_images)[:, None]  # noqa: E731
            return WrongAnswers(margins, truth_table(cases, self.labels), wrong_answers(cases, clean))
        return RaiseReportLoss(self, [case.reference or "" for case in cases], [None] * len(cases), before, writes)

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        truths = [frozenset({NAME}) if case.truth[NAME] else frozenset() for case in cases]
        writes = lambda images, rows: [said.text for said in self.write(images)]  # noqa: E731
        return ReportHarm(truths, [answer.report or "" for answer in clean], writes)


class BlindTarget(PatternTarget):
    """Does not look: everything it sees is mid grey."""

    def seen(self, images: Tensor) -> Tensor:
        return torch.zeros_like(images) + torch.tensor(0.5 + 0.02 * SIGN, dtype=images.dtype)


class MaskedTarget(PatternTarget):
    """As weak as the first, behind a rounding to 64 grey levels that lets no gradient through."""

    def seen(self, images: Tensor) -> Tensor:
        return torch.round(images * 64) / 64


class TextOnlyTarget(PatternTarget):
    """The first without gradients and scores."""

    gradients = False
    scores = False
    aims = ("report",)


class RandomTarget(PatternTarget):
    """The first with other noise at every look."""

    def __init__(self, key: str = "a", name: str = "planted:random", labels: Sequence[Label] = ()) -> None:
        super().__init__(key, name, labels)
        self._noise = torch.Generator().manual_seed(1)

    def seen(self, images: Tensor) -> Tensor:
        return images + 0.01 * torch.randn(images.shape, generator=self._noise)
