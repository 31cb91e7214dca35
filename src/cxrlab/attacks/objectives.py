"""What an attacker wants: a number for each image that rises as he comes nearer, and a verdict whether he is there.

An objective knows its images by their rows: row 3 has the report, question or label of the fourth image that the
objective was made for. An attack hands over images with the rows that they stand for, so that images which are done can
leave the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cxrlab.findings.reader import read


class Objective(ABC):
    """One aim for a batch of images.

    Attributes:
        name: In one word, for conditions and pages (`report`, `answers`).
        gradients: Whether `losses` can be differentiated with respect to the images.
        scores: Whether `losses` tells more than the answer's words do; False where only reports come back.
        zero_gradient_at_clean: Whether the gradient is 0 at every clean image, so that whoever follows it has to begin beside
            it.
    """

    name: str = ""
    gradients: bool = True
    scores: bool = True
    zero_gradient_at_clean: bool = False

    @abstractmethod
    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """One number an image [B], higher is nearer to the aim; images do not influence each other.

        Args:
            images: [B, C, H, W] float32 in [0, 1].
            rows: Which images of the objective they are.
        """

    @abstractmethod
    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Whether the aim is reached, by what the model answers to these images; [B] bool."""

    def succeeded_by_loss(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        """Whether losses [B] tell that the aim is reached, [B] bool; None where only an answer tells."""
        return None


if TYPE_CHECKING:
    Rows = Sequence[int]
    # Images and the rows that they stand for → one report an image.
    GenerateReports = Callable[[Tensor, Rows], Sequence[str]]
    # A report and its row → whether the aim is reached.
    Verdict = Callable[[str, int], bool]
    # Images and rows → margins [B, labels], above 0 for present.
    Margins = Callable[[Tensor, Rows], Tensor]


# Rounded up in single precision: the loss of a margin of 0, which is no yes, must not be above it.
_LOG_TWO = float(torch.log(torch.tensor(2.0)))
_MANY = 9  # changed findings; more would outweigh one that is missed
_TOLD = 0.05  # between the weight of the words and that of one changed finding


def present_observations(report: str) -> frozenset[str]:
    """Observations that a report says are there, hedged or not."""
    return frozenset(finding.observation for finding in read(report) if finding.present)


class _ByReport(Objective):
    """An aim that is reached when the written report says so."""

    def __init__(self, writes: GenerateReports, verdict: Verdict) -> None:
        self._writes, self._verdict = writes, verdict

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """By the report that is written for each image."""
        reports = self._writes(images, rows)
        return torch.tensor([self._verdict(text, row) for text, row in zip(reports, rows, strict=True)])


class RaiseReportLoss(_ByReport):
    """The true report becomes unlikely; broken when the set of findings in the written report has changed.

    Args:
        model: An `HfModel`, or what has its `losses(images, reports, indications)`.
        reports: The true report of each image.
        indications: Of each image.
        before: What the model wrote for each clean image.
        writes: How it writes.
    """

    name = "report"

    def __init__(
        self,
        model: Any,
        reports: Sequence[str],
        indications: Sequence[str | None],
        before: Sequence[str],
        writes: GenerateReports,
    ) -> None:
        known = [present_observations(text) for text in before]
        super().__init__(writes, lambda text, row: present_observations(text) != known[row])
        self.model, self.reports, self.indications = model, reports, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean of −log p over the tokens of the true report."""
        return report_losses(self.model, images, rows, self.reports, self.indications)


class LowerReportLoss(_ByReport):
    """A chosen report becomes likely; broken when the written report names exactly the findings of the chosen one.

    Args:
        model: As above.
        targets: The chosen report of each image.
        indications: Of each image.
        writes: How the model writes.
    """

    name = "target"

    def __init__(
        self, model: Any, targets: Sequence[str], indications: Sequence[str | None], writes: GenerateReports
    ) -> None:
        wanted = [present_observations(text) for text in targets]
        super().__init__(writes, lambda text, row: present_observations(text) == wanted[row])
        self.model, self.targets, self.indications = model, targets, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean of log p over the tokens of the chosen report."""
        return -report_losses(self.model, images, rows, self.targets, self.indications)


class ContrastReports(_ByReport):
    """One report becomes likelier than another that differs from it in a finding.

    Args:
        model: As above.
        wanted: The report that the attacker wants, of each image.
        unwanted: The one that he does not want.
        indications: Of each image.
        writes: How the model writes.
        verdict: Whether a written report is what he wants.
    """

    def __init__(
        self,
        model: Any,
        wanted: Sequence[str],
        unwanted: Sequence[str],
        indications: Sequence[str | None],
        writes: GenerateReports,
        verdict: Verdict,
    ) -> None:
        super().__init__(writes, verdict)
        self.model, self.wanted, self.unwanted, self.indications = model, wanted, unwanted, indications

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Mean log-probability of the wanted report's tokens minus that of the unwanted one's."""
        wanted = report_losses(self.model, images, rows, self.wanted, self.indications)
        return report_losses(self.model, images, rows, self.unwanted, self.indications) - wanted


def remove_finding(
    model: Any, reports: Sequence[str], names: Sequence[str], indications: Sequence[str | None], writes: GenerateReports
) -> ContrastReports:
    """A finding disappears from each report.

    Args:
        model: As above.
        reports: Reports that name the finding.
        names: The observation to remove, of each image.
        indications: Of each image.
        writes: How the model writes.
    """
    without = [without_finding(text, name) for text, name in zip(reports, names, strict=True)]
    found = ContrastReports(
        model, without, reports, indications, writes, lambda text, row: names[row] not in present_observations(text)
    )
    found.name = "remove"
    return found


def invent_finding(
    model: Any, reports: Sequence[str], names: Sequence[str], indications: Sequence[str | None], writes: GenerateReports
) -> ContrastReports:
    """A finding that is not there appears in each report; arguments as of `remove_finding`."""
    with_it = [with_finding(text, name) for text, name in zip(reports, names, strict=True)]
    found = ContrastReports(
        model, with_it, reports, indications, writes, lambda text, row: names[row] in present_observations(text)
    )
    found.name = "invent"
    return found


class WrongAnswers(Objective):
    """Answers to closed questions, or zero-shot classes, become wrong.

    Args:
        margins: Images and rows → [B, labels], above 0 for present.
        truths: [N, labels], 1 for present, 0 for absent, not-a-number for unknown.
        wrong_before: Wrong answers to each clean image; broken when there are more.
        verdicts: Margins of the answers that are given in the end, where an attack has to follow others; those above
            when None.
    """

    name = "answers"

    def __init__(
        self, margins: Margins, truths: Tensor, wrong_before: Sequence[int], verdicts: Margins | None = None
    ) -> None:
        self._margins, self._truths, self._before, self._verdicts = margins, truths, wrong_before, verdicts

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
            margins = (self._verdicts or self._margins)(images, rows)
        signs = self._signs(margins, rows)
        # A margin of 0 is not a yes.
        wrong = ((signs > 0) & (margins <= 0)) | ((signs < 0) & (margins > 0))
        return wrong.sum(dim=1).cpu() > torch.tensor([self._before[row] for row in rows])

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """A single question that was answered rightly: a loss above log 2 is the wrong answer."""
        single = bool(((~self._truths.isnan()).sum(dim=1) == 1).all()) and not any(self._before)
        return losses > _LOG_TWO if single and self._verdicts is None else None

    def _signs(self, margins: Tensor, rows: Rows) -> Tensor:
        """+1 present, -1 absent, 0 unknown; [B, labels]."""
        return torch.nan_to_num(2 * self._truths[list(rows)].to(margins) - 1, nan=0.0)


class MoveEmbedding(Objective):
    """An image's vector moves away from where the clean image's is.

    The clean image itself is where the cosine is highest: no slope leads away from it, so attacks begin beside it.

    Args:
        vectors: Images → rows of length 1, [B, D]; differentiable.
        homes: Vectors of the clean images, [N, D].
        far: Cosine below which an image is broken.
    """

    name = "embedding"
    zero_gradient_at_clean = True

    def __init__(self, vectors: Callable[[Tensor], Tensor], homes: Tensor, far: float = 0.5) -> None:
        self._vectors, self._homes, self._far = vectors, homes.detach(), far

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Minus the cosine between the image's vector and the clean one's, in [-1, 1]."""
        return -(self._vectors(images) * self._homes[list(rows)]).sum(dim=1)

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether the cosine is below `far`."""
        with torch.no_grad():
            return (self.losses(images, rows) > -self._far).cpu()

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """The loss is all there is."""
        return losses > -self._far


class ReportHarm(_ByReport):
    """How much the written report's findings differ from the true ones; for models that give words alone.

    Args:
        truths: Observations that are there, of each image.
        before: What the model wrote for each clean image.
        writes: How the model writes.
    """

    name = "report"
    gradients = False
    scores = False

    def __init__(self, truths: Sequence[frozenset[str]], before: Sequence[str], writes: GenerateReports) -> None:
        known = [present_observations(text) for text in before]
        super().__init__(writes, lambda text, row: present_observations(text) != known[row])
        self._truths, self._known, self._before = truths, known, [set(text.lower().split()) for text in before]

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Findings missed and invented, then findings changed, then the share of words changed, which breaks ties."""
        values = []
        for text, row in zip(self._writes(images, rows), rows, strict=True):
            there, words = present_observations(text), set(text.lower().split())
            changed = len(words ^ self._before[row]) / max(len(words | self._before[row]), 1)
            flipped = min(len(there ^ self._known[row]), _MANY)
            values.append(len(there ^ self._truths[row]) + 0.1 * flipped + 0.01 * changed)
        return torch.tensor(values, dtype=torch.float32)

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """What a loss has beyond a whole number is at most 0.01 from words and at least 0.1 from a changed finding."""
        return losses % 1 > _TOLD


def report_losses(
    model: Any, images: Tensor, rows: Rows, reports: Sequence[str], indications: Sequence[str | None]
) -> Tensor:
    """[B], mean of −log p over the tokens of each row's report; differentiable."""
    found: Tensor = model.losses(images, [reports[row] for row in rows], [indications[row] for row in rows])
    return found


def without_finding(report: str, name: str) -> str:
    """A report without the sentences that state this observation present; a sentence that denies it in their place."""
    spans = [one.span for one in read(report) if one.present and one.observation == name and one.span is not None]
    return " ".join([*_sentences_without(report, spans), f"There is no {name}."])


def with_finding(report: str, name: str) -> str:
    """A report that begins by stating an observation; sentences that deny it are left out."""
    spans = [one.span for one in read(report) if not one.present and one.observation == name and one.span is not None]
    return " ".join([f"There is {name}.", *_sentences_without(report, spans)])


def _sentences_without(report: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Sentences that none of the spans lies in."""
    start = 0
    for end in _sentence_ends(report):
        text = report[start:end].strip()
        if text and not any(first < end and last > start for first, last in spans):
            yield text
        start = end


def _sentence_ends(text: str) -> list[int]:
    ends = [place + 1 for place, letter in enumerate(text[:-1]) if letter in ".!?" and text[place + 1].isspace()]
    return [*ends, len(text)]
