from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.core.errors import CxrlabError, DataError, VocabularyError
from cxrlab.core.records import (
    Finding,
    ImageFile,
    Prediction,
    PreferencePair,
    Query,
    Report,
    Score,
    Study,
    chexpert_labels,
)
from cxrlab.core.vocabulary import LOCATIONS, OBSERVATIONS, Certainty, Change, Presence, Severity, Side, View


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


findings = st.builds(
    Finding,
    observation=st.sampled_from(sorted(OBSERVATIONS)),
    presence=st.sampled_from(Presence),
    certainty=st.sampled_from(Certainty),
    side=maybe(st.sampled_from(Side)),
    location=maybe(st.sampled_from(LOCATIONS)),
    severity=maybe(st.sampled_from(Severity)),
    size_mm=maybe(st.floats(0.1, 300)),
    change=maybe(st.sampled_from(Change)),
    span=maybe(st.tuples(st.integers(0, 99), st.integers(100, 200))),
)
studies = st.builds(
    Study,
    id=st.text(min_size=1),
    patient=st.text(min_size=1),
    images=st.lists(st.builds(ImageFile, st.text(min_size=1), st.sampled_from(View)), max_size=3).map(tuple),
    sections=maybe(st.builds(Report, findings=maybe(st.text()), impression=maybe(st.text()))),
    split=maybe(st.sampled_from(("train", "val", "test"))),
    age=maybe(st.integers(0, 110)),
    labels=st.dictionaries(st.sampled_from(("Edema", "Fracture")), st.sampled_from((1, 0, -1))),
    findings=maybe(st.lists(findings, max_size=4).map(tuple)),
    masks=st.dictionaries(st.sampled_from(("0", "1")), st.text(min_size=1)),
    extra=st.dictionaries(st.just("scanner"), st.text()),
)


@given(findings)
def test_a_finding_survives_its_json_form(finding: Finding) -> None:
    assert Finding.from_json(finding.to_json()) == finding


@given(studies)
def test_a_study_survives_its_json_form(study: Study) -> None:
    assert Study.from_json(study.to_json()) == study


def test_unknown_findings_and_a_normal_film_stay_apart() -> None:
    """None is 'nobody looked', an empty list is 'looked and found nothing'."""
    assert "findings" not in Study("s", "p").to_json()
    assert Study("s", "p", findings=()).to_json()["findings"] == []


def test_foreign_keys_of_a_study_are_kept() -> None:
    study = Study.from_json({"id": "s", "patient": "p", "scanner": "X", "images": [{"path": "a.png", "kvp": 90}]})
    assert study.extra == {"scanner": "X"} and study.images[0].extra == {"kvp": 90}
    assert study.to_json()["scanner"] == "X" and study.to_json()["images"][0]["kvp"] == 90


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"patient": "p"}, "'id'"),
        ({"id": "", "patient": "p"}, "'id'"),
        ({"id": "s"}, "'patient'"),
        ({"id": "s", "patient": "p", "split": "tset"}, "test"),
        ({"id": "s", "patient": "p", "labels": {"Oedema": 1}}, "Edema"),
        ({"id": "s", "patient": "p", "labels": {"Edema": 2}}, "Edema"),
        ({"id": "s", "patient": "p", "labels": {"Edema": "1"}}, "Edema"),
        ({"id": "s", "patient": "p", "images": [{"view": "PA"}]}, "path"),
        ({"id": "s", "patient": "p", "images": ["a.png"]}, "path"),
        ({"id": "s", "patient": "p", "images": [{"path": "a", "view": "XX"}]}, "lateral"),
        ({"id": "s", "patient": "p", "sections": {"finding": "x"}}, "findings"),
        ({"id": "s", "patient": "p", "sections": {"findings": 3}}, "findings"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "edma"}]}, "edema"),
        ({"id": "s", "patient": "p", "findings": [{"side": "left"}]}, "observation"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "mass", "side": "up"}]}, "bilateral"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "mass", "colour": "red"}]}, "colour"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "mass", "location": "apx"}]}, "apex"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "mass", "tip": "stomach"}]}, "stomach"),
        ({"id": "s", "patient": "p", "findings": [{"observation": "mass", "span": [1]}]}, "span"),
    ],
)
def test_a_bad_study_is_refused_with_the_word_that_is_wrong_or_right(source: dict[str, Any], named: str) -> None:
    with pytest.raises(CxrlabError, match=named):
        Study.from_json(source)


