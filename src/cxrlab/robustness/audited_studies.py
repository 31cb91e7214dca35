"""The studies of an audit, and the labels that models are asked about.

Kinds of labels:
    observations   what phantoms draw, for a corpus with exact findings
    chexpert       thirteen of CheXpert's fourteen, as in MIMIC-CXR and CheXpert
    nih            the fourteen of NIH ChestX-ray14
    read           CheXpert's labels, read from the reference reports by rule, for a corpus without labels

`No Finding` is a statement about all other labels and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.core.records import Finding, Study, chexpert_labels
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import CHEXPERT_14, CHEXPERT_CHILDREN, DRAWN, OBSERVATIONS
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import fit
from cxrlab.data.study_context import NamedImage, select_context
from cxrlab.data.views import load_selected_image, selected_image
from cxrlab.findings.closed_questions import known_answers, question_about
from cxrlab.findings.reader import read

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.robustness.config import RobustnessConfig

READ = "read"
_NOT_ASKED = "No Finding"


class ImagesFromDisk(Sequence["Image"]):
    """Images that are read at each use: those of all studies would not fit in memory."""

    def __init__(self, corpus: Corpus, images: Sequence[NamedImage]) -> None:
        self._corpus, self._images = corpus, images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, place: Any) -> Any:
        chosen = self._images[place]
        return self._corpus.image(chosen.study, chosen.number)


@dataclass(frozen=True, eq=False)
class Case:
    """One study."""

    id: str
    patient: str
    indication: str | StudyContext | None  # The context where a model receives more than the first image
    reference: str | None  # Text of the chosen section; None where the corpus has none
    findings: tuple[Finding, ...] | None  # Exact findings; None where unknown
    truth: dict[str, int] = field(default_factory=dict)  # Label → 1 or 0, where known
    blank: tuple[str, ...] = ()  # Labels of which the source says nothing, where they also count as absent


class Cases:
    """The chosen studies with their labels.

    Attributes:
        kind: Kind of the labels.
        all: The studies, in order.
        labels: The labels that models are asked about.
    """

    def __init__(self, corpus: Corpus, ids: Sequence[str], config: RobustnessConfig) -> None:
        self.corpus, self.config = corpus, config
        self.kind = label_kind(config.labels, [corpus[key] for key in ids])
        self.all = self.load(ids)
        known = labels_of_kind(self.kind, config.questions)
        self.labels = select_labels(known, config.only_labels, [case.truth for case in self.all])

    def __len__(self) -> int:
        return len(self.all)

    def load(self, ids: Sequence[str]) -> list[Case]:
        """Any studies of the corpus, labelled in the same way."""
        cases = []
        for study in (self.corpus[key] for key in ids):
            text = study.sections.section(self.config.section) if study.sections else None
            truth, blank = known_labels(study, self.kind, text), blank_labels(study, self.kind, text)
            if self.config.blanks == "negative":
                truth |= dict.fromkeys(blank, 0)
            cases.append(
                Case(
                    id=study.id,
                    patient=study.patient,
                    indication=self._received(study),
                    reference=text.strip() if text and text.strip() else None,
                    findings=study.findings,
                    truth=truth,
                    blank=blank if self.config.blanks == "both" else (),
                )
            )
        return cases

    def _received(self, study: Study) -> str | StudyContext | None:
        """What models receive of a study beside its frontal image."""
        indication = study.sections.indication if study.sections else None
        if self.config.is_single or study.caption is not None:
            return indication
        chosen = select_context(self.corpus, study, self.config.context)
        if isinstance(chosen, str):
            raise DataError(f"study '{study.id}' cannot be audited: {chosen}. Choose studies without it.")
        further = ImagesFromDisk(self.corpus, chosen.images[1:])
        return replace(chosen.described(indication), further_images=further)

    def batches(self) -> list[list[Case]]:
        """All cases in batches that depend only on the corpus and the batch size."""
        size = self.config.batch_size
        return [self.all[start : start + size] for start in range(0, len(self.all), size)]

    def image(self, case: Case) -> Image:
        """[H, W] or [H, W, 3] float32 in [0, 1]; a `DataError` where it cannot be read."""
        image = load_selected_image(self.corpus, self.corpus[case.id], self.config.image_size)
        return image.astype(np.float32, copy=False)

    def finding_masks(self, case: Case) -> list[Image]:
        """Masks of a study's findings, in the shape of its image; empty where the corpus has none."""
        study = self.corpus[case.id]
        if study.findings is None or selected_image(study).number != 0:
            return []
        masks = [self.corpus.mask(study, index) for index in range(len(study.findings))]
        found = [mask.astype(np.float32) for mask in masks if mask is not None]
        # A pixel that a finding covers in part stays above 0, and so counts as inside.
        return [fit(mask, self.config.image_size) for mask in found] if self.config.image_size else found

    def check_images(self) -> None:
        """Open every image once before the first attack, so that an unreadable one is not found after hours.

        The region off-findings also needs a mask for every image.
        """
        needs_masks = self.config.attacks and self.config.region == "off-findings"
        errors: list[str] = []
        for case in track(self.all, "checking images"):
            try:
                self.image(case)
                if isinstance(case.indication, StudyContext):
                    for _ in case.indication.further_images:  # each is read from disk
                        pass
            except DataError as error:
                errors.append(str(error))
                continue
            if needs_masks and not any(mask.any() for mask in self.finding_masks(case)):
                errors.append(f"study '{case.id}' has no mask of a finding, which --region off-findings needs.")
        if errors:
            raise DataError(
                f"{len(errors)} of {len(self)} studies cannot be attacked (for example: {errors[0]}) Correct them, or "
                "choose studies without them."
            )

    def check_references(self) -> None:
        """Raise where a study has no reference report that an attack could make unlikely."""
        lacking = [case.id for case in self.all if case.reference is None]
        if lacking:
            raise DataError(
                f"{len(lacking)} of {len(self)} studies have no text in their section '{self.config.section}' (for "
                f"example '{lacking[0]}'), so that an attack has no true report to make unlikely; give --against own to "
                "attack the report that the model generated for the clean image."
            )


