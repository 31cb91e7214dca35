"""The labels that an audit asks about: what is true of a study, what is asked of a model, what a report says of them.

    observations   the things that phantoms draw, where a corpus carries exact findings
    chexpert       thirteen of CheXpert's fourteen, as MIMIC-CXR and CheXpert label them
    nih            the fourteen of NIH ChestX-ray14
    read           CheXpert's again, read off the reference reports by rule, where a corpus carries no labels

`No Finding` is a statement about all others and is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cxrlab.core.errors import ConfigError, DataError, did_you_mean
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import Finding, Study, chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_14, CHEXPERT_CHILDREN, DRAWN, OBSERVATIONS
from cxrlab.findings.questions import known_answers, question_about
from cxrlab.findings.reader import read

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
