"""Attack targets with known weaknesses: a fragile one, a blind one, and one that masks its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from corpora import CARD
from torch import Tensor

from cxrlab.attacks.objectives import Objective, RaiseReportLoss, ReportHarm, WrongAnswers
from cxrlab.core.image_codec import encode_png
from cxrlab.core.model_interfaces import Generated
from cxrlab.core.records import Finding, ImageFile, Report, Study
from cxrlab.core.vocabulary import Severity, Side, View
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.robustness.audit_records import ImageAnswer
from cxrlab.robustness.audited_models import AuditedModel, count_wrong_answers, truth_table
from cxrlab.robustness.audited_studies import Case, Label, labels_in

SIDE = 16
NAME = "pleural effusion"
PRESENT, ABSENT = "There is a small left pleural effusion.", "No pleural effusion."
SIGN = np.where(np.random.default_rng(5).random((SIDE, SIDE)) > 0.5, 1.0, -1.0)
MARK = 10 / 255  # amplitude of the pattern: positive with the finding, negative without it
GAIN = 200.0


def pattern_corpus(path: Path, count: int = 40, splits: Sequence[str] = ("test",)) -> Corpus:
    """Noise images, half of them with an effusion, which adds the pattern `SIGN`; the others subtract it."""
    with CorpusWriter(path, CARD) as writer:
        for number in range(count):
            there = number % 2 == 0
            rng = np.random.default_rng(number)
            grey = 0.5 + rng.uniform(-0.2, 0.2, (SIDE, SIDE))
            grey -= SIGN * (grey * SIGN).mean()  # removes the pattern from the noise
            image = grey + (MARK if there else -MARK) * SIGN
            found = (Finding(NAME, side=Side.LEFT, severity=Severity.MILD),) if there else ()
            study = Study(
                id=f"s{number:03d}",
                patient=f"p{number:03d}",
                images=(ImageFile(f"images/s{number:03d}.png", View.PA),),
                sections=Report(findings=PRESENT if there else ABSENT),
                split=splits[number // 2 % len(splits)],
                labels={"Pleural Effusion": int(there)},
                findings=found,
            )
            writer.add(study, {f"images/s{number:03d}.png": encode_png(np.round(image * 255).astype(np.uint8))})
    return writer.finish()


class PatternTarget(AuditedModel):
    """Sees only the pattern, so that a change of `MARK` along it flips the answer."""

    aims = ("report", "answers")

    def __init__(self, key: str = "a", name: str = "planted:leaning", labels: Sequence[Label] = ()) -> None:
        super().__init__(key, name, labels)
        self.calls = 0

    def seen(self, images: Tensor) -> Tensor:
        """The input after the model's own processing."""
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
                report=answer.text,
                mean_logprob=answer.mean_logprob,
                tokens=answer.tokens,
                loss=loss if self.scores else None,
                label_probs={NAME: p} if self.scores else {},
                labels=labels_in(read(answer.text).findings, self.labels),
            )
            for answer, loss, p in zip(self.write(images), losses, probs, strict=True)
        ]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        before = [answer.report or "" for answer in clean]
        writes = lambda all_images, rows: [answer.text for answer in self.write(all_images)]  # noqa: E731
        if not self.scores:
            return self.text_objective(cases, clean)
        if aim == "answers":
            margins = lambda all_images, rows: self.margin(all_images)[:, None]  # noqa: E731
            return WrongAnswers(margins, truth_table(cases, self.labels), count_wrong_answers(cases, clean))
        return RaiseReportLoss(self, [case.reference or "" for case in cases], [None] * len(cases), before, writes)

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        truths = [frozenset({NAME}) if case.truth[NAME] else frozenset() for case in cases]
        writes = lambda images, rows: [answer.text for answer in self.write(images)]  # noqa: E731
        return ReportHarm(truths, [answer.report or "" for answer in clean], writes)


class BlindTarget(PatternTarget):
    """Ignores the image: sees constant grey."""

    def seen(self, images: Tensor) -> Tensor:
        return torch.zeros_like(images) + torch.tensor(0.5 + 0.02 * SIGN, dtype=images.dtype)


class MaskedTarget(PatternTarget):
    """As fragile as `PatternTarget`, but rounds to 64 grey levels, which masks gradients."""

    def seen(self, images: Tensor) -> Tensor:
        return torch.round(images * 64) / 64


class TextOnlyTarget(PatternTarget):
    """`PatternTarget` without gradients and scores."""

    gradients = False
    scores = False
    aims = ("report",)


class RandomTarget(PatternTarget):
    """`PatternTarget` with new noise at every call."""

    def __init__(self, key: str = "a", name: str = "planted:random", labels: Sequence[Label] = ()) -> None:
        super().__init__(key, name, labels)
        self._noise = torch.Generator().manual_seed(1)

    def seen(self, images: Tensor) -> Tensor:
        return images + 0.01 * torch.randn(images.shape, generator=self._noise)