@dataclass(frozen=True)
class Label:
    """One label."""

    name: str  # As the corpus spells it
    observations: frozenset[str]  # Names of the vocabulary that make it present in a report
    # What models are asked; of several the highest probability of yes counts. Empty where nothing is asked
    questions: tuple[str, ...]
    sentences: tuple[str, ...]  # Its names in the zero-shot sentences of an encoder


def labels_of_kind(kind: str, questions: Literal["own", "drawn", "none"]) -> tuple[Label, ...]:
    """Every label of a kind.

    Args:
        questions: own asks about the label by its name; drawn about the observations that phantoms draw and that make
            it present, in the words that built-in models were trained on; none asks nothing.
    """
    rows: Mapping[str, Iterable[str]]
    if kind == "observations":
        rows = {name: (name,) for name in DRAWN}
    elif kind in ("chexpert", READ):
        rows = {
            name: [
                row.name for row in OBSERVATIONS.values() if row.chexpert in {name, *CHEXPERT_CHILDREN.get(name, ())}
            ]
            for name in CHEXPERT_14
        }
    else:
        rows = {name: row.observations for name, row in NIH_CXR14.items()}
    labels = []
    for name, observations in rows.items():
        if name == _NOT_ASKED:
            continue
        drawn = tuple(question_about(one) for one in DRAWN if one in observations)
        asked = drawn if questions == "drawn" and drawn else (question_about(name.replace("_", " ")),)
        own_name = kind != "nih" and (name in CHEXPERT_14 or name in OBSERVATIONS)
        sentences = (name,) if own_name else tuple(sorted(observations))
        labels.append(Label(name, frozenset(observations), () if questions == "none" else asked, sentences))
    return tuple(labels)


def label_kind(kind: str, studies: Iterable[Study]) -> str:
    """The kind of labels; auto takes exact findings where every study has them, else the labels that the corpus has."""
    if kind != "auto":
        return kind
    found = list(studies)
    if found and all(study.findings is not None for study in found):
        return "observations"
    if any(set(study.own_labels) & set(NIH_CXR14) for study in found):
        return "nih"
    return "chexpert" if any(study.labels for study in found) else READ


def known_labels(study: Study, kind: str, reference: str | None = None) -> dict[str, int]:
    """Label → 1 or 0 for what is known of a study; uncertain and missing labels are left out.

    Args:
        reference: Report from which the kind read takes its labels; what it does not mention stays unknown.
    """
    if kind == "observations":
        if study.findings is None:
            return {}
        return {name: int(present) for name, present in known_answers(study).items() if name in DRAWN}
    labels = _stated_labels(study, kind, reference)
    return {name: value for name, value in labels.items() if value in (0, 1) and name != _NOT_ASKED}


def _stated_labels(study: Study, kind: str, reference: str | None) -> Mapping[str, int]:
    """What the source says: 1, 0 or -1 for uncertain."""
    if kind == READ:
        return chexpert_labels(read(reference).findings, complete=False)
    if kind == "nih":
        return {name: value for name, value in study.own_labels.items() if name in NIH_CXR14}
    return study.labels


def blank_labels(study: Study, kind: str, reference: str | None = None) -> tuple[str, ...]:
    """CheXpert's labels of which the source says nothing; uncertain ones are not blank. None for other kinds.

    The labeller leaves a label blank where a report does not mention it. Some authors count that as absent.
    """
    if kind not in ("chexpert", READ) or (kind == READ and not reference):
        return ()
    stated = _stated_labels(study, kind, reference)
    return tuple(name for name in CHEXPERT_14 if name not in stated and name != _NOT_ASKED) if stated else ()


def labels_in(findings: Sequence[Finding], labels: Sequence[Label]) -> dict[str, int]:
    """Label → 1 where a report states it present, hedged or not; 0 where it denies it or does not mention it."""
    present = {finding.observation for finding in findings if finding.present}
    return {label.name: int(bool(present & label.observations)) for label in labels}


def select_labels(
    known: Sequence[Label], names: Sequence[str], truths: Sequence[Mapping[str, int]]
) -> tuple[Label, ...]:
    """The labels to ask about: those named, or those that are present in one study and absent in another.

    Without such labels a `DataError` is raised where questions are asked.

    Args:
        known: All labels of the kind.
        names: Labels chosen by the user; all when empty.
        truths: Known labels of the chosen studies.
    """
    by_name = {label.name: label for label in known}
    for name in names:
        if name not in by_name:
            raise ConfigError(
                f"'{name}' is not one of the labels of this corpus.{did_you_mean(name, by_name)} "
                f"Labels: {', '.join(by_name)}."
            )
    if names:
        return tuple(by_name[name] for name in names)
    found = tuple(label for label in known if {0, 1} <= {truth.get(label.name) for truth in truths})
    if not found and any(label.questions for label in known):
        raise DataError(
            "No label is known to be present in one of the chosen studies and absent in another, so that accuracy by "
            "label has no meaning; take more studies with --n, or other labels with --labels."
        )
    return found
