from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import every_row

from cxrlab.core.errors import CxrlabError, DataError, VocabularyError
from cxrlab.core.json_values import dumps
from cxrlab.core.records import (
    SECTIONS,
    Finding,
    ImageFile,
    Prediction,
    PreferencePair,
    Query,
    Report,
    Study,
    chexpert_labels,
)
from cxrlab.core.vocabulary import LOCATIONS, OBSERVATIONS, Certainty, Change, Presence, Severity, Side, View

paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


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
    size_mm=maybe(st.floats(0, 300)),
    change=maybe(st.sampled_from(Change)),
    span=maybe(st.tuples(st.integers(0, 99), st.integers(99, 200))),
)
studies = st.builds(
    Study,
    id=st.text(min_size=1),
    patient=st.text(min_size=1),
    images=st.lists(st.builds(ImageFile, paths, st.none() | st.sampled_from(View)), max_size=3).map(tuple),
    sections=maybe(st.builds(Report, findings=maybe(st.text()), impression=maybe(st.text()))),
    split=maybe(st.sampled_from(("train", "val", "test"))),
    age=maybe(st.integers(0, 110) | st.floats(0, 110)),
    sex=maybe(st.sampled_from(("F", "M"))),
    prior=maybe(st.text(min_size=1)),
    labels=st.dictionaries(st.sampled_from(("Edema", "Fracture")), st.sampled_from((1, 0, -1))),
    findings=maybe(st.lists(findings, max_size=4).map(tuple)),
    masks=st.dictionaries(st.sampled_from(("0", "1")), paths),
    structured=st.dictionaries(
        st.text(), st.dictionaries(st.sampled_from(SECTIONS), st.text(), max_size=2), max_size=2
    ),
    caption=maybe(st.text()),
    extra=st.dictionaries(st.just("scanner"), st.text()),
)


@given(findings)
def test_a_finding_survives_its_json_form(finding: Finding) -> None:
    assert Finding.from_json(finding.to_json()) == finding


@given(studies)
def test_a_study_survives_its_json_form(study: Study) -> None:
    assert Study.from_json(study.to_json()) == study


def test_unknown_findings_and_a_normal_image_stay_apart() -> None:
    """None is 'nobody looked', an empty list is 'looked and found nothing'."""
    assert "findings" not in Study("s", "p").to_json()
    assert Study("s", "p", findings=()).to_json()["findings"] == []


def test_foreign_keys_of_a_study_are_kept() -> None:
    study = Study.from_json({"id": "s", "patient": "p", "scanner": "X", "images": [{"path": "a.png", "kvp": 90}]})
    assert study.extra == {"scanner": "X"} and study.images[0].extra == {"kvp": 90}
    assert study.to_json()["scanner"] == "X" and study.to_json()["images"][0]["kvp"] == 90