def test_sections_by_name() -> None:
    report = Report(findings="clear")
    assert report.section("findings") == "clear" and report.section("impression") is None
    assert list(report.to_json()) == ["examination", "indication", "comparison", "findings", "impression"]
    with pytest.raises(DataError, match="Did you mean 'findings'"):
        report.section("finding")


def test_labels_of_a_complete_list_are_all_fourteen() -> None:
    """Exact truth: what is not named is absent, and a device alone is still a normal film."""
    labels = chexpert_labels([Finding("pacemaker")], complete=True)
    assert len(labels) == 14
    assert labels["Support Devices"] == 1 and labels["No Finding"] == 1 and labels["Edema"] == 0


def test_a_parent_of_something_present_is_unknown_unless_it_is_stated() -> None:
    """A consolidation is an opacity of the lung: to call the opacity absent would be false."""
    labels = chexpert_labels([Finding("consolidation"), Finding("cardiomegaly")], complete=True)
    assert "Lung Opacity" not in labels and "Enlarged Cardiomediastinum" not in labels
    assert chexpert_labels([Finding("consolidation"), Finding("lung opacity")], complete=True)["Lung Opacity"] == 1
    assert chexpert_labels([Finding("pleural effusion")], complete=True)["Lung Opacity"] == 0
    gone = Finding("lung opacity", presence=Presence.ABSENT)
    assert "Lung Opacity" not in chexpert_labels([gone, Finding("pneumonia")], complete=True)
    assert chexpert_labels([gone, Finding("pneumonia")], complete=False)["Lung Opacity"] == 0


def test_labels_of_a_report_leave_the_unsaid_unknown() -> None:
    assert chexpert_labels([Finding("edema")], complete=False) == {"Edema": 1}
    assert chexpert_labels([], complete=False) == {"No Finding": 1}


def test_presence_outweighs_doubt_outweighs_absence() -> None:
    present, possible = Finding("nodule"), Finding("mass", certainty=Certainty.POSSIBLE)
    absent = Finding("cavity", presence=Presence.ABSENT)
    for order in ([present, possible, absent], [absent, possible, present]):
        assert chexpert_labels(order, complete=False)["Lung Lesion"] == 1
    assert chexpert_labels([absent, possible], complete=False)["Lung Lesion"] == -1
    assert chexpert_labels([absent], complete=False)["Lung Lesion"] == 0


def test_a_doubt_forbids_no_finding_and_a_finding_outside_chexpert_does_not() -> None:
    doubt = Finding("edema", certainty=Certainty.POSSIBLE)
    assert "No Finding" not in chexpert_labels([doubt], complete=False)
    assert chexpert_labels([doubt], complete=True)["No Finding"] == 0
    assert chexpert_labels([Finding("scoliosis")], complete=True)["No Finding"] == 1


def test_a_prediction_keeps_what_it_does_not_know() -> None:
    line = {"id": "s1", "report": "clear", "confidence": {"mean_logprob": -0.3}, "model": "x"}
    assert Prediction.from_json(line).to_json() == line
    with pytest.raises(DataError, match="'report'"):
        Prediction.from_json({"id": "s1"})


def test_small_records_drop_what_is_none() -> None:
    assert PreferencePair("s", "a", "b", "rules").to_json() == {
        "id": "s",
        "chosen": "a",
        "rejected": "b",
        "judge": "rules",
    }
    assert Query("q", "00").to_json() == {"id": "q", "image_sha256": "00", "round": 0}
    assert Score("bleu4", 0.5, 3).to_json() == {"metric": "bleu4", "value": 0.5, "n": 3, "undefined": 0}


def test_a_tip_must_belong_to_its_device() -> None:
    assert Finding("endotracheal tube", tip="above carina").tip == "above carina"
    with pytest.raises(VocabularyError, match="endotracheal tube"):
        Finding("endotracheal tube", tip="stomach")
