from __future__ import annotations

from cxrlab.core.records import Finding, Study
from cxrlab.core.vocabulary import Certainty, Presence
from cxrlab.findings.closed_questions import known_answers, question_about


def test_a_question_has_one_wording() -> None:
    assert question_about("Pleural Effusion") == question_about("pleural effusion")
    assert question_about("pleural effusion") == "Is there evidence of pleural effusion?"


def test_exact_findings_answer_for_everything_that_is_drawn() -> None:
    """Present is yes, absent or unnamed is no, hedged is no answer."""
    findings = (
        Finding("pleural effusion"),
        Finding("pneumothorax", presence=Presence.ABSENT),
        Finding("edema", certainty=Certainty.POSSIBLE),
    )
    answers = known_answers(Study("s", "p", findings=findings))
    assert answers["pleural effusion"] and not answers["pneumothorax"] and not answers["cardiomegaly"]
    assert "edema" not in answers and sum(answers.values()) == 1


def test_labels_answer_where_they_are_certain() -> None:
    """An uncertain or missing label is unknown, never no; 'No Finding' is not a thing on a film."""
    labels = {"Edema": 1, "Pneumonia": -1, "Pleural Effusion": 0, "No Finding": 0}
    assert known_answers(Study("s", "p", labels=labels)) == {"Edema": True, "Pleural Effusion": False}


def test_a_study_without_truth_answers_nothing() -> None:
    assert known_answers(Study("s", "p")) == {}
