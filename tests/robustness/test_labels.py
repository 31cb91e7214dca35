"""Three protocols and a fourth by rule: what is true of a study, what is asked, what a report says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.label_maps import NIH_CXR14
from cxrlab.core.records import Finding, ImageFile, Report, Study
from cxrlab.core.vocabulary import CHEXPERT_14, DRAWN, View
from cxrlab.evaluation.retrieve import load_sentences
from cxrlab.findings.closed_questions import question_about
from cxrlab.findings.reader import read
from cxrlab.robustness.audited_studies import (
    Label,
    blank_labels,
    known_labels,
    label_kind,
    labels_in,
    labels_of_kind,
    select_labels,
)


def study(**more: Any) -> Study:
    return Study(id="s", patient="p", images=(ImageFile("s.png", View.PA),), **more)


def by_name(kind: str, questions: Any = "drawn") -> Mapping[str, Label]:
    return {label.name: label for label in labels_of_kind(kind, questions)}


def test_no_finding_is_asked_by_no_protocol() -> None:
    assert set(by_name("observations")) == set(DRAWN)
    assert set(by_name("chexpert")) == set(by_name("read")) == set(CHEXPERT_14) - {"No Finding"}
    assert set(by_name("nih")) == set(NIH_CXR14) - {"No Finding"} and len(by_name("nih")) == 14


def test_questions_are_by_the_label_s_name_or_in_words_that_phantoms_teach() -> None:
    assert by_name("nih", "own")["Pleural_Thickening"].questions == (question_about("Pleural Thickening"),)
    drawn = by_name("chexpert")["Lung Lesion"]
    names = [name for name in DRAWN if name in drawn.observations]
    assert {"nodule", "mass"} <= set(names)
    assert drawn.questions == tuple(question_about(name) for name in names)
    assert all(label.questions == () for label in labels_of_kind("chexpert", "none"))
    # Nothing is drawn for it: the label is asked about by its name.
    for label in labels_of_kind("chexpert", "drawn"):
        assert label.questions and (
            label.observations & set(DRAWN) or label.questions == (question_about(label.name),)
        ), label.name


@pytest.mark.parametrize("kind", ["observations", "chexpert", "nih", "read"])
def test_every_label_has_zero_shot_sentences(kind: str) -> None:
    wording = load_sentences("report/1")
    for label in labels_of_kind(kind, "own"):
        assert label.sentences and all(all(wording.of(name)) for name in label.sentences), label.name


def test_a_parent_of_chexpert_holds_what_its_children_hold() -> None:
    found = by_name("chexpert")
    assert found["Edema"].observations < found["Lung Opacity"].observations
    assert found["Cardiomegaly"].observations < found["Enlarged Cardiomediastinum"].observations


def test_uncertain_and_missing_labels_are_unknown() -> None:
    one = study(labels={"Edema": 1, "Pneumonia": -1, "Fracture": 0, "No Finding": 0})
    assert known_labels(one, "chexpert") == {"Edema": 1, "Fracture": 0}
    nih = study(own_labels={"Effusion": 1, "Hernia": 0, "No Finding": 0, "Something": 1})
    assert known_labels(nih, "nih") == {"Effusion": 1, "Hernia": 0}
    assert known_labels(study(), "observations") == {}


def test_a_label_is_blank_where_the_source_says_nothing_and_not_where_it_is_unsure() -> None:
    one = study(labels={"Edema": 1, "Pneumonia": -1, "Fracture": 0})
    assert set(CHEXPERT_14) - set(blank_labels(one, "chexpert")) == {"Edema", "Pneumonia", "Fracture", "No Finding"}
    assert blank_labels(study(), "chexpert") == ()  # a study without a row of labels says nothing of absence either
    assert blank_labels(study(own_labels={"Effusion": 1}), "nih") == ()
    said = blank_labels(study(), "read", "There is pulmonary edema. Possible pneumonia.")
    assert "Fracture" in said and not {"Edema", "Pneumonia"} & set(said)


def test_exact_findings_tell_of_everything_that_is_drawn() -> None:
    found = known_labels(study(findings=(Finding("edema"),)), "observations")
    assert found["edema"] == 1 and found["pneumothorax"] == 0
    assert set(found) <= set(DRAWN)


def test_labels_are_read_off_a_report_and_silence_is_not_absence() -> None:
    found = known_labels(study(), "read", "There is pulmonary edema. No pneumothorax. Possible pneumonia.")
    assert found["Edema"] == 1 and found["Pneumothorax"] == 0
    assert "Fracture" not in found and "Pneumonia" not in found and "No Finding" not in found
    assert known_labels(study(), "read", None) == {}


def test_what_a_report_says_of_a_label() -> None:
    said = labels_in(read("There is a small left effusion. No edema.").findings, labels_of_kind("nih", "own"))
    assert said["Effusion"] == 1 and said["Edema"] == 0 and said["Hernia"] == 0 and len(said) == 14


def test_auto_takes_the_most_exact_labels_that_there_are() -> None:
    exact, nih = study(findings=()), study(own_labels={"Effusion": 1}, labels={"Pleural Effusion": 1})
    chexpert, bare = study(labels={"Edema": 0}), study(sections=Report(findings="Clear."))
    assert label_kind("auto", [exact, exact]) == "observations"
    assert label_kind("auto", [exact, nih]) == "nih"
    assert label_kind("auto", [chexpert, bare]) == "chexpert" and label_kind("auto", [bare]) == "read"
    assert label_kind("chexpert", [exact]) == "chexpert" and label_kind("auto", []) == "read"


def test_only_labels_that_differ_between_studies_are_asked_unless_named() -> None:
    known = labels_of_kind("chexpert", "own")
    truths: list[dict[str, int]] = [{"Edema": 1, "Fracture": 0}, {"Edema": 0, "Fracture": 0}, {}]
    assert [label.name for label in select_labels(known, (), truths)] == ["Edema"]
    assert [label.name for label in select_labels(known, ("Fracture", "Edema"), truths)] == ["Fracture", "Edema"]
    with pytest.raises(ConfigError, match="'Edma'.* Did you mean 'Edema'"):
        select_labels(known, ("Edma",), truths)
    with pytest.raises(DataError, match="No label is known to be present in one"):
        select_labels(known, (), truths[1:])
