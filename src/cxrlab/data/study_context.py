"""Select what a model receives of a study: its images by view, and image and report of the prior study.

Training and generation use the same selection. Nothing is replaced silently: what is missing is named, and the study is
left out or the prompt lists what there is. A prior is used only if it is of the same patient and split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cxrlab.core.model_interfaces import StudyContext
from cxrlab.core.records import Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ContextConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.views import FRONTAL

PRIOR = "prior"  # before the name of an image of the prior study


class NamedImage(NamedTuple):
    """An image of a study or of its prior, and its name in the prompt."""

    study: Study
    number: int
    name: str


@dataclass(frozen=True)
class SelectedContext:
    """What a model receives of a study.

    Args:
        images: At least one of the study, then that of the prior.
        prior_report: As in `StudyContext`.
        missing: What was wanted and is not there.
    """

    images: tuple[NamedImage, ...]
    prior_report: str | None
    missing: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the images."""
        return tuple(image.name for image in self.images)

    @property
    def kind(self) -> str:
        """The images, and whether there is a prior report, for tables."""
        return " + ".join([*self.names, *(["prior report"] if self.prior_report else [])])

    def described(self, indication: str | None) -> StudyContext:
        """The part of it that a prompt states."""
        return StudyContext(indication, self.names, self.prior_report)


def select_context(corpus: Corpus, study: Study, config: ContextConfig) -> SelectedContext | str:
    """What a model receives of a study, or why the study is left out."""
    if not study.images:
        return "no image"
    images: list[NamedImage] = []
    missing: list[str] = []
    for view in config.views or (View.FRONTAL,):
        number = _number_of(study, View(view), [image.number for image in images])
        if number is None:
            missing.append(f"no {view} image")
        else:
            images.append(NamedImage(study, number, str(view)))
    if not images:
        return missing[0]
    report = "" if "report" in config.prior else None
    if config.prior:
        prior = find_prior(corpus, study)
        if isinstance(prior, str):
            missing.append(prior)
        else:
            if "image" in config.prior:
                number = _number_of(prior, View.FRONTAL)
                if number is None:
                    missing.append("no frontal image in the prior study")
                else:
                    images.append(NamedImage(prior, number, f"{PRIOR} {View.FRONTAL}"))
            if "report" in config.prior:
                report = _report_of(prior)
                if not report:
                    missing.append("no report of the prior study")
    if missing and config.missing == "drop":
        return missing[0]
    return SelectedContext(tuple(images), report, tuple(missing))


def find_prior(corpus: Corpus, study: Study) -> Study | str:
    """The prior study, or why there is none that may be used.

    Within a test split the report of a prior study is itself a reference. It is read here as what a radiologist has at
    hand when the later study of the same patient is read; no other reference is ever in a prompt.
    """
    if study.prior is None:
        return "no prior study"
    if study.prior not in corpus:
        return "the prior study is not in the corpus"
    prior = corpus[study.prior]
    if prior.patient != study.patient:
        return "the prior study is of another patient"
    if prior.split != study.split:
        return "the prior study is in another split"
    if study.id in (prior.id, prior.prior):
        return "the prior study is not an earlier one"
    return prior


def _number_of(study: Study, view: View, taken: Sequence[int] = ()) -> int | None:
    """The number of the first image of a view that is not taken; `frontal` is any frontal one, PA before AP."""
    for wanted in FRONTAL if view is View.FRONTAL else (view,):
        for number, image in enumerate(study.images):
            if image.view is wanted and number not in taken:
                return number
    return None


def _report_of(prior: Study) -> str:
    """The findings of a report, or the whole report of a corpus without sections; empty where there is none."""
    text = prior.report if prior.sections is None else prior.sections.findings
    return (text or "").strip()
