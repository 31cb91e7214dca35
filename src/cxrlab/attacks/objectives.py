"""Objectives of attacks: a differentiable loss per image that the attack raises, and a test of success.

An objective identifies its images by rows: row 3 has the report, question or label of the fourth image that the
objective was made for. An attack passes images with their rows, so that images which are finished can leave the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Contexts

    Rows = Sequence[int]
    # Images and their rows → one report per image.
    GenerateReports = Callable[[Tensor, Rows], Sequence[str]]
    # A report and its row → whether the objective is reached.
    Reached = Callable[[str, int], bool]
    # Images and rows → margins [B, labels], above 0 for present.
    Margins = Callable[[Tensor, Rows], Tensor]

# Rounded up in single precision: a margin of 0 counts as absent, so its loss must not be above it.
_LOG_TWO = float(torch.log(torch.tensor(2.0)))
_MOST_CHANGES = 9  # changed findings; more would outweigh one that is missed
_CHANGED = 0.05  # between the weight of the words and that of one changed finding


class Objective(ABC):
    """What an attack maximises for a batch of images.

    Attributes:
        name: One word for conditions and pages (`report`, `answers`).
        gradients: Whether `losses` can be differentiated with respect to the images.
        scores: Whether `losses` uses more than the generated text.
        zero_gradient_at_clean: Whether the gradient is 0 at every clean image, so that an attack must start beside it.
    """

    name: str = ""
    gradients: bool = True
    scores: bool = True
    zero_gradient_at_clean: bool = False

    @abstractmethod
    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """One loss per image [B], to be raised; images [B, C, H, W] do not influence each other."""

    @abstractmethod
    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether the model's answer to each image reaches the objective, [B] bool."""

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """Whether losses [B] show success, [B] bool; None where only the model's answer decides."""
        return None


def present_observations(report: str) -> frozenset[str]:
    """Observations that a report states as present, hedged or not."""
    return frozenset(finding.observation for finding in read(report) if finding.present)


class _ReportObjective(Objective):
    """An objective that is reached when the generated report passes a test."""

    def __init__(self, generate: GenerateReports, reached: Reached) -> None:
        self._generate, self._reached = generate, reached

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """By the report that is generated for each image."""
        reports = self._generate(images, rows)
        return torch.tensor([self._reached(text, row) for text, row in zip(reports, rows, strict=True)])


class RaiseReportLoss(_ReportObjective):
    """Make the true report unlikely; success when the findings of the generated report have changed.

    Args:
        model: An `HfModel`, or another object with its `losses(images, reports, indications)`.
        reports: The true reports.
        clean_reports: What the model generated for the clean images.
    """

    name = "report"

    def __init__(
        self,
        model: Any,
        reports: Sequence[str],
        indications: Contexts,
        clean_reports: Sequence[str],
        generate: GenerateReports,
    ) -> None:
        clean = [present_observations(text) for text in clean_reports]
        super().__init__(generate, lambda text, row: present_observations(text) != clean[row])
        self.model, self.reports, self.indications = model, reports, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean of −log p over the tokens of the true report."""
        return report_losses(self.model, images, rows, self.reports, self.indications)


class LowerReportLoss(_ReportObjective):
    """Make a target report likely; success when the generated report states exactly its findings."""

    name = "target"

    def __init__(self, model: Any, targets: Sequence[str], indications: Contexts, generate: GenerateReports) -> None:
        wanted = [present_observations(text) for text in targets]
        super().__init__(generate, lambda text, row: present_observations(text) == wanted[row])
        self.model, self.targets, self.indications = model, targets, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean of log p over the tokens of the target report."""
        return -report_losses(self.model, images, rows, self.targets, self.indications)


class ChangeFinding(_ReportObjective):
    """Remove an observation from each report, or invent one: make the changed report likelier than the clean one.

    Args:
        model: An `HfModel`, or another object with its `losses_of_each(images, reports, indications)`.
        reports: What the model generated for the clean images.
        names: The observation of each image.
        invent: Whether the observation should appear, not disappear.
    """

    def __init__(
        self,
        model: Any,
        reports: Sequence[str],
        names: Sequence[str],
        indications: Contexts,
        generate: GenerateReports,
        *,
        invent: bool,
    ) -> None:
        super().__init__(generate, lambda text, row: (names[row] in present_observations(text)) == invent)
        self.name = "invent" if invent else "remove"
        change = with_finding if invent else without_finding
        self.wanted = [change(text, name) for text, name in zip(reports, names, strict=True)]
        self.model, self.unwanted, self.indications = model, reports, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean log-probability of the changed report's tokens minus that of the clean one's."""
        texts = [[reports[row] for row in rows] for reports in (self.wanted, self.unwanted)]
        wanted, unwanted = self.model.losses_of_each(images, texts, [self.indications[row] for row in rows])
        difference: Tensor = unwanted - wanted
        return difference


class WhereApplicable(Objective):
    """Another objective on the images where it is applicable, such as those that have the finding to remove.

    The other images stay in the batch with a loss of 0 whatever the pixels, and never succeed.
    """

    def __init__(self, inner: Objective, applicable: Sequence[bool]) -> None:
        self.name, self._inner, self._applicable = inner.name, inner, torch.tensor(list(applicable))
        self.gradients, self.scores = inner.gradients, inner.scores

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Those of the other objective, or 0, which is not computed."""
        losses = torch.zeros(len(images), device=images.device)
        places = [place for place, row in enumerate(rows) if self._applicable[row]]
        if not places:
            return losses
        found = self._inner.losses(images[places], [rows[place] for place in places])
        return losses.to(found).index_put((torch.tensor(places, device=found.device),), found)

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """As in the other objective, or False."""
        return self._inner.succeeded(images, rows) & self._applicable[list(rows)]