@every_row(
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


BASE = {"id": "s", "patient": "p"}
MASS = {"observation": "mass"}


@every_row(
    ("key", "values"),
    [
        ("id", [5, True, None, ["s"]]),
        ("patient", [5, "", {}]),
        ("images", ["a.png", {"path": "a"}, 5, [{"path": 5}], [{"path": ""}], [{"path": "a\0b"}], [None]]),
        ("images", [[{"path": "a", "view": ""}], [{"path": "a", "view": 5}], [{"path": "a", "view": ["PA"]}]]),
        ("sections", ["clear", ["clear"], 5, {"findings": ["clear"]}]),
        ("split", ["", 5, ["test"], True]),
        ("age", ["old", "71", math.nan, math.inf, -4, True, [71], 10**400]),
        ("sex", [5, "", "female", ["F"], True]),
        ("prior", [5, "", ["s0"], {}]),
        ("labels", [["Edema"], "Edema", 5, {"Edema": True}, {"Edema": None}, {"Edema": 0.5}, {"Edema": math.nan}]),
        ("findings", ["edema", MASS, 5, ["edema"], [None], [[]]]),
        ("masks", [["m.png"], "m.png", 5, {"0": 5}, {"0": ""}, {"0": "a\0b"}, {"0": None}]),
        ("structured", [["x"], "x", 5, {"m": "x"}, {"m": ["x"]}, {"m": {"findings": 5}}]),
        ("caption", [5, True, ["a"], {}]),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_its_key(key: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(DataError, match=rf"'(a key of )?{key}"):
            Study.from_json({**BASE, key: value})


@every_row(
    ("key", "values"),
    [
        ("observation", [5, None, ["mass"]]),
        ("presence", ["", "maybe", 5, True]),
        ("side", ["", 5, ["left"]]),
        ("location", [5, ["apex"]]),
        ("size_mm", ["big", True, math.nan, math.inf, -1, [3]]),
        ("tip", [5, ["stomach"]]),
        ("tip_mm", ["high", True, math.nan]),
        ("span", [[True, False], [3, 1], [-2, 1], [1, 2, 3], "ab", 5, [0.0, 1.0]]),
    ],
)
def test_a_finding_is_checked_field_by_field(key: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(DataError, match=rf"'findings\[1\]': '{key}' is "):
            Study.from_json({**BASE, "findings": [MASS, {**MASS, key: value}]})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("id", ["", 5]),
        ("report", [5, None, ["clear"]]),
        ("confidence", ["high", 0.8, [0.8], {"mean_logprob": "low"}, {"mean_logprob": True}, {"tokens": math.inf}]),
        ("label_probs", [0.8, ["Edema"], {"Oedema": 0.5}, {"Edema": "0.5"}, {"Edema": 1.5}, {"Edema": None}]),
    ],
)
def test_a_prediction_is_checked_field_by_field(key: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(DataError, match=rf"'(a key of )?{key}"):
            Prediction.from_json({"id": "s", "report": "clear", key: value})


def test_what_is_empty_or_zero_is_not_taken_for_nothing() -> None:
    """0, "", () and [0, 0] are values; only null and a missing key stand for the default."""
    study = Study("s", "p", age=0, caption="", sections=Report(findings=""), findings=(Finding("mass", span=(0, 0)),))
    found = Study.from_json(json.loads(dumps(study)))
    assert found == study and found.age == 0 and found.caption == "" and found.findings is not None
    assert found.findings[0].span == (0, 0) and found.sections == Report(findings="")
    assert type(found.age) is int and type(Study.from_json({**BASE, "age": 0.0}).age) is float
    nulls = dict.fromkeys(set(Study.checks) - {"id", "patient"})
    assert Study.from_json({**BASE, **nulls}) == Study("s", "p")


def test_plain_text_becomes_a_word_of_the_vocabulary() -> None:
    """`is` and `.value` must hold however a record was made."""
    finding = Finding("edema", presence="present", side="left", change="new")  # type: ignore[arg-type]
    assert finding.present and finding.side is Side.LEFT and finding.change is Change.NEW
    assert ImageFile.from_json({"path": "a.png"}).view is None, "what is not stated is unknown, not frontal"
    assert ImageFile("a.png", "PA").view is View.PA  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match="'presence' is 'here'; it must be one of present, absent"):
        Finding("edema", presence="here")  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match="'view'"):
        ImageFile("a.png", "pa")  # type: ignore[arg-type]


def test_a_foreign_key_cannot_take_the_place_of_a_field() -> None:
    for make in (
        lambda: Study("s", "p", extra={"id": "t"}),
        lambda: ImageFile("a.png", extra={"path": "b.png"}),
        lambda: Prediction("s", "clear", extra={"report": "mass"}),
    ):
        with pytest.raises(DataError, match="'extra' of an? .* which is a field of its own"):
            make()


@pytest.mark.parametrize(
    "record",
    [
        PreferencePair("s", "", "b", "rules", 0.0, -1.5),
        Query("q", "00", "", 0, 0.0, 0.25, 3),
        Prediction("s", "", {"mean_logprob": 0.0}, {"Edema": 0}),
    ],
)
def test_the_smaller_records_survive_their_json_form(record: PreferencePair | Query | Prediction) -> None:
    assert type(record).from_json(json.loads(dumps(record))) == record


def test_an_undefined_confidence_is_null_in_the_file_and_undefined_again() -> None:
    found = Prediction.from_json(json.loads(dumps(Prediction("s", "clear", {"mean_logprob": math.nan}))))
    assert math.isnan(found.confidence["mean_logprob"])


@pytest.mark.parametrize(
    ("record", "source", "named"),
    [
        (PreferencePair, {"id": "s", "chosen": "a", "rejected": "b"}, "'judge'"),
        (PreferencePair, {"id": "s", "chosen": "a", "rejected": "b", "judge": "r", "score": 1}, "'score'"),
        (Query, {"id": "q", "image_sha256": "00", "tokens": -1}, "'tokens'"),
        (Query, {"id": "q", "image_sha256": "00", "cost_usd": "free"}, "'cost_usd'"),
        (Query, {"id": "q", "image_sha256": "00", "tokens": 1.5}, "'tokens'"),
    ],
)
def test_the_smaller_records_are_checked_too(record: Any, source: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=named):
        record.from_json(source)


def test_sections_by_name() -> None:
    report = Report(findings="clear")
    assert report.section("findings") == "clear" and report.section("impression") is None
    assert list(report.to_json()) == ["examination", "indication", "comparison", "findings", "impression"]
    with pytest.raises(DataError, match="Did you mean 'findings'"):
        report.section("finding")


def test_labels_of_a_complete_list_are_all_fourteen() -> None:
    """Exact truth: what is not named is absent, and a device alone is still a normal image."""
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


def test_a_doubt_and_a_finding_outside_the_fourteen_forbid_no_finding() -> None:
    """CheXpert's labeler counts emphysema, hernias, scoliosis and the like against it, though they have no label."""
    doubt = Finding("edema", certainty=Certainty.POSSIBLE)
    assert "No Finding" not in chexpert_labels([doubt], complete=False)
    assert chexpert_labels([doubt], complete=True)["No Finding"] == 0
    assert chexpert_labels([Finding("scoliosis")], complete=True)["No Finding"] == 0
    assert "No Finding" not in chexpert_labels([Finding("emphysema")], complete=False)


def test_devices_and_the_incidental_leave_no_finding() -> None:
    reported = [
        Finding("pacemaker"),
        Finding("low lung volumes"),
        Finding("tortuous aorta"),
        Finding("postsurgical change"),
    ]
    assert chexpert_labels(reported, complete=False) == {"No Finding": 1, "Support Devices": 1}


def test_congestion_and_failure_count_as_edema() -> None:
    """As in CheXpert's list of what names an edema."""
    for name in ("vascular congestion", "heart failure"):
        assert chexpert_labels([Finding(name)], complete=False) == {"Edema": 1}


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


def test_a_tip_must_belong_to_its_device() -> None:
    assert Finding("endotracheal tube", tip="above carina").tip == "above carina"
    with pytest.raises(VocabularyError, match="endotracheal tube"):
        Finding("endotracheal tube", tip="stomach")
