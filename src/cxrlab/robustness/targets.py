"""Models as an audit sees them: what they say of images, and what may be asked of them by an attack.

ReportTarget     open weights that write reports and answer closed questions
SmoothedTarget   the same with closed answers by a vote over noisy copies, see `smoothed_target`
EncoderTarget    a contrastive encoder: zero-shot classes, no reports, see `encoder_target`
WordsTarget      anything that gives words alone; only black-box attacks reach it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cxrlab.attacks.objectives import Objective, RaiseReportLoss, ReportHarm, WrongAnswers, present_observations
from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.generate import ReportGenerator
from cxrlab.findings.reader import read
from cxrlab.robustness.evidence import ImageAnswer
from cxrlab.robustness.labels import AskedLabel, labels_in
from cxrlab.robustness.wished_reports import wished
from cxrlab.robustness.wishes import ANSWERS, BY_WISH, REPORT, Wishes

if TYPE_CHECKING:
    from cxrlab.core.protocols import Generated
    from cxrlab.models.decoding import Decoding
    from cxrlab.models.hf.model import HfModel
    from cxrlab.robustness.cases import Case


class Target(ABC):
    """One model under audit.

    Args:
        key: Its short name in the evidence: a, b, …
        name: As the user wrote it.
        labels: What is asked about.
    """

    gradients = True
    scores = True
    writes_reports = True
    aims: tuple[str, ...] = ()

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel]) -> None:
        self.key, self.name, self.labels = key, name, tuple(labels)

    @property
    def device(self) -> torch.device:
        """Where images have to be."""
        return torch.device("cpu")

    def forget(self) -> None:  # noqa: B027 - most remember nothing
        """Drop what was remembered of images, so that the next look is a new one."""

    @abstractmethod
    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """What the model says of each image.

        Args:
            images: [B, C, H, W] float32 in [0, 1].
            cases: The study of each.
        """

    @abstractmethod
    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """An attacker's aim on these images.

        Args:
            aim: One of `aims`.
            cases: The studies.
            clean: What the model says of the clean images.
            images: The clean images.
        """

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Harm by the words of reports, for attacks that look at nothing else; arguments as of `objective`."""
        raise ConfigError(f"'{self.name}' writes no reports that an attack could go by; leave out attacks by report.")


class _Remembered:
    """Reports of the images that were last asked about: what decides success need not be written again."""

    def __init__(self, writer: ReportGenerator) -> None:
        self._writer = writer
        self._last: dict[bytes, Generated] = {}

    def forget(self) -> None:
        """Nothing is remembered any more."""
        self._last = {}

    def write(self, images: Tensor, cases: Sequence[Case]) -> list[Generated]:
        """One answer an image."""
        keys = [
            f"{case.id}\0".encode() + image.cpu().numpy().tobytes() for image, case in zip(images, cases, strict=True)
        ]
        new = [place for place, key in enumerate(keys) if key not in self._last]
        if new:
            all_images = [_array(images[place]) for place in new]
            answers = self._writer.generate(all_images, [cases[place].indication for place in new])
            known = {keys[place]: several[0] for place, several in zip(new, answers, strict=True)}
            self._last = known | {key: self._last[key] for key in keys if key in self._last}
        return [self._last[key] for key in keys]


