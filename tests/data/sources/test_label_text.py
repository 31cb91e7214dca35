"""Text made from the labels of a study, and where none is made."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Study
from cxrlab.data.importing import with_label_report
from cxrlab.findings.label_report import label_report

LABELS = {"Edema": 1, "Fracture": 0}


@pytest.mark.parametrize("split", [None, "train", "val"])
@pytest.mark.parametrize("style", ["chexpert", "brax"])
def test_the_fourteen_labels_become_findings(split: str | None, style: str) -> None:
    study = Study("s1", "p1", split=split, labels=LABELS, own_labels={"pneumothorax": 1})
    written = with_label_report(study, study.labels, style)
    assert written.structured == {"labels": {"findings": label_report(LABELS, "s1", style)}}
    assert written.sections is None and written.report is None, "the source's own text stays the source's"


@pytest.mark.parametrize(
    ("style", "label"),
    [("candid-ptx", "chest tube"), ("vindr-cxr", "Lung cyst"), ("object-cxr", "foreign object")],
)
def test_the_other_styles_state_the_own_labels(style: str, label: str) -> None:
    study = Study("s1", "p1", labels={"Support Devices": 1}, own_labels={label: 1})
    text = with_label_report(study, study.own_labels, style).structured["labels"]["findings"]
    assert text == label_report({label: 1}, "s1", style)


def test_a_test_split_gets_no_made_text() -> None:
    study = Study("s1", "p1", split="test", labels=LABELS)
    assert with_label_report(study, study.labels, "chexpert") is study


@pytest.mark.parametrize("labels", [{}, {"No Finding": 0}])
def test_labels_that_state_nothing_leave_the_study_as_it_is(labels: dict[str, int]) -> None:
    study = Study("s1", "p1", labels=labels)
    assert with_label_report(study, study.labels, "chexpert") is study


def test_other_made_text_stays_beside_it() -> None:
    study = Study("s1", "p1", labels=LABELS, structured={"rules": {"findings": "Edema."}})
    assert set(with_label_report(study, study.labels, "brax").structured) == {"rules", "labels"}


def test_an_unknown_style_is_refused_even_where_there_is_nothing_to_state() -> None:
    with pytest.raises(ConfigError, match="no style 'nih-cxr14'"):
        with_label_report(Study("s1", "p1"), {}, "nih-cxr14")
