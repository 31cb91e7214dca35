"""The studies of an audit: image, truth and text, gathered before a model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding, Study
from cxrlab.core.terminal import track
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import fit
from cxrlab.data.views import load_selected_image, selected_image
from cxrlab.robustness.labels import AskedLabel, asked_labels, chosen_labels, kind_of, truth_of

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.protocols import Image
    from cxrlab.robustness.config import RobustnessConfig


@dataclass(frozen=True, eq=False)
class Case:
    """One study.

    Args:
        id: Of the study.
        patient: Of the study.
        indication: Why the image was taken; None when unknown.
        reference: Text of the chosen section; None where the corpus has none.
        findings: The exact findings; None where unknown.
        truth: Label → 1 or 0, known ones alone.
    """

    id: str
    patient: str
    indication: str | None
    reference: str | None
    findings: tuple[Finding, ...] | None
    truth: dict[str, int] = field(default_factory=dict)


class Cases:
    """The chosen studies with their labels.

    Args:
        corpus: Where they are.
        ids: Which.
        config: Settings of the audit.
    """

    def __init__(self, corpus: Corpus, ids: Sequence[str], config: RobustnessConfig) -> None:
        self.corpus, self.config = corpus, config
        self.kind = kind_of(config.labels, [corpus[key] for key in ids])
        self.all = self.of(ids)
        known = asked_labels(self.kind, config.questions)
        self.labels: tuple[AskedLabel, ...] = chosen_labels(
            known, config.only_labels, [case.truth for case in self.all]
        )

    def __len__(self) -> int:
        return len(self.all)

    def of(self, ids: Sequence[str]) -> list[Case]:
        """Any studies of the corpus, with the truth of the same kind of labels."""
        return [_case(self.corpus[key], self.kind, self.config.section) for key in ids]

    def batches(self) -> list[list[Case]]:
        """All cases in batches that depend on the corpus and the batch size alone."""
        size = self.config.batch_size
        return [self.all[start : start + size] for start in range(0, len(self.all), size)]

    def image(self, case: Case) -> Image:
        """[H, W] or [H, W, 3] float32 in [0, 1]; a `DataError` where it cannot be read."""
        return load_selected_image(self.corpus, self.corpus[case.id], self.config.image_size).astype(
            np.float32, copy=False
        )

    def finding_masks(self, case: Case) -> list[Image]:
        """Masks of a study's findings, in the shape of its image; empty where the corpus has none."""
        study = self.corpus[case.id]
        if study.findings is None or selected_image(study).number != 0:
            return []
        masks = [self.corpus.mask(study, index) for index in range(len(study.findings))]
        found = [mask.astype(np.float32) for mask in masks if mask is not None]
        # A pixel that a finding covers in part stays above 0, and so inside.
        return [fit(mask, self.config.image_size) for mask in found] if self.config.image_size else found


def _case(study: Study, kind: str, section: str) -> Case:
    text = study.sections.section(section) if study.sections else None
    return Case(
        id=study.id,
        patient=study.patient,
        indication=study.sections.indication if study.sections else None,
        reference=text.strip() if text and text.strip() else None,
        findings=study.findings,
        truth=truth_of(study, kind, text),
    )


def image_tensor(image: Image) -> Tensor:
    """[H, W] or [H, W, 3] → [C, H, W] float32."""
    import torch

    plain = torch.from_numpy(np.array(image, np.float32))
    return plain[None] if plain.ndim == 2 else plain.permute(2, 0, 1)


def stacked(images: Sequence[Image]) -> list[list[int]]:
    """Places of the images that have the same shape, shapes in the order in which they first occur."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault(image.shape, []).append(place)
    return list(groups.values())


def refuse_unreadable(cases: Cases) -> None:
    """Every image is opened once before the first attack: one that cannot be read should not be found after hours.

    With the region off-findings, every image also needs a mask of what is there.
    """
    masks = cases.config.attacks and cases.config.region == "off-findings"
    wrong: list[str] = []
    for case in track(cases.all, "looking at images"):
        try:
            cases.image(case)
        except DataError as error:
            wrong.append(str(error))
            continue
        if masks and not any(mask.any() for mask in cases.finding_masks(case)):
            wrong.append(f"study '{case.id}' has no mask of a finding, which --region off-findings needs.")
    if wrong:
        raise DataError(
            f"{len(wrong)} of {len(cases)} studies cannot be attacked (for example: {wrong[0]}) Mend them, or choose "
            "studies without them."
        )


def refuse_without_reference(cases: Sequence[Case], section: str) -> None:
    """A report that becomes unlikely must be there."""
    lacking = [case.id for case in cases if case.reference is None]
    if lacking:
        raise DataError(
            f"{len(lacking)} of {len(cases)} studies have no text in their section '{section}' (for example "
            f"'{lacking[0]}'), so that no true report can be made unlikely; give --against own to attack what "
            "the model itself wrote for the clean image."
        )
