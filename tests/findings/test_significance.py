import math

import pytest
from tables import every_row

from cxrlab.core.errors import VocabularyError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Severity
from cxrlab.findings.significance import (
    AGE_RULES,
    CLASSES,
    CLINICAL_QUESTIONS,
    DEGREE_RULES,
    EXPECTED,
    INDICATIONS,
    MISPLACED,
    Urgency,
    is_clinical_question,
    urgency,
    urgency_of,
)


def test_every_observation_has_a_class_and_a_reason():
    """A new row of the vocabulary without a class would make its errors weigh by accident."""
    assert set(CLASSES) == set(OBSERVATIONS)
    reasons = [reason for _, reason in (*CLASSES.values(), *MISPLACED.values(), *DEGREE_RULES.values())]
    assert all(reason.strip() for reason in reasons) and all(rule.reason for rule in AGE_RULES)


@every_row(
    ("name", "expected"),
    [
        ("pneumothorax", Urgency.URGENT),
        ("pneumoperitoneum", Urgency.URGENT),
        ("edema", Urgency.ACTIONABLE),
        ("nodule", Urgency.ACTIONABLE),
        ("atelectasis", Urgency.NOT_ACTIONABLE),
        ("endotracheal tube", Urgency.NOT_ACTIONABLE),
        ("granuloma", Urgency.BENIGN),
        ("sternal wires", Urgency.BENIGN),
    ],
)
def test_classes_a_radiologist_would_give(name, expected):
    assert urgency(name) is expected


def test_classes_are_ordered_and_the_upper_two_matter():
    assert [level.rank for level in Urgency] == [3, 2, 1, 0]
    assert [level.matters for level in Urgency] == [True, True, False, False]


@every_row(
    ("name", "age", "expected"),
    [
        ("aortic calcification", 39.9, Urgency.ACTIONABLE),
        ("aortic calcification", 40, Urgency.NOT_ACTIONABLE),
        ("aortic calcification", 65, Urgency.BENIGN),
        ("aortic calcification", None, Urgency.NOT_ACTIONABLE),
        ("scoliosis", 12, Urgency.ACTIONABLE),
        ("scoliosis", 18, Urgency.BENIGN),
        ("pneumothorax", 3, Urgency.URGENT),
        ("pneumothorax", 103, Urgency.URGENT),
    ],
)
def test_age_moves_what_is_expected_at_one_age_and_not_at_another(name, age, expected):
    assert urgency(name, age) is expected


def test_age_rules_speak_of_the_vocabulary_change_something_and_do_not_overlap():
    for rule in AGE_RULES:
        assert rule.observation in OBSERVATIONS and rule.least < rule.below
        assert rule.urgency is not CLASSES[rule.observation][0], "a rule that changes nothing is noise"
    for name in {rule.observation for rule in AGE_RULES}:
        spans = sorted((r.least, r.below) for r in AGE_RULES if r.observation == name)
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:], strict=False))
    assert any(rule.below == math.inf for rule in AGE_RULES)


def test_misplaced_tips_are_tips_of_the_vocabulary_and_some_tip_of_each_device_is_in_place():
    for name, tip in MISPLACED:
        assert tip in TIPS[name]
        assert any((name, other) not in MISPLACED for other in TIPS[name])
        assert urgency_of(Finding(name, tip=tip)).matters, "a tip in the wrong place is put right"


def test_degree_rules_concern_graded_observations_and_change_their_class():
    for (name, grade), (level, _) in DEGREE_RULES.items():
        assert OBSERVATIONS[name].graded
        assert level is not CLASSES[name][0]
        assert urgency_of(Finding(name, severity=grade)) is level


def test_a_plain_finding_has_the_class_of_its_observation():
    assert urgency_of(Finding("pleural effusion", severity=Severity.MILD)) is Urgency.ACTIONABLE
    assert urgency_of(Finding("endotracheal tube", tip="above carina")) is Urgency.NOT_ACTIONABLE
    assert urgency_of(Finding("scoliosis", severity=Severity.SEVERE), age=10) is Urgency.ACTIONABLE


def test_an_unknown_observation_is_named():
    with pytest.raises(VocabularyError, match="pneumothorux"):
        urgency("pneumothorux")


@every_row(
    ("name", "indication", "asked"),
    [
        ("central venous catheter", "PICC line placement.", True),
        ("central venous catheter", "Check lines and tubes.", True),
        ("endotracheal tube", "Intubated patient.", True),
        ("endotracheal tube", "General decline; positive tuberculin test.", False),
        ("rib fracture", "Fell at home.", True),
        ("rib fracture", "Fellow of 40 years, chest pain.", False),
        ("nodule", "Smoker, known malignancy.", True),
        ("nodule", "Massive haemorrhage.", False),
        ("pneumonia", "COUGH AND FEVER", True),
        ("pneumonia", None, False),
    ],
)
def test_an_indication_is_found_by_whole_words(name, indication, asked):
    """ "line" stands inside "decline" and "tube" inside "tuberculin"; neither looks for a catheter."""
    assert is_clinical_question(name, indication) is asked


def test_what_the_indication_asks_for_rises_by_one_class_and_never_above_urgent():
    tube = Finding("endotracheal tube", tip="above carina")
    assert urgency_of(tube, indication="Tube placement.") is Urgency.ACTIONABLE
    assert urgency_of(Finding("pneumothorax"), indication="Trauma.") is Urgency.URGENT


@pytest.mark.parametrize(
    ("name", "indication", "expected"),
    [
        ("pneumoperitoneum", "Abdominal pain.", Urgency.URGENT),
        ("pneumoperitoneum", "Day 2 after laparoscopic surgery.", Urgency.ACTIONABLE),
        ("hyperinflation", "Known COPD, cough.", Urgency.BENIGN),
        ("granuloma", "Positive PPD.", Urgency.NOT_ACTIONABLE),
        ("granuloma", "Fall.", Urgency.BENIGN),
    ],
)
def test_what_the_indication_explains_matters_less(name, indication, expected):
    assert urgency_of(Finding(name), indication=indication) is expected


def test_indications_speak_of_the_vocabulary():
    for row in (*CLINICAL_QUESTIONS, *EXPECTED):
        assert set(row.observations) <= set(OBSERVATIONS) and row.observations and row.reason
    assert set(INDICATIONS) == {row.indication for row in (*CLINICAL_QUESTIONS, *EXPECTED)}
    assert all(words and all(word == word.lower() for word in words) for words in INDICATIONS.values())
