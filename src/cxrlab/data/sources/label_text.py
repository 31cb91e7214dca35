"""Text for studies whose source gives labels and no report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cxrlab.core.records import Study
from cxrlab.findings.label_report import label_report

MAKER = "labels"
# Which of a study's label sets each style tells: CheXpert's fourteen, or the corpus's own names.
_FOURTEEN = frozenset({"chexpert", "brax"})


def with_label_report(study: Study, style: str) -> Study:
    """The study with `structured["labels"]`, the findings that its labels tell.

    The study is returned as it is where it belongs to the test split, which never holds text that is not the
    source's, or where its labels tell nothing.
    """
    if study.split == "test":
        return study
    labels: Mapping[str, int] = study.labels if style in _FOURTEEN else study.own_labels
    text = label_report(labels, study.id, style)
    if not text:
        return study
    return replace(study, structured={**study.structured, MAKER: {"findings": text}})