class WordsTarget(Target):
    """A model that gives words alone.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: What writes.
        decoding: How.
    """

    gradients = False
    scores = False
    aims: tuple[str, ...] = ("report",)

    def __init__(self, key: str, name: str, labels: Sequence[AskedLabel], model: Any, decoding: Decoding) -> None:
        super().__init__(key, name, labels)
        self.model = model
        self._reports = _Remembered(ReportGenerator(model, decoding))

    def forget(self) -> None:
        """Reports are written anew."""
        self._reports.forget()

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, and the labels that they state."""
        return [self._answer(said) for said in self._reports.write(images, cases)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """Harm by the words of the reports."""
        return self.text_objective(cases, clean)

    def text_objective(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Findings missed and invented; where the truth is not known, findings that the clean report did not have."""
        before = [answer.report or "" for answer in clean]
        truths = [_present(case, text) for case, text in zip(cases, before, strict=True)]
        return ReportHarm(truths, before, self._writes(cases, clean))

    def _writes(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Any:
        """What is written on changed images; a refusal is no report and no success.

        In its place stands what was written on the clean image, and so it does where that was refused: there is nothing
        to compare with then.
        """

        def write(images: Tensor, rows: Sequence[int]) -> list[str]:
            said = self._reports.write(images, [cases[row] for row in rows])
            return [
                clean[row].report or "" if one.refused or clean[row].refused else one.text
                for one, row in zip(said, rows, strict=True)
            ]

        return write

    def _answer(self, said: Generated, loss: float | None = None, probs: dict[str, float] | None = None) -> ImageAnswer:
        if said.refused:
            return ImageAnswer(loss=loss, label_probs=probs or {}, refused=True)
        return ImageAnswer(
            report=said.text,
            mean_logprob=said.mean_logprob,
            tokens=said.tokens,
            loss=loss,
            label_probs=probs or {},
            labels=labels_in(read(said.text).findings, self.labels),
        )


class ReportTarget(WordsTarget):
    """Open weights: reports, their loss, and closed answers.

    Args:
        key: See `Target`.
        name: See `Target`.
        labels: See `Target`.
        model: The report model.
        decoding: How it writes.
        against: reference or own: the report whose loss an attack raises.
        wishes: What the aims target, remove and invent want.
    """

    gradients = True
    scores = True

    def __init__(
        self,
        key: str,
        name: str,
        labels: Sequence[AskedLabel],
        model: HfModel,
        decoding: Decoding,
        against: str,
        wishes: Wishes,
    ) -> None:
        super().__init__(key, name, labels, model, decoding)
        self.gradients = model.capabilities.gradients
        self.against = against
        self._asks = bool(self.labels) and all(label.questions for label in self.labels)
        self.wishes = wishes
        self.aims = tuple(aim for aim in (REPORT, ANSWERS, *BY_WISH) if aim != ANSWERS or self._asks)

    @property
    def device(self) -> torch.device:
        """That of the weights."""
        found: torch.device = self.model.device
        return found

    def examine(self, images: Tensor, cases: Sequence[Case]) -> list[ImageAnswer]:
        """Reports, the loss of the references, and P(yes) of every label."""
        said = self._reports.write(images, cases)
        with torch.no_grad():
            losses = self._losses(images, cases)
            probs = self._probabilities(images, cases) if self._asks else [{} for _ in cases]
        return [self._answer(*told) for told in zip(said, losses, probs, strict=True)]

    def objective(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer], images: Tensor) -> Objective:
        """The true report unlikely, the closed answers wrong, or a report that the attacker wishes for."""
        found = self._answered(cases, clean) if aim == ANSWERS else self._written(aim, cases, clean)
        found.gradients = self.gradients
        return found

    def _answered(self, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Closed answers wrong."""
        return WrongAnswers(self.margins, truth_table(cases, self.labels), wrong_answers(cases, clean))

    def _written(self, aim: str, cases: Sequence[Case], clean: Sequence[ImageAnswer]) -> Objective:
        """Another report than before."""
        before = [answer.report or "" for answer in clean]
        indications = [case.indication for case in cases]
        if aim in BY_WISH:
            return wished(self.wishes, aim, self.model, before, indications, self._writes(cases, clean))
        reports = before if self.against == "own" else [case.reference or "" for case in cases]
        return RaiseReportLoss(self.model, reports, indications, before, self._writes(cases, clean))

    def margins(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """[B, labels], log p(yes) - log p(no); of a label with several questions the largest."""
        columns = []
        for label in self.labels:
            asked = [self.model.yes_margins(images, question) for question in label.questions]
            columns.append(torch.stack(asked, dim=1).amax(dim=1))
        return torch.stack(columns, dim=1)

    def _probabilities(self, images: Tensor, cases: Sequence[Case]) -> list[dict[str, float]]:
        return by_name(self.labels, torch.sigmoid(self.margins(images, range(len(images)))))

    def _losses(self, images: Tensor, cases: Sequence[Case]) -> list[float | None]:
        told = [place for place, case in enumerate(cases) if case.reference]
        found: list[float | None] = [None] * len(cases)
        if told:
            values = self.model.losses(
                images[told], [cases[place].reference for place in told], [cases[place].indication for place in told]
            )
            for place, value in zip(told, values.double().cpu().tolist(), strict=True):
                found[place] = value
        return found


def by_name(labels: Sequence[AskedLabel], probabilities: Tensor) -> list[dict[str, float]]:
    """[B, labels] as label → probability, image by image."""
    rows = probabilities.double().cpu().tolist()
    return [{label.name: value for label, value in zip(labels, row, strict=True)} for row in rows]


def truth_table(cases: Sequence[Case], labels: Sequence[AskedLabel]) -> Tensor:
    """[N, labels] of 1, 0 and not-a-number for unknown."""
    nan = float("nan")
    return torch.tensor([[case.truth.get(label.name, nan) for label in labels] for case in cases], dtype=torch.float32)


def wrong_answers(cases: Sequence[Case], answers: Sequence[ImageAnswer]) -> list[int]:
    """Known labels that each answer gets wrong."""
    return [
        sum((answer.label_probs[name] > 0.5) != bool(value)
            for name, value in case.truth.items() if name in answer.label_probs)
        for case, answer in zip(cases, answers, strict=True)
    ]  # fmt: skip


def _present(case: Case, said: str) -> frozenset[str]:
    """What is there by the exact findings, by the reference, or for want of both by what was said of the clean image."""
    if case.findings is not None:
        return frozenset(finding.observation for finding in case.findings if finding.present)
    return present_observations(said if case.reference is None else case.reference)


def _array(image: Tensor) -> Any:
    """[C, H, W] → [H, W] or [H, W, 3] as models take images."""
    plain = image.detach().cpu().numpy()
    return plain[0] if len(plain) == 1 else plain.transpose(1, 2, 0)
