"""The studies of an audit: image, truth and text, gathered before a model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import Finding, Study, chexpert_labels
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import CHEXPERT_14, CHEXPERT_CHILDREN, DRAWN, OBSERVATIONS
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import fit
from cxrlab.data.views import load_selected_image, selected_image
from cxrlab.findings.questions import known_answers, question_about
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.protocols import Image
    from cxrlab.robustness.settings import RobustnessConfig


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


Labels = Literal["auto", "observations", "chexpert", "nih", "read"]
Questions = Literal["own", "drawn", "none"]
READ = "read"
_NOT_ASKED = "No Finding"


@dataclass(frozen=True)
class AskedLabel:
    """One label.

    Args:
        name: As the corpus spells it.
        observations: Names of the vocabulary that make it present in a report.
        questions: What is asked; where there are several, the label is as likely as the likeliest yes; none at all
            where a model has not learnt to answer.
        sentences: Name by which the zero-shot sentences of an encoder know it.
    """

    name: str
    observations: frozenset[str]
    questions: tuple[str, ...]
    sentences: tuple[str, ...]


def asked_labels(kind: str, questions: Questions) -> tuple[AskedLabel, ...]:
    """Every label of a kind.

    Args:
        kind: observations, chexpert, nih or read.
        questions: own asks about the label by its name; drawn asks about the things that phantoms draw and that stand
            for it, which are the words that built-in models have learnt; none asks nothing.
    """
    rows: Mapping[str, Iterable[str]]
    if kind == "observations":
        rows = {name: (name,) for name in DRAWN}
    elif kind in ("chexpert", READ):
        rows = {name: _below(name) for name in CHEXPERT_14 if name != _NOT_ASKED}
    else:
        rows = {name: row.observations for name, row in NIH_CXR14.items() if name != _NOT_ASKED}
    return tuple(_label(name, frozenset(several), kind, questions) for name, several in rows.items())


def _below(label: str) -> list[str]:
    """Observations that count towards a CheXpert label, those of its children among them."""
    names = {label, *CHEXPERT_CHILDREN.get(label, ())}
    return [row.name for row in OBSERVATIONS.values() if row.chexpert in names]


def _label(name: str, observations: frozenset[str], kind: str, questions: str) -> AskedLabel:
    drawn = tuple(one for one in DRAWN if one in observations)
    own = question_about(name.replace("_", " "))
    asked = tuple(question_about(one) for one in drawn) if questions == "drawn" and drawn else (own,)
    asked = () if questions == "none" else asked
    known = (name,) if name in CHEXPERT_14 or name in OBSERVATIONS else tuple(sorted(observations))
    return AskedLabel(name, observations, asked, known if kind != "nih" else tuple(sorted(observations)))


def kind_of(labels: Labels, studies: Iterable[Study]) -> str:
    """The labels that are meant; auto takes exact findings where every study has them, else what is labelled."""
    if labels != "auto":
        return labels
    found = list(studies)
    if found and all(study.findings is not None for study in found):
        return "observations"
    if any(set(study.own_labels) & set(NIH_CXR14) for study in found):
        return "nih"
    return "chexpert" if any(study.labels for study in found) else READ


def truth_of(study: Study, kind: str, reference: str | None = None) -> dict[str, int]:
    """Label → 1 or 0 for what is known of a study; uncertain and missing labels are left out.

    Args:
        study: The study.
        kind: Of the labels.
        reference: Text of its report; what it does not mention stays unknown.
    """
    if kind == READ:
        told = chexpert_labels(read(reference).findings, complete=False)
        return {name: value for name, value in told.items() if value in (0, 1) and name != _NOT_ASKED}
    if kind == "observations":
        if study.findings is None:
            return {}
        return {name: int(there) for name, there in known_answers(study).items() if name in DRAWN}
    if kind == "nih":
        return {name: value for name, value in study.own_labels.items() if name in NIH_CXR14 and value in (0, 1)
                and name != _NOT_ASKED}  # fmt: skip
    return {name: value for name, value in study.labels.items() if value in (0, 1) and name != _NOT_ASKED}


def labels_in(findings: Sequence[Finding], labels: Sequence[AskedLabel]) -> dict[str, int]:
    """Label → 1 where a report says that it is there, hedged or not; 0 where it denies it or is silent."""
    there = {finding.observation for finding in findings if finding.present}
    return {label.name: int(bool(there & label.observations)) for label in labels}


def chosen_labels(
    known: Sequence[AskedLabel], names: Sequence[str], truths: Sequence[Mapping[str, int]]
) -> tuple[AskedLabel, ...]:
    """The labels to ask about: those named; without names, those that are present in one study and absent in another.

    There may be none where nothing is asked, and a `DataError` tells where something is.

    Args:
        known: Of the kind.
        names: Given by the user; all when empty.
        truths: Of the chosen studies.
    """
    by_name = {label.name: label for label in known}
    for name in names:
        if name not in by_name:
            raise ConfigError(
                f"'{name}' is none of the labels that are asked about.{did_you_mean(name, by_name)} "
                f"There are: {', '.join(by_name)}."
            )
    if names:
        return tuple(by_name[name] for name in names)
    found = tuple(label for label in known if {0, 1} <= {truth.get(label.name) for truth in truths})
    if not found and any(label.questions for label in known):
        raise DataError(
            "no label is known to be present in one of the chosen studies and absent in another, so that accuracy by "
            "label has no meaning; take more studies, or other labels (--labels)."
        )
    return found
