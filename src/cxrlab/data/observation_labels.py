"""Observations of a study as labels (present, absent, unmentioned), from exact findings, its report or its label table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from cxrlab.core.label_maps import LABEL_MAPS
from cxrlab.core.records import Finding, Study
from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.data.pairs import FINDINGS, pair_texts
from cxrlab.findings.reader import read

NORMAL = "normal"  # nothing is present or possible
_NO_FINDING = "No Finding"
Truth = Literal["findings", "report", "labels"]


class Labels(NamedTuple):
    """Labels of a study by observation, and of `normal`; an observation without a value is unmentioned."""

    values: Mapping[str, bool]
    source: Truth
    complete: bool  # whether what is not named is absent


def study_labels(study: Study, truth: Truth | None = None, section: str = FINDINGS) -> Labels | None:
    """The labels from the named source or, when None, from the first that the study has; None where it has none.

    Exact findings come first, then the report, then the source's own labels and those of CheXpert.
    """
    if truth in (None, "findings") and study.findings is not None:
        return Labels(labels_of_findings(study.findings), "findings", True)
    if truth in (None, "report") and study.caption is None:
        choice = "report" if section == "report" else "sections"
        for text in pair_texts(study, (choice,), section):
            return Labels(labels_of_report(text.text), "report", False)
    if truth in (None, "labels") and (values := _labels_of_tables(study)):
        return Labels(values, "labels", False)
    return None


def labels_of_report(text: str) -> dict[str, bool]:
    """What a report states, as `cxrlab.read` finds it."""
    return labels_of_findings(read(text))


def labels_of_findings(findings: Iterable[Finding]) -> dict[str, bool]:
    """Present where any finding is present or possible, absent where all are denied."""
    found: dict[str, bool] = {}
    for finding in findings:
        found[finding.observation] = found.get(finding.observation, False) or finding.present
    return {**found, NORMAL: not any(found.values())}


def _labels_of_tables(study: Study) -> dict[str, bool]:
    """Labels that a table states with certainty, in words of the vocabulary.

    A label that stands for several observations is used for each: where the source did not tell them apart, neither can
    the measurement.
    """
    found: dict[str, bool] = {}
    own = study.own_labels
    tables = [rows for rows in LABEL_MAPS.values() if own and own.keys() <= rows.keys()]
    for name in OBSERVATIONS:
        given = [own[label] for rows in tables[:1] for label in own if name in rows[label].observations]
        if not given and (chexpert := OBSERVATIONS[name].chexpert or "") in study.labels:
            value = study.labels[chexpert]
            # A wide label, such as Lung Opacity, denies each of its observations and does not say which is present.
            alone = sum(row.chexpert == chexpert for row in OBSERVATIONS.values()) == 1
            given = [value] if value == 0 or alone else []
        if given and min(given) >= 0:
            found[name] = bool(max(given))
    positive = [value > 0 for values in (own, study.labels) for label, value in values.items() if label != _NO_FINDING]
    if study.labels.get(_NO_FINDING) == 1:
        found[NORMAL] = True
    elif study.labels.get(_NO_FINDING) == 0 or any(positive):
        found[NORMAL] = False
    return found