class WrongAnswers(Objective):
    """Make answers to closed questions, or zero-shot classes, wrong.

    Args:
        margins: Images and rows → [B, labels], above 0 for present.
        truths: [N, labels], 1 for present, 0 for absent, not-a-number for unknown.
        wrong_before: Wrong answers to each clean image; success when there are more.
        final_margins: Margins that decide success where they differ from those that the attack follows.
    """

    name = "answers"

    def __init__(
        self, margins: Margins, truths: Tensor, wrong_before: Sequence[int], final_margins: Margins | None = None
    ) -> None:
        self._margins, self._truths, self._wrong_before = margins, truths, wrong_before
        self._final_margins = final_margins

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean of −log p(right answer) over the known labels of each image."""
        margins = self._margins(images, rows)
        signs = self._signs(margins, rows)
        known = signs != 0
        values = torch.where(known, torch.nn.functional.softplus(-signs * margins), torch.zeros_like(margins))
        return values.sum(dim=1) / known.sum(dim=1).clamp(min=1)

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """By the answers to each image."""
        with torch.no_grad():
            margins = (self._final_margins or self._margins)(images, rows)
        signs = self._signs(margins, rows)
        # A margin of 0 counts as absent.
        wrong = ((signs > 0) & (margins <= 0)) | ((signs < 0) & (margins > 0))
        return wrong.sum(dim=1).cpu() > torch.tensor([self._wrong_before[row] for row in rows])

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """For a single question with a correct answer: a loss above log 2 is the wrong answer."""
        single = bool(((~self._truths.isnan()).sum(dim=1) == 1).all()) and not any(self._wrong_before)
        return losses > _LOG_TWO if single and self._final_margins is None else None

    def _signs(self, margins: Tensor, rows: Rows) -> Tensor:
        """+1 present, -1 absent, 0 unknown; [B, labels]."""
        return torch.nan_to_num(2 * self._truths[list(rows)].to(margins) - 1, nan=0.0)


class MoveEmbedding(Objective):
    """Move an image's embedding away from that of the clean image.

    The cosine is highest at the clean image, where its gradient is 0, so that attacks start beside it.

    Args:
        embed: Images → rows of length 1, [B, D]; differentiable.
        clean_vectors: [N, D].
        threshold: Cosine below which the attack has succeeded.
    """

    name = "embedding"
    zero_gradient_at_clean = True

    def __init__(self, embed: Callable[[Tensor], Tensor], clean_vectors: Tensor, threshold: float = 0.5) -> None:
        self._embed, self._clean_vectors, self._threshold = embed, clean_vectors.detach(), threshold

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Minus the cosine between the embeddings of the image and the clean one, in [-1, 1]."""
        return -(self._embed(images) * self._clean_vectors[list(rows)]).sum(dim=1)

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether the cosine is below the threshold."""
        with torch.no_grad():
            return (self.losses(images, rows) > -self._threshold).cpu()

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """The loss is minus the cosine."""
        return losses > -self._threshold


class ReportHarm(_ReportObjective):
    """How much the generated report's findings differ from the true ones; for models that return only text.

    Args:
        truths: Observations that are present in each image.
        clean_reports: What the model generated for the clean images.
    """

    name = "report"
    gradients = False
    scores = False

    def __init__(
        self, truths: Sequence[frozenset[str]], clean_reports: Sequence[str], generate: GenerateReports
    ) -> None:
        clean = [present_observations(text) for text in clean_reports]
        super().__init__(generate, lambda text, row: present_observations(text) != clean[row])
        self._truths, self._clean, self._words = truths, clean, [set(text.lower().split()) for text in clean_reports]

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Findings missed and invented, then findings changed, then the share of words changed, which breaks ties."""
        values = []
        for text, row in zip(self._generate(images, rows), rows, strict=True):
            present, words = present_observations(text), set(text.lower().split())
            words_changed = len(words ^ self._words[row]) / max(len(words | self._words[row]), 1)
            changed = min(len(present ^ self._clean[row]), _MOST_CHANGES)
            values.append(len(present ^ self._truths[row]) + 0.1 * changed + 0.01 * words_changed)
        return torch.tensor(values, dtype=torch.float32)

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """What a loss has beyond a whole number is at most 0.01 from words and at least 0.1 from a changed finding."""
        return losses % 1 > _CHANGED


def report_losses(model: Any, images: Tensor, rows: Rows, reports: Sequence[str], indications: Contexts) -> Tensor:
    """[B], mean of −log p over the tokens of each row's report; differentiable."""
    losses: Tensor = model.losses(images, [reports[row] for row in rows], [indications[row] for row in rows])
    return losses


def without_finding(report: str, name: str) -> str:
    """A report without the sentences that state this observation present, and with one that denies it."""
    spans = [one.span for one in read(report) if one.present and one.observation == name and one.span is not None]
    return " ".join([*_sentences_without(report, spans), f"There is no {name}."])


def with_finding(report: str, name: str) -> str:
    """A report that begins by stating an observation, without the sentences that deny it."""
    spans = [one.span for one in read(report) if not one.present and one.observation == name and one.span is not None]
    return " ".join([f"There is {name}.", *_sentences_without(report, spans)])


def _sentences_without(report: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Sentences that contain none of the spans."""
    ends = [place + 1 for place, letter in enumerate(report[:-1]) if letter in ".!?" and report[place + 1].isspace()]
    kept, start = [], 0
    for end in [*ends, len(report)]:
        text = report[start:end].strip()
        if text and not any(first < end and last > start for first, last in spans):
            kept.append(text)
        start = end
    return kept
