"""Closed questions about a radiograph, and the answers that are known of a study.

A question has one wording per observation, so that training and measurement ask the same words.
"""

from __future__ import annotations

from collections.abc import Mapping

from cxrlab.core.records import Study
from cxrlab.core.vocabulary import CHEXPERT_14, DRAWN, Certainty

YES, NO = "Yes.", "No."
_NO_FINDING = "No Finding"  # a statement about all other labels


def question_about(name: str) -> str:
    """The closed question about an observation of the vocabulary or one of CheXpert's fourteen."""
    return f"Is there evidence of {name.lower()}?"


def known_answers(study: Study) -> Mapping[str, bool]:
    """What a study's truth answers with yes or no: by observation where its findings are exact, else by CheXpert label.

    What is uncertain, and a missing label, is not an answer. A thing that the exact findings do not name is absent.
    """
    if study.findings is not None:
        present = [finding for finding in study.findings if finding.present]
        there = {finding.observation for finding in present if finding.certainty is Certainty.CERTAIN}
        open_ = {finding.observation for finding in present} - there
        return {name: name in there for name in sorted({*DRAWN, *there} - open_)}
    labels = ((name, study.labels.get(name)) for name in CHEXPERT_14 if name != _NO_FINDING)
    return {name: value == 1 for name, value in labels if value in (0, 1)}
